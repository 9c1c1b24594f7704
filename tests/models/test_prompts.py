"""Prompts, dense layers and cut vectors: what they do to ids and vectors, and how they are kept."""

import json

import pytest
import torch

from polyrank.errors import ModelError, UsageError
from polyrank.models.base import Model
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.description import fingerprint_of
from polyrank.models.poly_encoder import PolyEncoder
from tiny_encoders import LONG, TEXTS

CPU = {"device": "cpu", "dtype": "float32"}
PROMPTS = {"context_prompt": "how do i: ", "candidate_prompt": "text | "}
DENSE = (
    {"dimension": 12, "bias": True, "activation": "tanh"},
    {"dimension": 7, "bias": False, "activation": "gelu"},
)
DIALOGUE = ["old error", LONG, "what is the last line", "print it"]


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("model_class", [BiEncoder, PolyEncoder])
def test_a_prompt_is_text_before_the_text(encoder_folder, family, model_class):
    plain = model_class.from_pretrained(encoder_folder(family), **CPU)
    model = model_class.from_pretrained(encoder_folder(family), **PROMPTS, **CPU)
    model.load_state_dict(plain.state_dict())
    for ours, theirs, prompt in (
        (model.encode_contexts, plain.encode_contexts, "how do i: "),
        (model.encode_candidates, plain.encode_candidates, "text | "),
    ):
        expected = theirs([prompt + text for text in [*TEXTS, LONG]])
        assert torch.equal(ours([*TEXTS, LONG]), expected)
        assert not torch.allclose(ours(TEXTS), theirs(TEXTS), atol=1e-2)


@pytest.mark.parametrize("model_class", [BiEncoder, PolyEncoder, CrossEncoder])
def test_a_dialogue_that_is_cut_keeps_its_prompt_and_the_newest_turns(bert, model_class):
    lengths = {"max_context_length": 20}
    model = model_class.from_pretrained(bert, **PROMPTS, **lengths, **CPU)
    prompt = model.tokenizer.encode(["how do i: "])[0]
    newest = model.tokenizer.encode(["print it"])[0]
    ids = model.context_ids([DIALOGUE])[0]
    assert len(ids) == 20
    assert ids[1 : 1 + len(prompt)] == prompt
    assert ids[-1 - len(newest) : -1] == newest
    read = model_class.from_pretrained(bert, max_context_length=20 - len(prompt), **CPU)
    assert ids[1 + len(prompt) : -1] == read.context_ids([DIALOGUE])[0][1:-1]


def test_a_cross_encoder_reads_prompts_before_both_texts(bert):
    pairs = [(text, LONG) for text in [*TEXTS, DIALOGUE]]
    for head in ("linear", "interaction"):
        model = CrossEncoder.from_pretrained(bert, head=head, **PROMPTS, **CPU)
        plain = CrossEncoder.from_pretrained(bert, head=head, **CPU)
        plain.load_state_dict(model.state_dict())
        expected = [
            (
                "how do i: " + a if isinstance(a, str) else ["how do i: " + a[0], *a[1:]],
                "text | " + b,
            )
            for a, b in pairs
        ]
        assert torch.equal(model.score_pairs(pairs[:-1]), plain.score_pairs(expected[:-1]))
        assert not torch.allclose(model.score_pairs(pairs), plain.score_pairs(pairs), atol=1e-4)


def test_a_prompt_without_room_for_a_text_is_refused(bert):
    for model_class in (BiEncoder, PolyEncoder, CrossEncoder):
        with pytest.raises(UsageError, match="has 3 tokens, which leaves no room"):
            model_class.from_pretrained(bert, context_prompt="how do i", max_context_length=5)


@pytest.mark.parametrize("model_class", [BiEncoder, PolyEncoder])
@pytest.mark.parametrize("shared", [True, False])
def test_layers_follow_one_another(bert, model_class, shared):
    settings = {"shared_towers": shared, "similarity": "dot", "temperature": 1.0}
    torch.manual_seed(0)
    plain = model_class.from_pretrained(bert, **settings, **CPU)
    model = model_class.from_pretrained(
        bert, dense=DENSE, projection=5, truncate_dim=3, **settings, **CPU
    )
    model.load_state_dict(plain.state_dict(), strict=False)
    assert model.dimension == 3
    for encode, side in (("encode_contexts", "context"), ("encode_candidates", "candidate")):
        side = "context" if shared else side
        first, second = (layer.linear for layer in getattr(model, f"{side}_dense"))
        vectors = getattr(plain, encode)(TEXTS)
        vectors = torch.tanh(vectors @ first.weight.T + first.bias)
        vectors = torch.nn.functional.gelu(vectors @ second.weight.T)
        vectors = (vectors @ getattr(model, f"{side}_projection").weight.T)[..., :3]
        ours = getattr(model, encode)(TEXTS)
        if encode == "encode_contexts" and model_class is PolyEncoder:
            vectors = vectors * ours.ne(0).any(dim=-1, keepdim=True)
        torch.testing.assert_close(ours, vectors, atol=1e-5, rtol=0)


def test_cut_vectors_are_normalised_after_the_cut(bert, tmp_path):
    whole = BiEncoder.from_pretrained(bert, **CPU)
    whole.save_pretrained(tmp_path / "model")
    model = load_model(tmp_path / "model", truncate_dim=8, **CPU)
    vectors = model.encode_candidates(TEXTS)
    expected = torch.nn.functional.normalize(whole.encode_candidates(TEXTS)[:, :8], dim=-1)
    torch.testing.assert_close(vectors, expected)
    assert model.fingerprint() != whole.fingerprint()
    with pytest.raises(UsageError, match="truncate_dim is 33, but the vectors have 32 numbers"):
        load_model(tmp_path / "model", truncate_dim=33)


@pytest.mark.parametrize("model_class", [BiEncoder, PolyEncoder])
def test_the_settings_are_saved_with_the_model(bert, tmp_path, model_class):
    settings = {"pool_prompt": False, "dense": DENSE, "candidate_reduction": "last", **PROMPTS}
    model = model_class.from_pretrained(bert, truncate_dim=4, **settings, **CPU)
    model.save_pretrained(tmp_path / "model")
    again: Model = load_model(tmp_path / "model", **CPU)
    assert again.config == model.config
    assert again.fingerprint() == model.fingerprint() == fingerprint_of(tmp_path / "model")
    assert torch.equal(again.score(TEXTS, TEXTS), model.score(TEXTS, TEXTS))
    other = PolyEncoder if model_class is BiEncoder else BiEncoder
    derived = other.from_pretrained(tmp_path / "model", **CPU)
    assert torch.equal(derived.encode_candidates(TEXTS), model.encode_candidates(TEXTS))
    cross = CrossEncoder.from_pretrained(tmp_path / "model", **CPU)
    assert (cross.config.context_prompt, cross.config.candidate_prompt) == tuple(PROMPTS.values())


def test_each_setting_changes_the_fingerprint(bert):
    plain = BiEncoder.from_pretrained(bert, **CPU).identity()
    for setting in (
        {"context_prompt": "a"},
        {"candidate_prompt": "a"},
        {"pool_prompt": False},
        {"candidate_reduction": "max"},
        {"truncate_dim": 3},
        {"dense": DENSE},
    ):
        (name,) = setting
        assert name not in plain
        assert name in BiEncoder.from_pretrained(bert, **setting, **CPU).identity()


def test_a_damaged_description_of_layers_is_refused(bert, tmp_path):
    BiEncoder.from_pretrained(bert, dense=DENSE, **CPU).save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "polyrank.json"
    described = json.loads(file.read_text())
    for layer, words in (
        ({"dimension": 0}, "dimension must be at least 1"),
        ({"dimension": 3, "activation": "tan"}, "activation is 'tan'"),
        ({"width": 3}, "there is no setting 'width'"),
        (3, "dense must be settings dimension, bias, activation, got 3"),
    ):
        described["settings"]["dense"] = [layer]
        file.write_text(json.dumps(described))
        with pytest.raises(ModelError, match=words):
            load_model(tmp_path / "model")

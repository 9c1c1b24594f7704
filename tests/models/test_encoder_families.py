"""Encoders of every family: padding, gradients, positions, turns, pairs; and the encoders that are
refused. test_families.py compares their vectors with those of sentence-transformers.
"""

import json
from contextlib import nullcontext

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, PreTrainedTokenizerFast, T5Config

from polyrank import (
    BiEncoder,
    CrossEncoder,
    Example,
    ObjectiveConfig,
    PolyEncoder,
    TrainingConfig,
)
from polyrank.errors import ModelError, UsageError
from polyrank.models.backbone import Backbone, load_encoder
from polyrank.models.checkpoint import load_model
from polyrank.tokens.batching import batches
from polyrank.tokens.tokenizer import TextTokenizer
from polyrank.training.encoders import prepare
from polyrank.training.objectives.registry import build
from polyrank.training.step import gradient_step
from tiny_encoders import (
    DECODERS,
    FAMILIES,
    LONG,
    OTHER_FAMILIES,
    POSITIONS,
    TEXTS,
    fast_tokenizer,
)

SOME = [text for text in TEXTS if text]
CAUSAL = ("qwen3", "mistral")
CPU = {"device": "cpu", "dtype": "float32"}


@pytest.mark.parametrize("family", OTHER_FAMILIES)
@pytest.mark.parametrize("reduction", ["last", "mean"])
def test_padding_is_not_seen(family, reduction, encoder_folder):
    model = BiEncoder.from_pretrained(
        encoder_folder(family), shared_towers=True, reduction=reduction, **CPU
    )
    alone = torch.cat([model.encode_candidates([text]) for text in [*SOME, LONG]])
    assert torch.allclose(alone, model.encode_candidates([*SOME, LONG]), atol=1e-5)


@pytest.mark.parametrize("family", [*FAMILIES, *OTHER_FAMILIES])
def test_texts_may_fill_all_positions(family, encoder_folder):
    model = BiEncoder.from_pretrained(
        encoder_folder(family), max_context_length=POSITIONS, shared_towers=True, **CPU
    )
    assert model.context_tower.max_length == POSITIONS
    assert len(model.context_ids([LONG])[0]) == POSITIONS
    assert model.encode_contexts([LONG]).isfinite().all()
    with pytest.raises(UsageError, match="at most 64 tokens"):
        BiEncoder.from_pretrained(encoder_folder(family), max_context_length=POSITIONS + 1)


@pytest.mark.parametrize("family", OTHER_FAMILIES)
@pytest.mark.parametrize("model_class", [BiEncoder, PolyEncoder, CrossEncoder])
def test_a_step_of_training_reaches_every_layer(family, model_class, encoder_folder, tmp_path):
    torch.manual_seed(0)
    model = model_class.from_pretrained(encoder_folder(family), **CPU)
    records = [
        Example(context=f"what is {word}", response=f"a list of {word}", negatives=("the disk",))
        for word in ("file", "line", "sound", "kernel")
    ]
    config = TrainingConfig(num_negatives=1)
    prepare(model, config)
    setup = build(model, records, config, ObjectiveConfig())
    setup.module.train()
    step = setup.collator([setup.dataset[place] for place in range(4)])
    loss = gradient_step(setup.module, step, autocast=nullcontext)
    assert loss > 0
    for number in range(2):
        layer = [
            (n, p) for n, p in model.named_parameters() if f".{number}." in n and "head" not in n
        ]
        assert layer
        reached = [name for name, p in layer if p.grad is not None and p.grad.abs().max() > 0]
        assert len(reached) > 0.8 * len(layer)  # a bias of keys changes no softmax
    model.save_pretrained(tmp_path / "saved")
    saved = load_model(tmp_path / "saved", **CPU)
    assert saved.fingerprint() == model.fingerprint()
    assert torch.equal(saved.score(SOME[:2], SOME[:3]), model.eval().score(SOME[:2], SOME[:3]))


@pytest.mark.parametrize("family", ["modernbert", *OTHER_FAMILIES])
def test_bfloat16_keeps_the_angles_of_rotary_positions(family, encoder_folder):
    found = {}
    for dtype in ("float32", "bfloat16"):
        model = BiEncoder.from_pretrained(
            encoder_folder(family), device="cpu", dtype=dtype, shared_towers=True
        )
        tower = model.for_inference("context_tower")
        found[dtype] = {
            name: value for name, value in tower.named_buffers() if value.is_floating_point()
        }
    for name, value in found["float32"].items():
        assert torch.equal(found["bfloat16"][name], value), name


@pytest.mark.parametrize("family", DECODERS)
def test_nothing_is_kept_for_later_tokens(family, encoder_folder):
    tower = Backbone(load_encoder(encoder_folder(family)))
    kept = []
    tower.encoder.register_forward_hook(
        lambda _, __, output: kept.append(output.get("past_key_values"))
    )
    tower(batches([[5, 6, 7]], 0)[0])
    assert kept == [None]
    assert tower.is_causal == (family in CAUSAL)


@pytest.mark.parametrize("family", CAUSAL)
def test_an_encoder_that_reads_forwards_cannot_be_reduced_to_its_first_output(
    family, encoder_folder
):
    folder = encoder_folder(family)
    for model_class in (BiEncoder, CrossEncoder):
        with pytest.raises(UsageError, match="reads forwards only"):
            model_class.from_pretrained(folder, reduction="first")
    with pytest.raises(UsageError, match="candidate_reduction is first"):
        BiEncoder.from_pretrained(folder, candidate_reduction="first")
    cross = CrossEncoder.from_pretrained(folder, **CPU)
    assert cross.config.reduction == "last"
    with torch.no_grad():
        cross.head.out.weight.normal_(std=1.0)
    assert cross.score("how do i", SOME).unique().numel() == len(SOME)


def test_an_encoder_that_reads_both_ways_keeps_its_first_output(encoder_folder):
    assert CrossEncoder.from_pretrained(encoder_folder("gemma3")).config.reduction == "first"


def test_two_texts_of_a_pair_are_kept_apart(encoder_folder):
    model = CrossEncoder.from_pretrained(encoder_folder("qwen3"), **CPU)
    ids, _ = model.encode_pairs(["hello"], ["thanks"])
    texts = TextTokenizer(fast_tokenizer("qwen3"))
    first, second = texts.encode(["hello", "thanks"])
    (end,) = texts.encode(["</s>"])
    assert ids == [[*first, *end, *second, texts.pretrained.convert_tokens_to_ids("<|end|>")]]


def bare_tokenizer(**special):
    """A tokeniser of a decoder that names only some special tokens."""
    backend = fast_tokenizer("qwen3").backend_tokenizer
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def test_turns_are_joined_by_the_end_of_a_text_or_a_new_line():
    for special, text in (({"eos_token": "</s>"}, "</s>"), ({}, "\n")):
        texts = TextTokenizer(bare_tokenizer(**special))
        parts = texts.encode(["hello", text, "thanks"])
        joined = [token for part in parts for token in part]
        assert texts.encode_turns([["hello", "thanks"]]) == [joined]
        assert joined != texts.encode(["hellothanks"])[0]


def test_padding_without_a_token_of_its_own(tmp_path, encoder_folder):
    texts = TextTokenizer(bare_tokenizer(eos_token="</s>"))
    assert texts.pad_id == texts.pretrained.eos_token_id
    assert TextTokenizer(bare_tokenizer()).pad_id == 0
    folder = tmp_path / "bare"
    load_encoder(encoder_folder("qwen3")).save_pretrained(folder)
    bare_tokenizer().save_pretrained(folder)
    model = BiEncoder.from_pretrained(folder, reduction="last", **CPU)
    together = model.encode_contexts(SOME)
    assert torch.allclose(
        together, torch.stack([model.encode_contexts(text) for text in SOME]), atol=1e-5
    )


def test_a_language_model_gives_its_encoder(encoder_folder, tmp_path):
    config = load_encoder(encoder_folder("qwen3")).config
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    fast_tokenizer("qwen3").save_pretrained(tmp_path)
    model = BiEncoder.from_pretrained(tmp_path, reduction="last", **CPU)
    assert model.encode_contexts(SOME).isfinite().all()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"auto_map": {"AutoModel": "modeling.NewModel"}}, "Python code of its own"),
        ({"auto_map": {"AutoConfig": "a.B"}, "model_type": "nova"}, "Python code of its own"),
        ({"vision_config": {}, "text_config": {}}, "reads more than texts"),
        ({**T5Config(d_model=8).to_dict()}, "an encoder with a decoder"),
    ],
)
def test_what_is_no_encoder_of_texts_is_refused(own_bert, change, said):
    path = own_bert / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    for call in (BiEncoder.from_pretrained, CrossEncoder.from_pretrained):
        with pytest.raises(ModelError, match=said) as caught:
            call(own_bert)
        assert caught.value.remedy


@pytest.mark.parametrize("family", DECODERS)
def test_layers_of_decoders_can_be_frozen_and_scaled(family, encoder_folder):
    model = BiEncoder.from_pretrained(encoder_folder(family), shared_towers=True, **CPU)
    ids = {"input_ids": torch.tensor([[5, 6, 7]])}
    plain = model.context_tower(ids)
    prepare(model, TrainingConfig(trainable="top", rescale_last_layer=0.5))
    assert torch.allclose(model.context_tower(ids), plain * 0.5, atol=1e-5)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert any(".layers.1." in name for name in trained)
    assert not any(".layers.0." in name for name in trained)


def test_gpt2_is_recognised_as_reading_forwards(tmp_path):
    config = GPT2Config(vocab_size=600, n_embd=32, n_layer=1, n_head=2, n_positions=POSITIONS)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    fast_tokenizer("qwen3").save_pretrained(tmp_path)
    tower = Backbone(load_encoder(tmp_path))
    assert tower.is_causal
    assert tower.max_length == POSITIONS

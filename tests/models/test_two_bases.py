"""Models whose two sides have encoders of different size, kind and vocabulary."""

import json

import pytest
import torch
from torch import nn

from packaged_models import PROMPTS, save_packaged
from polyrank import BiEncoder, CrossEncoder, Index, PolyEncoder
from polyrank.cli.main import commands, run
from polyrank.errors import UsageError
from polyrank.interop.graphs.tracing import graph_files
from polyrank.models.checkpoint import load_model
from polyrank.models.description import fingerprint_of
from tiny_encoders import LONG, POSITIONS, TEXTS, WIDTH

DIALOGUES = [["hello", "how do i read a file"], ["thanks"], TEXTS[4]]
PROJECTION = 24


def made(model_class, context, candidate, **settings):
    torch.manual_seed(3)
    given = {"projection": PROJECTION, "device": "cpu", "dtype": "float32"} | settings
    return model_class.from_pretrained(context, candidate_base=candidate, **given)


@pytest.mark.parametrize("model_class", [BiEncoder, PolyEncoder])
def test_each_side_is_read_by_its_own_encoder(model_class, bert, wide):
    model = made(model_class, bert, wide)
    alone = BiEncoder.from_pretrained(
        wide, projection=PROJECTION, shared_towers=True, device="cpu", dtype="float32"
    )
    with torch.no_grad():
        alone.context_projection.weight.copy_(model.candidate_projection.weight)
    texts = [*TEXTS, LONG]
    expected = alone.encode_candidates(texts)
    assert torch.allclose(model.encode_candidates(texts), expected, atol=1e-6)
    contexts = BiEncoder.from_pretrained(
        bert, projection=PROJECTION, shared_towers=True, device="cpu", dtype="float32"
    )
    if model_class is BiEncoder:
        with torch.no_grad():
            contexts.context_projection.weight.copy_(model.context_projection.weight)
        expected = contexts.encode_contexts(DIALOGUES)
        assert torch.allclose(model.encode_contexts(DIALOGUES), expected, atol=1e-6)
    else:
        assert model.codes.shape[1] == WIDTH  # the codes attend over the contexts' outputs


def test_each_side_has_the_limit_of_its_encoder(bert, wide):
    model = made(BiEncoder, bert, wide)
    assert model.config.max_context_length == POSITIONS
    assert model.config.max_candidate_length == POSITIONS // 2
    assert max(map(len, model.candidate_ids([LONG]))) == POSITIONS // 2
    with pytest.raises(UsageError, match="max_candidate_length is 60"):
        made(BiEncoder, bert, wide, max_candidate_length=60)


@pytest.mark.parametrize("model_class", [BiEncoder, PolyEncoder])
@pytest.mark.parametrize("trainable", [True, False])
def test_a_saved_model_is_the_same(model_class, trainable, bert, wide, tmp_path):
    model = made(model_class, bert, wide)
    model.save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model/candidate_backbone/config.json").read_text())
    assert config["model_type"] == "roberta"
    again = load_model(tmp_path / "model", device="cpu", dtype="float32", trainable=trainable)
    assert torch.equal(again.score(DIALOGUES, TEXTS), model.score(DIALOGUES, TEXTS))
    assert again.fingerprint() == model.fingerprint() == fingerprint_of(tmp_path / "model")
    again.save_pretrained(tmp_path / "again")
    third = model_class.from_pretrained(tmp_path / "again", device="cpu", dtype="float32")
    assert torch.equal(third.score(DIALOGUES, TEXTS), model.score(DIALOGUES, TEXTS))


def test_other_architectures_start_from_its_encoders(bert, wide, tmp_path):
    model = made(BiEncoder, bert, wide)
    model.save_pretrained(tmp_path / "model")
    poly = PolyEncoder.from_pretrained(tmp_path / "model", device="cpu", dtype="float32")
    assert torch.equal(poly.encode_candidates(TEXTS), model.encode_candidates(TEXTS))
    for head in ("linear", "interaction"):
        cross = CrossEncoder.from_pretrained(tmp_path / "model", head=head, device="cpu")
        own = model.context_tower.state_dict()
        for tower in cross.towers:
            assert all(torch.equal(own[k], v) for k, v in tower.state_dict().items())
    with pytest.raises(UsageError, match="shared_towers"):
        PolyEncoder.from_pretrained(tmp_path / "model", shared_towers=True)


def test_saved_models_give_the_encoder_of_each_side(bert, wide, tmp_path):
    made(BiEncoder, bert, wide).save_pretrained(tmp_path / "one")
    model = made(BiEncoder, wide, tmp_path / "one")  # its candidate encoder is the wide one
    towers = model.context_tower.state_dict(), model.candidate_tower.state_dict()
    assert all(torch.equal(towers[0][name], value) for name, value in towers[1].items())
    swapped = made(BiEncoder, tmp_path / "one", bert)
    towers = swapped.context_tower.state_dict(), swapped.candidate_tower.state_dict()
    assert all(torch.equal(towers[0][name], value) for name, value in towers[1].items())


def test_the_same_base_twice_is_an_ordinary_model(bert):
    model = made(BiEncoder, bert, bert)
    assert not model.has_two_bases
    assert model.config.shared_towers is False


def test_an_index_of_it_is_searched(bert, wide, tmp_path):
    model = made(PolyEncoder, bert, wide)
    model.save_pretrained(tmp_path / "model")
    texts = [text for text in TEXTS if text]
    index = Index.build(model, texts, tmp_path / "index")
    scores = model.score(DIALOGUES, texts)
    for found, row in zip(index.search(DIALOGUES, top_k=3), scores, strict=True):
        assert [hit.score for hit in found] == pytest.approx(row.topk(3).values.tolist(), abs=1e-5)
    again = Index.open(tmp_path / "index")
    assert again.search(DIALOGUES, top_k=3)[0][0].id == index.search(DIALOGUES, top_k=3)[0][0].id


def test_models_of_sentence_transformers_keep_their_pooling_and_prompts(
    bert, encoder_folder, tmp_path
):
    library = pytest.importorskip("sentence_transformers")
    kinds = {"prompts": PROMPTS, "mode": "cls", "length": 20}
    one = save_packaged(bert, tmp_path / "one", **kinds)
    other = encoder_folder("distilbert")
    two = save_packaged(other, tmp_path / "two", **(kinds | {"mode": "max", "length": 24}))
    model = made(BiEncoder, one, two, projection=None)
    texts = [*TEXTS, LONG]
    for side, folder, ours in (
        ("query", one, model.encode_contexts(texts)),
        ("document", two, model.encode_candidates(texts)),
    ):
        theirs = library.SentenceTransformer(str(folder), device="cpu")
        expected = getattr(theirs, f"encode_{side}")(texts, convert_to_tensor=True)
        assert (ours * expected).sum(dim=1).min() > 1 - 1e-5
    apart = save_packaged(other, tmp_path / "apart", include_prompt=False, **kinds)
    with pytest.raises(UsageError, match="pool_prompt = True and pool_prompt = False"):
        made(BiEncoder, one, apart)
    assert made(BiEncoder, one, apart, pool_prompt=True).config.pool_prompt
    layered = save_packaged(other, tmp_path / "layered", layers=[(8, True, nn.Tanh())])
    with pytest.raises(UsageError, match="dense layers above its encoder"):
        made(BiEncoder, one, layered)


@pytest.mark.parametrize("swapped", [False, True])
def test_exported_graphs_are_traced_on_the_tokens_of_each_side(bert, wide, swapped):
    model = made(PolyEncoder, *((wide, bert) if swapped else (bert, wide)))
    for graph in graph_files(model):
        vectors = graph.module(*graph.example)[0]
        assert vectors.shape[-1] == PROJECTION
        assert vectors.isfinite().all()


def test_info_shows_both_encoders(bert, wide, tmp_path, capsys):
    made(BiEncoder, bert, wide).save_pretrained(tmp_path / "model")
    assert run(["info", str(tmp_path / "model"), "--json"], commands()) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["encoder"]["type"] == "bert"
    assert (
        facts["candidate_encoder"] | {"type": "roberta", "width": 48} == facts["candidate_encoder"]
    )


def test_what_cannot_be_joined_is_refused(bert, wide, tmp_path):
    with pytest.raises(UsageError, match=r"vectors of 32 .* 48"):
        made(BiEncoder, bert, wide, projection=None)
    with pytest.raises(UsageError, match="cross-encoder"):
        CrossEncoder.from_pretrained(bert, candidate_base=wide)
    with pytest.raises(UsageError, match="exclude each other"):
        made(BiEncoder, bert, wide, shared_towers=True)
    words = tmp_path / "words.txt"
    words.write_text("the 1 2 3\nfile 4 5 6\n")
    with pytest.raises(UsageError, match="static embeddings"):
        made(BiEncoder, bert, words)

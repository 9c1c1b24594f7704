"""Models to the hub and back: a stand-in on this machine answers huggingface_hub's own client."""

import json
import shutil
import threading

import pytest
import torch
from huggingface_hub import ModelCard, constants
from huggingface_hub.errors import HFValidationError, LocalTokenNotFoundError

import hub_server
from polyrank.errors import StorageError, UsageError
from polyrank.models.checkpoint import load_model
from polyrank.models.hub import publishing
from polyrank.models.hub.card import base_on_hub, data_on_hub, languages_of, results_of
from polyrank.retrieval.index import Index
from tiny_encoders import TEXTS, VARIANTS, load_variant

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # its client's
CPU = {"device": "cpu", "dtype": "float32"}


def pushed(hub, name, revision="main"):
    """The files of a repository."""
    repository = hub.repositories[name]
    return repository.commits[repository.resolve(revision)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_pushed_loads_by_its_id_as_the_same_model(variant, bert, hub):
    model = load_variant(variant, bert)
    address = model.push_to_hub("me/mine", token="secret")
    assert address == f"{hub.address}/me/mine"
    assert set(pushed(hub, "me/mine")) == {
        "README.md",
        "polyrank.json",
        "model.safetensors",
        "backbone/config.json",
        "backbone/tokenizer.json",
        "backbone/tokenizer_config.json",
    }
    hub.log.clear()
    again = load_model("me/mine", **CPU)
    assert again.fingerprint() == model.fingerprint()
    assert torch.equal(again.score(TEXTS, TEXTS), model.score(TEXTS, TEXTS))
    assert set(hub.fetched()) == pushed(hub, "me/mine").keys() - {"README.md"}
    assert model.path == bert.absolute()  # which the upload leaves alone


def test_the_card_has_metadata_that_the_hub_reads(bert, hub):
    hub.add("some/encoder", bert)
    model = VARIANTS["poly-learnt"][0].from_pretrained("some/encoder", **CPU)
    model.push_to_hub("me/mine", token="secret")
    text = pushed(hub, "me/mine")["README.md"].decode()
    card = ModelCard(text)
    assert card.data.to_dict() == {
        "base_model": "some/encoder",
        "library_name": "polyrank",
        "pipeline_tag": "sentence-similarity",
        "tags": ["polyrank", "poly-encoder"],
    }
    assert 'PolyEncoder.from_pretrained("me/mine")' in card.text
    assert set(hub.validated) == {text}
    sent = zip(hub.log, hub.tokens, strict=True)
    assert {token for line, token in sent if line.startswith("POST /api/models")} == {
        "Bearer secret"
    }


def test_the_card_of_a_trained_model_goes_with_it(bert, hub, tmp_path):
    model = load_variant("bi", bert)
    card = 'Trained.\n\nmodel = BiEncoder.from_pretrained("path/to/this/folder")\n'
    model.save_pretrained(tmp_path / "saved", extra={"README.md": card, "training.json": "{}"})
    (tmp_path / "saved" / "notes.txt").write_text("mine")
    model.push_to_hub("me/mine", revision="second", commit_message="Better", token="secret")
    files = pushed(hub, "me/mine", "second")
    assert files["README.md"].decode() == card.replace("path/to/this/folder", "me/mine")
    assert files["training.json"] == b"{}"
    assert "notes.txt" not in files
    assert pushed(hub, "me/mine") == {}
    found = load_model("me/mine", revision="second", **CPU)
    assert found.fingerprint() == model.fingerprint()
    assert hub.messages == ["Better"]


def test_the_readme_of_another_model_does_not_go_with_it(own_bert, hub):
    (own_bert / "README.md").write_text("The encoder of somebody else.")
    load_variant("bi", own_bert).push_to_hub("me/mine", token="secret")
    assert b"somebody else" not in pushed(hub, "me/mine")["README.md"]


def test_a_private_repository_and_a_second_push(bert, hub):
    model = load_variant("bi", bert)
    model.push_to_hub("me/mine", private=True, token="secret")
    assert hub.private == {"me/mine"}
    first = hub.repositories["me/mine"].branches["main"]
    other = load_variant("bi", bert, temperature=2.0)
    other.push_to_hub("me/mine", token="secret")
    found = load_model("me/mine", token="secret", **CPU)
    assert found.fingerprint() == other.fingerprint()
    found = load_model("me/mine", revision=first, token="secret", **CPU)
    assert found.fingerprint() == model.fingerprint()


def test_an_index_of_a_model_of_the_hub(bert, hub, tmp_path):
    load_variant("poly-learnt", bert).push_to_hub("me/mine", token="secret")
    model = load_model("me/mine", **CPU)
    index = Index.build(model, TEXTS, tmp_path / "index")
    expected = index.search(TEXTS[:2], top_k=3)
    shutil.rmtree(constants.HF_HUB_CACHE)
    assert Index.open(tmp_path / "index", **CPU).search(TEXTS[:2], top_k=3) == expected  # its copy
    opened = Index.open(tmp_path / "index", load_model("me/mine", **CPU))
    assert opened.search(TEXTS[:2], top_k=3) == expected
    with pytest.raises(UsageError, match="was not loaded from a folder, so the index cannot"):
        Index.build(model, TEXTS, tmp_path / "other", copy_model=False)


def test_what_the_hub_knows_is_named_by_its_id(tmp_path):
    assert base_on_hub(None) is None
    assert base_on_hub("all-MiniLM-L6-v2") == "sentence-transformers/all-MiniLM-L6-v2"
    assert base_on_hub(str(tmp_path)) is None
    record = {"provenance": {"base": "some/encoder"}}
    (tmp_path / "training.json").write_text(json.dumps(record))
    assert base_on_hub(str(tmp_path)) == "some/encoder"
    (tmp_path / "training.json").write_text(json.dumps({"provenance": {"base": str(tmp_path)}}))
    assert base_on_hub(str(tmp_path)) is None
    names = ["hub:some/data:train", "faq.csv", None, "hub:some/data:en:dev", "hub:other/data"]
    assert data_on_hub(names) == ["some/data", "other/data"]
    assert data_on_hub(["faq.csv"]) is None
    assert languages_of(["de", "en-GB", "und", "unknown", "de"]) == ["de", "en"]
    assert languages_of([]) is None


def test_results_of_the_hub(bert):
    model = load_variant("bi", bert)
    [result] = results_of(model, {"recall@1": 0.123456}, "hub:some/data:en:dev")
    assert (result.dataset_type, result.dataset_config, result.dataset_split) == (
        "some/data",
        "en",
        "dev",
    )
    assert (result.metric_type, result.metric_value) == ("recall@1", 0.1235)
    [result] = results_of(model, {"mrr": 0.5}, "held out from /home/someone/faq.csv")
    assert (result.dataset_type, result.dataset_name) == ("unknown", "held out from faq.csv")
    assert results_of(model, {}, "faq.csv") is None


def test_a_card_that_the_hub_does_not_take(bert, hub, tmp_path):
    model = load_variant("bi", bert)
    model.save_pretrained(tmp_path / "saved", extra={"README.md": "---\ntags: [a\n---\n# Mine"})
    hub.invalid = "YAML is not valid"
    with pytest.raises(UsageError, match=r"does not take the card .* Mend the metadata between"):
        model.push_to_hub("me/mine", token="secret")
    assert pushed(hub, "me/mine") == {}


@pytest.mark.parametrize("step", ["create_repo", "upload_folder"])
@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (LocalTokenNotFoundError("x"), UsageError, "token that allows it. Log in with `hf auth"),
        (HFValidationError("x"), UsageError, "'me/mine' is not the id of a repository"),
        (ConnectionError("x"), StorageError, "the hub cannot be reached. Check the connection"),
        (RuntimeError("x"), StorageError, "the hub cannot be reached. Check the connection"),
    ],
)
def test_what_goes_wrong_is_said_in_two_sentences(bert, hub, step, error, kind, words, monkeypatch):
    def fail(*arguments, **settings):
        raise error

    monkeypatch.setattr(f"huggingface_hub.HfApi.{step}", fail)
    with pytest.raises(kind, match=words):
        load_variant("bi", bert).push_to_hub("me/mine", token="secret")


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (401, UsageError, "token that allows it. Log in with `hf auth login`"),
        (403, UsageError, "token that allows it. Log in with `hf auth login`"),
        (500, StorageError, "'me/mine': the hub answers with 500. Check the connection"),
    ],
)
def test_what_the_hub_answers_is_told_apart(bert, hub, status, kind, words):
    hub.status = status
    with pytest.raises(kind, match=words):
        load_variant("bi", bert).push_to_hub("me/mine", token="secret")


def test_an_id_that_cannot_be(bert, hub):
    with pytest.raises(UsageError, match="'a/b/c' is not the id of a repository on the hub"):
        load_variant("bi", bert).push_to_hub("a/b/c", token="secret")
    assert hub.log == []


def test_without_a_token(bert, hub):
    with pytest.raises(UsageError, match=r"without a token that allows it\. Log in"):
        load_variant("bi", bert).push_to_hub("me/mine")


def test_a_hub_that_does_not_answer(bert, hub, monkeypatch):
    hub.silence = threading.Event()
    monkeypatch.setattr(publishing, "TIMEOUT", 0.2)
    with pytest.raises(StorageError, match="the hub does not answer within"):
        load_variant("bi", bert).push_to_hub("me/mine", token="secret")


def test_no_network(bert, hub, monkeypatch, tmp_path):
    hub.address = "http://127.0.0.1:9"  # discard: nothing listens there
    hub_server.connect(hub, tmp_path / "cache", monkeypatch)
    with pytest.raises(StorageError, match="the hub cannot be reached"):
        load_variant("bi", bert).push_to_hub("me/mine", token="secret")


def test_offline_nothing_is_sent(bert):
    """The hub is switched off in all tests."""
    with pytest.raises(StorageError, match="the hub cannot be reached"):
        load_variant("bi", bert).push_to_hub("me/mine", token="secret")

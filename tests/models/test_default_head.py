import json

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertForSequenceClassification,
    RobertaForSequenceClassification,
)

from polyrank.errors import UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.cross_encoder import CrossEncoder
from tiny_encoders import TEXTS, config_of, load_variant, tokenizer_of

CPU = {"device": "cpu", "dtype": "float32"}
CONTEXT = "how do i install the driver"
RERANKERS = {"bert": BertForSequenceClassification, "roberta": RobertaForSequenceClassification}


def saved_settings(model, folder):
    model.save_pretrained(folder)
    return json.loads((folder / "polyrank.json").read_text())["settings"]


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("bert", "interaction"),
        ("electra", "interaction"),
        ("roberta", "interaction"),
        ("distilbert", "linear"),
        ("modernbert", "interaction"),
    ],
)
def test_every_encoder_gets_a_head_that_ranks(family, head, encoder_folder, tmp_path):
    model = CrossEncoder.from_pretrained(encoder_folder(family), **CPU)
    assert model.config.head == head
    assert model.config.reading == ("once" if head == "interaction" else "pairs")
    assert model.config.shared_towers is (head != "interaction")
    assert saved_settings(model, tmp_path / "model")["head"] == head  # never auto
    again = load_model(tmp_path / "model", **CPU)
    assert torch.equal(again.score(CONTEXT, TEXTS), model.score(CONTEXT, TEXTS))


def test_encoders_that_read_pairs_apart_are_fewer(bert, encoder_folder):
    for folder, head in ((bert, "interaction"), (encoder_folder("modernbert"), "linear")):
        model = CrossEncoder.from_pretrained(folder, reading="pairs", **CPU)
        assert (model.config.head, model.config.reading) == (head, "pairs")


@pytest.mark.parametrize("task", ["classify", "regress"])
def test_classes_and_values_get_a_linear_head(task, bert):
    assert CrossEncoder.from_pretrained(bert, task=task, **CPU).config.head == "linear"


def test_from_a_bi_encoder_texts_are_compared_as_it_reads_them(bert, tmp_path):
    load_variant("bi", bert).save_pretrained(tmp_path / "bi")
    assert CrossEncoder.from_pretrained(tmp_path / "bi", **CPU).config.head == "interaction"


@pytest.mark.parametrize("reading", ["pairs", "once"])
@pytest.mark.parametrize("given", [{}, {"head": "auto", "reading": "auto"}])
def test_a_saved_cross_encoder_keeps_its_head_and_reading(given, reading, bert, tmp_path):
    for head in ("linear", "pooler", "interaction"):
        load_variant("cross", bert, head=head, reading=reading).save_pretrained(tmp_path / head)
        again = CrossEncoder.from_pretrained(tmp_path / head, **CPU, **given)
        assert (again.config.head, again.config.reading) == (head, reading)


def test_two_towers_need_an_encoder_that_reads_apart(encoder_folder):
    with pytest.raises(UsageError, match="shared_towers must be true with head = linear"):
        CrossEncoder.from_pretrained(encoder_folder("distilbert"), shared_towers=False)


def reranker(family, folder, labels=1):
    """A reranker as `transformers` saves it."""
    tokenizer = tokenizer_of(family)
    config = config_of(family, len(tokenizer))
    config.num_labels = labels
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = RERANKERS[family](config)
        for parameter in model.classifier.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", RERANKERS)
def test_a_published_reranker_keeps_its_scores(family, tmp_path):
    folder = reranker(family, tmp_path / "reranker")
    lengths = {"max_context_length": 16, "max_candidate_length": 44}
    model = CrossEncoder.from_pretrained(folder, **CPU, **lengths)
    assert model.config.head == "pooler"
    peer = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    for text in TEXTS:
        inputs = model.tokenizer.pretrained([CONTEXT], [text], return_tensors="pt")
        with torch.no_grad():
            expected = peer(**inputs).logits[0]
        torch.testing.assert_close(model.score(CONTEXT, [text]), expected, atol=2e-5, rtol=0)
    loaded = load_model(folder, **CPU, **lengths)
    assert isinstance(loaded, CrossEncoder)
    assert torch.equal(loaded.score(CONTEXT, TEXTS), model.score(CONTEXT, TEXTS))


def test_a_reranker_may_get_another_head(tmp_path):
    folder = reranker("bert", tmp_path / "reranker")
    for head in ("linear", "interaction"):
        assert CrossEncoder.from_pretrained(folder, head=head, **CPU).config.head == head
    assert CrossEncoder.from_pretrained(folder, task="regress", **CPU).config.head == "linear"
    assert BiEncoder.from_pretrained(folder, **CPU).rank(CONTEXT, TEXTS)


def test_a_model_of_several_classes_can_learn_to_rank(tmp_path):
    folder = reranker("bert", tmp_path / "classes", labels=3)
    assert CrossEncoder.from_pretrained(folder, task="rank", **CPU).config.head == "interaction"

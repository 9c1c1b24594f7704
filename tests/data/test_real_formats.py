"""Public data sets as they are released, where they lie in the folder POLYRANK_REAL_DATA."""

import os
from collections import Counter
from pathlib import Path

import pytest

from polyrank.data.loading import detect, load_examples, load_records
from polyrank.records import RetrievalSet

REAL = os.environ.get("POLYRANK_REAL_DATA", "")
pytestmark = pytest.mark.skipif(not REAL, reason="POLYRANK_REAL_DATA names no folder")


def real(name):
    path = Path(REAL) / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


@pytest.mark.parametrize(
    "name", ["ubuntu_irc/dev.jsonl.xz", "sgd/dev.jsonl.xz", "korean_chatbot/dev.jsonl.xz"]
)
def test_dialogues_with_twenty_candidates(name):
    examples = load_records(real(name), format="examples")
    assert {len(example.candidates) for example in examples} == {20}
    assert all(example.candidates[example.gold] == example.response for example in examples)
    assert detect(real(name)) == "examples"


def test_training_dialogues_have_ids_of_their_own():
    assert len(load_examples(real("ubuntu_irc/train.jsonl.xz"))) == 50_632


def test_korsts():
    pairs = load_examples(real("korsts_kornli/sts-train.jsonl.xz"))
    assert len(pairs) == 5_749
    assert {pair.label for pair in pairs} >= {0.0, 1.0, 0.76}
    assert detect(real("korsts_kornli/sts-dev.jsonl.xz")) == "sts"


def test_kornli():
    pairs = load_examples(real("korsts_kornli/xnli.dev.ko.jsonl.xz"))
    assert Counter(pair.label for pair in pairs) == {0: 830, 1: 830, 2: 830}


@pytest.mark.parametrize(
    ("name", "documents", "queries", "split"),
    [("scifact", 5_183, 300, "test"), ("squad_sentences", 6_795, 10_570, "dev")],
)
def test_beir_folders(name, documents, queries, split):
    found = load_records(real(name))
    assert isinstance(found, RetrievalSet)
    assert (len(found.corpus), len(found.queries), found.split) == (documents, queries, split)
    assert found.queries.keys() == found.judgements.keys()


def test_claims_to_train_on():
    examples = load_examples(real("scifact"))
    assert len({example.context for example in examples}) <= 809
    assert all(example.response for example in examples)


def test_questions_by_intent():
    columns = {"context": "text", "response": "category"}
    examples = load_examples(real("banking77/train.csv.xz"), columns=columns)
    assert len(examples) == 10_003
    assert len({example.response for example in examples}) == 77

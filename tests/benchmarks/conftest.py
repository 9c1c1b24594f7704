"""A small set in parts, a ledger, and a run that a tiny encoder can make."""

import pytest
from benchmarks.ledger import Ledger
from benchmarks.parts import Parts, with_drawn_candidates
from benchmarks.runs import Plan
from protocol_data import TRAINING

from benchmarks import runs
from polyrank.data.examples import write_examples
from polyrank.records import Example
from tiny_encoders import WORDS


@pytest.fixture(autouse=True)
def own_defaults(tmp_path, monkeypatch):
    """Runs of tests leave the committed defaults as they are."""
    copy = tmp_path / "defaults" / "protocol-defaults.json"
    copy.parent.mkdir()
    copy.write_bytes(runs.DEFAULTS.read_bytes())
    monkeypatch.setattr(runs, "DEFAULTS", copy)


@pytest.fixture
def work(tmp_path):
    """A folder with the parts of a small set."""
    examples = [
        Example(id=f"{number}", context=word, response=f"{word} is {number}")
        for number, word in enumerate(WORDS[:48])
    ]
    asked = with_drawn_candidates(examples, examples)
    made = Parts(train=examples, choose=asked[:24], dev=asked[24:])
    for part, own in vars(made).items():
        write_examples(tmp_path / "parts" / "sgd" / f"{part}.jsonl", own)
    return tmp_path


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.json")


@pytest.fixture
def plan(bert):
    return Plan(
        set="sgd",
        arch="bi",
        name="small",
        training=TRAINING,
        base=str(bert),
        device="cpu",
    )

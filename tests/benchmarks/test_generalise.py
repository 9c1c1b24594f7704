"""Measurement on sets of other kinds: what is right, and which models lose to their base."""

import csv
import dataclasses
import io
import lzma
from itertools import product

import numpy as np
import pytest
from benchmarks.generalise import LENGTHS, MEASURES, Elsewhere, banking, suits
from benchmarks.ledger import Entry, Ledger, Recipe, packed
from benchmarks.ledger_tables import report
from test_parts import write_lines

from benchmarks import protocol
from tiny_encoders import WORDS, load_variant

pytest.importorskip("ir_measures")
INTENTS = ("card", "cash", "fees")


def write_table(path, rows):
    text = io.StringIO()
    csv.writer(text).writerows([("text", "category"), *rows])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text.getvalue().encode()))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Small sets in the form of the real ones; every test question of the bank was asked before."""
    folder = tmp_path_factory.mktemp("other")
    asked = [(f"{word} {number}", INTENTS[number % 3]) for number, word in enumerate(WORDS[:30])]
    write_table(folder / "banking77/train.csv.xz", asked)
    write_table(folder / "banking77/test.csv.xz", asked[:12])
    replies = [f"{word} is here" for word in WORDS[:20]]
    dev = [
        {"id": f"{n}", "context": [w], "response": replies[n], "candidates": replies, "gold": n}
        for n, w in enumerate(WORDS[:8])
    ]
    write_lines(folder / "sgd/dev.jsonl.xz", dev)
    own = folder / "scifact"
    abstracts = [{"_id": f"{n}", "title": w, "text": f"{w} {n}"} for n, w in enumerate(WORDS[:40])]
    write_lines(own / "corpus.jsonl.xz", abstracts)
    write_lines(own / "queries.jsonl.xz", [{"_id": f"q{n}", "text": WORDS[n]} for n in range(6)])
    (own / "qrels").mkdir()
    judged = ["query-id\tcorpus-id\tscore", *(f"q{n}\t{n}\t1" for n in range(6))]
    (own / "qrels/test.tsv").write_text("\n".join(judged) + "\n")
    return folder


@pytest.mark.parametrize("variant", ["bi", "poly-learnt", "cross"])
def test_every_architecture_is_measured_where_it_can_be(data, tmp_path, bert, variant):
    model = load_variant(variant, bert)
    sets = Elsewhere(data=data, work=tmp_path, base=bert)
    counts = {"sgd": 8, "banking77": 12, "scifact": 6, "scifact-bm25": 6, "scifact-base": 6}
    for on in filter(lambda on: suits(on, model.architecture), MEASURES):
        values = sets.measure(on, model)
        assert {len(own) for own in values.values()} == {counts[on]}
        assert all(((own >= 0) & (own <= 1)).all() for own in values.values())


def test_the_nearest_question_has_the_intent_where_it_is_the_same_question(data, tmp_path, bert):
    sets = Elsewhere(data=data, work=tmp_path, base=bert)
    model = sets.untrained("banking77")
    assert sets.measure("banking77", model)["recall@1"].tolist() == [1] * 12
    assert len(banking(data, 4)[0].queries) == 4


def entry(name, values, **recipe):
    return Entry(
        name=name,
        set="ubuntu_irc",
        on="banking77",
        recipe=Recipe(arch="bi", settings={"name": name}, **recipe),
        seed=0,
        steps=0 if name == "untrained" else 160,
        examples="banking77",
        count=len(values),
        figures={"recall@1": float(np.mean(values))},
        values={"recall@1": packed(values)},
    )


def test_the_report_says_what_loses_to_the_base():
    right = np.array([1.0] * 100 + [0.0] * 100)
    entries = [
        entry("untrained", right),
        entry("better", np.maximum(right, np.arange(200) % 2)),
        entry("worse", np.minimum(right, np.arange(200) % 2)),
        entry("alike", right[::-1]),
    ]
    page = report(entries)
    assert "Below the untrained base, p < 0.05: worse." in page
    assert "| better | untrained |" in page
    assert "| untrained | worse |" in page


def test_models_are_measured_once(data, tmp_path, bert, monkeypatch, capsys):
    ledger = Ledger(tmp_path / "ledger.json")
    model = load_variant("bi", bert)
    trained = dataclasses.replace(entry("small", [1.0], base="bert"), on="choose")
    model.save_pretrained(trained.folder(tmp_path))
    ledger.add(trained)
    sets = Elsewhere(data=data, work=tmp_path, base=bert)
    for name in LENGTHS:
        monkeypatch.setitem(LENGTHS, name, {"max_context_length": 32})
    for _ in range(2):
        protocol.generalise(["small"], "ubuntu_irc", list(MEASURES), sets, ledger)
        found = [(one.on, one.name) for one in ledger.entries()]
        assert found[1:] == list(product(MEASURES, ("untrained", "small")))
    assert capsys.readouterr().err.count("seed 0, on ") == 2 * len(MEASURES)

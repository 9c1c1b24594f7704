"""Columns with usual names are found; for others the error has the line to type."""

import csv
import json
import re
import shlex
from dataclasses import replace

import pyarrow
import pyarrow.parquet
import pytest

from polyrank.data.loading import load_examples, load_records
from polyrank.errors import DataError
from polyrank.records import Example, LabelledPair

KINDS = ("csv", "tsv", "jsonl", "parquet", "hub")
CLASSES = ("contradiction", "entailment", "neutral")


def rows_of(*names, **columns):
    """Three rows whose texts name their column, with labels or lists from `columns`."""
    return [
        {name: f"{name} {row}" for name in names} | {name: of[row] for name, of in columns.items()}
        for row in range(3)
    ]


def write(rows, kind, folder, stem="data"):
    """The rows as a file of a kind; the address of a folder for `hub`."""
    if kind in ("csv", "tsv"):
        path = folder / f"{stem}.{kind}"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="," if kind == "csv" else "\t")
            writer.writeheader()
            writer.writerows(rows)
    elif kind == "jsonl":
        path = folder / f"{stem}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        path = folder / f"{stem}.parquet"
        if kind == "hub":
            (folder / stem).mkdir()
            path = folder / stem / "train.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return f"hub:{folder / stem}" if kind == "hub" else path


@pytest.fixture
def written(tmp_path, monkeypatch):
    """What writes rows as a kind of file; `datasets` keeps what it reads in the test's folder."""
    config = pytest.importorskip("datasets").config
    monkeypatch.setattr(config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setattr(config, "HF_DATASETS_OFFLINE", True)
    return lambda rows, kind: write(rows, kind, tmp_path)


def pairs(first, second, labels):
    return [
        LabelledPair(first=f"{first} {row}", second=f"{second} {row}", label=label)
        for row, label in enumerate(labels)
    ]


def classes(first, second):
    made = pairs(first, second, range(3))
    return [replace(pair, class_name=name) for pair, name in zip(made, CLASSES, strict=True)]


def examples(context, response, negative=None):
    return [
        Example(
            context=f"{context} {row}",
            response=f"{response} {row}",
            negatives=() if negative is None else (f"{negative} {row}",),
        )
        for row in range(3)
    ]


SCORES, SHARES = (0.5, 5.0, 2.5), (0.1, 1.0, 0.5)
KNOWN = {
    f"{first}/{second}": [
        (rows_of(first, second, score=SCORES), "sts", pairs(first, second, SHARES)),
        (rows_of(first, second, score=SHARES), "pairs", pairs(first, second, SHARES)),
        (rows_of(first, second, label=SHARES), "pairs", pairs(first, second, SHARES)),
        (rows_of(first, second, label=SCORES), "sts", pairs(first, second, SHARES)),
        (rows_of(first, second, label=(2, 0, 1)), "pairs", pairs(first, second, (2, 0, 1))),
        (rows_of(first, second, label=CLASSES), "nli", classes(first, second)),
        (rows_of(first, second, gold_label=CLASSES), "nli", classes(first, second)),
        (rows_of(first, second), "table", examples(first, second)),
    ]
    for first, second in (
        ("sen1", "sen2"),
        ("sentence1", "sentence2"),
        ("premise", "hypothesis"),
        ("text1", "text2"),
    )
}
KNOWN |= {
    "query/pos/neg": [(rows_of("query", "pos", "neg"), "table", examples("query", "pos", "neg"))],
    "query/pos": [(rows_of("query", "pos"), "table", examples("query", "pos"))],
    "question/answer": [(rows_of("question", "answer"), "table", examples("question", "answer"))],
    "anchor/positive/negative": [
        (
            rows_of("anchor", "positive", "negative"),
            "table",
            examples("anchor", "positive", "negative"),
        )
    ],
}
CASES = [
    pytest.param(*case, kind, id=f"{names}-{number}-{kind}")
    for names, cases in KNOWN.items()
    for number, case in enumerate(cases)
    for kind in KINDS
]


@pytest.mark.parametrize(("rows", "format", "expected", "kind"), CASES)
def test_usual_names_are_found_and_said_once(rows, format, expected, kind, written):
    path = written(rows, kind)
    said = []
    found = load_examples(path, say=said.append)
    assert found == expected
    if isinstance(found[0], LabelledPair):
        assert [type(pair.label) for pair in found] == [type(pair.label) for pair in expected]
        fields = {"first": found[0].first, "second": found[0].second}
    else:
        fields = {"context": found[0].context, "response": found[0].response}
    [words] = said
    assert words.startswith(f"{path}: read as {format}, ")
    for field, text in fields.items():
        assert f"{field}={text.split()[0]}" in words


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "hub"])
def test_lists_of_positives_and_negatives(kind, written):
    rows = [
        {"id": "a", "query": "q1", "pos": ["p1", "p2"], "neg": ["n1", "n2"]},
        {"id": "b", "query": "q2", "pos": ["p3"], "neg": []},
    ]
    negatives = ("n1", "n2")
    assert load_examples(written(rows, kind)) == [
        Example(id="a/1", context="q1", response="p1", negatives=negatives),
        Example(id="a/2", context="q1", response="p2", negatives=negatives),
        Example(id="b", context="q2", response="p3"),
    ]


def test_an_empty_cell_is_no_negative_and_no_positive(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("query,pos,neg\nq,p,\n")
    assert load_examples(path) == [Example(context="q", response="p")]
    path = tmp_path / "a.jsonl"
    for positives, message in (
        ([], "no example; skipped: 1 row with an empty response"),
        (["p", ""], "response in column 'pos' is empty"),
        ("", "no example; skipped: 1 row with an empty response"),
    ):
        path.write_text(json.dumps({"query": "q", "pos": positives}) + "\n")
        with pytest.raises(DataError, match=message):
            load_examples(path)


def test_own_names_are_not_said(tmp_path):
    said = []
    load_examples(write(rows_of("context", "response"), "csv", tmp_path), say=said.append)
    load_examples(write(rows_of("first", "second", label=SHARES), "csv", tmp_path), say=said.append)
    assert said == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (rows_of("asked", "said"), [examples("asked", "said")]),
        (rows_of("id", "the question", "it's answer"), [examples("the question", "it's answer")]),
        (rows_of("question", "what was said"), [examples("question", "what was said")]),
        (rows_of("contxt", "repsonse"), [examples("contxt", "repsonse")]),
        (
            rows_of("left", "right", alike=(0.1, 0.2, 1.0)),
            [examples("left", "right"), pairs("left", "right", (0.1, 0.2, 1.0))],
        ),
    ],
    ids=["two", "spaces", "one known", "misspelt", "labelled"],
)
def test_other_names_are_an_error_with_the_line_to_type(rows, expected, kind, written):
    path = written(rows, kind)
    with pytest.raises(DataError) as caught:
        load_examples(path)
    lines = re.findall(r"--columns (?:'(?:[^']|'\"'\"')*'|[^\s;]+)", str(caught.value))
    assert len(lines) == len(expected)
    for line, records in zip(lines, expected, strict=True):
        _, mapping = shlex.split(line.rstrip("."))
        columns = dict(part.split("=", 1) for part in mapping.split(","))
        found = load_examples(path, columns=columns)
        assert [replace(record, id=None) for record in found] == records


def test_one_column_of_texts_has_no_mapping_to_propose(tmp_path):
    path = write(rows_of("text", score=SHARES), "csv", tmp_path)
    with pytest.raises(DataError, match="--columns context=COLUMN,response=COLUMN"):
        load_records(path)

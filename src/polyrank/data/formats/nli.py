"""Natural language inference, SNLI, MultiNLI, XNLI and KorNLI in JSONL or TSV, to labelled pairs.

The classes are those of Sentence-BERT (Reimers and Gurevych, 2019): contradiction 0, entailment 1,
neutral 2. Rows whose annotators did not agree (label "-") are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyrank.data.formats.rows import check_columns, column_of, read_rows, text_of
from polyrank.data.formats.source import Source
from polyrank.errors import nearest
from polyrank.records import LabelledPair

CLASSES = {"contradiction": 0, "entailment": 1, "neutral": 2}
USUAL = {
    "first": ("sentence1", "premise"),
    "second": ("sentence2", "hypothesis"),
    "label": ("gold_label", "label"),
}
UNDECIDED = "rows with the label '-'"
EMPTY = "rows with an empty sentence"


def read(source: Source) -> Iterator[LabelledPair]:
    """Yield a pair a row: premise, hypothesis, class. Raises DataError, with the place."""
    check_columns(source.columns, tuple(USUAL))
    for row in read_rows(source):
        columns = {
            field: column_of(row, field, names, source.columns, needed=True) or ""
            for field, names in USUAL.items()
        }
        label = row.values[columns["label"]]
        if label == "-":
            source.passed_over[UNDECIDED] += 1
            continue
        if label not in CLASSES:
            raise row.blame(
                f"The label is {label!r}, not one of {', '.join(CLASSES)} and '-'.",
                nearest(str(label), CLASSES)
                if isinstance(label, str)
                else "Write the names: numbers stand for other classes in every data set.",
            )
        first, second = text_of(row, columns["first"]), text_of(row, columns["second"])
        if not first or not second:
            source.passed_over[EMPTY] += 1
            continue
        yield LabelledPair(first=first, second=second, label=CLASSES[label])

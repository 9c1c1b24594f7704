"""Corpora of response selection, to `Example`s: Ubuntu (versions 1 and 2), Douban, E-commerce.

Version 2 of the Ubuntu Dialogue Corpus is CSV. Training files have Context, Utterance and Label;
only rows labelled 1 are examples. Validation and test files have Context, "Ground Truth Utterance"
and Distractor_0 to Distractor_8. `__eot__` ends a turn; the utterances in one, each ended by
`__eou__`, are joined by a space.

The others are lines of label, utterances and a response, separated by tabs. Lines that follow one
another with the same utterances are one context with several candidates: each candidate labelled 1
gives an example, and those labelled 0 are its negatives.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from polyrank.data.files import at_line, read_lines
from polyrank.data.format import Beginning, Fit, Format
from polyrank.data.rows import Row, read_rows, text_of
from polyrank.data.source import Source
from polyrank.records import Example

CONTEXT, UTTERANCE, LABEL = "Context", "Utterance", "Label"
TRUTH, DISTRACTOR = "Ground Truth Utterance", "Distractor_"
WRONG = "rows labelled 0"
LABELS = {"0": 0, "0.0": 0, "1": 1, "1.0": 1}

ALL_WRONG = "contexts without a response labelled 1"


def read_ubuntu(source: Source) -> Iterator[Example]:
    """Yield the examples of a file of either form. Raises DataError, with file and line."""
    for row in read_rows(source):
        if CONTEXT in row.values and TRUTH in row.values:
            yield ranked(row)
        elif {CONTEXT, UTTERANCE, LABEL} <= set(row.values):
            label = LABELS.get(str(row.values[LABEL]).strip())
            if label is None:
                raise row.blame(f"The label is {row.values[LABEL]!r}, not 0 or 1.", "Change it.")
            if label:
                response = utterance(text_of(row, UTTERANCE))
                yield Example(context=turns(text_of(row, CONTEXT)), response=response)
            else:
                source.passed_over[WRONG] += 1
        else:
            raise row.blame(
                f"Expected the columns {CONTEXT}, {UTTERANCE}, {LABEL}, or {CONTEXT}, {TRUTH} and "
                f"distractors; got {', '.join(map(str, row.values))}.",
                "Use --format table for other columns.",
            )


def ranked(row: Row) -> Example:
    """A row of a validation or test file."""
    names = [name for name in row.values if name.startswith(DISTRACTOR)]
    if not names:
        raise row.blame(
            f"There is no column {DISTRACTOR}0 with a distractor.", "Download the file again."
        )
    response = utterance(text_of(row, TRUTH))
    distractors = [utterance(text_of(row, name)) for name in names]
    return Example(
        context=turns(text_of(row, CONTEXT)),
        response=response,
        candidates=(response, *distractors),
        gold=0,
    )


def turns(text: str) -> tuple[str, ...]:
    """The turns of a context; one empty turn if it has none."""
    found = [utterance(turn) for turn in text.split("__eot__")]
    return tuple(turn for turn in found if turn) or ("",)


def utterance(text: str) -> str:
    """The utterances of one turn, joined by a space."""
    pieces = (piece.strip() for piece in text.split("__eou__"))
    return " ".join(piece for piece in pieces if piece)


class LabelledLine(NamedTuple):
    """A context, one of its candidates, and whether it is right."""

    context: tuple[str, ...]
    response: str
    label: int


def read_tabs(source: Source) -> Iterator[Example]:
    """Yield an example per response labelled 1; a context without any is counted.

    Its candidates are itself and the wrong ones. Raises DataError, with file and line.
    """
    for context, group in groupby(read_labelled(source), key=lambda line: line.context):
        lines = list(group)
        right = dict.fromkeys(line.response for line in lines if line.label)
        wrong = [line.response for line in lines if not line.label and line.response not in right]
        if not right:
            source.passed_over[ALL_WRONG] += 1
        for response in right:
            yield Example(
                context=context,
                response=response,
                candidates=(response, *wrong) if wrong else None,
                gold=0 if wrong else None,
                negatives=tuple(wrong),
            )


def read_labelled(source: Source) -> Iterator[LabelledLine]:
    """Yield the lines."""
    for number, line in read_lines(source.path):
        if not line.strip():
            continue
        blame = at_line(source.path, number)
        label, *texts = line.split("\t")
        if label not in ("0", "1"):
            raise blame(
                f"The label is {label[:40]!r}, not 0 or 1.",
                "Write lines of label, utterances and a response, separated by tabs.",
            )
        texts = [text.strip() for text in texts]
        if len(texts) < 2:
            raise blame(
                f"The line has {1 + len(texts)} columns; at least 3 are expected.",
                "Write lines of label, utterances and a response, separated by tabs.",
            )
        context = tuple(text for text in texts[:-1] if text) or ("",)
        yield LabelledLine(context=context, response=texts[-1], label=int(label))


def fit_ubuntu(beginning: Beginning) -> Fit:
    """The columns of a file to train on, or of one with distractors."""
    names = beginning.names
    return Fit.COLUMNS if {CONTEXT, UTTERANCE, LABEL} <= names or TRUTH in names else Fit.NOT


FORMATS = (
    Format(
        name="ubuntu-v2",
        gives="examples",
        description="Ubuntu Dialogue Corpus v2, CSV",
        read=read_ubuntu,
        fit=fit_ubuntu,
    ),
    Format(
        name="tab",
        gives="examples",
        description="tab-separated label, utterances, response",
        read=read_tabs,
        has_mark=lambda beginning: beginning.cells[0] in ("0", "1") and len(beginning.cells) > 2,
    ),
)

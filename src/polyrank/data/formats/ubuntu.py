"""The Ubuntu Dialogue Corpus, version 2, in CSV, to `Example`s.

Training files have Context, Utterance and Label; only rows labelled 1 are examples. Validation and
test files have Context, "Ground Truth Utterance" and Distractor_0 to Distractor_8. `__eot__` ends a
turn; the utterances in one, each ended by `__eou__`, are joined by a space.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyrank.data.formats.rows import Row, read_rows, text_of
from polyrank.data.formats.source import Source
from polyrank.records import Example

CONTEXT, UTTERANCE, LABEL = "Context", "Utterance", "Label"
TRUTH, DISTRACTOR = "Ground Truth Utterance", "Distractor_"
WRONG = "rows labelled 0"
LABELS = {"0": 0, "0.0": 0, "1": 1, "1.0": 1}


def read(source: Source) -> Iterator[Example]:
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
            f"There is no column {DISTRACTOR}0 with a distractor.", "Fetch the file again."
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

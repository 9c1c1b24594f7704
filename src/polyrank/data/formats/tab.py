"""Lines of label, utterances and a response, separated by tabs, to `Example`s.

The format of the Ubuntu (version 1), Douban and E-commerce corpora of response selection. Lines
that follow one another with the same utterances are one context with several candidates: each
candidate labelled 1 gives an example, and those labelled 0 are its negatives.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from polyrank.data.files import read_lines
from polyrank.data.formats.source import Source, at_line
from polyrank.records import Example

ALL_WRONG = "contexts without a response labelled 1"


class Line(NamedTuple):
    """One line."""

    context: tuple[str, ...]
    response: str
    label: int


def read(source: Source) -> Iterator[Example]:
    """Yield an example for each response labelled 1; where there are none, count the context.

    Its candidates are itself and the wrong ones. Raises DataError, with file and line.
    """
    for context, group in groupby(read_all(source), key=lambda line: line.context):
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


def read_all(source: Source) -> Iterator[Line]:
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
                f"The line has {1 + len(texts)} columns, at least 3 expected.",
                "Write lines of label, utterances and a response, separated by tabs.",
            )
        context = tuple(text for text in texts[:-1] if text) or ("",)
        yield Line(context=context, response=texts[-1], label=int(label))

"""DSTC7 track 1, subtask 1 (Ubuntu and Advising), in JSON, to `Example`s.

The answers of the test file are released apart, as `…responses_subtask_1.tsv`; they are taken from
that file if it is there. The augmented form makes an example of every turn but the first of
a training dialogue: published figures are trained so (Humeau et al., 2020, after Chen and Wang,
2019).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyrank.data.files import Blame, at_line
from polyrank.data.format import Format
from polyrank.data.json_files import read_json_array
from polyrank.data.rows import read_cells, wrong_count
from polyrank.data.source import Identifiers, Source
from polyrank.errors import DataError
from polyrank.records import Example

SO_FAR, NEXT, ANSWERS = "messages-so-far", "options-for-next", "options-for-correct-answers"
Option = tuple[str | None, str]
"""The id of a candidate, and its text."""


def read_augmented(source: Source) -> Iterator[Example]:
    """Yield an example for every turn but the first; the last has the dialogue's candidates.

    Only if the source is trained on; otherwise as `read`. Raises DataError, with file and line.
    """
    for example in read(source):
        if not source.training:
            yield example
            continue
        for place in range(1, len(example.context)):
            yield Example(
                id=f"{example.id}:{place}",
                context=tuple(example.context[:place]),
                response=example.context[place],
            )
        yield example


def read(source: Source) -> Iterator[Example]:
    """Yield an example per dialogue, with its candidates. Raises DataError, with file and line."""
    identifiers = Identifiers()
    answers: dict[str, Option] | None = None
    for line, record in read_json_array(source.path):
        blame = at_line(source.path, line)
        if not isinstance(record, dict):
            raise blame(f"The dialogue is a {type(record).__name__}.", "Give JSON objects.")
        identifier = str(record.get("example-id", line))
        identifiers.add(identifier, f"the dialogue at line {line}", blame)
        if ANSWERS not in record:
            answers = released_answers(source.path) if answers is None else answers
            if identifier not in answers:
                raise blame(
                    f"Dialogue {identifier} has no field {ANSWERS!r}.",
                    "Put the released answers, …responses_subtask_1.tsv, beside the file.",
                )
            correct = [answers[identifier]]
        else:
            correct = utterances(record, ANSWERS, identifier, blame)
        context = tuple(text for _, text in utterances(record, SO_FAR, identifier, blame))
        options = utterances(record, NEXT, identifier, blame) if NEXT in record else None
        yield example_of(identifier, context, correct, options, blame)


def example_of(
    identifier: str,
    context: tuple[str, ...],
    correct: list[Option],
    options: list[Option] | None,
    blame: Blame,
) -> Example:
    """One dialogue. The first correct answer is the response; others are not candidates."""
    if not context or not correct:
        raise blame(
            f"Dialogue {identifier} has no {'correct answer' if context else 'message'}.",
            "Remove it; subtask 4, where no candidate may be correct, is not supported.",
        )
    if options is None:
        return Example(id=identifier, context=context, response=correct[0][1])
    kept = [option for option in options if option == correct[0] or option not in correct[1:]]
    for gold, (name, text) in enumerate(kept):
        if (name == correct[0][0] and name is not None) or text == correct[0][1]:
            candidates = tuple(text for _, text in kept)
            return Example(
                id=identifier, context=context, response=text, candidates=candidates, gold=gold
            )
    raise blame(
        f"The correct answer of dialogue {identifier}, {correct[0][1][:60]!r}, is not among its "
        f"{len(options)} candidates.",
        f"Put it into {NEXT!r}.",
    )


def utterances(record: dict[str, Any], field: str, identifier: str, blame: Blame) -> list[Option]:
    """The ids and texts of a list of utterances."""
    values = record.get(field)
    if not isinstance(values, list):
        raise blame(
            f"Dialogue {identifier}: the field {field!r} must be a list, got "
            f"{type(values).__name__}.",
            "Give the files of subtask 1.",
        )
    for place, value in enumerate(values):
        if not isinstance(value, dict) or not isinstance(value.get("utterance"), str):
            raise blame(
                f"Dialogue {identifier}: {field}[{place}] has no text 'utterance'.",
                "Give the files of subtask 1.",
            )
    return [(value.get("candidate-id"), value["utterance"].strip()) for value in values]


def released_answers(path: Path) -> dict[str, Option]:
    """The answers beside a test file, by dialogue; none if there is no such file."""
    files = sorted(path.parent.glob("*responses_subtask_1.tsv*"))
    answers: dict[str, Option] = {}
    for line, cells in read_cells(files[0]) if files else ():
        if len(cells) != 3:
            raise wrong_count(files[0], line, len(cells), "3")
        if cells[0] in answers:
            raise DataError(
                f"Dialogue {cells[0]} has two answers.", "Remove one.", path=files[0], line=line
            )
        answers[cells[0]] = (cells[1], cells[2].strip())
    return answers


FORMATS = (
    Format(
        name="dstc7",
        gives="examples",
        description="DSTC7 track 1, subtask 1, JSON",
        read=read,
        has_mark=lambda beginning: (
            beginning.text.startswith("[") and f'"{SO_FAR}"' in beginning.text
        ),
    ),
    Format(
        name="dstc7-augmented",
        gives="examples",
        description="DSTC7, an example of every turn",
        read=read_augmented,
    ),
)

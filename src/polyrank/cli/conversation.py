"""Questions that come one per line, each answered as soon as it comes.

    a text                                             a question
    a text<TAB>a text                                  the turns of a dialogue, oldest first
    ["a text", "a text"]                               the same, for turns with tabs in them
    {"context": …, "filter": …, "top_k": …, "exact": …}    a question with settings of its own

A question that cannot be answered is an error of its own, and the next one is read. Lines that are
there already are answered together. Knows nothing of how an answer is found.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BufferedReader
from typing import TYPE_CHECKING, Any, cast

from polyrank.cli.output import Output, plain, say_error
from polyrank.errors import DataError, PolyrankError, UsageError, nearest
from polyrank.json_text import parse_json
from polyrank.records import Hit

if TYPE_CHECKING:
    from polyrank.retrieval.engine import SearchReport

TOGETHER = 32
"""Questions that are answered together at most, so that answers keep coming."""
CHUNK = 1 << 16
PROMPT = "> "
HOW_TO_ASK = "Type a question and press Enter; Ctrl-D ends."
SOURCE = "standard input"
SETTINGS: dict[str, tuple[type, str]] = {
    "filter": (str, "a text"),
    "top_k": (int, "a whole number"),
    "exact": (bool, "true or false"),
}
"""What an object may have beside its context, and the type of each."""
HOW_TO_WRITE = 'Write it like {"context": ["turn", "turn"], "filter": "year >= 2020", "top_k": 3}.'


@dataclass(frozen=True, slots=True)
class Question:
    """A context, and the settings that it has instead of the command's."""

    context: str | list[str]
    filter: str | None = None
    top_k: int | None = None
    exact: bool | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The hits of a context, best first, how they were found, and how many were read again."""

    context: str | list[str]
    hits: list[Hit]
    report: SearchReport
    num_reranked: int

    def result(self) -> dict[str, Any]:
        """The answer as an object of JSON."""
        found = {"context": self.context, "hits": self.hits, **plain(self.report)}
        return found | {"num_reranked": self.num_reranked}


@dataclass(frozen=True, slots=True)
class Failure:
    """A context, or a line that has none, and why there is no answer."""

    context: str | list[str]
    error: PolyrankError

    def result(self) -> dict[str, Any]:
        """The failure as an object of JSON."""
        words = {"type": type(self.error).__name__, "message": str(self.error)}
        return {"context": self.context, "error": words}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of standard input that is not blank."""

    text: bytes
    number: int


Answers = Callable[[Sequence[Question]], Iterable[Answer]]
"""Answers questions that have the same settings, in their order. Raises PolyrankError."""
Show = Callable[[Answer, Output, bool], None]
"""Shows an answer to people; true repeats the question."""


def converse(answers: Answers, output: Output, show: Show) -> None:
    """Answer the lines of standard input until it ends.

    Each that cannot be answered is said, and the next one is read; at the end its error is raised,
    unless the lines were typed. Raises UsageError where nothing but blank lines came from a pipe.
    """
    typed = sys.stdin.isatty()
    asked, error = False, None
    for lines in prompted() if typed else waiting():
        for answer in answered(lines, answers):
            asked = True
            if isinstance(answer, Failure):
                error = answer.error
                say_error(str(error))
            else:
                show(answer, output, not typed)
            output.result(answer.result())
    if typed:
        return
    if not asked:
        raise UsageError("There is no text to search for.", "Give one, or lines on standard input.")
    if error is not None:
        error.said_elsewhere = True
        raise error


def answered(lines: Iterable[Line], answers: Answers) -> Iterator[Answer | Failure]:
    """The answer to each line, in their order; those with the same settings together."""
    for settings, group in itertools.groupby(map(question_of, lines), settings_of):
        if settings is None:
            yield from cast("Iterator[Failure]", group)
            continue
        questions = cast("list[Question]", list(group))
        try:
            yield from list(answers(questions))
        except PolyrankError:  # of which question, if there are several?
            for question in questions:
                try:
                    yield from list(answers([question]))
                except PolyrankError as error:
                    yield Failure(question.context, error)


def settings_of(question: Question | Failure) -> tuple[object, ...] | None:
    """What has to be equal for questions to be answered together; None for a failure."""
    if isinstance(question, Failure):
        return None
    return question.filter, question.top_k, question.exact


def prompted() -> Iterator[list[Line]]:
    """The lines typed at a prompt, with the history that readline has; Ctrl-D and Ctrl-C end it."""
    with contextlib.suppress(ImportError):
        import readline  # input() uses it

        readline.parse_and_bind("tab: self-insert")
    with contextlib.suppress(AttributeError):
        sys.stdin.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
    print(HOW_TO_ASK, file=sys.stderr)
    for number in itertools.count(1):
        try:
            text = ask()
        except (EOFError, KeyboardInterrupt):
            print(file=sys.stderr)
            return
        if text.strip():
            yield [Line(text.encode("utf-8", "surrogateescape"), number)]


def ask() -> str:
    """One line typed at the prompt; the prompt stays out of a file that takes the answers."""
    if sys.stdout.isatty():
        return input(PROMPT)
    print(PROMPT, end="", file=sys.stderr, flush=True)
    text = sys.stdin.readline()
    if not text:
        raise EOFError
    return text


def waiting() -> Iterator[list[Line]]:
    """The lines that have come since the last ones were answered, a few at a time."""
    numbers = itertools.count(1)
    stream = cast("BufferedReader", sys.stdin.buffer)
    read = functools.partial(stream.read1, CHUNK)  # waits only while there is nothing
    rest = b""
    for chunk in itertools.chain(iter(read, b""), [b"\n"]):
        *whole, rest = (rest + chunk).split(b"\n")
        lines = [
            Line(text, number) for text, number in zip(whole, numbers, strict=False) if text.strip()
        ]
        for start in range(0, len(lines), TOGETHER):
            yield lines[start : start + TOGETHER]


def question_of(line: Line) -> Question | Failure:
    """The question that a line asks, or what is wrong with the line."""
    try:
        text = text_of(line.text, line.number)
        if text.startswith("{"):
            return from_object(parsed(text, line.number), line.number)
        if text.startswith('["'):
            return from_object({"context": parsed(text, line.number)}, line.number)
        turns = [turn.strip() for turn in text.split("\t") if turn.strip()]
        return Question(turns if len(turns) > 1 else text)
    except DataError as error:
        return Failure(line.text.decode("utf-8", "replace").strip(), error)


def text_of(line: bytes, number: int) -> str:
    """A line of standard input without the blanks around it. Raises DataError if not UTF-8."""
    try:
        return line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise DataError(
            f"The text is not UTF-8: {error.reason} at byte {error.start} of the line.",
            "Convert it, for example with: iconv -f LATIN1 -t UTF-8.",
            path=SOURCE,
            line=number,
        ) from error


def parsed(text: str, number: int) -> Any:
    """A line of JSON. Raises DataError."""
    try:
        return parse_json(text)
    except ValueError as error:
        raise wrong(f"The line begins like JSON and is not: {error}.", number) from error


def from_object(found: dict[str, Any], number: int) -> Question:
    """The question of an object. Raises DataError."""
    for name, value in found.items():
        if name == "context":
            continue
        if name not in SETTINGS:
            known = nearest(name, ["context", *SETTINGS])
            raise wrong(f"There is no setting {name!r}. {known}", number)
        kind, words = SETTINGS[name]
        if type(value) is not kind:
            raise wrong(f"{name} must be {words}, got {json.dumps(value)}.", number)
    context = found.get("context")
    turns = [context] if isinstance(context, str) else context
    if not (
        isinstance(turns, list)
        and any(isinstance(turn, str) and turn.strip() for turn in turns)
        and all(isinstance(turn, str) for turn in turns)
    ):
        raise wrong("The context must be a text or a list of texts that are not all blank.", number)
    return Question(**found)


def wrong(problem: str, number: int) -> DataError:
    """The error of a line that asks nothing."""
    return DataError(problem, HOW_TO_WRITE, path=SOURCE, line=number)

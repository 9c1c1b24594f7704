r"""ConvAI2 (Persona-Chat) as ParlAI numbers it, to `Example`s.

    1 your persona: i like to ski.
    2 hi , how are you ?⇥great , just back from the slopes .⇥⇥no , why ?|…|great , just …

Lines are numbered from 1 in each episode. A context is the persona, a turn a line, and all that was
said in the episode so far; the reward, in the third column, is not used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from polyrank.data.files import read_lines
from polyrank.data.formats.source import Blame, Source, at_line
from polyrank.records import Example

NUMBERED = re.compile(r"(\d+) (.*)")
PERSONAS = ("your persona:", "partner's persona:")
SILENCE = "__SILENCE__"
REMEDY = (
    "Write lines of: number, a space, what was said, and after tabs the label, the reward and the "
    "candidates."
)


def read(source: Source) -> Iterator[Example]:
    """Yield an example a line, the persona being its first turns.

    Raises DataError, with file and line.
    """
    return episodes(source, with_persona=True)


def read_without_persona(source: Source) -> Iterator[Example]:
    """Yield an example a line, without the persona. Raises DataError, with file and line."""
    return episodes(source, with_persona=False)


def episodes(source: Source, *, with_persona: bool) -> Iterator[Example]:
    """The examples of all episodes."""
    history: list[str] = []
    previous = 0
    for place, line in read_lines(source.path):
        if not line.strip():
            continue
        blame = at_line(source.path, place)
        previous, said = numbered(line, previous, blame)
        if previous == 1:
            history.clear()
        if said.startswith(PERSONAS):
            if with_persona:
                history.append(said.strip())
            continue
        cells = said.split("\t")
        if cells[0].strip() != SILENCE:
            history.append(unescaped(cells[0]))
        example = example_of(tuple(history) or (SILENCE,), cells, blame)
        yield example
        history.append(example.response)


def numbered(line: str, previous: int, blame: Blame) -> tuple[int, str]:
    """The number of a line and what follows it; numbers go on by one or begin anew."""
    found = NUMBERED.match(line)
    if found is None:
        raise blame(f"The line begins with {line[:40]!r}, not with a number.", REMEDY)
    number = int(found[1])
    if number not in (1, previous + 1):
        raise blame(
            f"The line has the number {number} after {previous}; {previous + 1} or 1 expected.",
            "Lines are missing or stand twice; fetch the file again.",
        )
    return number, found[2]


def example_of(context: tuple[str, ...], cells: list[str], blame: Blame) -> Example:
    """One line: what was said, label, and maybe reward and candidates."""
    if len(cells) not in (2, 3, 4):
        raise blame(f"The line has {len(cells)} columns, 2 to 4 expected.", REMEDY)
    response = unescaped(cells[1])
    if not response:
        raise blame("The label is empty.", REMEDY)
    if len(cells) < 4 or not cells[3]:
        return Example(context=context, response=response)
    candidates = tuple(unescaped(text) for text in cells[3].split("|"))
    if response not in candidates:
        raise blame(
            f"The label {response[:60]!r} is not among the {len(candidates)} candidates.",
            "The line is cut off, or the label is missing there; put it among them.",
        )
    gold = candidates.index(response)
    return Example(context=context, response=response, candidates=candidates, gold=gold)


def unescaped(text: str) -> str:
    """A text with its line breaks."""
    return text.replace("\\n", "\n").strip()

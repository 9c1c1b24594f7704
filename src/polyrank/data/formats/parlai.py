r"""Dialogues as ParlAI writes them, to `Example`s: its field format, and the numbered ConvAI2.

In the field format, `text:…⇥labels:…⇥label_candidates:…|…⇥episode_done:True`, a context is all that
was said in the episode so far: the texts, each followed by its label. In a value, `\n` is a line
break, which separates turns, `\t` a tab, and `__PIPE__` the `|` that otherwise separates labels and
candidates.

    1 your persona: i like to ski.
    2 hi , how are you ?⇥great , just back from the slopes .⇥⇥no , why ?|…|great , just …

Lines of ConvAI2 (Persona-Chat) are numbered from 1 in each episode. A context is the persona, one
turn per line, and all that was said in the episode so far; the reward, in the third column, is not
used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from polyrank.data.files import Blame, at_line, read_lines
from polyrank.data.format import Format
from polyrank.data.source import Source
from polyrank.records import Example

FIELD_REMEDY = "Write a line like: text:Hello.\\tlabels:Hi!\\tepisode_done:True"
NUMBERED = re.compile(r"(\d{1,18}) (.*)")
PERSONAS = ("your persona:", "partner's persona:")
SILENCE = "__SILENCE__"
NUMBERED_REMEDY = (
    "Write lines of: number, a space, what was said, and after tabs the label, the reward and the "
    "candidates."
)


def read_fields(source: Source) -> Iterator[Example]:
    """Yield an example per line. Raises DataError, with file and line."""
    history: list[str] = []
    ended = True
    number = 0
    for number, line in read_lines(source.path):
        if not line.strip():
            continue
        blame = at_line(source.path, number)
        fields = fields_of(line, blame)
        history += [turn for turn in without_escapes(fields["text"]).split("\n") if turn.strip()]
        example = example_of_fields(tuple(history) or ("",), fields, blame)
        yield example
        history.append(example.response)
        ended = is_done(fields.get("episode_done", "False"), blame)
        if ended:
            history.clear()
    if not ended:
        raise at_line(source.path, number)(
            "The last episode does not end: its last line has no episode_done:True.",
            "Add it to the last line of each episode; if the file is truncated, download it again.",
        )


def fields_of(line: str, blame: Blame) -> dict[str, str]:
    """The values of a line by field, still escaped; `text` and `labels` are among them."""
    fields: dict[str, str] = {}
    for piece in line.split("\t"):
        name, colon, value = piece.partition(":")
        if not colon:
            raise blame(f"{piece[:40]!r} is not a field: it has no colon.", FIELD_REMEDY)
        if name in fields:
            raise blame(f"The field {name!r} appears twice.", FIELD_REMEDY)
        fields[name] = value
    if "labels" not in fields and "eval_labels" in fields:
        fields["labels"] = fields["eval_labels"]
    for name in ("text", "labels"):
        if not fields.get(name):
            how = "empty" if name in fields else "missing"
            raise blame(
                f"The field {name!r} is {how}; there are {', '.join(fields)}.", FIELD_REMEDY
            )
    return fields


def example_of_fields(context: tuple[str, ...], fields: dict[str, str], blame: Blame) -> Example:
    """One line: its first label is the response, the others are not candidates."""
    labels = [without_escapes(label) for label in fields["labels"].split("|")]
    response = labels[0]
    given = fields.get("label_candidates")
    candidates = gold = None
    if given:
        texts = [without_escapes(text) for text in given.split("|")]
        if response not in texts:
            raise blame(
                f"The label {response[:60]!r} is not among the {len(texts)} candidates.",
                "Put it into label_candidates.",
            )
        candidates = tuple(text for text in texts if text == response or text not in labels)
        gold = candidates.index(response)
    return Example(context=context, response=response, candidates=candidates, gold=gold)


def is_done(value: str, blame: Blame) -> bool:
    """Whether an episode ends."""
    if value.strip() not in ("True", "False"):
        raise blame(f"episode_done is {value!r}, not True or False.", "Change it.")
    return value.strip() == "True"


def without_escapes(text: str) -> str:
    """A value with its escapes resolved."""
    return text.replace("\\n", "\n").replace("\\t", "\t").replace("__PIPE__", "|").strip()


def read_convai2(source: Source) -> Iterator[Example]:
    """Yield an example per line, the persona being its first turns.

    Raises DataError, with file and line.
    """
    return episodes(source, with_persona=True)


def read_convai2_without_persona(source: Source) -> Iterator[Example]:
    """Yield an example per line, without the persona. Raises DataError, with file and line."""
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
            history.append(with_line_breaks(cells[0]))
        example = example_of_cells(tuple(history) or (SILENCE,), cells, blame)
        yield example
        history.append(example.response)


def numbered(line: str, previous: int, blame: Blame) -> tuple[int, str]:
    """A line's number and what follows it; numbers rise by one or start at 1 again."""
    found = NUMBERED.match(line)
    if found is None:
        raise blame(f"The line begins with {line[:40]!r}, not with a number.", NUMBERED_REMEDY)
    number = int(found[1])
    if number not in (1, previous + 1):
        raise blame(
            f"The line has the number {number} after {previous}; {previous + 1} or 1 is expected.",
            "Lines are missing or repeated; download the file again.",
        )
    return number, found[2]


def example_of_cells(context: tuple[str, ...], cells: list[str], blame: Blame) -> Example:
    """One line: what was said, label, and perhaps reward and candidates."""
    if len(cells) not in (2, 3, 4):
        raise blame(f"The line has {len(cells)} columns; 2 to 4 are expected.", NUMBERED_REMEDY)
    response = with_line_breaks(cells[1])
    if not response:
        raise blame("The label is empty.", NUMBERED_REMEDY)
    if len(cells) < 4 or not cells[3]:
        return Example(context=context, response=response)
    candidates = tuple(with_line_breaks(text) for text in cells[3].split("|"))
    if response not in candidates:
        raise blame(
            f"The label {response[:60]!r} is not among the {len(candidates)} candidates.",
            "The line is truncated, or the label is missing there; add it to the candidates.",
        )
    gold = candidates.index(response)
    return Example(context=context, response=response, candidates=candidates, gold=gold)


def with_line_breaks(text: str) -> str:
    """A text with its line breaks."""
    return text.replace("\\n", "\n").strip()


FORMATS = (
    Format(
        name="convai2",
        gives="examples",
        description="ConvAI2, numbered lines with personas",
        read=read_convai2,
        has_mark=lambda beginning: NUMBERED.match(beginning.first_line) is not None,
    ),
    Format(
        name="convai2-no-persona",
        gives="examples",
        description="ConvAI2, the personas left out",
        read=read_convai2_without_persona,
    ),
    Format(
        name="parlai",
        gives="examples",
        description="ParlAI's text:… labels:… lines",
        read=read_fields,
        has_mark=lambda beginning: beginning.first_line.startswith(("text:", "id:")),
    ),
)

r"""ParlAI's field format, `text:…⇥labels:…⇥label_candidates:…|…⇥episode_done:True`, to `Example`s.

A context is all that was said in the episode so far: the texts, each followed by its label. In a
value, `\n` is a line break, which separates turns, `\t` a tab, and `__PIPE__` the `|` that
otherwise separates labels and candidates.
"""

from __future__ import annotations

from collections.abc import Iterator

from polyrank.data.files import read_lines
from polyrank.data.formats.source import Blame, Source, at_line
from polyrank.records import Example

REMEDY = "Write a line like: text:Hello.\\tlabels:Hi!\\tepisode_done:True"


def read(source: Source) -> Iterator[Example]:
    """Yield an example a line. Raises DataError, with file and line."""
    history: list[str] = []
    ended = True
    number = 0
    for number, line in read_lines(source.path):
        if not line.strip():
            continue
        blame = at_line(source.path, number)
        fields = fields_of(line, blame)
        history += [turn for turn in unescaped(fields["text"]).split("\n") if turn.strip()]
        example = example_of(tuple(history) or ("",), fields, blame)
        yield example
        history.append(example.response)
        ended = is_done(fields.get("episode_done", "False"), blame)
        if ended:
            history.clear()
    if not ended:
        raise at_line(source.path, number)(
            "The last episode does not end: its last line has no episode_done:True.",
            "Add it to the last line of each episode; or the file is cut off: fetch it again.",
        )


def fields_of(line: str, blame: Blame) -> dict[str, str]:
    """The values of a line by field, still escaped; `text` and `labels` are among them."""
    fields: dict[str, str] = {}
    for piece in line.split("\t"):
        name, colon, value = piece.partition(":")
        if not colon:
            raise blame(f"{piece[:40]!r} is no field: it has no colon.", REMEDY)
        if name in fields:
            raise blame(f"The field {name!r} stands twice.", REMEDY)
        fields[name] = value
    if "labels" not in fields and "eval_labels" in fields:
        fields["labels"] = fields["eval_labels"]
    for name in ("text", "labels"):
        if not fields.get(name):
            how = "empty" if name in fields else "missing"
            raise blame(f"The field {name!r} is {how}; there are {', '.join(fields)}.", REMEDY)
    return fields


def example_of(context: tuple[str, ...], fields: dict[str, str], blame: Blame) -> Example:
    """One line: its first label is the response, the others are no candidates."""
    labels = [unescaped(label) for label in fields["labels"].split("|")]
    response = labels[0]
    given = fields.get("label_candidates")
    candidates = gold = None
    if given:
        texts = [unescaped(text) for text in given.split("|")]
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


def unescaped(text: str) -> str:
    """A value as it was before it was written."""
    return text.replace("\\n", "\n").replace("\\t", "\t").replace("__PIPE__", "|").strip()

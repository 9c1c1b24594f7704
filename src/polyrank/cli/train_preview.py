"""`polyrank train --preview`: how the data are read, without training anything."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from polyrank.cli.output import Output

if TYPE_CHECKING:
    from polyrank.records import Example, LabelledPair

SHOWN = 3
LONGEST = 300
"""Characters of a text that are shown."""


def preview(records: Sequence[Any], dev: Any, objectives: dict[str, str], output: Output) -> None:
    """Print what was read and which objective it gets.

    `dev` are the dev records; `objectives` the one of each architecture by its words.
    """
    lines = [counted(records)]
    if isinstance(dev, Sequence):
        lines += [f"For dev: {counted(dev)}"] if dev else []
    else:
        lines.append(f"For dev: {len(dev.queries):,} questions of {len(dev.corpus):,} documents.")
    lines += [f"The {name} would learn by {objective}." for name, objective in objectives.items()]
    for line in lines:
        output.say(line)
    for record in records[:SHOWN]:
        output.say()
        for line in fields_of(record):
            output.say(line)
    shown = [fields(record) for record in records[:SHOWN]]
    output.result({"records": len(records), "preview": shown, "objectives": objectives})


def counted(records: Sequence[Any]) -> str:
    """How many records there are, of which kind, and how long their texts are."""
    from polyrank.records import LabelledPair

    of_pairs = isinstance(records[0], LabelledPair)
    return pairs_counted(records) if of_pairs else examples_counted(records)


def examples_counted(examples: Sequence[Example]) -> str:
    """The words for examples."""
    contexts = words_of(one.context for one in examples)
    responses = words_of(one.response for one in examples)
    parts = [f"{len(examples):,} examples; contexts of {contexts}, responses of {responses}"]
    for field in ("negatives", "candidates", "scores"):
        if count := sum(bool(getattr(one, field)) for one in examples):
            parts.append(f"{count:,} with {field}")
    return f"{'; '.join(parts)}."


def pairs_counted(pairs: Sequence[LabelledPair]) -> str:
    """The words for labelled pairs."""
    texts = words_of(text for one in pairs for text in (one.first, one.second))
    labels = [one.label for one in pairs]
    if all(isinstance(label, int) for label in labels):
        names = {one.label: getattr(one, "class_name", None) for one in pairs}
        counts = sorted(Counter(labels).items())
        listed = ", ".join(f"{names[label] or label}: {count:,}" for label, count in counts)
        return f"{len(pairs):,} labelled pairs; texts of {texts}; classes {listed}."
    return (
        f"{len(pairs):,} labelled pairs; texts of {texts}; scores from {min(labels):g} to "
        f"{max(labels):g}."
    )


def words_of(texts: Any) -> str:
    """The median and the largest number of words."""
    counts = [len(" ".join([one] if isinstance(one, str) else one).split()) for one in texts]
    return f"{median(counts):g} words (at most {max(counts):,})"


def fields(record: Any) -> dict[str, Any]:
    """The fields of a record that hold something."""
    found = dataclasses.asdict(record)
    return {name: value for name, value in found.items() if value not in (None, ())}


def fields_of(record: Any) -> Iterator[str]:
    """Yield the lines that show a record."""
    for name, value in fields(record).items():
        texts = value if isinstance(value, tuple) else (value,)
        shown = " | ".join(str(text)[:LONGEST] for text in texts[:SHOWN])
        more = f" | … {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
        yield f"{name}: {shown}{more}"

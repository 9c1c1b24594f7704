"""Passages of the Python documentation to context–response examples, split by module.

Nothing leaks: all that belongs to one top-level module, or to one topic, is in one split, and what
two splits share word for word is dropped from the later one.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from polyrank.data.python_docs.markup import is_code_paragraph
from polyrank.data.python_docs.passages import (
    MOST_WORDS,
    Passage,
    passages,
    read_passages,
    sentences,
    titled,
)
from polyrank.data.python_docs.questions import (
    ask_argument,
    ask_name,
    ask_summary,
    ask_topic,
    stable_number,
)
from polyrank.errors import DataError
from polyrank.records import Article, Context, Example

__all__ = ["Splits", "passages", "python_doc_examples", "split_of"]

FEWEST_WORDS = 12
SALT = "docs:"


class Splits(NamedTuple):
    """Examples to train on, to choose by and to report."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]


class Drawn(NamedTuple):
    """An example and where it comes from. `body` is the response without a title."""

    example: Example
    passage: Passage
    body: str


def python_doc_examples(
    documents: Iterable[Article], *, num_candidates: int = 20, hard: bool = False, seed: int = 0
) -> Splits:
    """The examples of the documents, about 80/10/10 by module.

    Those of dev and test have `num_candidates` candidates: the response and distractors from
    their split, with `hard` from the same module as far as it has enough. Raises DataError if a
    split has too few examples for that.
    """
    drawn: dict[str, list[Drawn]] = {"train": [], "dev": [], "test": []}
    for passage in read_passages(documents):
        drawn[split_of(passage.group)].extend(draw_examples(passage))
    seen: set[str] = set()
    for name, examples in drawn.items():
        drawn[name], texts = unique(examples, seen)
        seen |= texts
    return Splits(
        train=[item.example for item in drawn["train"]],
        dev=add_candidates(drawn["dev"], num_candidates, hard=hard, seed=seed),
        test=add_candidates(drawn["test"], num_candidates, hard=hard, seed=seed),
    )


def split_of(group: str) -> str:
    """`train`, `dev` or `test` for a top-level module or a topic, by a stable hash of its name."""
    place = stable_number(SALT + group) % 100
    return "train" if place < 80 else "dev" if place < 90 else "test"


class Draft(NamedTuple):
    """A context and the body of its response; `titled` puts the passage's title before that."""

    kind: str
    context: str | tuple[str, ...]
    body: str
    titled: bool


def draw_examples(passage: Passage) -> Iterator[Drawn]:
    """The examples of one passage: by its summary, name or title, and by one of its sentences."""
    explained = explained_name(passage)
    drafts = by_summary(passage, explained) if explained else by_place(passage)
    for draft in (*drafts, *by_sentence(passage)):
        response = titled(passage.title, draft.body) if draft.titled else draft.body
        fits = FEWEST_WORDS <= len(response.split()) <= 1.5 * MOST_WORDS
        if fits and is_prose(draft.body) and is_context(draft.context):
            example = Example(
                id=f"{passage.id}/{draft.kind}", context=draft.context, response=response
            )
            yield Drawn(example, passage, draft.body)


def explained_name(passage: Passage) -> str:
    """The name that a passage starts to explain: `json.dumps`, or `str.format` in a topic."""
    if not passage.is_first:
        return ""
    signature = re.match(r"(?:class )?(\w+\.[\w.]+)\(", passage.title)
    return passage.name or (signature[1] if signature else "")


def by_summary(passage: Passage, name: str) -> Iterator[Draft]:
    """What the first sentence of a docstring answers, and what its name asks for."""
    key = passage.id
    summary, rest = first_sentence(passage.body)
    if is_prose(rest) and len(rest.split()) >= FEWEST_WORDS:
        with_title = stable_number(key + "titled") % 3 > 0
        yield Draft("question", ask_summary(summary, key), rest, with_title)
        yield Draft("name", ask_name(name, key), passage.body, False)
    elif stable_number(key + "kind") % 2:
        yield Draft("question", ask_summary(summary, key), passage.body, True)
    else:
        yield Draft("name", ask_name(name, key), passage.body, False)


def by_place(passage: Passage) -> Iterator[Draft]:
    """What an argument means, what a topic is about, or what follows a sentence."""
    key = passage.id
    if passage.name and (argument := explained_argument(passage)):
        question = ask_argument(passage.name, argument, key)
        yield Draft("argument", question, passage.body, False)
    elif passage.is_first:
        yield Draft("topic", ask_topic(passage.title, key), passage.body, False)
    else:
        first, rest = first_sentence(passage.body)
        first = re.sub(r"^(?:[*•-]|\(?\w{1,2}[.)]) ", "", first)
        if len(rest.split()) >= FEWEST_WORDS and is_statement(first):
            yield Draft("next", (passage.name or passage.title, first), rest, False)


def explained_argument(passage: Passage) -> str:
    """The argument of its function that a passage begins with, or an empty text."""
    start = re.match(
        r"(?:(?:If|When|The|By default,) )?(?:the )?(?:optional )?([a-z_]\w*)\b", passage.body
    )
    arguments = re.findall(r"[(, *]([a-z_]\w*)", passage.section.partition("(")[2])
    return start[1] if start and start[1] in arguments else ""


def by_sentence(passage: Passage) -> Iterator[Draft]:
    """A sentence from within a passage, to which the rest of the passage is the response."""
    lines = [line for line in passage.body.split("\n") if not is_code_paragraph(line)]
    inner = sentences("\n".join(lines))[1:]
    found = [sentence for sentence in inner if is_context(sentence) and is_statement(sentence)]
    if not found or len(passage.body.split()) < 3 * FEWEST_WORDS:
        return
    sentence = found[stable_number(passage.id + "sentence") % len(found)]
    before, _, after = passage.body.partition(sentence)
    rest = before.rstrip(" ") + (after if after.startswith("\n") else " " + after.lstrip())
    rest = re.sub(r"\n{2,}| ?\n ?(?=\S)", "\n", rest)
    yield Draft("sentence", sentence, trimmed(rest), stable_number(passage.id + "title") % 2 == 0)


def first_sentence(body: str) -> tuple[str, str]:
    """The first sentence of a body, and what follows it."""
    found = sentences(body)
    first = found[0] if found else ""
    return first, trimmed(body[body.find(first) + len(first) :])


def trimmed(text: str) -> str:
    """The text without space around it, but for the indentation of code."""
    text = text.strip("\n ") if not is_code_paragraph(text.lstrip("\n")) else text.strip("\n")
    return text.rstrip()


def is_statement(sentence: str) -> bool:
    """Whether a sentence says something by itself: no list item, no lead-in to what follows."""
    ends = sentence.endswith((".", "!", "?", ")"))
    return ends and len(sentence.split()) >= 6 and bool(re.match(r"[A-Z\"“']", sentence))


def is_context(context: Context) -> bool:
    """Whether a context is long enough to mean something, and short enough to be asked."""
    turns = [context] if isinstance(context, str) else list(context)
    words = sum(len(turn.split()) for turn in turns)
    return 3 <= words <= 45 and all(re.search(r"[A-Za-z]{2}", turn) for turn in turns)


def is_prose(body: str) -> bool:
    """Whether there is a sentence's worth of words outside code."""
    lines = [line for line in body.split("\n") if not is_code_paragraph(line)]
    return len(re.findall(r"[A-Za-z]{2,}", " ".join(lines))) >= FEWEST_WORDS // 2


def unique(drawn: Sequence[Drawn], seen: set[str]) -> tuple[list[Drawn], set[str]]:
    """The examples whose context and response no earlier split and no earlier example has.

    Returns the texts of the kept ones, normalised, too.
    """
    kept = []
    texts: set[str] = set()
    for item in drawn:
        context = normalised(" ".join(turns_of(item.example.context)))
        own = {context, normalised(item.body), normalised(item.example.response)}
        if not own & seen and not own & texts:
            kept.append(item)
            texts |= own
    return kept, texts


def turns_of(context: Context) -> Sequence[str]:
    """The turns of a context; a text is one."""
    return [context] if isinstance(context, str) else context


def normalised(text: str) -> str:
    """The words of a text in small letters, without punctuation."""
    return " ".join(re.findall(r"\w+", text.lower()))


def add_candidates(
    drawn: Sequence[Drawn], num_candidates: int, *, hard: bool, seed: int
) -> list[Example]:
    """The examples with their response among distractors of other sections, at a random place."""
    complete = []
    order = list(range(len(drawn)))
    groups: dict[str, list[int]] = {}
    for number, item in enumerate(drawn):
        groups.setdefault(item.passage.group, []).append(number)
    for item in drawn:
        generator = random.Random(stable_number(f"{seed}:{item.example.id}"))
        near = groups[item.passage.group] if hard else []
        others = distractors(item, drawn, near, order, num_candidates - 1, generator)
        if len(others) < num_candidates - 1:
            raise DataError(
                f"The examples of a split are too few: {num_candidates} candidates were expected, "
                f"{len(others) + 1} found.",
                "Give more documents, or ask for fewer candidates.",
            )
        gold = generator.randrange(num_candidates)
        candidates = (*others[:gold], item.example.response, *others[gold:])
        complete.append(replace(item.example, candidates=candidates, gold=gold))
    return complete


def distractors(
    item: Drawn,
    drawn: Sequence[Drawn],
    near: Sequence[int],
    order: Sequence[int],
    count: int,
    generator: random.Random,
) -> list[str]:
    """Responses to other examples: those of `near` first, then of `order`, never two alike."""
    chosen: list[str] = []
    taken = {item.example.response}
    for pool in (near, order):
        for number in generator.sample(pool, len(pool)):
            if len(chosen) == count:
                return chosen
            other = drawn[number]
            if (
                other.passage.section != item.passage.section
                and other.example.response not in taken
            ):
                chosen.append(other.example.response)
                taken.add(other.example.response)
    return chosen

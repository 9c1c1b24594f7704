"""Articles → passages of at most 120 words → examples of a question and its passage, in splits.

Nothing leaks: everything that belongs to one top-level module is in one split, and what two splits
share word for word is dropped from the later one.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from polyrank.demo.documentation import TOPIC
from polyrank.demo.questions import ask_name, ask_summary, ask_title, stable_number
from polyrank.errors import DataError
from polyrank.records import Article, Example, Paragraph, Section

GOOD_WORDS, MOST_WORDS = 80, 120
FEWEST_WORDS = 12
MANY = 1_000_000
JUNK = re.compile(
    r"copyright|all rights reserved|without warranty|\$Id|for internal use|do not use|"
    r"^(?:changed|new|added|deprecated) (?:in|since) version|^source code:|^see also|^pep \d+ - |"
    r"^\W*(?:author|written by|contributed by|version \d|internal|undocumented|todo|xxx|private|"
    r"obsolete|deprecated|not implemented)\b|^\[\d+\]|"
    r"^[\w ,]{1,40}:$",
    re.IGNORECASE,
)
SENTENCE_END = re.compile(r"(?<=[a-z0-9)\]\"”’'][.!?])\s+(?=[\"“'(\[]?[A-Z\d])|\n")


class Passage(NamedTuple):
    """A piece of a section. `name` is what the section explains, or empty; `body` has no title."""

    id: str
    group: str
    section: str
    name: str
    title: str
    body: str
    is_first: bool

    @property
    def text(self) -> str:
        """The passage as a text of its own."""
        return f"{self.title}: {self.body}"


Turns = str | tuple[str, ...]
Draft = tuple[str, Turns, str]
"""The kind of an example, its context, and its response without a title."""


class Drawn(NamedTuple):
    """An example and where it comes from; `body` is the response without a title."""

    example: Example
    passage: Passage
    body: str


class Splits(NamedTuple):
    """Examples for training, dev and test."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]


def make_splits(
    articles: Iterable[Article], *, num_candidates: int = 20, hard: bool = False, seed: int = 0
) -> Splits:
    """The examples of the articles, about 80/10/10 by module.

    Those of dev and test have `num_candidates` candidates: the response and distractors from their
    split, with `hard` from the same module as far as it has enough. Raises DataError if a split has
    too few examples for that.
    """
    drawn: dict[str, list[Drawn]] = {"train": [], "dev": [], "test": []}
    for passage in read_passages(articles):
        drawn[split_of(passage.group)].extend(draw_examples(passage))
    seen: set[str] = set()
    train, dev, test = (unique(examples, seen) for examples in drawn.values())
    return Splits(
        train=[item.example for item in train],
        dev=with_candidates(dev, num_candidates, hard=hard, seed=seed),
        test=with_candidates(test, num_candidates, hard=hard, seed=seed),
    )


def split_of(group: str) -> str:
    """`train`, `dev` or `test` for a group, by a stable hash of its name.

    A group is a top-level module, or all topics, since they repeat each other's paragraphs.
    """
    place = stable_number("docs:" + group) % 100
    return "train" if place < 80 else "dev" if place < 90 else "test"


def read_passages(articles: Iterable[Article]) -> Iterator[Passage]:
    """Yield every readable passage, ids such as `json.dumps#0` and `topic:with#2`.

    A text that several articles share is given once, among topics by the most specific one.
    """
    articles = sorted(articles, key=lambda a: len(a.sections) if a.id.startswith(TOPIC) else MANY)
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    for article in articles:
        for section in article.sections:
            name = explained_name(article, section)
            base = name or article.id
            title = section.heading or article.title
            if section.heading and not name:
                title = f"{article.title}: {section.heading}"
            for number, body in enumerate(chunks(section.paragraphs)):
                key = f"{title}: {body}" if name else body
                if key not in seen:
                    group = re.split(r"[.:]", article.id)[0]
                    place = f"{article.id}/{section.heading}"
                    identifier = f"{base}#{counts[base]}"
                    yield Passage(identifier, group, place, name, title, body, number == 0)
                    counts[base] += 1
                    seen.add(key)


def explained_name(article: Article, section: Section) -> str:
    """The qualified name of the definition that a section explains, or an empty text."""
    own = article.title.partition("(")[0]
    if article.id.startswith(TOPIC) or " " in own or ": " in section.heading:
        return ""
    return section.heading.partition("(")[0] or own


def chunks(paragraphs: Iterable[Paragraph]) -> Iterator[str]:
    """Put paragraphs together into pieces of about 80 words and at most about 120.

    What says nothing is left out; long paragraphs are cut between sentences.
    """
    piece, words = "", 0
    for text in (paragraph.text for paragraph in paragraphs if not JUNK.search(paragraph.text)):
        is_long = len(text.split()) > MOST_WORDS
        for number, part in enumerate(sentences(text) if is_long else [text]):
            length = len(part.split())
            if piece and (words + length > MOST_WORDS or words >= GOOD_WORDS):
                yield piece
                piece, words = "", 0
            piece += ((" " if number else "\n") if piece else "") + part
            words += length
    if piece:
        yield piece


def sentences(text: str) -> list[str]:
    """The sentences of a text, each list item being one, cut at 120 words."""
    found = [sentence.split() for sentence in SENTENCE_END.split(text)]
    return [" ".join(words[:MOST_WORDS]) for words in found if words]


def draw_examples(passage: Passage) -> Iterator[Drawn]:
    """The examples of one passage: a kind, a context and the body of the response each.

    The response to a question has the title of the passage before it.
    """
    for kind, context, body in (*by_place(passage), *by_sentence(passage)):
        response = f"{passage.title}: {body}" if kind == "question" else body
        fits = FEWEST_WORDS <= len(response.split()) <= 1.5 * MOST_WORDS
        asks = 3 <= len(joined(context).split()) <= 45
        if fits and asks:
            example = Example(id=f"{passage.id}/{kind}", context=context, response=response)
            yield Drawn(example, passage, body)


def by_place(passage: Passage) -> Iterator[Draft]:
    """What a summary answers, what a name or a title asks for, or what follows a sentence."""
    key, name, body = passage.id, passage.name, passage.body
    summary = next(iter(sentences(body)), "")
    rest = body.partition(summary)[2].strip()
    says_more = len(rest.split()) >= FEWEST_WORDS
    if not passage.is_first:
        if says_more and is_statement(summary):
            yield "next", (name or passage.title, summary), rest
    elif not name:
        yield "topic", ask_title(passage.title, key), body
    elif says_more:
        yield "question", ask_summary(summary, key), rest
        yield "name", ask_name(name, key), body
    elif stable_number(key) % 2:  # question and name would have the same response
        yield "question", ask_summary(summary, key), body
    else:
        yield "name", ask_name(name, key), body


def by_sentence(passage: Passage) -> Iterator[Draft]:
    """A sentence from within a passage, to which the rest of the passage is the response."""
    found = [sentence for sentence in sentences(passage.body)[1:] if is_statement(sentence)]
    if found and len(passage.body.split()) >= 3 * FEWEST_WORDS:
        sentence = found[stable_number(passage.id) % len(found)]
        before, _, after = passage.body.partition(sentence)
        yield "sentence", sentence, f"{before.rstrip()} {after.lstrip(' ')}".strip()


def is_statement(sentence: str) -> bool:
    """Whether a sentence says something alone: not a list item or a lead-in to what follows."""
    ends = sentence.endswith((".", "!", "?", ")"))
    return ends and len(sentence.split()) >= 6 and bool(re.match(r"[A-Z\"“']", sentence))


def joined(context: Turns) -> str:
    """A context as one text."""
    return context if isinstance(context, str) else " ".join(context)


def unique(drawn: Iterable[Drawn], seen: set[str]) -> list[Drawn]:
    """The examples that share no context and no response with each other or with earlier splits."""
    kept = []
    for item in drawn:
        texts = (joined(item.example.context), item.body, item.example.response)
        own = set(map(normalised, texts))
        if not own & seen:
            kept.append(item)
            seen |= own
    return kept


def normalised(text: str) -> str:
    """The words of a text in small letters, without punctuation."""
    return " ".join(re.findall(r"\w+", text.lower()))


def with_candidates(
    drawn: Sequence[Drawn], num_candidates: int, *, hard: bool, seed: int
) -> list[Example]:
    """The examples with their response among distractors of other sections, at a random place."""
    complete = []
    for example, passage, _ in drawn:
        generator = random.Random(stable_number(f"{seed}:{example.id}"))
        others = [other for other in drawn if other.passage.section != passage.section]
        generator.shuffle(others)
        if hard:
            near = [other for other in others if other.passage.group == passage.group]
            others = near + others
        texts = dict.fromkeys(other.example.response for other in others)
        distractors = [text for text in texts if text != example.response][: num_candidates - 1]
        if len(distractors) < num_candidates - 1:
            raise DataError(
                f"A split has too few examples: expected {num_candidates} candidates, "
                f"got {len(distractors) + 1}.",
                "Give more articles, or ask for fewer candidates.",
            )
        gold = generator.randrange(num_candidates)
        candidates = (*distractors[:gold], example.response, *distractors[gold:])
        complete.append(replace(example, candidates=candidates, gold=gold))
    return complete

"""Texts of mixed length: of a folder of data sets, or of the installed Python's documentation."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks.sentences import real_texts, texts_below
from polyrank.demo.documentation import read_documentation
from polyrank.demo.examples import make_splits, read_passages
from polyrank.demo.examples import sentences as sentences_of
from polyrank.models.source import default_base
from polyrank.records import Example

PIECE = 20_000
"""Characters that are tokenised at once."""


def mixed_texts(count: int, seed: int = 0) -> list[str]:
    """`count` texts from a few words to a few hundred: passages, whole sections and questions."""
    articles = read_documentation()
    texts = [passage.text for passage in read_passages(articles)]
    for article in articles:
        for section in article.sections:
            texts.append(" ".join(paragraph.text for paragraph in section.paragraphs))
    splits = make_splits(articles)
    texts += [text for example in splits.train for text in context_texts(example)]
    return random.Random(seed).sample(sorted(set(texts)), count)


def context_texts(example: Example) -> list[str]:
    """The turns of a context."""
    return [example.context] if isinstance(example.context, str) else list(example.context)


def mixed_pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """`count` pairs of a question and a passage, half of them matching."""
    examples = make_splits(read_documentation()).train
    draw = random.Random(seed)
    chosen = draw.sample(examples, count)
    pairs = []
    for number, example in enumerate(chosen):
        response = example.response if number % 2 else draw.choice(examples).response
        pairs.append((" ".join(context_texts(example)), response))
    return pairs


def paragraphs() -> Iterator[str]:
    """The documentation's paragraphs, in their order."""
    for article in read_documentation():
        for section in article.sections:
            for paragraph in section.paragraphs:
                yield paragraph.text


def short_texts(data: Path | None, count: int) -> list[str]:
    """`count` distinct texts of a sentence or less.

    Without data they are the documentation's sentences; where those do not suffice, two are joined.
    """
    if data is not None:
        return real_texts(data, count)
    draw = random.Random(0)
    found = dict.fromkeys(
        " ".join(one.split()) for text in paragraphs() for one in sentences_of(text)
    )
    texts = [text for text in found if 3 <= len(text.split()) <= 60]
    joined = dict.fromkeys(texts)
    while len(joined) < count:
        joined[f"{draw.choice(texts)} {draw.choice(texts)}"] = None
    return draw.sample(list(joined), count)


class TextsOfLengths:
    """Real text cut into pieces whose numbers of tokens are spread evenly on a logarithmic scale.

    Every draw takes up the text where the last one left it; it starts again where it ends.
    """

    def __init__(self, data: Path | None, shortest: int, longest: int, seed: int) -> None:
        """Read text.

        Args:
            data: A folder of data sets; the documentation of Python by default.
            shortest: The fewest tokens of a text.
            longest: The most.
            seed: Of the lengths.
        """
        texts = paragraphs() if data is None else texts_below(data)
        self.texts = list(dict.fromkeys(texts))
        self.shortest, self.longest = shortest, longest
        self.draw = random.Random(seed)
        self.draw.shuffle(self.texts)
        self.tokenizer = Tokenizer.from_file(str(default_base() / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self._cut = self._pieces()

    def take(self, count: int) -> list[str]:
        """The next `count` texts."""
        return list(itertools.islice(self._cut, count))

    def _pieces(self) -> Iterator[str]:
        for text in self._long():
            ends = [end for _, end in self.tokenizer.encode(text, add_special_tokens=False).offsets]
            first = 0
            while True:
                ratio = self.longest / self.shortest
                last = first + round(self.shortest * ratio ** self.draw.random())
                if last > len(ends):
                    break
                yield text[ends[first - 1] if first else 0 : ends[last - 1]].strip()
                first = last

    def _long(self) -> Iterator[str]:
        held: list[str] = []
        for text in itertools.cycle(self.texts):
            held.append(text)
            if sum(map(len, held)) >= PIECE:
                yield " ".join(held)
                held = []

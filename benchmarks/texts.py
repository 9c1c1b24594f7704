"""Texts of mixed length that every machine has: the documentation of the installed Python."""

from __future__ import annotations

import random

from polyrank.demo.documentation import read_documentation
from polyrank.demo.examples import make_splits, read_passages
from polyrank.records import Example


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

"""Texts of mixed length that every machine has: the documentation of the installed Python."""

from __future__ import annotations

import random

from polyrank.data.python_docs.documents import python_documents
from polyrank.data.python_docs.examples import passages, python_doc_examples
from polyrank.records import Example


def mixed_texts(count: int, seed: int = 0) -> list[str]:
    """`count` texts from a few words to a few hundred: passages, whole sections and questions."""
    documents = python_documents()
    texts = [candidate.text for candidate in passages(documents)]
    for document in documents:
        for section in document.sections:
            texts.append(" ".join(paragraph.text for paragraph in section.paragraphs))
    splits = python_doc_examples(documents)
    texts += [text for example in splits.train for text in context_texts(example)]
    return random.Random(seed).sample(sorted(set(texts)), count)


def context_texts(example: Example) -> list[str]:
    """The turns of a context."""
    return [example.context] if isinstance(example.context, str) else list(example.context)


def mixed_pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """`count` pairs of a question and a passage, half of them matching."""
    documents = python_documents()
    examples = python_doc_examples(documents).train
    draw = random.Random(seed)
    chosen = draw.sample(examples, count)
    pairs = []
    for number, example in enumerate(chosen):
        response = example.response if number % 2 else draw.choice(examples).response
        pairs.append((" ".join(context_texts(example)), response))
    return pairs

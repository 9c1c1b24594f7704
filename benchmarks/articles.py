"""squad_sentences: questions and the sentences that answer them, by article.

The files do not say where an article begins, but the sentences are in the order of the articles. So
an article begins where the words change: between two sentences, the words of the WIDTH sentences
before, with their questions, are compared with those of the WIDTH after, by the cosine of their
tf-idf weights. A new group begins where the cosine is below CHANGE and lowest within NEAR
sentences. Of the 48 articles this finds 44 groups; each consists of one or two whole articles and
none is cut in two, as reading the beginnings shows. A higher CHANGE would find more, but cut one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polyrank.data.loading import load_records
from polyrank.records import Candidate, Context, Example, RetrievalSet

WORD = re.compile(r"\w{4,}")
WIDTH = 25
NEAR = 20
CHANGE = 0.1


def squad_examples(data: Path) -> tuple[list[tuple[str, Example]], dict[str, list[Candidate]]]:
    """Every question with its answer and its group, and the sentences of each group."""
    found: Any = load_records(data / "squad_sentences", format="beir", split="dev")
    groups = groups_of(found)
    group_of = {each.id: name for name, members in groups.items() for each in members}
    texts = {each.id: each.text for each in found.corpus}
    examples = [
        (group_of[answer], Example(id=query, context=found.queries[query], response=texts[answer]))
        for query, answer in first_answers(found).items()
    ]
    return examples, groups


def first_answers(data: RetrievalSet) -> dict[str, str]:
    """The sentence that answers each question."""
    return {query: next(iter(judged)) for query, judged in data.judgements.items() if judged}


def groups_of(data: RetrievalSet) -> dict[str, list[Candidate]]:
    """The sentences by the group of articles they are from, whose name is the first one's id."""
    asked: dict[str, list[Context]] = {}
    for query, answer in first_answers(data).items():
        asked.setdefault(answer, []).append(data.queries[query])
    texts = [" ".join([each.text, *map(str, asked.get(each.id, []))]) for each in data.corpus]
    starts = [0, *beginnings(texts), len(texts)]
    return {
        data.corpus[start].id: list(data.corpus[start:stop]) for start, stop in pairwise(starts)
    }


def beginnings(texts: Sequence[str]) -> list[int]:
    """The places at which a new group of articles begins, without the first."""
    alike = similarities([set(WORD.findall(text.lower())) for text in texts])
    return [
        place
        for place in range(NEAR, len(texts) - NEAR)
        if alike[place] < CHANGE and int(alike[place - NEAR : place + NEAR + 1].argmin()) == NEAR
    ]


def similarities(words: Sequence[set[str]]) -> NDArray[np.float64]:
    """How alike the words before and after the beginning of each text are; 1 before the first."""
    counts = Counter(word for own in words for word in own)
    shared = sorted(word for word, count in counts.items() if count > 1)
    columns = {word: place for place, word in enumerate(shared)}
    sums = np.zeros((len(words) + 1, len(columns)), dtype=np.float32)
    for row, own in enumerate(words, start=1):
        for word in own & columns.keys():
            sums[row, columns[word]] = math.log(len(words) / counts[word])
    np.cumsum(sums, axis=0, out=sums)
    alike = np.ones(len(words))
    for place in range(1, len(words)):
        before = sums[place] - sums[max(place - WIDTH, 0)]
        after = sums[min(place + WIDTH, len(words))] - sums[place]
        lengths = float(np.linalg.norm(before) * np.linalg.norm(after))
        alike[place] = float(before @ after) / lengths if lengths else 1.0
    return alike

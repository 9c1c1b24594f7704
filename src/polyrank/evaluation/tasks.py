"""What models are compared on: examples with candidates, or a retrieval set. Each model alike.

A task knows its texts, its identity and how a model is measured on it; it loads no model and keeps
no result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from polyrank.errors import UsageError
from polyrank.evaluation.evaluate import evaluate
from polyrank.evaluation.figures import QueryFigures, figures_of
from polyrank.evaluation.retrieval import judged
from polyrank.records import Candidate, Context, Example

if TYPE_CHECKING:
    from polyrank.data.formats.beir import RetrievalSet
    from polyrank.retrieval.lexical import BM25Index

LATENCY_TEXTS = 4096
"""At most this many texts of a task are used to measure time with."""


@dataclass(frozen=True, kw_only=True)
class RankingTask:
    """Examples that all have their candidates."""

    examples: Sequence[Example]
    ks: tuple[int, ...] = (1, 2, 5, 10)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all that a result depends on, beside the model."""
        return digest_of("ranking", self.ks, map(repr, self.examples))

    @property
    def num_queries(self) -> int:
        """How many queries are averaged."""
        return len(self.examples)

    @property
    def contexts(self) -> list[Context]:
        """Some contexts, to measure time with."""
        return [example.context for example in self.examples[:LATENCY_TEXTS]]

    @property
    def texts(self) -> list[str]:
        """Some candidates, to measure time with."""
        return self.different_texts()[:LATENCY_TEXTS]

    def different_texts(self) -> list[str]:
        """Every different candidate, in its order."""
        given = (text for example in self.examples for text in example.candidates or ())
        return list(dict.fromkeys(given))

    def lexical(self) -> BM25Index:
        """BM25 whose frequencies of words are those of all different candidates."""
        from polyrank.retrieval.lexical import BM25Index

        texts = self.different_texts()
        return BM25Index.build([Candidate(str(row), text) for row, text in enumerate(texts)])

    def measure(self, model: Any, *, progress: bool = False) -> QueryFigures:
        """Rank every example's candidates."""
        return figures_of(evaluate(model, self.examples, ks=self.ks, progress=progress))


@dataclass(frozen=True, kw_only=True)
class RetrievalTask:
    """A corpus that every query searches."""

    data: RetrievalSet

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all that a result depends on, beside the model."""
        data = self.data
        parts = (data.corpus, data.queries.items(), data.judgements.items())
        return digest_of("retrieval", data.split, (repr(each) for part in parts for each in part))

    @property
    def num_queries(self) -> int:
        """How many queries are averaged."""
        return len(judged(self.data))

    @property
    def contexts(self) -> list[Context]:
        """Some queries, to measure time with."""
        return list(judged(self.data).values())[:LATENCY_TEXTS]

    @property
    def texts(self) -> list[str]:
        """Some documents, to measure time with."""
        return [each.text for each in self.data.corpus[:LATENCY_TEXTS]]

    def lexical(self) -> BM25Index:
        """BM25 over the corpus."""
        from polyrank.retrieval.lexical import BM25Index

        return BM25Index.build(self.data.corpus)


Task = RankingTask | RetrievalTask


def architecture_of(model: Any) -> str:
    """`bi`, `poly` or `cross`, or `bm25` for what has words and no settings of a model."""
    return str(getattr(getattr(model, "config", None), "architecture", "bm25"))


def require_ranking(model: Any, name: str) -> None:
    """Raise UsageError for a model whose scores are classes."""
    if getattr(getattr(model, "config", None), "task", None) == "classify":
        raise UsageError(
            f"{name} tells classes apart, where a model that ranks was expected.",
            "Evaluate it on labelled pairs, or leave it out.",
        )


def digest_of(kind: str, settings: object, parts: Iterable[str]) -> str:
    """A digest of texts in their order."""
    digest = hashlib.sha256(json.dumps([kind, settings]).encode())
    for part in parts:
        digest.update(f"{len(part)}:{part}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()

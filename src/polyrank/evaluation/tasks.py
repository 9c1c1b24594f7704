"""What models are compared on: examples with candidates, a retrieval set, or labelled pairs.

A task knows its texts, its identity and how a model is evaluated on it. It loads no model and
keeps no result.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from polyrank.data.answers import KnownAnswers, text_identity
from polyrank.errors import DataError, UsageError
from polyrank.evaluation.metric_names import CORPUS_KS, KS, corpus_metrics
from polyrank.evaluation.metrics import QueryMetrics
from polyrank.evaluation.pairs import PairResults, class_numbers, classes_of, measure_pairs
from polyrank.evaluation.ranking import evaluate_examples, metrics_of
from polyrank.evaluation.retrieval import judged
from polyrank.jobs import digest_of
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.records import Candidate, Context, Example, LabelledPair, RetrievalSet

if TYPE_CHECKING:
    from polyrank.retrieval.bm25.index import BM25Index

LATENCY_TEXTS = 4096
"""At most this many texts of a task are used to measure time with."""


@dataclass(frozen=True, kw_only=True)
class RankingTask:
    """Examples that all have their candidates."""

    examples: Sequence[Example]
    ks: tuple[int, ...] = KS
    """The k of recall@k; those above the fewest candidates are left out."""
    others: tuple[str, ...] = ()
    """Metrics to measure besides: `ndcg@10`, `mrr@5`."""

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the data."""
        return digest_of(("ranking", *self.examples))

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The names of what is measured. Raises UsageError for what cannot be."""
        return metrics_of(self.examples, self.ks, self.others)

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
        from polyrank.retrieval.bm25.index import BM25Index

        texts = self.different_texts()
        return BM25Index.build([Candidate(str(row), text) for row, text in enumerate(texts)])

    def evaluate(self, model: Any, *, show_progress_bar: bool = False) -> QueryMetrics:
        """Rank every example's candidates."""
        result = evaluate_examples(
            model,
            self.examples,
            ks=self.ks,
            metrics=self.others,
            show_progress_bar=show_progress_bar,
        )
        return result.query_metrics()


@dataclass(frozen=True, kw_only=True)
class RetrievalTask:
    """A corpus that every query searches."""

    data: RetrievalSet
    ks: tuple[int, ...] = CORPUS_KS
    """The k of recall@k."""
    others: tuple[str, ...] = ()
    """Metrics to measure besides: `ndcg@20`, `mrr`, `recall@1000`."""

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the data."""
        data = self.data
        parts = (data.corpus, data.queries.items(), data.judgements.items())
        return digest_of(("retrieval", data.split, *(each for part in parts for each in part)))

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """The names of what is measured."""
        return corpus_metrics(self.ks, self.others)

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
        from polyrank.retrieval.bm25.index import BM25Index

        return BM25Index.build(self.data.corpus)


@dataclass(frozen=True, kw_only=True)
class PairTask:
    """Labelled pairs of texts."""

    pairs: Sequence[LabelledPair]

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the data."""
        return digest_of(("pairs", *self.pairs))

    def lexical(self) -> BM25Index:
        """BM25 whose frequencies of words are those of all different second texts."""
        from polyrank.retrieval.bm25.index import BM25Index

        texts = dict.fromkeys(pair.second for pair in self.pairs)
        return BM25Index.build([Candidate(str(row), text) for row, text in enumerate(texts)])

    def check(self, model: Any, name: str) -> None:
        """Raise UsageError for a model that cannot give what the labels are."""
        try:
            classes = classes_of(model, self.pairs)
            if classes is not None:
                class_numbers(self.pairs, classes)
        except UsageError as error:
            raise UsageError(f"{name}: {error.problem}", error.remedy) from error

    def evaluate(self, model: Any, *, show_progress_bar: bool = False) -> PairResults:
        """Score or classify every pair."""
        return measure_pairs(model, self.pairs, show_progress_bar=show_progress_bar)


Task = RankingTask | RetrievalTask | PairTask


def require_ranking(model: Any, name: str) -> None:
    """Raise UsageError for a model whose scores are classes."""
    if isinstance(model, CrossEncoder) and model.config.task == "classify":
        raise UsageError(
            f"{name} classifies pairs, but a model that ranks was expected.",
            "Evaluate it on labelled pairs, or leave it out.",
        )


def with_sampled_candidates(
    examples: Sequence[Example],
    num_candidates: int = 20,
    seed: int = 0,
    *,
    source: Sequence[Example] | None = None,
) -> list[Example]:
    """Examples with `num_candidates` candidates each; those that have candidates keep them.

    Distractors are distinct responses of `source`, by default `examples`, and never a text that is
    right for the context by any example of it. The first examples get the same candidates however
    many follow, as long as the source is the same. Raises UsageError for fewer than two candidates
    and DataError where there are too few responses.
    """
    if num_candidates < 2:
        raise UsageError(
            f"num_candidates must be at least 2, got {num_candidates}.",
            "Ask for the response and at least one distractor.",
        )
    if all(example.candidates is not None for example in examples):
        return list(examples)
    source = examples if source is None else source
    texts = {example.response: text_identity(example.response) for example in source}
    identified = list(texts.items())
    answers = KnownAnswers(source)
    generator = random.Random(seed)
    return [
        example
        if example.candidates is not None
        else sample_candidates(example, identified, answers, num_candidates, generator)
        for example in examples
    ]


def with_all_candidates(
    examples: Sequence[Example], name: str, *, source: Sequence[Example] | None = None
) -> RetrievalSet:
    """Examples as a retrieval set: each context searches all responses of `source`.

    `source` is by default `examples`, and must hold them. Equal texts are one candidate, and right
    for a context are all responses that `source` has for it. What candidates an example has of its
    own does not count. `name` is the split's.
    """
    source = examples if source is None else source
    ids: dict[str, str] = {}
    right: dict[int, dict[str, int]] = {}
    for example in source:
        identifier = ids.setdefault(example.response, f"response {len(ids) + 1}")
        right.setdefault(text_identity(example.context), {})[identifier] = 1
    queries = [example.id for example in examples]
    if None in queries or len(set(queries)) < len(queries):
        queries = [f"example {row}" for row in range(1, len(queries) + 1)]
    named = {str(query): example for query, example in zip(queries, examples, strict=True)}
    return RetrievalSet(
        corpus=[Candidate(identifier, text) for text, identifier in ids.items()],
        queries={query: example.context for query, example in named.items()},
        judgements={query: right[text_identity(one.context)] for query, one in named.items()},
        split=name,
    )


def sample_candidates(
    example: Example,
    texts: Sequence[tuple[str, int]],
    answers: KnownAnswers,
    num_candidates: int,
    generator: random.Random,
) -> Example:
    """One example with candidates, its response at a random place; `texts` with identities."""
    context, response = text_identity(example.context), example.response
    distractors: list[str] = []
    size = num_candidates
    while len(distractors) < num_candidates - 1:
        wrong: dict[int, str] = {}
        for text, identity in generator.sample(texts, min(size, len(texts))):
            if text != response and not answers.is_right_pair(context, identity):
                wrong.setdefault(identity, text)
        distractors = list(wrong.values())[: num_candidates - 1]
        if size >= len(texts):
            break
        size *= 2
    if len(distractors) < num_candidates - 1:
        raise DataError(
            f"{num_candidates - 1} distractors for each response were asked for, but of the "
            f"{len(texts)} different responses only {len(distractors)} are wrong for the context "
            f"{example.context!r:.80}.",
            "Ask for fewer candidates, give more examples, or give every example its candidates.",
        )
    gold = generator.randrange(num_candidates)
    candidates = (*distractors[:gold], response, *distractors[gold:])
    return dataclasses.replace(example, candidates=candidates, gold=gold)

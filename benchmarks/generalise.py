"""Models trained on one set, measured without more training on sets of other kinds.

    sgd              the dev replies of task-oriented dialogues among 20: R@1 and MRR
    banking77        test questions of a bank's customers: whether the nearest training question has
                     the same intent. A cross-encoder puts the base's best 20 in order.
    scifact          claims search 5,183 abstracts: nDCG@10. Not for cross-encoders.
    scifact-bm25     BM25's best 20 abstracts, put in order by the model: nDCG@10
    scifact-base     the untrained bi-encoder's best 20, put in order by the model: nDCG@10

Every figure is held against the untrained bi-encoder's. The base's rankings are kept in a folder.
Knows nothing of how models are trained.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.dialogues import dev_examples
from benchmarks.ledger import Values
from polyrank.data.files import open_bytes
from polyrank.data.loading import load_records
from polyrank.evaluation.ranking import evaluate_examples
from polyrank.evaluation.retrieval import Rankings, judge, rerank, retrieve
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.source import default_base
from polyrank.records import Candidate, RetrievalSet
from polyrank.retrieval.bm25.index import BM25Index
from polyrank.storage import write_text

TOP = 20
SCIFACT_METRICS = ("ndcg@10", "mrr")
LENGTHS: Mapping[str, dict[str, int]] = {
    "sgd": {"max_context_length": 128, "max_candidate_length": 64},
    "banking77": {"max_context_length": 64, "max_candidate_length": 64},
    "scifact": {"max_context_length": 64, "max_candidate_length": 256},
}


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """The sets of other kinds, and where rankings of the base are kept."""

    data: Path
    work: Path
    base: str | Path | None = None
    """What the models were trained from; None is all-MiniLM-L6-v2."""
    limit: int | None = None
    """The most examples, questions and claims to measure on; None is all."""

    def measure(self, on: str, model: Any) -> Values:
        """The value of every example of a set, by metric."""
        return MEASURES[on](self, model)

    def untrained(self, name: str) -> BiEncoder:
        """The base as a bi-encoder, with the lengths of a set."""
        source = default_base() if self.base is None else self.base
        return BiEncoder.from_pretrained(source, device="cpu", defaults=lengths_for(name))

    def found_by_base(self, name: str, data: RetrievalSet) -> Rankings:
        """The best 20 of the untrained bi-encoder for each query, found once."""
        file = self.work / "rankings" / f"{name}-{self.limit or 'all'}.json"
        if not file.is_file():
            found = retrieve(self.untrained(name), data, depth=TOP, show_progress_bar=True)
            write_text(file, json.dumps(found))
        rankings: Rankings = json.loads(file.read_text(encoding="utf-8"))
        return rankings


def on_sgd(sets: Elsewhere, model: Any) -> Values:
    """R@1 and MRR of each dev reply."""
    examples = dev_examples(sets.data, "sgd", sets.limit)
    found = evaluate_examples(model, examples, show_progress_bar=True).per_query.values
    return {name: found[name] for name in ("recall@1", "mrr")}


def on_banking(sets: Elsewhere, model: Any) -> Values:
    """Whether the nearest training question of each test question has its intent."""
    data, intents = banking(sets.data, sets.limit)
    if model.architecture == "cross":
        found = rerank(
            model, data, sets.found_by_base("banking77", data), TOP, show_progress_bar=True
        )
    else:
        found = retrieve(model, data, depth=1, show_progress_bar=True)
    right = [intents[ids[0]] == intents[query] for query, ids in found.items()]
    return {"recall@1": np.array(right, dtype=np.float64)}


def on_scifact(sets: Elsewhere, model: Any) -> Values:
    """nDCG@10 of each claim, over all abstracts."""
    data = scifact(sets.data, sets.limit)
    found = retrieve(model, data, show_progress_bar=True)
    return judge(found, data, SCIFACT_METRICS).values


def on_scifact_found(sets: Elsewhere, model: Any, *, by_base: bool) -> Values:
    """nDCG@10 of each claim, over the best 20 of BM25 or of the base."""
    data = scifact(sets.data, sets.limit)
    found = (
        sets.found_by_base("scifact", data)
        if by_base
        else retrieve(BM25Index.build(data.corpus), data, depth=TOP)
    )
    ordered = rerank(model, data, found, TOP, show_progress_bar=True)
    return judge(ordered, data, SCIFACT_METRICS).values


MEASURES: dict[str, Callable[[Elsewhere, Any], Values]] = {
    "sgd": on_sgd,
    "banking77": on_banking,
    "scifact": on_scifact,
    "scifact-bm25": partial(on_scifact_found, by_base=False),
    "scifact-base": partial(on_scifact_found, by_base=True),
}


def suits(on: str, architecture: str) -> bool:
    """Whether models of an architecture are measured on a set."""
    return on != "scifact" or architecture != "cross"


def lengths_for(on: str) -> dict[str, int]:
    """The most tokens of the two texts in a set."""
    return LENGTHS[on.partition("-")[0]]


@cache
def banking(data: Path, limit: int | None = None) -> tuple[RetrievalSet, dict[str, str]]:
    """Test questions that search the training questions, and the intent of each by its id."""
    corpus, intents = [], {}
    for number, (text, intent) in enumerate(questions(data / "banking77" / "train.csv.xz")):
        corpus.append(Candidate(f"train-{number}", text))
        intents[f"train-{number}"] = intent
    queries = {}
    every = questions(data / "banking77" / "test.csv.xz")
    for number in range(0, len(every), -(-len(every) // (limit or len(every)))):
        queries[f"test-{number}"], intents[f"test-{number}"] = every[number]
    judgements = {query: {"": 0} for query in queries}
    found = RetrievalSet(corpus=corpus, queries=queries, judgements=judgements, split="test")
    return found, intents


def questions(path: Path) -> list[tuple[str, str]]:
    """The questions of a file with their intents."""
    with open_bytes(path) as handle:
        rows = csv.DictReader(io.TextIOWrapper(handle, encoding="utf-8", newline=""))
        return [(row["text"], row["category"]) for row in rows]


@cache
def scifact(data: Path, limit: int | None = None) -> RetrievalSet:
    """The test claims and all abstracts."""
    found: Any = load_records(data / "scifact", format="beir", split="test", limit=limit)
    assert isinstance(found, RetrievalSet)
    return found

"""The ways to find negatives, by name: what defines each, and how its source is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyrank.config import to_mapping
from polyrank.retrieval.bm25.config import BM25Config
from polyrank.retrieval.bm25.index import BM25Index
from polyrank.retrieval.index import Index
from polyrank.retrieval.vector_model import require_vectors
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.negatives.dialogue import DialogueNegatives
from polyrank.training.negatives.pool import Pool, Proposer
from polyrank.training.negatives.random import RandomNegatives
from polyrank.training.negatives.searched import (
    LexicalSearch,
    ModelSearch,
    SearchedNegatives,
    candidate_index,
)


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to find negatives."""

    name: str
    ranked: bool
    """Whether a search ranks what is found, so that window and limits apply."""
    identity: Mapping[str, Any]
    """All that its results depend on, beside examples, candidates and settings."""
    make: Callable[[Pool, NegativesConfig, Path], Proposer]
    """From the pool, the settings and a folder to work in to the source of negatives."""


def random_method() -> Method:
    """Candidates drawn at random."""

    def make(pool: Pool, config: NegativesConfig, folder: Path) -> Proposer:
        return RandomNegatives(pool, config.num_negatives, config.seed)

    return Method(name="random", ranked=False, identity={"method": "random"}, make=make)


def dialogue_method() -> Method:
    """What was said at another point of the dialogue."""

    def make(pool: Pool, config: NegativesConfig, folder: Path) -> Proposer:
        return DialogueNegatives(pool.examples)

    return Method(name="dialogue", ranked=False, identity={"method": "dialogue"}, make=make)


def bm25_method(settings: BM25Config | None = None, *, progress: bool = False) -> Method:
    """Candidates with the words of the context. Raises MissingExtraError when made."""
    bm25 = settings or BM25Config()

    def make(pool: Pool, config: NegativesConfig, folder: Path) -> Proposer:
        search = LexicalSearch(BM25Index.build(pool.candidates, bm25, progress=progress))
        positives = config.search_limits.need_positive
        return SearchedNegatives(search, pool, config.to_rank, positives=positives)

    identity = {"method": "bm25", "bm25": to_mapping(bm25)}
    return Method(name="bm25", ranked=True, identity=identity, make=make)


def model_method(model: Any, index: Index | None = None) -> Method:
    """Candidates that a bi- or poly-encoder scores high.

    They are searched in `index` or, without one, in an index of the pool that is made first.
    Raises UsageError for a model without vectors.
    """
    require_vectors(model)

    def make(pool: Pool, config: NegativesConfig, folder: Path) -> Proposer:
        found = candidate_index(model, pool, folder / "candidates") if index is None else index
        positives = config.search_limits.need_positive
        return SearchedNegatives(ModelSearch(found), pool, config.to_rank, positives=positives)

    identity = {
        "method": "model",
        "model": model.fingerprint(),
        "index": None if index is None else str(index.path),
    }
    return Method(name="model", ranked=True, identity=identity, make=make)

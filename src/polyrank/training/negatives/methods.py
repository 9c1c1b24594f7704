"""The ways to find negatives: at random, in the dialogue, with BM25, with a trained model. Each is
a `Method`, which says what defines it and makes a `Proposer`. Knows nothing of the rules that
choose among what is proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from polyrank.config import require_choice, to_mapping
from polyrank.errors import IndexFolderError, UsageError
from polyrank.records import Context, Example, Hit
from polyrank.retrieval.bm25.config import BM25Config
from polyrank.retrieval.bm25.index import BM25Index
from polyrank.retrieval.index import Index
from polyrank.retrieval.vector_model import require_vectors
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.negatives.pool import Numbered, Pool, Proposals, Proposer

METHODS = ("random", "dialogue", "bm25", "model")
"""The names of the methods."""
Turns = tuple[str, ...]
Found = tuple[Sequence[Sequence[Hit]], list[float] | None]
"""The hits of each context and, if asked for, the score of each response."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """A way to find negatives."""

    name: str
    ranked: bool
    """Whether a search ranks what is found, so that window and limits apply."""
    identity: Mapping[str, Any]
    """Everything that its results depend on, beside examples, candidates and settings."""
    make: Callable[[Pool, NegativesConfig, Path], Proposer]
    """Makes the source of negatives, from the pool, the settings and a folder to work in."""


def method_of(
    name: str,
    *,
    retriever: Any = None,
    index: Index | None = None,
    bm25: BM25Config | None = None,
    show_progress_bar: bool = False,
) -> Method:
    """The method with this name. Raises UsageError for an unknown one, or `model` without a model.

    `retriever` and `index` are those of `model_method`, `bm25` the settings of `bm25_method`.
    """
    require_choice("method", name, METHODS)
    if name == "random":
        return random_method()
    if name == "dialogue":
        return dialogue_method()
    if name == "bm25":
        return bm25_method(bm25, show_progress_bar=show_progress_bar)
    if retriever is None:
        raise UsageError(
            "The method model needs a bi- or poly-encoder to search with.",
            "Give it as retriever.",
        )
    return model_method(retriever, index)


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


def bm25_method(settings: BM25Config | None = None, *, show_progress_bar: bool = False) -> Method:
    """Candidates with the words of the context. Raises MissingExtraError when made."""
    bm25 = settings or BM25Config()

    def make(pool: Pool, config: NegativesConfig, folder: Path) -> Proposer:
        search = LexicalSearch(
            BM25Index.build(pool.candidates, bm25, show_progress_bar=show_progress_bar)
        )
        positives = config.search_limits.need_positive
        return SearchedNegatives(search, pool, config.to_rank, positives=positives)

    identity = {"method": "bm25", "bm25": to_mapping(bm25)}
    return Method(name="bm25", ranked=True, identity=identity, make=make)


def model_method(model: Any, index: Index | None = None) -> Method:
    """Candidates that a bi- or poly-encoder scores high.

    They are searched in `index` or, without one, in an index of the pool that is built first.
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


class RandomNegatives:
    """Different candidates, each as likely as any other."""

    ranked = False

    def __init__(self, pool: Pool, num_negatives: int, seed: int) -> None:
        self.pool = pool
        self.num_negatives = num_negatives
        self.seed = seed

    def propose(self, block: Sequence[Numbered]) -> list[Proposals]:
        """A multiple of the negatives needed, in random order."""
        return [
            Proposals(texts=self.pool.draw(numbered, self.num_negatives, self.seed))
            for numbered in block
        ]


class DialogueNegatives:
    """The turns of the context, the newest first, then what was said after the response.

    What came after is found in the other examples: those whose context begins with this context
    and its response. A context that is a single text has no turns to offer.
    """

    ranked = False

    def __init__(self, examples: Sequence[Example]) -> None:
        beginnings = {turns_of(example) for example in examples if turns_of(example)}
        self.later: dict[Turns, dict[str, None]] = {}
        for example in examples:
            turns = turns_of(example)
            for length in range(2, len(turns)):
                if turns[:length] in beginnings:
                    later = self.later.setdefault(turns[:length], {})
                    later.update(dict.fromkeys(turns[length:]))

    def propose(self, block: Sequence[Numbered]) -> list[Proposals]:
        """The other turns of each dialogue."""
        proposals = []
        for _, example in block:
            turns = turns_of(example)
            said = (*reversed(turns[:-1]), *self.later.get(turns, ()))
            proposals.append(Proposals(texts=list(dict.fromkeys(said))))
        return proposals


def turns_of(example: Example) -> Turns:
    """The turns of a context and the response after them; nothing for a single text."""
    if isinstance(example.context, str):
        return ()
    return (*example.context, example.response)


class SearchedNegatives:
    """The best candidates of a search for each context, down to a rank."""

    ranked = True

    def __init__(self, search: Search, pool: Pool, to_rank: int, *, positives: bool) -> None:
        """`positives`: the scores of the responses are needed too."""
        self.search = search
        self.pool = pool
        self.to_rank = to_rank
        self.positives = positives

    def propose(self, block: Sequence[Numbered]) -> list[Proposals]:
        """The hits of each example, with room for right responses among them."""
        examples = [numbered.example for numbered in block]
        right = 1 + max(self.pool.answers.count(example.context) for example in examples)
        top_k = min(self.to_rank + right, len(self.search))
        contexts = [example.context for example in examples]
        responses = [example.response for example in examples]
        found, scores = self.search.find(contexts, responses, top_k, self.positives)
        return [
            Proposals(
                texts=[hit.text for hit in hits],
                scores=[hit.score for hit in hits],
                positive=None if scores is None else scores[row],
            )
            for row, hits in enumerate(found)
        ]


class Search(Protocol):
    """Finds candidates for contexts, and scores responses in the same way."""

    def __len__(self) -> int:
        """The number of candidates."""

    def find(
        self, contexts: Sequence[Context], responses: Sequence[str], top_k: int, positives: bool
    ) -> Found:
        """The best `top_k` candidates for each context; if asked, the scores of the responses."""
        ...


class LexicalSearch:
    """Searches by the words of the texts."""

    def __init__(self, index: BM25Index) -> None:
        self.index = index

    def __len__(self) -> int:
        return len(self.index)

    def find(
        self, contexts: Sequence[Context], responses: Sequence[str], top_k: int, positives: bool
    ) -> Found:
        """The best by BM25."""
        hits = self.index.search(contexts, top_k)
        if not positives:
            return hits, None
        scores: list[float] = self.index.score_pairs(
            list(zip(contexts, responses, strict=True))
        ).tolist()
        return hits, scores


class ModelSearch:
    """Searches by the vectors of a bi- or poly-encoder."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def __len__(self) -> int:
        return len(self.index)

    def find(
        self, contexts: Sequence[Context], responses: Sequence[str], top_k: int, positives: bool
    ) -> Found:
        """The best by the model's score."""
        model: Any = self.index.model
        encoded = model.encode_for_scoring(contexts)  # (B, m, d)
        found = self.index.engine.search(encoded, top_k, exact=False, filter=None)
        hits = [each.hits for each in found]
        if not positives:
            return hits, None
        places = {text: place for place, text in enumerate(dict.fromkeys(responses))}
        vectors = model.encode_candidates_for_scoring(list(places))  # (N, d)
        own = vectors[torch.tensor([places[text] for text in responses])]
        scores: list[float] = model.score_each(encoded, own[:, None])[:, 0].tolist()
        return hits, scores


def candidate_index(model: Any, pool: Pool, folder: Path) -> Index:
    """The index of a pool's candidates, built in `folder` unless it is there.

    An interrupted build resumes. Raises UsageError for a model without vectors.
    """
    require_vectors(model)
    if (folder / "manifest.json").is_file():
        try:
            return Index.open(folder, model)
        except IndexFolderError:
            pass  # of another model
    return Index.build(model, pool.candidates, folder, copy_model=model.path is None)

"""Negatives that a search finds for a context: by BM25, or by a trained model through an index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from polyrank.errors import IndexFolderError
from polyrank.records import Context, Hit
from polyrank.retrieval.bm25.index import BM25Index
from polyrank.retrieval.index import Index
from polyrank.retrieval.vector_model import require_vectors
from polyrank.training.negatives.pool import Numbered, Pool, Proposals


class Search(Protocol):
    """What finds candidates for contexts, and scores responses like them."""

    def __len__(self) -> int:
        """The number of candidates."""

    def find(
        self, contexts: Sequence[Context], responses: Sequence[str], top_k: int, positives: bool
    ) -> tuple[Sequence[Sequence[Hit]], list[float] | None]:
        """The best `top_k` candidates for each context; if asked, the scores of the responses."""
        ...


class LexicalSearch:
    """By the words of the texts."""

    def __init__(self, index: BM25Index) -> None:
        self.index = index

    def __len__(self) -> int:
        return len(self.index)

    def find(
        self, contexts: Sequence[Context], responses: Sequence[str], top_k: int, positives: bool
    ) -> tuple[Sequence[Sequence[Hit]], list[float] | None]:
        """The best by BM25."""
        hits = self.index.search(contexts, top_k)
        if not positives:
            return hits, None
        scores: list[float] = self.index.score_pairs(
            list(zip(contexts, responses, strict=True))
        ).tolist()
        return hits, scores


class ModelSearch:
    """By the vectors of a bi- or poly-encoder."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def __len__(self) -> int:
        return len(self.index)

    def find(
        self, contexts: Sequence[Context], responses: Sequence[str], top_k: int, positives: bool
    ) -> tuple[Sequence[Sequence[Hit]], list[float] | None]:
        """The best by the model's score."""
        model: Any = self.index.model
        encoded = model.encode_contexts(contexts)  # (B, m, d)
        found = self.index.engine.search(encoded, top_k, exact=False, where=None)
        hits = [each.hits for each in found]
        if not positives:
            return hits, None
        places = {text: place for place, text in enumerate(dict.fromkeys(responses))}
        vectors = model.encode_candidates(list(places))  # (N, d)
        own = vectors[torch.tensor([places[text] for text in responses])]
        scores: list[float] = model.score_each(encoded, own[:, None])[:, 0].tolist()
        return hits, scores


class SearchedNegatives:
    """The best of a search for each context, down to a rank."""

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
        right = max(len(self.pool.known[example.context]) for example in examples)
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


def candidate_index(model: Any, pool: Pool, folder: Path) -> Index:
    """The index of a pool's candidates, made in `folder` unless it is there.

    An unfinished one is gone on with. Raises UsageError for a model without vectors.
    """
    require_vectors(model)
    if (folder / "manifest.json").is_file():
        try:
            return Index.open(folder, model)
        except IndexFolderError:
            pass  # of another model
    return Index.build(model, pool.candidates, folder, copy_model=model.path is None)

"""Models in MTEB's protocols: all three search, and those with vectors encode as well.

    Search    index(corpus), then search(queries): of all documents, by an index of ours and
              exactly, or of the documents that the task names for each query (reranking)
    Encoder   encode(batches) and similarity: classification, clustering, pairs, STS, …

MTEB decides by the names of methods which protocol an object has, so a cross-encoder has no
`encode`. Knows nothing of tasks.

Letters: Q queries, N documents, m context vectors, d dimensions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyrank.errors import UsageError
from polyrank.interop.mteb.inputs import candidates_of, contexts_of, texts_of
from polyrank.records import Context
from polyrank.retrieval.index import Index
from polyrank.retrieval.rerank import require_reranker

Scores = dict[str, float]
"""By the id of the document."""
QUERY = "query"
RERANKING = ("Reranking", "InstructionReranking")
"""The types of tasks that name the documents of each query."""


class SearchAdapter:
    """A model that MTEB searches and reranks with."""

    def __init__(self, model: Any, meta: Any) -> None:
        self.model = model
        self.mteb_model_meta = meta
        self.corpus: dict[str, str] = {}
        self.index_of_corpus: Index | None = None
        self.folder: tempfile.TemporaryDirectory[str] | None = None

    def index(self, corpus: Iterable[Mapping[str, Any]], *, task_metadata: Any, **_: Any) -> None:
        """Take the documents, and encode them unless the task names some for each query."""
        self.forget()
        self.corpus = dict(candidates_of(corpus))
        if task_metadata.type not in RERANKING:
            self.build()

    def search(
        self,
        queries: Iterable[Mapping[str, Any]],
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        task_metadata: Any,
        **_: Any,
    ) -> dict[str, Scores]:
        """The scores of the best documents of each query, or of those that are named for it."""
        contexts = contexts_of(queries)
        if top_ranked is not None:
            named = {query: list(top_ranked.get(query, ())) for query in contexts}
            found = self.score_named(contexts, named)
        else:
            found = self.search_all(contexts, top_k, task_metadata.name)
        self.forget()
        return found

    def build(self) -> None:
        """Encode the documents, where the model can."""

    def forget(self) -> None:
        """Delete the index and the documents."""
        self.corpus, self.index_of_corpus = {}, None
        if self.folder is not None:
            self.folder.cleanup()
            self.folder = None

    def score_named(
        self, contexts: Mapping[str, Context], named: Mapping[str, Sequence[str]]
    ) -> dict[str, Scores]:
        """The score of each document that is named for a query."""
        return scores_of(self.model, self.corpus, contexts, named)

    def search_all(
        self, contexts: Mapping[str, Context], top_k: int, task: str
    ) -> dict[str, Scores]:
        """The best `top_k` of all documents. Raises UsageError for a model without vectors."""
        raise UsageError(
            f"The task {task} searches a corpus, which a cross-encoder cannot: it reads every "
            "pair.",
            "Give a task of the type Reranking, or a bi- or poly-encoder with the cross-encoder as "
            "its reranker.",
        )


class VectorAdapter(SearchAdapter):
    """A bi- or poly-encoder, alone or with a cross-encoder that reranks what it finds.

    What MTEB calls queries are contexts, and everything else is candidates. A poly-encoder's
    queries are (Q, m, d), which only its own `similarity` compares.
    """

    def __init__(
        self, model: Any, meta: Any, *, reranker: Any = None, num_candidates: int = 100
    ) -> None:
        super().__init__(model, meta)
        if reranker is not None:
            require_reranker(reranker)
        self.reranker = reranker
        self.num_candidates = num_candidates

    def build(self) -> None:
        """Build an index of the documents in a temporary folder."""
        self.folder = tempfile.TemporaryDirectory(prefix="polyrank-mteb-")
        has_folder = self.model.path is not None and self.model.path.is_dir()
        self.index_of_corpus = Index.build(
            self.model,
            list(self.corpus.items()),
            Path(self.folder.name) / "index",
            copy_model=not has_folder,
        )

    def score_named(
        self, contexts: Mapping[str, Context], named: Mapping[str, Sequence[str]]
    ) -> dict[str, Scores]:
        """The score of each document that is named for a query; each document is encoded once."""
        if self.reranker is not None:
            return scores_of(self.reranker, self.corpus, contexts, named)
        used = list(dict.fromkeys(each for ids in named.values() for each in ids))
        rows = {each: row for row, each in enumerate(used)}
        if not used:
            return {query: {} for query in contexts}
        candidates = self.model.encode_candidates([self.corpus[each] for each in used])  # (N, d)
        encoded = self.model.encode_contexts(list(contexts.values()))  # (Q, d) or (Q, m, d)
        found = {}
        for query, context in zip(contexts, encoded, strict=True):
            ids = list(named[query])
            chosen = candidates[[rows[each] for each in ids]]
            scores = self.model.score(context[None], chosen)[0].tolist() if ids else []
            found[query] = dict(zip(ids, scores, strict=True))
        return found

    def search_all(
        self, contexts: Mapping[str, Context], top_k: int, task: str
    ) -> dict[str, Scores]:
        """The best `top_k` of all documents, exactly; with a reranker, the first in its order."""
        if self.index_of_corpus is None:
            self.build()
        assert self.index_of_corpus is not None
        results = self.index_of_corpus.search(list(contexts.values()), top_k, exact=True)
        found = {
            query: {hit.id: hit.score for hit in hits}
            for query, hits in zip(contexts, results, strict=True)
        }
        return found if self.reranker is None else self.reranked(contexts, found)

    def reranked(
        self, contexts: Mapping[str, Context], found: Mapping[str, Scores]
    ) -> dict[str, Scores]:
        """What was found with the best `num_candidates` scored again, the others below them."""
        heads = {query: list(scores)[: self.num_candidates] for query, scores in found.items()}
        reranked = scores_of(self.reranker, self.corpus, contexts, heads)
        for query, scores in reranked.items():
            lowest = min(scores.values(), default=0.0)
            rest = [each for each in found[query] if each not in scores]
            scores |= {each: lowest - 1 - place for place, each in enumerate(rest)}
        return reranked

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any = None,
        hf_split: str = "",
        hf_subset: str = "",
        prompt_type: Any = None,
        **_: Any,
    ) -> Any:
        """Vectors: of queries as contexts, and of all other texts as candidates."""
        texts = texts_of(inputs)
        is_query = getattr(prompt_type, "value", prompt_type) == QUERY
        encode = self.model.encode_contexts if is_query else self.model.encode_candidates
        return encode(texts, convert_to_numpy=True)

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Each of the first against each of the second: (Q, N)."""
        first, second = as_rows(embeddings1), as_rows(embeddings2)
        if first.ndim == 3:
            return self.model.score(first, second)
        return self.model.comparable(first) @ self.model.comparable(second).T  # both are candidates

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """The first with the first, the second with the second, …: (N,)."""
        first, second = as_rows(embeddings1), as_rows(embeddings2)
        if first.ndim == 3:
            pairs = zip(first.split(1), second.split(1), strict=True)
            return torch.cat([self.model.score(one, other)[0] for one, other in pairs])
        return (self.model.comparable(first) * self.model.comparable(second)).sum(dim=-1)


def scores_of(
    ranker: Any,
    corpus: Mapping[str, str],
    contexts: Mapping[str, Context],
    named: Mapping[str, Sequence[str]],
) -> dict[str, Scores]:
    """The score of each document that is named for a query, read in pairs."""
    pairs = [(contexts[query], corpus[each]) for query in contexts for each in named[query]]
    scores = iter(ranker.score_pairs(pairs).tolist() if pairs else ())
    return {query: {each: next(scores) for each in named[query]} for query in contexts}


def as_rows(vectors: Any) -> Tensor:
    """Vectors of any library as float32 rows; one vector becomes one row."""
    tensor = torch.as_tensor(vectors).float()
    return tensor[None] if tensor.ndim == 1 else tensor

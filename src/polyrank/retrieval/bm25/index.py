"""Lexical search: BM25 over the words of candidates, by the package bm25s (extra `bm25`).

It is searched like an `Index` and ranks pairs like a cross-encoder, so it can be a baseline
wherever a model is evaluated. Knows nothing of vectors.

Letters: N candidates, n pairs, q words of a context.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.config import require_whole
from polyrank.errors import DataError, MissingExtraError
from polyrank.models.inputs import Contexts, Pairs, as_contexts, as_pairs
from polyrank.progress import bar
from polyrank.records import Candidate, Context, Hit
from polyrank.retrieval.bm25.config import BM25Config, Tokenise, pieces, stemmed_words, words
from polyrank.retrieval.engine import Found, Hits, SearchReport, SearchResults
from polyrank.retrieval.source import Candidates, Source

STANDARD = BM25Config()


class WordNumbers:
    """The words of all candidates as numbers in one array: four bytes per word.

    To bm25s it looks like a list of lists.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.flat = array("i")
        self.ends = array("q")

    def add(self, found: Sequence[str]) -> None:
        """Add the words of the next candidate."""
        self.flat.extend(self.numbers.setdefault(word, len(self.numbers)) for word in found)
        self.ends.append(len(self.flat))

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[array[int]]:
        start = 0
        for end in self.ends:
            yield self.flat[start:end]
            start = end


class BM25Index:
    """Candidates and the weight of every word in each of them. Get one by `build`.

    score(context, candidate) = Σ over the q words of the context of
    ln(1 + (N − f + ½) / (f + ½)) · t / (t + k1 (1 − b + b · length / mean length)),
    where f of the N candidates have the word and this one has it t times (Robertson and Zaragoza,
    2009, in the form that Lucene computes). Lengths are in words.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        weights: Any,
        numbers: dict[str, int],
        mean_length: float,
        tokenise: Tokenise,
        config: BM25Config,
    ) -> None:
        self.candidates = candidates
        self.weights = weights
        self.numbers = numbers
        self.mean_length = mean_length
        self.tokenise = tokenise
        self.config = config
        frequencies = np.diff(weights.scores["indptr"])
        self.idf = inverse_frequency(frequencies, len(candidates))

    @classmethod
    def build(
        cls,
        candidates: Source,
        config: BM25Config = STANDARD,
        *,
        tokenise: Tokenise | None = None,
        show_progress_bar: bool = False,
    ) -> BM25Index:
        """Count the words of candidates, given as to `Index.build`, and weigh them, in memory.

        `tokenise` replaces polyrank's own words. A million texts of 16 words take about 0.7 GB in
        addition to the texts, and 0.9 GB while they are weighed. Raises DataError if there are no
        candidates or an id is given twice, MissingExtraError without the extra.
        """
        bm25s = lexical_package()
        tokenise = tokenise or tokeniser(config)
        # The larger id first: then the first of equal scores is the one that ties prefer.
        ordered = sorted(Candidates(candidates), key=lambda each: each.id, reverse=True)
        if not ordered:
            raise DataError("There are no candidates to index.", "Give at least one text.")
        for earlier, later in pairwise(ordered):
            if earlier.id == later.id:
                raise DataError(
                    f"The id {later.id!r} is given twice.",
                    "Give every candidate an id of its own, or leave out all ids.",
                )
        found = WordNumbers()
        described = "Counting words" if show_progress_bar else None
        with bar(described, total=len(ordered), unit="candidates") as advance:
            for candidate in ordered:
                found.add(tokenise(candidate.text))
                advance(1)
        weights = bm25s.BM25(k1=config.k1, b=config.b, method="lucene", backend="numpy")
        mean_length = max(len(found.flat) / len(found), 1.0)
        if not found.numbers:  # bm25s needs at least one word
            found.numbers[""] = 0
        with np.errstate(invalid="ignore"):  # the mean length is 0 where no candidate has a word
            weights.scores = weights.build_index_from_ids(
                range(len(found.numbers)), found, show_progress=False, leave_progress=False
            )
        return cls(ordered, weights, found.numbers, mean_length, tokenise, config)

    @overload
    def search(  # type: ignore[overload-overlap]
        self, contexts: str, top_k: int = ..., *, show_progress_bar: bool = ...
    ) -> Hits: ...

    @overload
    def search(
        self, contexts: Sequence[Context], top_k: int = ..., *, show_progress_bar: bool = ...
    ) -> SearchResults: ...

    def search(
        self, contexts: Contexts, top_k: int = 10, *, show_progress_bar: bool = False
    ) -> Hits | SearchResults:
        """The best `top_k` candidates for each context, best first; ties by the larger id.

        One text gives its list of hits, a list of contexts gives a list of them for each.
        Candidates without any word of the context are never hits, so there may be fewer. Raises
        UsageError for a `top_k` below 1.
        """
        require_whole("top_k", top_k)
        listed, is_one = as_contexts(contexts)
        count = len(self)
        found = []
        described = "Searching words" if show_progress_bar else None
        with bar(described, total=len(listed), unit="contexts") as advance:
            for context in listed:
                scores = self.scores(context)  # (N,)
                rows = best_rows(scores, top_k)
                hits = [
                    Hit(self.candidates[row].id, float(scores[row]), self.candidates[row].text)
                    for row in rows
                ]
                num_scored = int(np.count_nonzero(scores))
                found.append(Found(hits, scanned(count, num_scored)))
                advance(1)
        return Hits(found[0]) if is_one else SearchResults(found)

    def scores(self, context: Context) -> NDArray[np.float32]:
        """The score of every candidate, (N,), in the order of `candidates`."""
        known = [self.numbers[word] for word in self.words_of(context) if word in self.numbers]
        scores: NDArray[np.float32] = self.weights.get_scores_from_ids(known)
        return scores

    def score_pairs(self, pairs: Pairs, *, show_progress_bar: bool = False) -> Tensor:
        """The score of each (context, candidate), (n,), float32, of any texts; () of one pair.

        Word frequencies and the mean length are those of the index. A word that is not in the index
        counts as one that no candidate contains.
        """
        listed, is_one = as_pairs(pairs)
        contexts: dict[Context, Counter[str]] = {}
        candidates: dict[str, Counter[str]] = {}
        scores = []
        described = "Scoring words" if show_progress_bar else None
        with bar(described, total=len(listed), unit="pairs") as advance:
            for context, text in listed:
                key = context if isinstance(context, str) else tuple(context)
                if key not in contexts:
                    contexts[key] = Counter(self.words_of(key))
                if text not in candidates:
                    candidates[text] = Counter(self.tokenise(text))
                scores.append(self.score_counts(contexts[key], candidates[text]))
                advance(1)
        found = torch.tensor(scores, dtype=torch.float32)
        return found[0] if is_one else found

    def score_counts(self, context: Counter[str], candidate: Counter[str]) -> float:
        """The score of one pair, from how often each word occurs in each text."""
        k1, b = self.config.k1, self.config.b
        length = 1 - b + b * candidate.total() / self.mean_length
        unknown = inverse_frequency(np.zeros(1), len(self))[0]
        score = 0.0
        for word, times in context.items():
            occurrences = candidate.get(word, 0)
            if occurrences:
                number = self.numbers.get(word)
                idf = unknown if number is None else self.idf[number]
                score += times * float(idf) * occurrences / (occurrences + k1 * length)
        return score

    def words_of(self, context: Context) -> list[str]:
        """The words of all turns of a context."""
        return self.tokenise(context if isinstance(context, str) else "\n".join(context))

    def __len__(self) -> int:
        return len(self.candidates)

    def __repr__(self) -> str:
        return f"BM25Index({len(self)} candidates, {len(self.numbers)} words)"


def scanned(num_candidates: int, num_scored: int) -> SearchReport:
    """The report of a search that looked at every candidate that shares a word with the context."""
    return SearchReport(
        strategy="scan", num_candidates=num_candidates, num_scored=num_scored, certified=True
    )


def inverse_frequency(frequencies: NDArray[Any], count: int) -> NDArray[np.float64]:
    """ln(1 + (N − f + ½) / (f + ½)) for words that occur in f of N candidates."""
    idf: NDArray[np.float64] = np.log1p((count - frequencies + 0.5) / (frequencies + 0.5))
    return idf


def best_rows(scores: NDArray[np.float32], top_k: int) -> list[int]:
    """The rows of the best positive scores, best first; of equal ones, the earlier first."""
    rows = np.flatnonzero(scores > 0)
    if len(rows) > top_k:
        values = scores[rows]
        least = np.partition(values, len(values) - top_k)[len(values) - top_k]
        better = rows[values > least]
        equal = rows[values == least][: top_k - len(better)]
        rows = np.concatenate([better, equal])
        rows.sort()
    order = np.argsort(-scores[rows], kind="stable")
    best: list[int] = rows[order].tolist()
    return best


def tokeniser(config: BM25Config) -> Tokenise:
    """The function that splits texts into words. Raises UsageError for an unknown stemmer."""
    if config.stemmer is not None:
        return stemmed_words(config.stemmer)
    return words if config.letters is None else partial(pieces, length=config.letters)


def lexical_package() -> Any:
    """The package bm25s. Raises MissingExtraError."""
    try:
        import bm25s
    except ImportError:
        raise MissingExtraError("bm25s", "bm25", "Lexical search") from None
    return bm25s

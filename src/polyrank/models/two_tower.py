"""What bi- and poly-encoders answer: vectors of texts, and scores of texts or of vectors.

Letters: B contexts, m vectors of each, N candidates, C candidates of each context, d dimensions.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from polyrank.errors import UsageError
from polyrank.models.answers import key_of
from polyrank.models.inputs import (
    Candidates,
    Contexts,
    Pair,
    Vectors,
    as_candidates,
    as_contexts,
    as_vectors,
    is_vectors,
)
from polyrank.models.towers import Towers
from polyrank.scoring.poly import poly_scores, poly_scores_each

GATHERED_NUMBERS = 1 << 24
"""The most numbers (64 MiB of float32) of context vectors that are gathered for one product."""

T = TypeVar("T", bound=Hashable)


class TwoTower(Towers):
    """Base of the architectures whose candidates can be encoded ahead of time."""

    @overload
    def encode_contexts(
        self,
        contexts: Contexts,
        *,
        batch_size: int | None = ...,
        show_progress_bar: bool = ...,
        convert_to_numpy: Literal[False] = ...,
        keep_on_device: bool = ...,
    ) -> Tensor: ...

    @overload
    def encode_contexts(
        self,
        contexts: Contexts,
        *,
        batch_size: int | None = ...,
        show_progress_bar: bool = ...,
        convert_to_numpy: Literal[True],
        keep_on_device: bool = ...,
    ) -> NDArray[np.float32]: ...

    def encode_contexts(
        self,
        contexts: Contexts,
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        convert_to_numpy: bool = False,
        keep_on_device: bool = False,
    ) -> Tensor | NDArray[np.float32]:
        """Encode contexts: one vector each, or m vectors each for a poly-encoder.

        Args:
            contexts: One text, or a list of contexts: texts, and dialogues as lists of turns,
                oldest first.
            batch_size: Texts in one batch. By default, batches are cut by `batch_tokens`.
            show_progress_bar: Show progress if it takes more than two seconds.
            convert_to_numpy: Return a NumPy array instead of a tensor.
            keep_on_device: Keep the vectors on the model's device, not on the CPU.

        Returns:
            float32, (B, d), or (B, m, d) for a poly-encoder; (d,) or (m, d) for one text. With
            cosine similarity, a bi-encoder's vectors have unit length, unless it comes from a
            sentence-transformers model without Normalize. If a context has fewer than m vectors,
            the rest are zeros, which `score` ignores.

        Raises:
            UsageError: `contexts` are not texts, or `batch_size` is below 1.
        """
        require_one_place(convert_to_numpy, keep_on_device)
        listed, is_one = as_contexts(contexts)
        vectors = self.context_outputs(
            listed,
            "context" if self.gives_unit_length else "context_projected",
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            keep_on_device=keep_on_device,
        )
        vectors = vectors if self.has_many_vectors else vectors[:, 0]
        return handed_over(vectors, is_one, convert_to_numpy)

    @overload
    def encode_candidates(
        self,
        candidates: Candidates,
        *,
        batch_size: int | None = ...,
        show_progress_bar: bool = ...,
        convert_to_numpy: Literal[False] = ...,
        keep_on_device: bool = ...,
    ) -> Tensor: ...

    @overload
    def encode_candidates(
        self,
        candidates: Candidates,
        *,
        batch_size: int | None = ...,
        show_progress_bar: bool = ...,
        convert_to_numpy: Literal[True],
        keep_on_device: bool = ...,
    ) -> NDArray[np.float32]: ...

    def encode_candidates(
        self,
        candidates: Candidates,
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
        convert_to_numpy: bool = False,
        keep_on_device: bool = False,
    ) -> Tensor | NDArray[np.float32]:
        """Encode candidates: one vector each.

        Args:
            candidates: One text, or a list of texts.
            batch_size: Texts in one batch. By default, batches are cut by `batch_tokens`.
            show_progress_bar: Show progress if it takes more than two seconds.
            convert_to_numpy: Return a NumPy array instead of a tensor.
            keep_on_device: Keep the vectors on the model's device, not on the CPU.

        Returns:
            float32, (N, d), or (d,) for one text; of unit length with cosine similarity, as in
            `encode_contexts`.

        Raises:
            UsageError: `candidates` are not texts, or `batch_size` is below 1.
        """
        require_one_place(convert_to_numpy, keep_on_device)
        listed, is_one = as_candidates(candidates)
        vectors = self.candidate_outputs(
            listed,
            "candidate" if self.gives_unit_length else "candidate_projected",
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            keep_on_device=keep_on_device,
        )
        return handed_over(vectors, is_one, convert_to_numpy)

    def score(
        self,
        contexts: Contexts | Vectors,
        candidates: Candidates | Vectors,
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
    ) -> Tensor:
        """Score every context against every candidate, from texts or from their vectors.

        A bi-encoder's score is the cosine or the inner product of the two vectors.

        Args:
            contexts: One text, a list of contexts, or what `encode_contexts` made of them.
            candidates: One text, a list of texts, or what `encode_candidates` made of them.
            batch_size: Texts in one batch. By default, batches are cut by `batch_tokens`.
            show_progress_bar: Show progress if it takes more than two seconds.

        Returns:
            float32, (B, N); (N,) for one context, (B,) for one candidate, () for one of each. On
            the CPU for texts, otherwise on the vectors' device.

        Raises:
            UsageError: The arguments are neither texts nor vectors of this model.
        """
        options: dict[str, Any] = {"batch_size": batch_size, "show_progress_bar": show_progress_bar}
        if is_vectors(contexts):
            axes = 3 if self.has_many_vectors else 2
            left, one_context = as_vectors("contexts", contexts, axes, self.dimension)
            left = self.comparable(left if self.has_many_vectors else left[:, None])
        else:
            listed, one_context = as_contexts(contexts)
            left = self.encode_for_scoring(listed, **options)  # (B, m, d)
        if is_vectors(candidates):
            right, one_candidate = as_vectors("candidates", candidates, 2, self.dimension)
            right = self.comparable(right)
        else:
            texts, one_candidate = as_candidates(candidates)
            right = self.encode_candidates_for_scoring(texts, **options)  # (N, d)
        dtype = torch.promote_types(left.dtype, right.dtype)
        scores = self.score_all(left.to(right.device, dtype), right.to(dtype))  # (B, N)
        scores = scores[:, 0] if one_candidate else scores
        return scores[0] if one_context else scores

    def comparable(self, vectors: Tensor) -> Tensor:
        """What `encode_contexts` or `encode_candidates` gave, as the formula takes it."""
        return vectors if self.gives_unit_length else functional.normalize(vectors, dim=-1)

    def score_all(self, contexts: Tensor, candidates: Tensor) -> Tensor:
        """Every context against every candidate: (B, m, d), (N, d) → (B, N)."""
        return poly_scores(contexts, candidates, self.attention)

    def score_each(self, contexts: Tensor, candidates: Tensor) -> Tensor:
        """Every context against its own candidates: (B, m, d), (B, C, d) → (B, C)."""
        return poly_scores_each(contexts, candidates, self.attention)

    @torch.no_grad()
    def scores_of_pairs(self, pairs: Sequence[Pair], **options: Any) -> Tensor:
        """The score of each pair, (n,); a repeated text is encoded once per side."""
        firsts, first_places = different(key_of(context) for context, _ in pairs)
        seconds, second_places = different(text for _, text in pairs)
        left = self.encode_for_scoring(firsts, **options)  # (·, m, d)
        right = self.encode_candidates_for_scoring(seconds, **options)  # (·, d)
        return self.score_places(left, right, first_places, second_places)

    @torch.no_grad()
    def score_places(
        self,
        contexts: Tensor,
        candidates: Tensor,
        first_places: Sequence[int],
        second_places: Sequence[int],
    ) -> Tensor:
        """The score of each pair of vectors, by their places.

        Args:
            contexts: The vectors of different contexts (·, m, d).
            candidates: The vectors of different candidates (·, d).
            first_places: The place of each pair's context among them; n places.
            second_places: The place of each pair's candidate.

        Returns:
            (n,), as `score_pairs` gives it.
        """
        step = max(GATHERED_NUMBERS // (self.num_vectors * self.dimension), 1)
        scores = [torch.zeros(0)]
        for start in range(0, len(first_places), step):
            own = candidates[second_places[start : start + step]]
            if len(contexts) == 1:  # it is not repeated for each pair
                scores.append(self.score_all(contexts, own)[0])
                continue
            gathered = contexts[first_places[start : start + step]]
            scores.append(self.score_each(gathered, own[:, None])[:, 0])
        return torch.cat(scores)


def handed_over(
    vectors: Tensor, is_one: bool, convert_to_numpy: bool
) -> Tensor | NDArray[np.float32]:
    """Vectors in the form that was asked for."""
    vectors = vectors[0] if is_one else vectors
    return vectors.numpy() if convert_to_numpy else vectors


def require_one_place(convert_to_numpy: bool, keep_on_device: bool) -> None:
    """Raise UsageError for vectors that should be in two places."""
    if convert_to_numpy and keep_on_device:
        raise UsageError(
            "convert_to_numpy and keep_on_device exclude each other: NumPy arrays are on the CPU.",
            "Leave out one of them.",
        )


def different(texts: Iterable[T]) -> tuple[list[T], list[int]]:
    """The different texts in their order, and the place of each text among them."""
    places: dict[T, int] = {}
    found = [places.setdefault(text, len(places)) for text in texts]
    return list(places), found

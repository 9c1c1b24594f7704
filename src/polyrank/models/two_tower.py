"""What bi- and poly-encoders share: contexts become m vectors, candidates one.

A bi-encoder is a poly-encoder with one context vector; only how a context's token outputs become
vectors differs. Normalisation is in the vectors, so that a score is the formula of `scoring.poly`
and nothing else, for training, index and search alike. So is the temperature of a poly-encoder,
whose attention needs it; a bi-encoder's only scales the logits of a loss.

Letters: B contexts, m vectors of each, N candidates, C candidates of each context, d dimensions,
h width of the encoder, T tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, ClassVar, Literal, TypeVar, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from polyrank.errors import UsageError
from polyrank.models.answers import key_of
from polyrank.models.backbone import Backbone
from polyrank.models.base import Model
from polyrank.models.config import BiEncoderConfig, PolyEncoderConfig
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
from polyrank.models.pooling import reduce
from polyrank.records import Context
from polyrank.scoring.poly import Attention, poly_scores, poly_scores_each
from polyrank.tokens.batching import Batch, in_order, mask_of
from polyrank.tokens.tokenizer import TextTokenizer

Finish = Callable[[Tensor, Batch], Tensor]
"""Token outputs (B, T, h) of a batch to vectors."""

GATHERED_NUMBERS = 1 << 24
"""The most numbers (64 MiB of float32) of context vectors that are gathered for one product."""

T = TypeVar("T", bound=Hashable)


class TwoTower(Model):
    """Base of the architectures whose candidates can be encoded ahead of time."""

    config: BiEncoderConfig | PolyEncoderConfig
    attention: Attention = "basic"
    tower_names = ("context_tower", "candidate_tower")
    has_many_vectors: ClassVar[bool]
    """Whether a context's vectors have their own axis and contain the temperature."""

    def __init__(self, backbone: Backbone, tokenizer: TextTokenizer) -> None:
        super().__init__(tokenizer)
        width = backbone.width
        self.context_tower = backbone
        self.candidate_tower = None if self.config.shared_towers else copy.deepcopy(backbone)
        self.context_projection: nn.Linear | None = None
        self.candidate_projection: nn.Linear | None = None
        if self.config.projection is not None:
            self.context_projection = nn.Linear(width, self.config.projection, bias=False)
            if not self.config.shared_towers:
                self.candidate_projection = copy.deepcopy(self.context_projection)
        self.dimension: int = self.config.projection or width

    @property
    def num_vectors(self) -> int:
        """The number m of vectors of a context."""
        return 1

    def context_vectors(self, outputs: Tensor, mask: Tensor) -> Tensor:
        """Token outputs (B, T, h) to the vectors of a context, before projection: (B, m, h)."""
        raise TypeError(f"{type(self).__name__} does not say how a context becomes vectors.")

    def project_contexts(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Token outputs (B, T, h) to vectors before normalisation and temperature: (B, m, d)."""
        vectors = self.context_vectors(outputs, mask_of(batch))
        return vectors if self.context_projection is None else self.context_projection(vectors)

    def project_candidates(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Token outputs (B, T, h) to vectors before normalisation: (B, d)."""
        config = self.config
        vectors = reduce(outputs, mask_of(batch), config.reduction, config.reduction_tokens)
        projection = self.candidate_projection or self.context_projection
        return vectors if projection is None else projection(vectors)

    def finish_contexts(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Token outputs (B, T, h) to what is scored: (B, m, d)."""
        vectors = self.logit_contexts if self.has_many_vectors else self.normalised_contexts
        return vectors(outputs, batch)

    def logit_contexts(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Token outputs (B, T, h) to vectors whose scores are the logits of a loss: (B, m, d).

        The logits are the scores divided by the temperature.
        """
        return self.normalised_contexts(outputs, batch) / self.config.temperature

    def normalised_contexts(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Token outputs (B, T, h) to vectors before the temperature: (B, m, d)."""
        vectors = self.project_contexts(outputs, batch)
        if self.config.similarity == "cosine":
            vectors = functional.normalize(vectors, dim=-1)
        return vectors

    def finish_candidates(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Token outputs (B, T, h) to what is cached: (B, d)."""
        vectors = self.project_candidates(outputs, batch)
        if self.config.similarity == "cosine":
            vectors = functional.normalize(vectors, dim=-1)
        return vectors

    def forward(self, contexts: list[Batch], candidates: list[Batch]) -> tuple[Tensor, Tensor]:
        """Vectors with gradients, whose scores are the logits of a loss: (B, m, d), (N, d).

        The texts come as batches cut by length.
        """
        tower = self.candidate_tower or self.context_tower
        context_outputs = [self.context_tower(batch) for batch in contexts]
        candidate_outputs = [tower(batch) for batch in candidates]
        with torch.autocast(self.device.type, enabled=False):  # vectors and scores in float32
            return (
                in_order(
                    [
                        self.logit_contexts(outputs.float(), batch)
                        for outputs, batch in zip(context_outputs, contexts, strict=True)
                    ],
                    contexts,
                ),
                in_order(
                    [
                        self.finish_candidates(outputs.float(), batch)
                        for outputs, batch in zip(candidate_outputs, candidates, strict=True)
                    ],
                    candidates,
                ),
            )

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
            cosine similarity, a bi-encoder's vectors have unit length. If a context has fewer than
            m vectors, the rest are zeros, which `score` ignores.

        Raises:
            UsageError: `contexts` are not texts, or `batch_size` is below 1.
        """
        require_one_place(convert_to_numpy, keep_on_device)
        listed, is_one = as_contexts(contexts)
        vectors = self.encode_for_scoring(
            listed,
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
            float32, (N, d), or (d,) for one text; of unit length with cosine similarity.

        Raises:
            UsageError: `candidates` are not texts, or `batch_size` is below 1.
        """
        require_one_place(convert_to_numpy, keep_on_device)
        listed, is_one = as_candidates(candidates)
        vectors = self.candidate_outputs(
            listed,
            self.finish_candidates,
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
            keep_on_device=keep_on_device,
        )
        return handed_over(vectors, is_one, convert_to_numpy)

    def encode_for_scoring(self, contexts: Sequence[Context], **options: Any) -> Tensor:
        """The vectors of each context for an index and the formula: (B, m, d).

        A bi-encoder has m = 1. `options` are those of `context_outputs`.
        """
        return self.context_outputs(contexts, self.finish_contexts, **options)

    def context_outputs(
        self,
        contexts: Sequence[Context],
        finish: Finish,
        *,
        show_progress_bar: bool = False,
        **options: Any,
    ) -> Tensor:
        """What `finish` makes of the encoder's outputs of each context.

        Args:
            contexts: B contexts.
            finish: Makes vectors of the outputs of a batch.
            show_progress_bar: Show the progress of the encoding.
            **options: Those of `fill`.

        Returns:
            (B, m, d), float32.
        """
        described = "Encoding contexts" if show_progress_bar else None
        shape = self.num_vectors, self.dimension
        sequences = self.context_ids(contexts)
        unit = "contexts"
        return self.fill("context_tower", sequences, finish, shape, described, unit, **options)

    def candidate_outputs(
        self,
        candidates: Sequence[Context],
        finish: Finish,
        *,
        show_progress_bar: bool = False,
        **options: Any,
    ) -> Tensor:
        """What `finish` makes of the encoder's outputs of each candidate.

        Args:
            candidates: N candidates.
            finish: Makes vectors of the outputs of a batch.
            show_progress_bar: Show the progress of the encoding.
            **options: Those of `fill`.

        Returns:
            (N, d), float32.
        """
        described = "Encoding candidates" if show_progress_bar else None
        name = "context_tower" if self.candidate_tower is None else "candidate_tower"
        sequences = self.candidate_ids(candidates)
        shape = (self.dimension,)
        return self.fill(name, sequences, finish, shape, described, "candidates", **options)

    def fill(
        self,
        tower_name: str,
        sequences: Sequence[Sequence[int]],
        finish: Finish,
        shape: tuple[int, ...],
        described: str | None,
        unit: str,
        *,
        batch_size: int | None = None,
        keep_on_device: bool = False,
    ) -> Tensor:
        """What `finish` makes of each sequence.

        Args:
            tower_name: The encoder that reads the sequences.
            sequences: n sequences of token ids.
            finish: Makes vectors of the outputs of a batch.
            shape: The shape of what it makes of one sequence.
            described: What the progress is called; None shows none.
            unit: What the progress counts.
            batch_size: Rows of a batch; by default, a batch has `batch_tokens` padded tokens.
            keep_on_device: Leave the result where the model computes.

        Returns:
            (n, *shape), float32, on the CPU unless it is kept.
        """
        tower = self.for_inference(tower_name)
        place = self.device if keep_on_device else torch.device("cpu")
        encoded = torch.zeros(len(sequences), *shape, device=place)
        batches = self.batched(sequences, description=described, unit=unit, batch_size=batch_size)
        with torch.inference_mode():
            for rows, batch in batches:
                encoded[rows.to(place)] = finish(tower(batch).float(), batch).to(place)
        return encoded

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
            left = left if self.has_many_vectors else left[:, None]
        else:
            listed, one_context = as_contexts(contexts)
            left = self.encode_for_scoring(listed, **options)  # (B, m, d)
        if is_vectors(candidates):
            right, one_candidate = as_vectors("candidates", candidates, 2, self.dimension)
        else:
            texts, one_candidate = as_candidates(candidates)
            right = self.candidate_outputs(texts, self.finish_candidates, **options)  # (N, d)
        dtype = torch.promote_types(left.dtype, right.dtype)
        scores = self.score_all(left.to(right.device, dtype), right.to(dtype))  # (B, N)
        scores = scores[:, 0] if one_candidate else scores
        return scores[0] if one_context else scores

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
        right = self.candidate_outputs(seconds, self.finish_candidates, **options)  # (·, d)
        step = max(GATHERED_NUMBERS // (self.num_vectors * self.dimension), 1)
        scores = [torch.zeros(0)]
        for start in range(0, len(pairs), step):
            contexts = left[first_places[start : start + step]]
            candidates = right[second_places[start : start + step]]
            scores.append(self.score_each(contexts, candidates[:, None])[:, 0])
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

"""The towers of bi- and poly-encoders: contexts become m vectors, candidates one.

A bi-encoder is a poly-encoder with one context vector; only how a context's token outputs become
vectors differs. Normalisation is in the vectors, so that a score is the formula of `scoring.poly`
and nothing else, for training, index and search alike. So is the temperature of a poly-encoder,
whose attention needs it; a bi-encoder's only scales the logits of a loss.

Letters: B contexts, m vectors of each, N candidates, d dimensions, h width of the encoder,
T tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyrank.errors import UsageError
from polyrank.models.backbone import Backbone, twin_of
from polyrank.models.base import Model
from polyrank.models.config import BiEncoderConfig, PolyEncoderConfig
from polyrank.models.heads import dense_layers
from polyrank.models.pooling import reduce
from polyrank.records import Context
from polyrank.scoring.poly import Attention
from polyrank.tokens.batching import Batch, in_order, mask_of
from polyrank.tokens.tokenizer import TextTokenizer

Finish = Callable[[Tensor, Batch], Tensor]
"""Token outputs (B, T, h) of a batch to vectors."""


class Towers(Model):
    """The encoders of both sides with their projections, and the encoding of lists by them."""

    config: BiEncoderConfig | PolyEncoderConfig
    attention: Attention = "basic"
    tower_names = ("context_tower", "candidate_tower")
    has_many_vectors: ClassVar[bool]
    """Whether a context's vectors have their own axis and contain the temperature."""

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: TextTokenizer,
        candidate_backbone: Backbone | None = None,
        candidate_tokenizer: TextTokenizer | None = None,
    ) -> None:
        # candidate_…: those of the candidate side, where it has another encoder
        super().__init__(tokenizer, candidate_tokenizer)
        config = self.config
        self.context_tower = backbone
        self.candidate_tower = candidate_backbone
        if candidate_backbone is None and not config.shared_towers:
            self.candidate_tower = twin_of(backbone)
        widths = backbone.width, (candidate_backbone or backbone).width
        self.context_dense, self.candidate_dense = self.layers(dense_layers, widths, config.dense)
        if config.dense:
            widths = config.dense[-1].dimension, config.dense[-1].dimension
        self.context_projection, self.candidate_projection = self.layers(
            projection_layer, widths, config.projection
        )
        self.dimension: int = config.truncate_dim or config.projection or widths[0]
        self.require_dimension(config.projection or widths[0], config.projection or widths[1])
        lengths = [
            self.tokenizer.prompt_length(config.context_prompt, config.max_context_length),
            self.candidate_tokenizer.prompt_length(
                config.candidate_prompt, config.max_candidate_length
            ),
        ]
        self.context_unpooled, self.candidate_unpooled = [0, 0] if config.pool_prompt else lengths

    def layers(self, make: Any, widths: tuple[int, int], described: Any) -> tuple[Any, Any]:
        """What `make` gives for each side; that of the candidates is None where it is shared.

        Both start alike, where their widths do.
        """
        first, second = make(widths[0], described), None
        if not self.config.shared_towers:
            alike = widths[0] == widths[1]
            second = copy.deepcopy(first) if alike else make(widths[1], described)
        return first, second

    def require_dimension(self, contexts: int, candidates: int) -> None:
        """Raise UsageError for vectors of both sides that cannot be compared or cut."""
        if contexts != candidates:
            raise UsageError(
                f"Contexts have vectors of {contexts} numbers and candidates of {candidates}, "
                "which cannot be compared.",
                "Set projection, which brings both to one dimension.",
            )
        if self.dimension > contexts:
            raise UsageError(
                f"truncate_dim is {self.dimension}, but the vectors have {contexts} numbers.",
                "Choose a smaller truncate_dim, or none.",
            )

    @property
    def num_vectors(self) -> int:
        """The number m of vectors of a context."""
        return 1

    def context_vectors(self, outputs: Tensor, mask: Tensor) -> Tensor:
        """Token outputs (B, T, h) to the vectors of a context, before projection: (B, m, h)."""
        raise TypeError(f"{type(self).__name__} does not say how a context becomes vectors.")

    def candidate_vectors(self, outputs: Tensor, mask: Tensor) -> Tensor:
        """Token outputs (B, T, h) to the vector of a candidate, before projection: (B, h)."""
        config = self.config
        return reduce(
            outputs,
            mask,
            config.candidate_reduction or config.reduction,
            config.reduction_tokens,
            self.candidate_unpooled,
        )

    def project_contexts(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Token outputs (B, T, h) to vectors before normalisation and temperature: (B, m, d)."""
        vectors = self.context_vectors(outputs, mask_of(batch))
        for layers in (self.context_dense, self.context_projection):
            vectors = vectors if layers is None else layers(vectors)
        return vectors[..., : self.dimension]

    def project_candidates(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Token outputs (B, T, h) to vectors before normalisation: (B, d)."""
        vectors = self.candidate_vectors(outputs, mask_of(batch))
        shared = self.config.shared_towers
        dense = self.context_dense if shared else self.candidate_dense
        projection = self.context_projection if shared else self.candidate_projection
        for layers in (dense, projection):
            vectors = vectors if layers is None else layers(vectors)
        return vectors[..., : self.dimension]

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

    def encode_for_scoring(self, contexts: Sequence[Context], **options: Any) -> Tensor:
        """The vectors of each context for an index and the formula: (B, m, d).

        A bi-encoder has m = 1. `options` are those of `context_outputs`.
        """
        return self.context_outputs(contexts, "context", **options)

    def encode_candidates_for_scoring(
        self, candidates: Sequence[Context], **options: Any
    ) -> Tensor:
        """The vector of each candidate for an index and the formula: (N, d).

        `options` are those of `candidate_outputs`.
        """
        return self.candidate_outputs(candidates, **options)

    @property
    def gives_unit_length(self) -> bool:
        """Whether the vectors that users get are those of the formula."""
        return getattr(self.config, "unit_length", True) or self.config.similarity != "cosine"

    def context_outputs(
        self,
        contexts: Sequence[Context],
        graph: str,
        *,
        show_progress_bar: bool = False,
        **options: Any,
    ) -> Tensor:
        """The vectors of each context.

        Args:
            contexts: B contexts.
            graph: Which vectors: `context` or `context_projected` (see `engines.record`).
            show_progress_bar: Show the progress of the encoding.
            **options: Those of `fill`.

        Returns:
            (B, m, d), float32.
        """
        described = "Encoding contexts" if show_progress_bar else None
        shape = self.num_vectors, self.dimension
        sequences = self.context_ids(contexts)
        return self.fill(graph, sequences, shape, described, "contexts", **options)

    def candidate_outputs(
        self,
        candidates: Sequence[Context],
        graph: str = "candidate",
        *,
        show_progress_bar: bool = False,
        **options: Any,
    ) -> Tensor:
        """The vector of each candidate.

        Args:
            candidates: N candidates.
            graph: Which vectors: `candidate` or `candidate_projected` (see `engines.record`).
            show_progress_bar: Show the progress of the encoding.
            **options: Those of `fill`.

        Returns:
            (N, d), float32.
        """
        described = "Encoding candidates" if show_progress_bar else None
        sequences = self.candidate_ids(candidates)
        shape = (self.dimension,)
        return self.fill(graph, sequences, shape, described, "candidates", **options)

    def finish_of(self, graph: str) -> Finish:
        """What makes the vectors that `graph` names of an encoder's outputs."""
        return {
            "context": self.finish_contexts,
            "context_projected": self.project_contexts,
            "candidate": self.finish_candidates,
            "candidate_projected": self.project_candidates,
        }[graph]

    def graph_names(self) -> tuple[str, ...]:
        """The graphs of its vectors; with those that a classifier or people get, where they differ
        from those of the formula.
        """
        differ = self.classes is not None or not self.gives_unit_length
        kinds = ("", "_projected") if differ else ("",)
        return tuple(f"{side}{kind}" for side in ("context", "candidate") for kind in kinds)

    def tower_of(self, graph: str) -> str:
        """The name of the encoder that reads the texts of `graph`."""
        is_context = graph.startswith("context")
        return "context_tower" if is_context or not self.candidate_tower else "candidate_tower"

    def torch_reader(self, graph: str) -> Callable[[Batch], Tensor]:
        """What makes vectors of a batch of token ids."""
        tower, finish = self.for_inference(self.tower_of(graph)), self.finish_of(graph)
        return lambda batch: finish(tower(batch).float(), batch)

    def fill(
        self,
        graph: str,
        sequences: Sequence[Sequence[int]],
        shape: tuple[int, ...],
        described: str | None,
        unit: str,
        *,
        batch_size: int | None = None,
        keep_on_device: bool = False,
    ) -> Tensor:
        """The vectors of each sequence.

        Args:
            graph: Which vectors (see `engines.record`).
            sequences: n sequences of token ids.
            shape: The shape of what it makes of one sequence.
            described: What the progress is called; None shows none.
            unit: What the progress counts.
            batch_size: Rows of a batch; by default, a batch has `batch_tokens` padded tokens.
            keep_on_device: Leave the result where the model computes.

        Returns:
            (n, *shape), float32, on the CPU unless it is kept.
        """
        read = self.reader(graph)
        place = self.device if keep_on_device else torch.device("cpu")
        encoded = torch.zeros(len(sequences), *shape, device=place)
        is_candidate = graph.startswith("candidate")
        batches = self.batched(
            sequences,
            description=described,
            unit=unit,
            batch_size=batch_size,
            tokenizer=self.candidate_tokenizer if is_candidate else self.tokenizer,
        )
        with torch.inference_mode():
            for rows, batch in batches:
                encoded[rows.to(place)] = read(batch).to(place)
        return encoded


def projection_layer(width: int, dimension: int | None) -> nn.Linear | None:
    """The new layer that brings vectors to a dimension; None for no layer."""
    return None if dimension is None else nn.Linear(width, dimension, bias=False)

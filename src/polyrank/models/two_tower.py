"""The bi-encoder and the poly-encoder seen alike: contexts to m vectors, candidates to one.

A bi-encoder is a poly-encoder with one context vector; only how a context's token outputs become
vectors differs. Temperature and normalisation are put into the vectors, so that a score is the
formula of `scoring.poly` and nothing else, for training, index and search alike.

Letters: B contexts, m vectors of each, N candidates, C candidates of each context, d dimensions,
h width of the encoder, T tokens.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyrank.config import require_list
from polyrank.models.backbone import Backbone
from polyrank.models.base import Model, hits
from polyrank.models.config import BiEncoderConfig, PolyEncoderConfig
from polyrank.models.pooling import reduce
from polyrank.records import Context, Hit
from polyrank.scoring.poly import Attention, poly_scores, poly_scores_each
from polyrank.tokens.batching import Batch, in_order, mask_of
from polyrank.tokens.tokenizer import TextTokenizer

Finish = Callable[[Tensor, Batch], Tensor]
"""Token outputs (B, T, h) of a batch to vectors."""


class TwoTower(Model):
    """Base of the architectures whose candidates can be encoded ahead of time."""

    config: BiEncoderConfig | PolyEncoderConfig
    attention: Attention = "basic"
    tower_names = ("context_tower", "candidate_tower")

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
        vectors = self.project_contexts(outputs, batch)
        if self.config.similarity == "cosine":
            vectors = functional.normalize(vectors, dim=-1)
        return vectors / self.config.temperature

    def finish_candidates(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Token outputs (B, T, h) to what is cached: (B, d)."""
        vectors = self.project_candidates(outputs, batch)
        if self.config.similarity == "cosine":
            vectors = functional.normalize(vectors, dim=-1)
        return vectors

    def forward(self, contexts: list[Batch], candidates: list[Batch]) -> tuple[Tensor, Tensor]:
        """Vectors with gradients, of batches cut by length: (B, m, d), (N, d)."""
        tower = self.candidate_tower or self.context_tower
        context_outputs = [self.context_tower(batch) for batch in contexts]
        candidate_outputs = [tower(batch) for batch in candidates]
        with torch.autocast(self.device.type, enabled=False):  # vectors and scores in float32
            return (
                in_order(
                    [
                        self.finish_contexts(outputs.float(), batch)
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

    def encode_contexts(
        self, contexts: Sequence[Context], *, show_progress_bar: bool = False
    ) -> Tensor:
        """The vectors of each context: (B, m, d), float32, on the CPU.

        A context is a text or a list of turns, oldest first. Where a context has fewer than m
        vectors, the rest are zeros, which `score` leaves out.
        """
        return self.context_outputs(contexts, self.finish_contexts, show_progress_bar)

    def encode_candidates(self, texts: Sequence[str], *, show_progress_bar: bool = False) -> Tensor:
        """The vector of each candidate: (N, d), float32, on the CPU."""
        return self.candidate_outputs(texts, self.finish_candidates, show_progress_bar)

    def context_outputs(
        self, contexts: Sequence[Context], finish: Finish, show_progress_bar: bool
    ) -> Tensor:
        """What `finish` makes of the outputs of each context: (B, m, d), float32, on the CPU."""
        require_list("contexts", contexts)
        sequences = self.context_ids(contexts)
        encoded = torch.zeros(len(sequences), self.num_vectors, self.dimension)
        described = "Encoding contexts" if show_progress_bar else None
        return self.fill(encoded, "context_tower", sequences, finish, described)

    def candidate_outputs(
        self, texts: Sequence[str], finish: Finish, show_progress_bar: bool
    ) -> Tensor:
        """What `finish` makes of the outputs of each candidate: (N, d), float32, on the CPU."""
        require_list("candidates", texts)
        sequences = self.candidate_ids(texts)
        encoded = torch.zeros(len(sequences), self.dimension)
        described = "Encoding candidates" if show_progress_bar else None
        name = "context_tower" if self.candidate_tower is None else "candidate_tower"
        return self.fill(encoded, name, sequences, finish, described)

    @torch.inference_mode()
    def fill(
        self,
        encoded: Tensor,
        tower_name: str,
        sequences: Sequence[Sequence[int]],
        finish: Finish,
        described: str | None,
    ) -> Tensor:
        """Write what `finish` makes of each sequence into the rows of `encoded`."""
        tower = self.for_inference(tower_name)
        for rows, batch in self.batched(sequences, description=described):
            encoded[rows.cpu()] = finish(tower(batch).float(), batch).cpu()
        return encoded

    def score(self, contexts: Tensor, candidates: Tensor) -> Tensor:
        """Every context against every candidate: (B, m, d), (N, d) → (B, N)."""
        return poly_scores(contexts, candidates, self.attention)

    def score_each(self, contexts: Tensor, candidates: Tensor) -> Tensor:
        """Every context against its own candidates: (B, m, d), (B, C, d) → (B, C)."""
        return poly_scores_each(contexts, candidates, self.attention)

    def rank(
        self, context: Context, candidates: Sequence[str], *, top_k: int | None = None
    ) -> list[Hit]:
        """The candidates by score, the best first; a hit's id is its place in `candidates`.

        Equal texts are scored once, since the last bit of a product depends on the row. Raises
        UsageError for no candidates or a `top_k` that is not between 1 and their number.
        """
        require_list("candidates", candidates)
        places = {text: place for place, text in enumerate(dict.fromkeys(candidates))}
        scores = self.score(self.encode_contexts([context]), self.encode_candidates(list(places)))
        return hits(scores[0, [places[text] for text in candidates]], candidates, top_k)

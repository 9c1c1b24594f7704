"""What is trained in pre-training: a bi-encoder, and above its encoders what predicts masked tokens
and answers. None of that is saved with the model.

Letters: n pairs, K masked tokens of the one that has most, R those of its response, M all masked
tokens, T tokens, h width of the encoder, e of its word embeddings, V tokens of the vocabulary, d
dimensions.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from polyrank.models.backbone import Backbone
from polyrank.models.heads import FollowsHead, MaskedDecoder, MaskedHead
from polyrank.models.two_tower import TwoTower
from polyrank.tokens.batching import Batch, mask_of
from polyrank.training.module import Loss, TwoTowers
from polyrank.training.objectives.registry import ObjectiveConfig


class PretrainingModule(TwoTowers):
    """A bi-encoder and, for each tower that reads pairs as one text or for a decoder, the heads for
    masked tokens and for whether a text follows, and the decoder if one is needed.
    """

    parts = ("contexts", "candidates", "joined", "decoded")

    def __init__(
        self,
        model: TwoTower,
        objective: ObjectiveConfig,
        loss: Loss,
        *,
        tokens: Tensor,
        seed: int,
        one_for_both: bool,
        has_decoder: bool,
        at_every_token: bool = False,
        num_answers: int = 2,
    ) -> None:
        """`tokens` are ids as often as texts of the run have them, of any number. With
        `one_for_both`, one encoder is trained, and `finish` makes both towers of it. Whether a text
        follows has `num_answers`. `at_every_token` is for the decoder.
        """
        super().__init__(model, objective, loss)
        self.one_for_both = one_for_both
        width = model.context_tower.width
        self.masked_heads, self.follows_heads = nn.ModuleList(), nn.ModuleList()
        self.decoders = nn.ModuleList()
        for embeddings in map(embeddings_of, self.readers):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                counts = torch.bincount(tokens, minlength=len(embeddings))
                head = MaskedHead(width, embeddings.detach(), counts)
                self.masked_heads.append(head.to(model.device))
                self.follows_heads.append(FollowsHead(width, num_answers).to(model.device))
                if has_decoder:
                    decoder = MaskedDecoder(
                        width, embeddings.detach(), counts, at_every_token=at_every_token
                    )
                    self.decoders.append(decoder.to(model.device))

    @property
    def readers(self) -> list[Backbone]:
        """The towers that read pairs as one text or for a decoder, each its share of them."""
        model = self.model
        if model.candidate_tower is None or self.one_for_both:
            return [model.context_tower]
        return [model.context_tower, model.candidate_tower]

    def encode(self, part: str, batch: Batch) -> Tensor:
        """Contexts (B, 1, d), candidates (U, d); of pairs read as one, the first output and those
        at the masked tokens: (n, 1 + K, h); of pairs that are decoded, the encoder's outputs at the
        masked tokens of the first text and the decoder's at those of the second: (n, K + R, h).
        """
        if part == "joined":
            outputs = self.readers[int(batch["reader"])](batch)  # (n, T, h)
            picked = torch.cat([outputs[:, :1], at(batch["positions"], outputs)], dim=1)
        elif part == "decoded":
            outputs, vectors = self.read(batch)
            decoded = self.decode(batch, vectors)
            picked = torch.cat([at(batch["positions"], outputs), decoded], dim=1)
        else:
            return super().encode(part, batch)
        return picked.to(torch.promote_types(picked.dtype, torch.float32))

    def read(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The outputs of first texts and their vectors, before projection: (n, T, h), (n, h)."""
        outputs = self.readers[int(batch["reader"])](batch)
        vectors_of = self.model.candidate_vectors
        if bool(batch["is_context"]):
            vectors_of = self.model.context_vectors
        with torch.autocast(self.model.device.type, enabled=False):  # vectors in float32
            exact = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
            return outputs, vectors_of(exact, mask_of(batch)).view(len(exact), -1)

    def decode(self, batch: Batch, vectors: Tensor) -> Tensor:
        """The decoder's outputs at masked tokens of the second texts, from vectors of the first
        and the tokens that are left: (n, h) → (n, R, h).
        """
        reader = int(batch["reader"])
        outputs = self.decoders[reader](
            vectors,
            batch["response_ids"],
            batch["response_mask"],
            embeddings_of(self.readers[reader]),
        )
        return at(batch["response_positions"], outputs)

    def masked_logits(self, reader: int, outputs: Tensor, *, of_decoder: bool = False) -> Tensor:
        """What stands at masked tokens, of the outputs there of a tower or of its decoder:
        (M, h) → (M, V).
        """
        head: Any = self.decoders[reader].head if of_decoder else self.masked_heads[reader]
        logits: Tensor = head(outputs, embeddings_of(self.readers[reader]))
        return logits

    def finish(self) -> None:
        """Make both towers of the one encoder that was trained, where one was."""
        if self.one_for_both and self.model.candidate_tower is not None:
            self.model.candidate_tower.load_state_dict(self.model.context_tower.state_dict())


def at(positions: Tensor, outputs: Tensor) -> Tensor:
    """The outputs at positions: (n, K), (n, T, h) → (n, K, h)."""
    return outputs.gather(1, positions[:, :, None].expand(-1, -1, outputs.shape[-1]))


def embeddings_of(tower: Backbone) -> Tensor:
    """The word embeddings of an encoder: (V, e)."""
    encoder: Any = tower.encoder
    weight: Tensor = encoder.get_input_embeddings().weight
    return weight

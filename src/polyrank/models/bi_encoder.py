"""The bi-encoder: one vector per context, one per candidate (Sentence-BERT; two towers)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from polyrank.models.backbone import Backbone
from polyrank.models.config import BiEncoderConfig, ClassifierConfig
from polyrank.models.heads import PairClassifier
from polyrank.models.pooling import reduce
from polyrank.models.two_tower import TwoTower
from polyrank.records import Context
from polyrank.tokens.tokenizer import TextTokenizer

AT_ONCE = 4096
"""The vectors of this many pairs are classified at once."""
T = TypeVar("T", bound=Hashable)


class BiEncoder(TwoTower):
    """Encodes both sides apart; the score is their inner product or scaled cosine.

    One that was trained on classes keeps its `classifier`, which sees the two vectors of a pair
    before normalisation and temperature. It changes no vector and no score.
    """

    architecture = "bi"

    def __init__(
        self, backbone: Backbone, tokenizer: TextTokenizer, config: BiEncoderConfig
    ) -> None:
        self.config = config
        super().__init__(backbone, tokenizer)
        self.classifier: PairClassifier | None = None

    def context_vectors(self, outputs: Tensor, mask: Tensor) -> Tensor:
        """The one reduction of the outputs: (B, T, h) → (B, 1, h)."""
        reduced = reduce(outputs, mask, self.config.reduction, self.config.reduction_tokens)
        return reduced[:, None, :]

    @property
    def classifier_config(self) -> ClassifierConfig | None:
        """What is known of the classes; None without a classifier."""
        return None if self.classifier is None else self.classifier.config

    def take_classifier(self, config: ClassifierConfig) -> None:
        """Get a classifier of these classes, its weights not yet set."""
        parts = config.concatenation or "u,v,|u-v|"
        self.classifier = PairClassifier(self.dimension, config.classes, parts).to(self.device)

    def drop_classifier(self) -> None:
        """Forget the classifier."""
        self.classifier = None

    def class_logits(
        self, pairs: Sequence[tuple[Context, str]], *, show_progress_bar: bool = False
    ) -> Tensor:
        """The logits of the classes of each pair of texts: (n, L), float32, on the CPU.

        Every different text is encoded once for each side. Raises UsageError without a classifier.
        """
        if self.classifier is None:
            return super().class_logits(pairs, show_progress_bar=show_progress_bar)
        firsts, first_places = different(
            context if isinstance(context, str) else tuple(context) for context, _ in pairs
        )
        seconds, second_places = different(text for _, text in pairs)
        u = self.context_outputs(firsts, self.project_contexts, show_progress_bar)[:, 0]  # (·, d)
        v = self.candidate_outputs(seconds, self.project_candidates, show_progress_bar)  # (·, d)
        logits = []
        with torch.inference_mode():
            for start in range(0, len(pairs), AT_ONCE):
                left = u[first_places[start:][:AT_ONCE]].to(self.device)
                right = v[second_places[start:][:AT_ONCE]].to(self.device)
                logits.append(self.classifier(left, right).cpu())
        return torch.cat(logits) if logits else torch.zeros(0, len(self.classifier.config.classes))


def different(texts: Iterable[T]) -> tuple[list[T], list[int]]:
    """The different texts in their order, and the place of each text among them."""
    places: dict[T, int] = {}
    found = [places.setdefault(text, len(places)) for text in texts]
    return list(places), found

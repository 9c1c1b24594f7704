"""The bi-encoder: one vector per context, one per candidate (Sentence-BERT; two towers)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from polyrank.models.answers import key_of
from polyrank.models.backbone import Backbone
from polyrank.models.config import BiEncoderConfig, ClassifierConfig
from polyrank.models.heads import PairClassifier
from polyrank.models.inputs import Pair
from polyrank.models.pooling import reduce
from polyrank.models.two_tower import TwoTower, different
from polyrank.tokens.batching import Batch
from polyrank.tokens.tokenizer import TextTokenizer

AT_ONCE = 4096
"""The vectors of this many pairs are classified at once."""


class BiEncoder(TwoTower):
    """Encodes contexts and candidates separately; the score is the cosine or inner product.

    After training on classes it keeps a `classifier`, which sees a pair's two vectors before
    normalisation and temperature. It changes no vector and no score.
    """

    architecture = "bi"
    has_many_vectors = False

    def __init__(
        self,
        backbone: Backbone,
        tokenizer: TextTokenizer,
        config: BiEncoderConfig,
        candidate_backbone: Backbone | None = None,
        candidate_tokenizer: TextTokenizer | None = None,
    ) -> None:
        """Make a model of its parts; `from_pretrained` loads one.

        Args:
            backbone: The encoder of contexts and, if `candidate_backbone` is None, of candidates.
            tokenizer: Its tokeniser.
            config: The settings.
            candidate_backbone: The encoder of candidates, if it is another one.
            candidate_tokenizer: Its tokeniser.
        """
        self.config = config
        super().__init__(backbone, tokenizer, candidate_backbone, candidate_tokenizer)
        self.classifier: PairClassifier | None = None
        self._classes: ClassifierConfig | None = None

    def context_vectors(self, outputs: Tensor, mask: Tensor) -> Tensor:
        """The one reduction of the outputs: (B, T, h) → (B, 1, h)."""
        config = self.config
        reduced = reduce(
            outputs, mask, config.reduction, config.reduction_tokens, self.context_unpooled
        )
        return reduced[:, None, :]

    @property
    def classifier_config(self) -> ClassifierConfig | None:
        """The settings of the classes; None without a classifier."""
        return self._classes

    def take_classifier(self, config: ClassifierConfig) -> None:
        """Add a classifier of these classes, without weights yet."""
        parts = config.concatenation or "u,v,|u-v|"
        self.classifier = PairClassifier(self.dimension, config.classes, parts).to(self.device)
        self._classes = self.classifier.config

    def drop_classifier(self) -> None:
        """Drop the classifier."""
        self.classifier = self._classes = None

    def logits_of_pairs(self, pairs: Sequence[Pair], **options: Any) -> Tensor:
        """The logits of the classes of each pair: (n, L). Each text is encoded once per side."""
        classify = self.reader("classifier")
        firsts, first_places = different(key_of(context) for context, _ in pairs)
        seconds, second_places = different(text for _, text in pairs)
        u = self.context_outputs(firsts, "context_projected", **options)[:, 0]  # (·, d)
        v = self.candidate_outputs(seconds, "candidate_projected", **options)  # (·, d)
        logits = []
        with torch.inference_mode():
            for start in range(0, len(pairs), AT_ONCE):
                left = u[first_places[start:][:AT_ONCE]].to(self.device)
                right = v[second_places[start:][:AT_ONCE]].to(self.device)
                logits.append(classify({"u": left, "v": right}).cpu())
        return torch.cat(logits) if logits else torch.zeros(0, len(self.classes or ()))

    def graph_names(self) -> tuple[str, ...]:
        """The graphs of its vectors, and of its classifier if it has one."""
        return super().graph_names() + (() if self.classifier is None else ("classifier",))

    def torch_reader(self, graph: str) -> Callable[[Batch], Tensor]:
        """What makes vectors of token ids, or the classes' logits of the vectors u and v."""
        classifier = self.classifier
        if graph != "classifier":
            return super().torch_reader(graph)
        assert classifier is not None
        return lambda batch: classifier(batch["u"], batch["v"])

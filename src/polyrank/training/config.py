"""How a training run goes: saved beside the model it made. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from polyrank.config import require


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The settings of one training run."""

    batch_size: int = 64
    """Contexts of a step; for bi and poly, the responses of the others are the negatives."""
    epochs: float = 3.0
    """Passes over the training examples."""
    max_steps: int | None = None
    """Stop after this many steps, whatever the epochs."""
    learning_rate: float = 5e-5
    """Peak learning rate of the encoders."""
    new_learning_rate: float = 1e-3
    """Peak learning rate of what starts from nothing: codes, heads, projections."""
    weight_decay: float = 0.01
    """AdamW's weight decay."""
    warmup: float = 0.1
    """Steps of linear warm-up or, below 1, their share of all steps."""
    schedule: Literal["linear", "cosine", "constant_with_warmup"] = "linear"
    """The learning rate after the warm-up."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    dropout: float = 0.0
    """Dropout on the hidden states of the encoders; attention weights are never dropped."""
    num_negatives: int = 15
    """Wrong responses a context for the cross-encoder: its own first, then of the training set."""
    evaluations: int = 4
    """How often the dev examples are evaluated and a checkpoint is kept."""
    metric: Literal["recall@1", "mrr"] = "recall@1"
    """The dev figure that chooses the best checkpoint."""
    train_batch_tokens: int = 1024
    """Padded tokens of one pass through an encoder; a step takes several. Changes no result."""
    seed: int = 0
    """Seed of the order, the negatives and all that is drawn."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "num_negatives", "evaluations", "train_batch_tokens"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        for name in ("epochs", "learning_rate", "new_learning_rate", "max_grad_norm"):
            require(getattr(self, name) > 0, name, "positive", getattr(self, name))
        require(self.weight_decay >= 0, "weight_decay", "0 or more", self.weight_decay)
        require(self.warmup >= 0, "warmup", "0 or more", self.warmup)
        steps = self.max_steps
        require(steps is None or steps >= 1, "max_steps", "at least 1", steps)
        require(0 <= self.dropout < 1, "dropout", "from 0 to below 1", self.dropout)

"""The settings of a training run, saved beside the model that it makes. Needs no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from polyrank.config import require
from polyrank.evaluation.metric_names import NAME, NAMES

METRICS = re.compile(rf"loss|{NAME.pattern}|spearman|pearson|accuracy|macro_f1|held_out")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The settings of one training run."""

    batch_size: int = 64
    """Contexts per step, over all processes. For bi and poly, the responses of the other contexts
    are the negatives."""
    epochs: float = 3.0
    """Passes over the training examples."""
    max_steps: int | None = None
    """Stop after this many steps, regardless of --epochs."""
    optimiser: Literal["adamw", "adamax"] = "adamw"
    """AdamW, or Adamax, which has no weight decay here."""
    beta2: float = 0.999
    """The share of its squared gradients, or of their maximum, that the optimiser keeps from step
    to step."""
    learning_rate: float = 5e-5
    """The peak learning rate of the encoders."""
    new_learning_rate: float = 1e-3
    """The peak learning rate of new parameters: heads, projections."""
    code_learning_rate: float = 1e-2
    """The peak learning rate of the codes of a poly-encoder or of the head `interaction`."""
    static_learning_rate: float = 0.01
    """The peak learning rate of static embeddings. Only texts with a word train its embedding."""
    weight_decay: float = 0.01
    """The weight decay of AdamW on the matrices of the encoders."""
    warmup: float = 0.1
    """The number of linear warm-up steps or, below 1, their share of all steps."""
    schedule: Literal["linear", "cosine", "inverse_sqrt", "constant_with_warmup", "plateau"] = (
        "linear"
    )
    """The schedule of the learning rate after the warm-up. `plateau` lowers it at each evaluation
    at which the dev loss has not improved."""
    plateau_factor: float = 0.4
    """The factor by which `plateau` multiplies the learning rates."""
    max_grad_norm: float = 1.0
    """The norm to which larger gradients are scaled down."""
    dropout: float = 0.0
    """The dropout of the hidden states of the encoders. Attention weights are never dropped."""
    trainable: Literal["top", "top4", "all_but_embeddings", "all"] = "all"
    """The part of the encoders to train: the top layer, the top four layers, all layers without the
    embeddings, or everything. Heads, codes and projections are always trained."""
    lora_rank: int | None = None
    """Train an adapter of this rank (LoRA) instead of the encoder, which is frozen. Two towers have
    an adapter each, over one encoder. 16 is a usual rank."""
    lora_alpha: float | None = None
    """The update that an adapter makes is multiplied by this / the rank. By default, twice the
    rank."""
    lora_dropout: float = 0.0
    """The dropout of what an adapter reads."""
    lora_targets: tuple[str, ...] = ()
    """The linear layers that have an adapter: the ends of their names, or `all-linear`. By default,
    those of the attention and the feed-forward part of every layer."""
    lora_learning_rate: float = 1e-3
    """The peak learning rate of the adapters."""
    lora_merge: bool = False
    """Save the encoder with the adapter merged into it. Otherwise the adapter is saved alone, and
    the model needs its base."""
    rescale_last_layer: float | Literal["bert"] = 1.0
    """The factor by which the last normalisation scales the encoders' outputs at the start. 1
    changes nothing. `bert` computes the factor that gives the outputs the standard deviation of
    BERT's."""
    num_negatives: int = 15
    """The number of wrong responses per context for the cross-encoder. The example's own come
    first, then others from the training set."""
    evaluations: int = 4
    """How many times to evaluate the dev data and keep a checkpoint."""
    evaluations_per_epoch: float | None = None
    """How many times to evaluate in each epoch, instead of `evaluations`. 2 evaluates after each
    half."""
    metric: str | None = None
    """The dev figure that chooses the best checkpoint: loss, recall@K, ndcg@K, mrr@K, mrr or map;
    for labelled pairs, spearman, pearson, accuracy or macro_f1. By default, recall@1; ndcg@10
    for a corpus, spearman for scores and accuracy for classes."""
    train_batch_tokens: int = 1024
    """The number of padded tokens in one pass through an encoder. A step takes several passes. The
    result does not depend on it."""
    seed: int = 0
    """The seed of the order, the negatives and everything else that is drawn."""

    def __post_init__(self) -> None:
        for name in ("batch_size", "num_negatives", "evaluations", "train_batch_tokens"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        rates = (
            "learning_rate",
            "new_learning_rate",
            "code_learning_rate",
            "static_learning_rate",
            "lora_learning_rate",
        )
        for name in (*rates, "epochs", "max_grad_norm"):
            require(getattr(self, name) > 0, name, "positive", getattr(self, name))
        factor = self.rescale_last_layer
        require(factor == "bert" or factor > 0, "rescale_last_layer", "positive or bert", factor)
        require(self.weight_decay >= 0, "weight_decay", "0 or more", self.weight_decay)
        require(0 <= self.beta2 < 1, "beta2", "from 0 to below 1", self.beta2)
        require(self.warmup >= 0, "warmup", "0 or more", self.warmup)
        decay = self.plateau_factor
        require(0 < decay < 1, "plateau_factor", "above 0 and below 1", decay)
        steps = self.max_steps
        require(steps is None or steps >= 1, "max_steps", "at least 1", steps)
        require(0 <= self.dropout < 1, "dropout", "from 0 to below 1", self.dropout)
        self.require_lora()
        often = self.evaluations_per_epoch
        require(often is None or often > 0, "evaluations_per_epoch", "positive", often)
        known = f"loss, {NAMES}, spearman, pearson, accuracy, macro_f1 or held_out"
        metric = self.metric
        require(metric is None or bool(METRICS.fullmatch(metric)), "metric", known, repr(metric))

    def require_lora(self) -> None:
        """Raise UsageError for settings that LoRA cannot have."""
        rank, alpha, share = self.lora_rank, self.lora_alpha, self.lora_dropout
        require(rank is None or rank >= 1, "lora_rank", "at least 1", rank)
        require(alpha is None or alpha > 0, "lora_alpha", "positive", alpha)
        require(0 <= share < 1, "lora_dropout", "from 0 to below 1", share)
        if rank is None:
            return
        known = "all or all_but_embeddings with lora_rank"
        require(self.trainable in ("all", "all_but_embeddings"), "trainable", known, self.trainable)
        factor = self.rescale_last_layer
        require(factor == 1, "rescale_last_layer", "1 with lora_rank", factor)

    def steps_per_epoch(self, num_examples: int) -> int:
        """The steps of one pass. A last batch that is not full is left out."""
        return max(num_examples // self.batch_size, 1)

    def num_steps(self, num_examples: int) -> int:
        """The steps of the whole run."""
        if self.max_steps is not None:
            return self.max_steps
        return max(round(self.steps_per_epoch(num_examples) * self.epochs), 1)

    def evaluation_interval(self, num_examples: int) -> int:
        """The number of steps between two evaluations, each of which keeps a checkpoint."""
        if self.evaluations_per_epoch is not None:
            an_epoch = self.steps_per_epoch(num_examples)
            return max(round(an_epoch / self.evaluations_per_epoch), 1)
        return max(-(-self.num_steps(num_examples) // self.evaluations), 1)


STANDARD = TrainingConfig()
LORA = ("lora_alpha", "lora_dropout", "lora_targets", "lora_learning_rate", "lora_merge")


def without_effect(config: TrainingConfig, default: TrainingConfig = STANDARD) -> dict[str, str]:
    """The names of settings that differ from the default and have no effect, each with the name of
    the setting that is the reason.
    """
    causes = {
        "weight_decay": ("optimiser", config.optimiser != "adamw"),
        "plateau_factor": ("schedule", config.schedule != "plateau"),
        "evaluations": ("evaluations_per_epoch", config.evaluations_per_epoch is not None),
        "epochs": ("max_steps", config.max_steps is not None),
        "learning_rate": ("lora_rank", config.lora_rank is not None),
        **dict.fromkeys(LORA, ("lora_rank", config.lora_rank is None)),
    }
    return {
        name: cause
        for name, (cause, is_idle) in causes.items()
        if is_idle and vars(config)[name] != vars(default)[name]
    }

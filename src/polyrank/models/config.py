"""The settings that define a model: saved in `polyrank.json`, flags of `train` and `pretrain`.

Needs no torch, so that `--help` can show them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from polyrank.config import require
from polyrank.tokens.tokenizer import Side, Truncation

Reduction = Literal["first", "mean", "mean_first", "max"]
Similarity = Literal["dot", "cosine"]
ContextVectors = Literal["learnt", "first", "last", "last_and_first"]
Attention = Literal["basic", "sqrt"]
Task = Literal["rank", "classify", "regress"]
Concatenation = Literal["u,v", "|u-v|", "u*v", "|u-v|,u*v", "u,v,u*v", "u,v,|u-v|", "u,v,|u-v|,u*v"]


@dataclass(frozen=True, kw_only=True)
class TwoTowerConfig:
    """What the bi-encoder and the poly-encoder share."""

    shared_towers: bool = False
    """One encoder for both sides, instead of two that start alike and may diverge."""
    reduction: Reduction = "mean"
    """How token outputs become one vector."""
    reduction_tokens: int = 16
    """How many outputs `mean_first` averages."""
    similarity: Similarity = "cosine"
    """Inner product of the vectors as they are, or of unit vectors."""
    temperature: float = 0.05
    """The similarity is divided by it."""
    projection: int | None = None
    """Dimension of a linear layer above the reduction; `none` means no layer."""
    max_context_length: int = 128
    """The most tokens of a context. Special tokens count."""
    max_candidate_length: int = 128
    """The most tokens of a candidate. Special tokens count."""
    context_truncation: Truncation = "by_kind"
    """The side on which a longer context is cut: `left` keeps the newest turns, `right` the
    beginning; `by_kind` cuts dialogues on the left and single texts on the right."""
    candidate_truncation: Side = "right"
    """The side on which a longer candidate is cut."""

    def __post_init__(self) -> None:
        require(self.temperature > 0, "temperature", "positive", self.temperature)
        for name in ("reduction_tokens", "max_context_length", "max_candidate_length"):
            require(getattr(self, name) > 0, name, "at least 1", getattr(self, name))
        projection = self.projection
        require(projection is None or projection > 0, "projection", "at least 1", projection)


@dataclass(frozen=True, kw_only=True)
class BiEncoderConfig(TwoTowerConfig):
    """Sentence-BERT's and the two-tower model's architecture."""

    architecture: ClassVar[str] = "bi"


@dataclass(frozen=True, kw_only=True)
class PolyEncoderConfig(TwoTowerConfig):
    """The poly-encoder of Humeau et al. (2020)."""

    architecture: ClassVar[str] = "poly"

    num_codes: int = 64
    """The number m of context vectors."""
    context_vectors: ContextVectors = "learnt"
    """Learnt codes attend over the outputs; or the first m, the last m, the last m and h₁."""
    attention: Attention = "basic"
    """`sqrt` divides the logits of both attentions by √d."""
    code_scale: float = 1.0
    """Spread of the initial codes: the standard deviation of a code's first attention logits."""

    code_recency: float = 0.1
    """How much a token's logit falls with every token after it: learnt, from 0 for the first code
    to this for the last, so that codes look back to different depths. 0 is the paper's codes."""

    code_mean: float = 0.67
    """Share of every code's attention that is spread evenly over the context, which is the
    bi-encoder's mean. 0 is the paper's codes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.code_mean < 1, "code_mean", "from 0 to below 1", self.code_mean)
        require(self.code_recency >= 0, "code_recency", "0 or more", self.code_recency)
        require(self.num_codes > 0, "num_codes", "at least 1", self.num_codes)
        require(self.code_scale > 0, "code_scale", "positive", self.code_scale)


@dataclass(frozen=True, kw_only=True)
class CrossEncoderConfig:
    """Both texts through one encoder; the first output to a score, classes or a value."""

    architecture: ClassVar[str] = "cross"

    task: Task = "rank"
    """A score for ranking, n-way classification, or regression."""
    head: Literal["auto", "linear", "pooler", "interaction"] = "auto"
    """From the outputs to the score. `linear` is one layer; `pooler` is dense, tanh, out, as in
    published rerankers; `interaction` compares token by token, from texts read as a bi-encoder
    reads them, with a gate between them. `auto` keeps the head of a base that is a reranker, and
    takes `interaction` to rank with another BERT, ELECTRA or RoBERTa, and `linear` for the rest."""
    shared_towers: bool | None = None
    """One encoder for both texts, or one for each. By default, `interaction` has one for each; the
    other heads always have one for both."""
    gate: float = -6.0
    """Where the gate of `interaction` starts: what is added to the attention logits between the
    two texts. It is learnt."""
    num_labels: int = 3
    """Classes of the classification."""
    reduction: Literal["first", "mean"] = "first"
    """How token outputs become one vector."""
    head_dropout: float = 0.1
    """Dropout of the head while it is trained."""
    max_context_length: int = 128
    """Tokens of the context inside the pair."""
    max_candidate_length: int = 128
    """Tokens of the candidate inside the pair."""
    context_truncation: Truncation = "by_kind"
    """The side on which a longer context is cut: `left` keeps the newest turns, `right` the
    beginning; `by_kind` cuts dialogues on the left and single texts on the right."""
    candidate_truncation: Side = "right"
    """The side on which a longer candidate is cut."""

    def __post_init__(self) -> None:
        if self.head == "auto" and self.task != "rank":
            object.__setattr__(self, "head", "linear")
        if self.shared_towers is None and self.head != "auto":
            object.__setattr__(self, "shared_towers", self.head != "interaction")
        if self.head == "interaction":
            require(self.task == "rank", "task", "rank with head = interaction", self.task)
        elif self.head != "auto":
            known = f"true with head = {self.head}"
            require(bool(self.shared_towers), "shared_towers", known, self.shared_towers)
        require(self.num_labels > 1, "num_labels", "at least 2", self.num_labels)
        require(0 <= self.head_dropout < 1, "head_dropout", "from 0 to below 1", self.head_dropout)
        for name in ("max_context_length", "max_candidate_length"):
            require(getattr(self, name) > 0, name, "at least 1", getattr(self, name))


UNSTATED = {"context_truncation": "left", "candidate_truncation": "right"}
"""What a saved model has whose description does not name these settings, which are newer."""


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """The classes that a saved model tells pairs of texts into, beside what defines a score."""

    classes: tuple[str, ...]
    """The name of each class, in the order of the numbers; a class without a name is called by
    its number."""
    concatenation: Concatenation | None = None
    """What a bi-encoder's classifier sees of the two vectors; a cross-encoder's sees the pair."""

    def __post_init__(self) -> None:
        different = len(set(self.classes)) == len(self.classes) > 1
        require(different, "classes", "at least two different names", list(self.classes))


@dataclass(frozen=True, kw_only=True)
class NewEncoderConfig:
    """A BERT of any size, with a vocabulary of its own."""

    num_layers: int = 4
    """Layers of attention."""
    width: int = 256
    """Width of a token's output."""
    num_heads: int = 4
    """Heads of each attention; they divide the width."""
    intermediate: int | None = None
    """Width between the two dense layers of a block; 4 times the width by default."""
    positions: int = 512
    """The most tokens of a text."""
    vocabulary: int = 16_000
    """The most pieces of the vocabulary, which is trained on the corpus."""
    lower_case: bool = True
    """Do not tell capital letters from small ones."""

    def __post_init__(self) -> None:
        for name in ("num_layers", "width", "num_heads", "positions"):
            require(getattr(self, name) >= 1, name, "at least 1", getattr(self, name))
        require(
            self.width % self.num_heads == 0, "width", f"a multiple of {self.num_heads}", self.width
        )
        middle = self.intermediate
        require(middle is None or middle >= 1, "intermediate", "at least 1", middle)


CONFIGS: dict[str, type[BiEncoderConfig] | type[PolyEncoderConfig] | type[CrossEncoderConfig]] = {
    config.architecture: config
    for config in (BiEncoderConfig, PolyEncoderConfig, CrossEncoderConfig)
}

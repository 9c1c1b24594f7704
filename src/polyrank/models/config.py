"""The settings that define a model: saved in `polyrank.json`, flags of `train` and `pretrain`.

Needs no torch, so that `--help` can show them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from polyrank.config import require
from polyrank.errors import UsageError
from polyrank.tokens.tokenizer import Side, Truncation

Reduction = Literal["first", "mean", "mean_first", "max", "last", "mean_sqrt", "weighted_mean"]
Activation = Literal[
    "identity", "tanh", "relu", "gelu", "silu", "sigmoid", "elu", "selu", "mish", "softplus"
]
Similarity = Literal["dot", "cosine"]
ContextVectors = Literal["learnt", "first", "last", "last_and_first"]
Attention = Literal["basic", "sqrt"]
EngineName = Literal["auto", "torch", "onnx", "openvino"]
"""`torch` runs weights, the others run exported graphs; `auto` runs what the folder has."""
Task = Literal["rank", "classify", "regress"]
Concatenation = Literal["u,v", "|u-v|", "u*v", "|u-v|,u*v", "u,v,u*v", "u,v,|u-v|", "u,v,|u-v|,u*v"]


@dataclass(frozen=True, kw_only=True)
class DenseLayer:
    """A linear layer that an encoder brings, between the reduction and the projection."""

    dimension: int
    """The dimension of its output."""
    bias: bool = True
    """Whether it adds a bias."""
    activation: Activation = "identity"
    """What is applied to its output."""

    def __post_init__(self) -> None:
        require(self.dimension > 0, "dimension", "at least 1", self.dimension)


@dataclass(frozen=True, kw_only=True)
class TwoTowerConfig:
    """Settings that the bi-encoder and the poly-encoder share."""

    shared_towers: bool = False
    """Use one encoder for both sides, instead of two that start alike and may diverge."""
    reduction: Reduction = "mean"
    """How token outputs become one vector: one of them, their mean or their maximum. `mean_sqrt`
    divides their sum by the root of their number; `weighted_mean` weighs each by its position."""
    candidate_reduction: Reduction | None = None
    """The reduction of candidates, if it differs from that of contexts."""
    reduction_tokens: int = 16
    """How many outputs `mean_first` averages."""
    similarity: Similarity = "cosine"
    """The inner product of the vectors as they are (`dot`), or of unit vectors (`cosine`)."""
    temperature: float = 0.05
    """The number by which the similarity is divided."""
    dense: tuple[DenseLayer, ...] = field(default=(), metadata={"fixed": True})
    """The layers that the encoder brings between reduction and projection."""
    projection: int | None = None
    """The dimension of a linear layer above the reduction; `none` means no layer."""
    truncate_dim: int | None = None
    """Keep only the first numbers of each vector, as Matryoshka models allow; `none` keeps all."""
    context_prompt: str = ""
    """A text put before every context."""
    candidate_prompt: str = ""
    """A text put before every candidate."""
    pool_prompt: bool = True
    """Whether the outputs of a prompt's tokens take part in the reduction."""
    max_context_length: int = 128
    """Maximum tokens of a context. Special tokens count."""
    max_candidate_length: int = 128
    """Maximum tokens of a candidate. Special tokens count."""
    context_truncation: Truncation = "by_kind"
    """The side on which a longer context is cut: `left` keeps the newest turns, `right` the
    beginning; `by_kind` cuts dialogues on the left and single texts on the right."""
    candidate_truncation: Side = "right"
    """The side on which a longer candidate is cut."""
    cut_candidate_end: bool = False
    """Cut the special token at the end of a longer candidate, too, as ParlAI does."""
    turn_separator: str | None = None
    """The text between the turns of a dialogue; by default, the tokeniser's separator."""
    max_turns: int | None = None
    """Read only the newest turns of a dialogue; `none` reads all that the length allows."""

    def __post_init__(self) -> None:
        require(self.temperature > 0, "temperature", "positive", self.temperature)
        for name in ("reduction_tokens", "max_context_length", "max_candidate_length"):
            require(getattr(self, name) > 0, name, "at least 1", getattr(self, name))
        for name in ("projection", "truncate_dim", "max_turns"):
            number = getattr(self, name)
            require(number is None or number > 0, name, "at least 1", number)


@dataclass(frozen=True, kw_only=True)
class BiEncoderConfig(TwoTowerConfig):
    """Sentence-BERT's and the two-tower model's architecture."""

    architecture: ClassVar[str] = "bi"

    unit_length: bool = field(default=True, metadata={"fixed": True})
    """With similarity = cosine, whether `encode_contexts` and `encode_candidates` give vectors of
    unit length. A sentence-transformers model without Normalize does not. Scores are the same."""


@dataclass(frozen=True, kw_only=True)
class PolyEncoderConfig(TwoTowerConfig):
    """The poly-encoder of Humeau et al. (2020)."""

    architecture: ClassVar[str] = "poly"

    num_codes: int = 64
    """The number m of context vectors."""
    context_vectors: ContextVectors = "learnt"
    """Learnt codes that attend over the outputs; or the first m, the last m, the last m and h₁."""
    attention: Attention = "basic"
    """`sqrt` divides the logits of both attentions by √d."""
    code_scale: float = 1.0
    """The spread of initial codes: the standard deviation of a code's first attention logits."""

    code_recency: float = 0.1
    """How much a token's attention logit falls with each later token: learnt, from 0 for the first
    code to this for the last, so that codes look back to different depths. 0 is the paper's."""

    code_mean: float = 0.67
    """The share of each code's attention that is spread evenly over the context, as in the
    bi-encoder's mean. 0 is the paper's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 <= self.code_mean < 1, "code_mean", "from 0 to below 1", self.code_mean)
        require(self.code_recency >= 0, "code_recency", "0 or more", self.code_recency)
        require(self.num_codes > 0, "num_codes", "at least 1", self.num_codes)
        require(self.code_scale > 0, "code_scale", "positive", self.code_scale)


@dataclass(frozen=True, kw_only=True)
class CrossEncoderConfig:
    """A cross-encoder, which reads both texts at once and gives a score, classes or a value."""

    architecture: ClassVar[str] = "cross"

    task: Task = "rank"
    """A score for ranking, n-way classification, or regression."""
    head: Literal["auto", "linear", "pooler", "interaction"] = "auto"
    """The layers from outputs to the score. `linear` is one layer; `pooler` is dense, an
    activation, out, as in published rerankers; `interaction` compares two texts token by token,
    with a gate between them. `auto` keeps the head of a base that is a reranker. It takes
    `interaction` to rank with any other BERT, ELECTRA or RoBERTa, and `linear` otherwise."""
    shared_towers: bool | None = None
    """One encoder for both texts, instead of one for each. By default `interaction` has one for
    each; the other heads always share one."""
    gate: float = -6.0
    """The initial gate of `interaction`, a learnt value added to the attention logits between the
    two texts."""
    num_codes: int = 64
    """The number of learnt codes of `interaction`, as in the poly-encoder; 0 compares the context's
    mean instead. Other heads have none."""
    reading: Literal["auto", "pairs", "once"] = "auto"
    """How texts are read to rank. `pairs` reads the context anew with each candidate. `once` reads
    it once for all its candidates, each of which sees the context and itself. `auto` is `once` with
    head = interaction, otherwise `pairs`."""
    context_sees_candidates: bool = False
    """With reading = once, whether the context sees all its candidates. Then a score depends on the
    other candidates."""
    num_labels: int = 3
    """The number of classes."""
    reduction: Literal["first", "mean", "max", "last"] = "first"
    """How token outputs become one vector. The default of an encoder that reads forwards only is
    `last`."""
    head_activation: Activation = "tanh"
    """The activation of the head `pooler`."""
    head_norm: bool = False
    """A layer norm after the activation of the head `pooler`."""
    head_dropout: float = 0.1
    """The dropout of the head during training."""
    max_context_length: int = 128
    """The maximum tokens of the context in a pair."""
    max_candidate_length: int = 128
    """The maximum tokens of the candidate in a pair."""
    context_prompt: str = ""
    """A text put before every context."""
    candidate_prompt: str = ""
    """A text put before every candidate."""
    context_truncation: Truncation = "by_kind"
    """The side on which a longer context is cut: `left` keeps the newest turns, `right` the
    beginning; `by_kind` cuts dialogues on the left and single texts on the right."""
    candidate_truncation: Side = "right"
    """The side on which a longer candidate is cut."""
    cut_candidate_end: bool = False
    """Cut the special token at the end of a longer candidate, too, as ParlAI does."""
    turn_separator: str | None = None
    """The text between the turns of a dialogue; by default, the tokeniser's separator."""
    max_turns: int | None = None
    """Read only the newest turns of a dialogue; `none` reads all that the length allows."""

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
        if self.head not in ("auto", "interaction"):
            object.__setattr__(self, "num_codes", 0)
        require(self.num_codes >= 0, "num_codes", "0 or more", self.num_codes)
        if self.reading == "auto" and self.head != "auto":
            reading = "once" if self.head == "interaction" else "pairs"
            object.__setattr__(self, "reading", reading)
        if self.reading == "once":
            require(self.task == "rank", "task", "rank with reading = once", self.task)
        if self.context_sees_candidates and self.reading == "pairs":
            raise UsageError(
                "context_sees_candidates was set, but the cross-encoder reads pairs.",
                "Set reading = once as well, or leave it out.",
            )
        require(self.num_labels > 1, "num_labels", "at least 2", self.num_labels)
        require(0 <= self.head_dropout < 1, "head_dropout", "from 0 to below 1", self.head_dropout)
        for name in ("max_context_length", "max_candidate_length"):
            require(getattr(self, name) > 0, name, "at least 1", getattr(self, name))
        turns = self.max_turns
        require(turns is None or turns > 0, "max_turns", "at least 1", turns)


UNSTATED: dict[str, Any] = {
    "context_truncation": "left",
    "candidate_truncation": "right",
    "candidate_reduction": None,
    "context_prompt": "",
    "candidate_prompt": "",
    "pool_prompt": True,
    "dense": (),
    "truncate_dim": None,
    "head_activation": "tanh",
    "head_norm": False,
    "cut_candidate_end": False,
    "turn_separator": None,
    "max_turns": None,
    "unit_length": True,
    "num_codes": 0,
    "reading": "pairs",
    "context_sees_candidates": False,
}
"""The values of newer settings for saved models whose description does not name them."""


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """The classes that a saved model tells pairs of texts into, beside what defines a score."""

    classes: tuple[str, ...]
    """The name of each class, in the order of their numbers; a class without a name is called by
    its number."""
    concatenation: Concatenation | None = None
    """What a bi-encoder's classifier sees of the two vectors; a cross-encoder's sees the pair."""

    def __post_init__(self) -> None:
        different = len(set(self.classes)) == len(self.classes) > 1
        require(different, "classes", "at least two different names", list(self.classes))


@dataclass(frozen=True, kw_only=True)
class NewEncoderConfig:
    """A BERT of any size, with its own vocabulary."""

    num_layers: int = 4
    """The number of layers."""
    width: int = 256
    """The width of a token's output."""
    num_heads: int = 4
    """The number of attention heads; the width must be a multiple of it."""
    intermediate: int | None = None
    """The width between a layer's two dense layers; by default 4 times the width."""
    positions: int = 512
    """The maximum number of tokens of a text."""
    vocabulary: int = 16_000
    """The maximum number of pieces of the vocabulary, which is trained on the corpus."""
    lower_case: bool = True
    """Treat capital and small letters alike."""

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
NAMES = {"bi": "bi-encoder", "poly": "poly-encoder", "cross": "cross-encoder"}
"""What people call each architecture."""

"""Layers above an encoder: from outputs to scores, classes, masked tokens. Knows no encoder.

Letters: B pairs, n outputs, h width of the encoder, e of its word embeddings, V tokens of the
vocabulary, d dimensions of a vector, L classes, T tokens of a response.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from polyrank.models.config import Activation, ClassifierConfig, Concatenation, DenseLayer

FEATURES = {
    "u": lambda u, v: u,
    "v": lambda u, v: v,
    "|u-v|": lambda u, v: (u - v).abs(),
    "u*v": lambda u, v: u * v,
}

ACTIVATIONS: dict[Activation, type[nn.Module]] = {
    "identity": nn.Identity,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "mish": nn.Mish,
    "softplus": nn.Softplus,
}


class Dense(nn.Module):
    """A linear layer and its activation, as a module of sentence-transformers has them."""

    def __init__(self, width: int, layer: DenseLayer) -> None:
        super().__init__()
        self.linear = nn.Linear(width, layer.dimension, bias=layer.bias)
        self.activation = ACTIVATIONS[layer.activation]()

    def forward(self, vectors: Tensor) -> Tensor:
        """(…, in) → (…, out)."""
        activated: Tensor = self.activation(self.linear(vectors))
        return activated


def dense_layers(width: int, layers: Sequence[DenseLayer]) -> nn.Sequential | None:
    """The layers above vectors of a width, one after the other; None for no layers."""
    widths = [width, *(layer.dimension for layer in layers)]
    made = [Dense(before, layer) for before, layer in zip(widths, layers, strict=False)]
    return nn.Sequential(*made) if made else None


def draw_linear(layer: nn.Linear, generator: torch.Generator | None = None) -> None:
    """Draw the weights of a layer as BERT draws them; on the meta device there is nothing to draw.

    On it, `normal_` would import torch's compiler, which takes a second.
    """
    if not layer.weight.is_meta:
        nn.init.normal_(layer.weight, std=0.02, generator=generator)
        nn.init.zeros_(layer.bias)


class ScoreHead(nn.Module):
    """Dropout and one linear layer to a scalar, as the cross-encoders of Humeau et al. have."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, 1)
        draw_linear(self.out)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, h) → (B, 1)."""
        scores: Tensor = self.out(self.dropout(vectors))
        return scores


class PoolerHead(nn.Module):
    """Dense, activation, perhaps a norm, dropout, out, as published rerankers have it.

    With tanh and without the norm it is BERT's pooler and classifier.
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        dropout: float,
        activation: Activation = "tanh",
        *,
        has_norm: bool = False,
    ) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.activation = ACTIVATIONS[activation]()
        self.norm = nn.LayerNorm(width) if has_norm else None
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, outputs)
        for layer in (self.dense, self.out):
            draw_linear(layer)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, h) → (B, outputs)."""
        inner = self.activation(self.dense(vectors))
        inner = inner if self.norm is None else self.norm(inner)
        logits: Tensor = self.out(self.dropout(inner))
        return logits


class DenseHead(nn.Module):
    """Dropout, dense, GELU, dropout, out: for classes and for regression."""

    def __init__(self, width: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Dropout(dropout),
            nn.Linear(width, outputs),
        )
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                draw_linear(layer)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, h) → (B, outputs)."""
        outputs: Tensor = self.layers(vectors)
        return outputs


class PairClassifier(nn.Module):
    """Sentence-BERT's classifier of the two vectors of a pair: W · concatenated(u, v) + b."""

    def __init__(
        self, dimension: int, classes: Sequence[str], concatenation: Concatenation = "u,v,|u-v|"
    ) -> None:
        """`classes` are their names, in the order of the logits."""
        super().__init__()
        self.config = ClassifierConfig(classes=tuple(classes), concatenation=concatenation)
        width = dimension * len(concatenation.split(","))
        self.out = nn.Linear(width, len(classes))

    def draw(self, seed: int) -> None:
        """Draw new weights."""
        generator = torch.Generator().manual_seed(seed)
        draw_linear(self.out, generator)

    def forward(self, u: Tensor, v: Tensor) -> Tensor:
        """(B, d), (B, d) → (B, L)."""
        logits: Tensor = self.out(concatenated(u, v, str(self.config.concatenation)))
        return logits


def concatenated(u: Tensor, v: Tensor, concatenation: str) -> Tensor:
    """What a classifier sees of two vectors: (n, d), (n, d) → (n, k · d).

    `concatenation` names the k parts, with commas: u, v, |u-v|, u*v.
    """
    return torch.cat([FEATURES[part](u, v) for part in concatenation.split(",")], dim=1)


class MaskedHead(nn.Module):
    """BERT's prediction of masked tokens: dense, GELU, norm, and the word embeddings themselves.

    The biases begin as the logarithms of how often each token occurs, `counts` (V): starting at
    zero, the first hundreds of steps would only learn them (docs/log.md).
    """

    def __init__(self, width: int, embeddings: Tensor, counts: Tensor) -> None:
        super().__init__()
        shares = (counts + 1.0) / (counts + 1.0).sum()
        self.dense = nn.Linear(width, embeddings.shape[1])
        self.norm = nn.LayerNorm(embeddings.shape[1])
        self.bias = nn.Parameter(shares.log().to(embeddings.dtype))
        draw_linear(self.dense)

    def forward(self, outputs: Tensor, embeddings: Tensor) -> Tensor:
        """(n, h) and the encoder's word embeddings (V, e) to logits (n, V)."""
        inner = self.norm(functional.gelu(self.dense(outputs)))
        return functional.linear(inner, embeddings, self.bias)


class MaskedDecoder(nn.Module):
    """The decoder of contextual masked auto-encoding: one transformer layer, which reads the vector
    of a context and what is left of a masked response, and the prediction of the masked tokens.

    Wu et al.: CoT-MAE (AAAI 2023). Words and vector are normalised before they meet, so that the
    scale of neither counts. Positions are sines, which need no training. It has no dropout: most of
    what it reads is missing already.
    """

    def __init__(
        self, width: int, embeddings: Tensor, counts: Tensor, *, at_every_token: bool = False
    ) -> None:
        """`embeddings` (V, e) are the encoder's; `counts` (V) as for `MaskedHead`. With
        `at_every_token`, the vector is also added to every word.
        """
        super().__init__()
        self.at_every_token = at_every_token
        own = embeddings.shape[1]
        self.words = nn.Identity() if own == width else nn.Linear(own, width)
        self.word_norm, self.vector_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.layer = nn.TransformerEncoderLayer(
            width,
            num_heads_of(width),
            dim_feedforward=4 * width,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.head = MaskedHead(width, embeddings, counts)

    def forward(self, vectors: Tensor, ids: Tensor, mask: Tensor, embeddings: Tensor) -> Tensor:
        """Vectors (n, h), and the ids of responses with their mask (n, T), to outputs (n, T, h).

        `embeddings` (V, e) are the encoder's. Tokens outside the mask are not read.
        """
        words = self.word_norm(self.words(functional.embedding(ids, embeddings)))  # (n, T, h)
        words = words + sines(ids.shape[1], words)
        first = self.vector_norm(vectors)[:, None]  # (n, 1, h)
        words = words + first if self.at_every_token else words
        read = functional.pad(mask, (1, 0), value=True)  # (n, 1 + T)
        outputs: Tensor = self.layer(
            torch.cat([first, words], dim=1), src_key_padding_mask=~read
        )  # (n, 1 + T, h)
        return outputs[:, 1:]


def num_heads_of(width: int) -> int:
    """The most heads of at least 64 dimensions that divide a width, or 1."""
    return next(heads for heads in range(max(width // 64, 1), 0, -1) if width % heads == 0)


def sines(length: int, like: Tensor) -> Tensor:
    """The positions of Vaswani et al. (2017), of as many dimensions as `like` has: (T, h)."""
    width = like.shape[-1]
    places = torch.arange(length, device=like.device, dtype=torch.float32)[:, None]
    half = torch.arange((width + 1) // 2, device=like.device, dtype=torch.float32)
    angles = places * torch.exp(half * (-2 * math.log(1e4) / width))  # (T, h / 2)
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width].to(like.dtype)


class FollowsHead(nn.Module):
    """BERT's next sentence prediction from the first output: dense, tanh, two classes or more."""

    def __init__(self, width: int, outputs: int = 2) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, outputs)
        for layer in (self.dense, self.out):
            draw_linear(layer)

    def forward(self, outputs: Tensor) -> Tensor:
        """(n, h) to the logits of "does not follow", "follows" and any others: (n, outputs)."""
        logits: Tensor = self.out(self.dense(outputs).tanh())
        return logits

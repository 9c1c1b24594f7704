"""From one vector a pair to a score, classes or a value. Knows nothing of encoders.

Letters: B pairs, h width of the encoder.
"""

from __future__ import annotations

from torch import Tensor, nn


class ScoreHead(nn.Module):
    """Dropout and one linear layer to a scalar, as the cross-encoders of Humeau et al. have."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, 1)
        nn.init.normal_(self.out.weight, std=0.02)
        nn.init.zeros_(self.out.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, h) → (B, 1)."""
        scores: Tensor = self.out(self.dropout(vectors))
        return scores


class PoolerHead(nn.Module):
    """Dense, tanh, dropout, out: BERT's pooler and classifier, as published rerankers have it."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(width, 1)
        for layer in (self.dense, self.out):
            nn.init.normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, h) → (B, 1)."""
        scores: Tensor = self.out(self.dropout(self.dense(vectors).tanh()))
        return scores


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
                nn.init.normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        """(B, h) → (B, outputs)."""
        outputs: Tensor = self.layers(vectors)
        return outputs

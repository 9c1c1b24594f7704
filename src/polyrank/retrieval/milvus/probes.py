"""A few directions in which to look for the candidates of a context with many vectors.

Tensors only: knows nothing of where candidates lie.
"""

from __future__ import annotations

import torch
from torch import Tensor


def distinct(context: Tensor) -> Tensor:
    """The vectors of a context (m, d) that are there, each once: (n, d)."""
    there = context[(context != 0).any(dim=1)]
    return torch.unique(there, dim=0) if len(there) else there


def probes(context: Tensor, most: int) -> Tensor:
    """At most `most` directions for the vectors of a context (m, d): (n, d).

    All of them, if they are few enough. Else their mean and, one after the other, the vector that
    is farthest from all directions taken so far.
    """
    vectors = distinct(context)  # (n, d)
    if len(vectors) <= most:
        return vectors
    taken = [vectors.mean(dim=0)]
    gaps = torch.linalg.vector_norm(vectors - taken[0], dim=1)  # (n,)
    while len(taken) < most:
        place = int(gaps.argmax())
        taken.append(vectors[place])
        gaps = gaps.minimum(torch.linalg.vector_norm(vectors - vectors[place], dim=1))
    return torch.stack(taken)

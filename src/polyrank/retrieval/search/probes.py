"""Probes: a few vectors that stand for the m of a context when neighbours are looked up.

The vectors of a context lie close together, so that a handful of neighbour searches finds what m
would. Probes are chosen as k-means chooses centres: the farthest first, then one step to the mean.
"""

from __future__ import annotations

import torch
from torch import Tensor


def distinct(vectors: Tensor) -> Tensor:
    """The vectors of a context (m, d) that are there, each once: (n, d), 0 ≤ n ≤ m."""
    there = vectors[(vectors != 0).any(dim=1)]
    return torch.unique(there, dim=0) if len(there) else there


def probes_of(vectors: Tensor, count: int) -> Tensor:
    """At most `count` probes of a context (m, d): (p, d), p ≤ m.

    The first centre is the vector nearest to the mean. Rows of zeros are no vectors.
    """
    there = vectors[(vectors != 0).any(dim=1)].float()
    if len(there) <= count:
        return there if len(there) else vectors[:1].float()
    squares = there @ there.T  # (m, m)
    norms = squares.diagonal()
    distances = norms[:, None] + norms[None] - 2 * squares
    first = int((norms - 2 * squares.mean(dim=1)).argmin())
    chosen = [first]
    nearest = distances[first].clone()
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        nearest = torch.minimum(nearest, distances[chosen[-1]])
    owner = distances[chosen].argmin(dim=0)  # (m,)
    members = torch.zeros(count, len(there)).scatter_(0, owner[None], 1.0)
    sizes = members.sum(dim=1, keepdim=True)
    return (members @ there / sizes)[(sizes > 0)[:, 0]]

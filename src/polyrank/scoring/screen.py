"""Screens: upper bounds of many candidates' scores, from cheap products with a known error.

A screen multiplies candidates by all context vectors in low precision, takes the largest logit of
each context and adds what rounding may have hidden. With |l_i − l̂_i| ≤ ε for all i,
s ≤ max l ≤ max l̂ + ε. Whatever a screen cannot exclude is left to `ExactScorer`.

    IntegerScreen   8-bit integers, summed exactly in 32 bits
    FloatScreen     bfloat16 if the hardware multiplies it, else float32

Letters: B contexts, m vectors of each, n candidates, d dimensions.
"""

from __future__ import annotations

import time
from functools import cache
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from polyrank.runtime import has_bfloat16
from polyrank.scoring.matmul import can_multiply_int8, product
from polyrank.scoring.poly import context_product

BFLOAT16_STEP = 1.01 * 2.0**-8
"""Rounding to bfloat16 changes a number by less than this share."""

FLOAT32_STEP = 2.0**-24
LARGEST_INT8 = 127

SCREEN_ROWS = 8192
"""Rows of one product: enough to hide the cost of the call, few enough to stay in cache."""

CONVERTED_ROWS = 2048
"""Rows of one product if candidates are converted first; those must stay in cache, too."""


TRIALS = 3


class ScreenRows(NamedTuple):
    """Candidates as they are screened.

    `values` is (n, d). A candidate is `values · scales` plus an error of norm `errors`, and that
    product has the norm `norms`; each is (n,).
    """

    values: Tensor
    scales: Tensor | None
    norms: Tensor
    errors: Tensor | None = None


class Screen(Protocol):
    """Bounds candidates from above for B contexts at once."""

    def upper(self, rows: ScreenRows) -> Tensor:
        """The score of context b and candidate n is at most the result (B, n)."""


def quantised(vectors: Tensor) -> ScreenRows:
    """Candidates (n, d) in 8 bits, one scale each, with the norm of the rounding error."""
    vectors = vectors.float()
    scales = vectors.abs().amax(dim=1) / LARGEST_INT8  # (n,)
    divisor = torch.where(scales > 0, scales, 1.0)[:, None]
    steps = (vectors / divisor).round().clamp(-LARGEST_INT8, LARGEST_INT8)
    kept = steps * scales[:, None]
    norms, errors = kept.norm(dim=1), (vectors - kept).norm(dim=1)
    return ScreenRows(steps.to(torch.int8), scales, norms, errors)


class IntegerScreen:
    """Context vectors in 8-bit integers, one scale per context, against candidates in 8 bits."""

    def __init__(self, contexts: Tensor) -> None:
        contexts = repeated(contexts)  # (B, m, d)
        self._shape = contexts.shape
        self._scales = contexts.abs().amax(dim=(1, 2)).clamp_min(1e-30) / LARGEST_INT8
        rounded = (contexts / self._scales[:, None, None]).round()
        rest = contexts - rounded * self._scales[:, None, None]
        self._rest = largest_norm(rest)  # (B,)
        self._norms = largest_norm(contexts)
        self._values = rounded.to(torch.int8).flatten(0, 1).T.contiguous()  # (d, B m)

    def upper(self, rows: ScreenRows) -> Tensor:
        """(B, n). `rows.values` is int8."""
        num_contexts, num_vectors, dimension = self._shape
        bounds = torch.empty(num_contexts, len(rows.values))
        results = torch.empty(SCREEN_ROWS, self._values.shape[1], dtype=torch.int32)
        for start in range(0, len(rows.values), SCREEN_ROWS):
            part = rows.values[start : start + SCREEN_ROWS]
            sums = results[: len(part)]  # one buffer stays in cache
            torch._int_mm(part, self._values, out=sums)  # (n, B m), exact
            largest = sums.view(len(part), num_contexts, num_vectors).amax(2)
            bounds[:, start : start + len(part)] = largest.T
        if rows.scales is not None:
            bounds *= rows.scales
        bounds *= self._scales[:, None]
        slack = self._rest + self._norms * (4 * dimension * FLOAT32_STEP)
        bounds.addcmul_(rows.norms[None], slack[:, None])
        if rows.errors is not None:
            bounds.addcmul_(rows.errors[None], self._norms[:, None])
        return bounds


class FloatScreen:
    """Products in bfloat16 or float32; candidates of any type except 8-bit integers."""

    def __init__(self, contexts: Tensor, dtype: torch.dtype) -> None:
        contexts = repeated(contexts)  # (B, m, d)
        self._shape = contexts.shape
        self._dtype = dtype
        rounded = contexts.to(dtype)
        dimension = contexts.shape[2]
        norms = largest_norm(contexts)  # (B,)
        share = 4 * dimension * FLOAT32_STEP
        if dtype == torch.bfloat16:
            share += 2 * BFLOAT16_STEP  # the candidate, and the logit itself
        self._slack = largest_norm(contexts - rounded.float()) + norms * share
        single = len(contexts) == 1 and dtype == torch.float32
        make = context_product if single else product
        self._product = make(rounded.flatten(0, 1), SCREEN_ROWS)

    def upper(self, rows: ScreenRows) -> Tensor:
        """(B, n). Ignores `rows.errors`: the values must be the candidates."""
        num_contexts, num_vectors, _ = self._shape
        bounds = torch.empty(num_contexts, len(rows.values))
        step = SCREEN_ROWS if rows.values.dtype == self._dtype else CONVERTED_ROWS
        for start in range(0, len(rows.values), step):
            part = rows.values[start : start + step].to(self._dtype)
            logits = self._product(part)  # (n, B m)
            largest = logits.view(len(part), num_contexts, num_vectors).amax(2)
            bounds[:, start : start + len(part)] = largest.T
        if rows.scales is not None:
            bounds *= rows.scales
        return bounds.addcmul_(rows.norms[None], self._slack[:, None])


def repeated(contexts: Tensor) -> Tensor:
    """Contexts (B, m, d) in float32, with each row of zeros replaced by a vector of its context.

    Rows of zeros are not vectors; copies in their place do not change the largest logit.
    """
    contexts = contexts.float()
    there = (contexts != 0).any(dim=2)  # (B, m)
    if bool(there.all()):
        return contexts
    first = there.int().argmax(dim=1)  # (B,); 0 where there is none
    stand_in = contexts[torch.arange(len(contexts)), first]  # (B, d)
    return torch.where(there[:, :, None], contexts, stand_in[:, None, :])


def largest_norm(vectors: Tensor) -> Tensor:
    """The largest norm among the vectors of each context: (B, m, d) → (B,)."""
    return vectors.norm(dim=2).amax(dim=1)


def screen_for(contexts: Tensor, dtype: torch.dtype) -> Screen:
    """The fastest screen for candidates of this type."""
    if dtype == torch.int8:
        return IntegerScreen(contexts)
    fast = has_bfloat16(contexts.device)
    return FloatScreen(contexts, torch.bfloat16 if fast else torch.float32)


def norms_of(candidates: Tensor) -> Tensor:
    """The norm of each candidate: (n, d) → (n,)."""
    return torch.linalg.vector_norm(candidates, dim=1, dtype=torch.float32)


def sketches_are_faster(contexts: Tensor, dtype: torch.dtype) -> bool:
    """Whether this machine screens 8-bit sketches faster than candidates of `dtype`.

    For contexts (B, m, d); measured once per process.
    """
    if dtype == torch.int8:
        return True  # the candidates are the sketches
    if not can_multiply_int8():
        return False
    shape = (contexts.shape[1], contexts.shape[2], torch.get_num_threads())
    return screening_seconds(torch.int8, *shape) <= screening_seconds(dtype, *shape)


@cache
def screening_seconds(dtype: torch.dtype, num_vectors: int, dimension: int, threads: int) -> float:
    """The time to screen a block for one context: the best of several trials."""
    generator = torch.Generator().manual_seed(0)
    contexts = torch.randn(1, num_vectors, dimension, generator=generator)
    candidates = torch.randn(SCREEN_ROWS, dimension, generator=generator)
    if dtype == torch.int8:
        rows = quantised(candidates)
    else:
        rows = ScreenRows(candidates.to(dtype), None, norms_of(candidates), None)
    screen = screen_for(contexts, dtype)
    best = float("inf")
    for _ in range(TRIALS):
        started = time.perf_counter()
        screen.upper(rows)
        best = min(best, time.perf_counter() - started)
    return best

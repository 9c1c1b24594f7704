"""Batches of token ids: sorted by length, cut by a token budget, padded.

All encoding goes through here: in training, in bulk and in serving. Knows nothing of texts.

Letters: B rows of a batch, T its longest row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

TOKEN_BUDGET = 4096
"""Padded tokens in one batch. Activations of this size stay in a CPU's caches; results do not
depend on it."""

UNPADDED = 64
"""How many times more tokens a batch without padding has. Its encoder only looks up one vector per
token, and in training each batch costs a gradient of all vectors."""

Batch = dict[str, Tensor]
"""`input_ids` (B, T), and `rows` (B), the places of the rows in the caller's order;
`attention_mask` (B, T) if there is padding, `token_type_ids` (B, T) if the encoder has segments.
For an encoder without padding: `input_ids` (n,), row after row, and `offsets` (B), where each row
begins."""


def plan(lengths: Sequence[int], budget: int = TOKEN_BUDGET) -> list[np.ndarray]:
    """Rows grouped by length, longest first, at most `budget` padded tokens a group.

    The longest come first, so that too large a budget fails at once and not at the end. A row
    longer than the budget is a group of its own.
    """
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    groups: list[np.ndarray] = []
    start = 0
    while start < len(order):
        longest = max(int(lengths[order[start]]), 1)
        size = max(budget // longest, 1)
        groups.append(order[start : start + size])
        start += size
    return groups


def plan_unpadded(lengths: Sequence[int], budget: int = TOKEN_BUDGET) -> list[np.ndarray]:
    """Rows in order, about `UNPADDED` · `budget` tokens per group; an empty row counts as one."""
    if not len(lengths):
        return []
    ends = np.cumsum(np.maximum(np.asarray(lengths, dtype=np.int64), 1))
    cuts = np.flatnonzero(np.diff(ends // (UNPADDED * budget))) + 1
    return np.split(np.arange(len(ends)), cuts)


def planned(
    sequences: Sequence[Sequence[int]],
    pad_id: int | None,
    budget: int = TOKEN_BUDGET,
    size: int | None = None,
) -> list[np.ndarray]:
    """The rows of each batch that `collate` makes from sequences.

    With `size`, a batch has that many rows, whatever its tokens.
    """
    lengths = [len(sequence) for sequence in sequences]
    if size is not None:
        order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
        return [order[start : start + size] for start in range(0, len(order), size)]
    return plan_unpadded(lengths, budget) if pad_id is None else plan(lengths, budget)


def collate(
    sequences: Sequence[Sequence[int]],
    rows: np.ndarray,
    pad_id: int | None,
    segments: Sequence[Sequence[int]] | None = None,
) -> Batch:
    """Pad the named rows on the right into one batch; without `pad_id`, join them."""
    lengths = np.fromiter((len(sequences[row]) for row in rows), dtype=np.int64, count=len(rows))
    if pad_id is None:
        return {
            "input_ids": torch.from_numpy(joined(sequences, rows, int(lengths.sum()))),
            "offsets": torch.from_numpy(np.cumsum(lengths) - lengths),
            "rows": torch.from_numpy(rows.astype(np.int64)),
        }
    real = np.arange(lengths.max(initial=1)) < lengths[:, None]  # (B, T)
    batch = {
        "input_ids": scatter(sequences, rows, real, pad_id),
        "rows": torch.from_numpy(rows.astype(np.int64)),
    }
    if not real.all():
        batch["attention_mask"] = torch.from_numpy(real.astype(np.int64))
    if segments is not None:
        batch["token_type_ids"] = scatter(segments, rows, real, 0)
    return batch


def scatter(
    values: Sequence[Sequence[int]], rows: np.ndarray, real: np.ndarray, fill: int
) -> Tensor:
    """Write the values of the rows where `real` is true, and `fill` elsewhere: (B, T)."""
    padded = np.full(real.shape, fill, dtype=np.int64)
    padded[real] = joined(values, rows, int(real.sum()))
    return torch.from_numpy(padded)


def joined(values: Sequence[Sequence[int]], rows: np.ndarray, count: int) -> np.ndarray:
    """The values of the rows, one row after another: (count,)."""
    return np.fromiter(
        (value for row in rows for value in values[row]), dtype=np.int64, count=count
    )


def batches(
    sequences: Sequence[Sequence[int]],
    pad_id: int | None,
    *,
    segments: Sequence[Sequence[int]] | None = None,
    budget: int = TOKEN_BUDGET,
) -> list[Batch]:
    """All sequences as batches; together their `rows` are 0 … N−1."""
    groups = planned(sequences, pad_id, budget)
    return [collate(sequences, rows, pad_id, segments) for rows in groups]


def mask_of(batch: Batch) -> Tensor:
    """The attention mask (B, T) as booleans, even if the batch has no padding.

    (B, 1) for rows that follow one another, whose encoder has one output per row.
    """
    if "offsets" in batch:
        return torch.ones_like(batch["offsets"], dtype=torch.bool)[:, None]
    mask = batch.get("attention_mask")
    return torch.ones_like(batch["input_ids"], dtype=torch.bool) if mask is None else mask.bool()


def in_order(parts: list[Tensor], batches: list[Batch]) -> Tensor:
    """Join the results of batches and put their rows back into the caller's order."""
    rows = torch.cat([batch["rows"] for batch in batches])
    return torch.cat(parts)[torch.argsort(rows)]

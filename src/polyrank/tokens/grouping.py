"""Batches of contexts with their candidates, where each context stands once and nothing is padded.

For models that read a context once for all its candidates. Knows nothing of texts.

Letters: B contexts, C candidates of all of them, n tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyrank.tokens.batching import Batch, plan


class Group(NamedTuple):
    """Contexts that are read together, and their candidates in the blocks that are read with them.

    Places in the caller's order.
    """

    contexts: list[int]
    blocks: list[list[int]]


def plan_groups(
    contexts: Sequence[int],
    candidates: Sequence[int],
    owners: Sequence[int],
    budget: int,
    *,
    whole: bool = False,
) -> list[Group]:
    """Contexts grouped by length, longest first, with at most `budget` tokens a group and block.

    `contexts` and `candidates` are lengths in tokens, `owners` the context of each candidate. A
    group of several contexts has one block. A context that exceeds the budget with its candidates
    is a group of its own, whose candidates are cut into blocks by length, longest first; they are
    one block if they must stay together, `whole`. Contexts without candidates are left out.
    """
    own: list[list[int]] = [[] for _ in contexts]
    for place, owner in enumerate(owners):
        own[owner].append(place)
    groups: list[Group] = []
    filled = budget
    for place in sorted(range(len(contexts)), key=lambda place: -contexts[place]):
        rows, length = own[place], contexts[place]
        needed = length + sum(candidates[row] for row in rows)
        if not rows:
            continue
        if needed > budget:
            room = max(budget - length, budget // 2)
            cut = [] if whole else plan([candidates[row] for row in rows], room)
            blocks = [[rows[each] for each in block] for block in cut] or [rows]
            groups.append(Group([place], blocks))
            filled = budget
        elif filled + needed > budget:
            groups.append(Group([place], [rows]))
            filled = needed
        else:
            groups[-1].contexts.append(place)
            groups[-1].blocks[0].extend(rows)
            filled += needed
    return groups


class Grouped:
    """Contexts and their candidates as token ids, planned in groups."""

    def __init__(
        self,
        contexts: Sequence[Sequence[int]],
        candidates: Sequence[Sequence[int]],
        owners: Sequence[int],
        budget: int,
        size: int | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """`owners`: the place of each candidate's context in `contexts`.

        With `size`, a block has that many candidates, whatever its tokens. `whole`: all candidates
        of a context are in one block, however many they are.
        """
        self.contexts, self.candidates, self.owners = contexts, candidates, owners
        lengths = list(map(len, contexts)), list(map(len, candidates))
        if size is not None:
            lengths, budget = ([0] * len(contexts), [1] * len(candidates)), size
        self.groups = plan_groups(*lengths, owners, budget, whole=whole)

    def batch(self, group: Group, block: Sequence[int]) -> Batch:
        """A group's contexts and one block of its candidates.

        `context_ids` (n,) and `context_lengths` (B,), `candidate_ids` (n,) and `candidate_lengths`
        (C,); `owners` (C,): the places of the candidates' contexts in the batch, in order; `rows`
        (C,): the places of the candidates in the caller's order.
        """
        place = {context: row for row, context in enumerate(group.contexts)}
        block = sorted(block, key=lambda row: place[self.owners[row]])
        contexts = [self.contexts[row] for row in group.contexts]
        candidates = [self.candidates[row] for row in block]
        return {
            "context_ids": in_one_row(contexts),
            "context_lengths": lengths_of(contexts),
            "candidate_ids": in_one_row(candidates),
            "candidate_lengths": lengths_of(candidates),
            "owners": torch.tensor([place[self.owners[row]] for row in block]),
            "rows": torch.tensor(block),
        }


def size_of(batch: Batch) -> tuple[int, int]:
    """The tokens of such a batch, and the pairs of tokens that attention compares, padded.

    Contexts with themselves, candidates with themselves and with their contexts.
    """
    contexts, candidates = batch["context_lengths"], batch["candidate_lengths"]
    together = torch.zeros_like(contexts).index_add(0, batch["owners"], candidates)
    longest, widest, most = (int(each.max()) for each in (contexts, candidates, together))
    compared = len(contexts) * longest * (longest + most) + len(candidates) * widest**2
    return len(batch["context_ids"]) + len(batch["candidate_ids"]), compared


def in_one_row(texts: Sequence[Sequence[int]]) -> Tensor:
    """Token ids, one text after another: (n,)."""
    count = sum(map(len, texts))
    return torch.from_numpy(np.fromiter(chain.from_iterable(texts), np.int64, count=count))


def lengths_of(texts: Sequence[Sequence[int]]) -> Tensor:
    """The number of tokens of each text."""
    return torch.tensor([len(text) for text in texts], dtype=torch.int64)

"""Contexts with their candidates, in groups and blocks by a budget of tokens."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from polyrank.tokens.grouping import Grouped, plan_groups, size_of

lengths = st.lists(st.integers(1, 40), min_size=1, max_size=8)


@st.composite
def tasks(draw):
    contexts = draw(lengths)
    candidates = draw(st.lists(st.integers(1, 20), max_size=40))
    places = st.integers(0, len(contexts) - 1)
    owners = draw(st.lists(places, min_size=len(candidates), max_size=len(candidates)))
    return contexts, candidates, owners, draw(st.integers(1, 120)), draw(st.booleans())


@given(tasks())
def test_every_candidate_is_once_in_a_block_with_its_context(task):
    contexts, candidates, owners, budget, whole = task
    groups = plan_groups(contexts, candidates, owners, budget, whole=whole)
    found = [row for group in groups for block in group.blocks for row in block]
    assert sorted(found) == list(range(len(candidates)))
    named = [place for group in groups for place in group.contexts]
    assert sorted(named) == sorted(set(owners)), "each context that has candidates, once"
    for group in groups:
        assert all(owners[row] in group.contexts for block in group.blocks for row in block)
        assert len(group.contexts) == 1 or len(group.blocks) == 1
        assert len(group.blocks) == 1 or not whole
        read = sum(contexts[place] for place in group.contexts)
        for block in group.blocks:
            tokens = read + sum(candidates[row] for row in block)
            alone = len(group.contexts) == 1 and (whole or len(block) == 1)
            room = max(budget - read, budget // 2)
            padded = len(block) * max(candidates[row] for row in block)
            assert tokens <= budget or alone or padded <= room


@given(tasks())
def test_a_batch_has_the_tokens_of_each_text_one_after_another(task):
    contexts, candidates, owners, budget, whole = task
    texts = [[number] * length for number, length in enumerate(contexts)]
    others = [[100 + number] * length for number, length in enumerate(candidates)]
    grouped = Grouped(texts, others, owners, budget, whole=whole)
    for group in grouped.groups:
        for block in group.blocks:
            batch = grouped.batch(group, block)
            split = batch["context_ids"].split(batch["context_lengths"].tolist())
            assert [part.tolist() for part in split] == [texts[place] for place in group.contexts]
            split = batch["candidate_ids"].split(batch["candidate_lengths"].tolist())
            rows = batch["rows"].tolist()
            assert [part.tolist() for part in split] == [others[row] for row in rows]
            assert [group.contexts[owner] for owner in batch["owners"]] == [
                owners[row] for row in rows
            ]
            assert batch["owners"].tolist() == sorted(batch["owners"].tolist())
            tokens, compared = size_of(batch)
            assert tokens == len(batch["context_ids"]) + len(batch["candidate_ids"])
            assert compared >= tokens


def test_a_size_is_a_number_of_candidates():
    grouped = Grouped([[1] * 9, [2]], [[3] * 7] * 5, [0, 0, 0, 0, 1], 10**6, 2)
    sizes = [sorted(len(block) for block in group.blocks) for group in grouped.groups]
    assert sorted(map(tuple, sizes)) == [(1,), (2, 2)]


def test_the_size_of_a_batch_counts_its_padding():
    grouped = Grouped([[1] * 4, [2] * 2], [[3] * 3, [4], [5] * 2], [0, 0, 1], 100)
    (group,) = grouped.groups
    batch = grouped.batch(group, group.blocks[0])
    assert size_of(batch) == (12, 2 * 4 * (4 + 4) + 3 * 3 * 3)
    assert all(torch.is_tensor(value) for value in batch.values())

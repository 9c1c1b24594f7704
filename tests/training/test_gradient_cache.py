"""The gradient cache gives the plain step's loss and gradients."""

import contextlib
from functools import partial

import pytest
import torch
from objective_cases import assert_equal_steps, run_step, set_dropout, setup_of

from polyrank.training.step import cached_backward, graph_bytes, is_worthwhile

SINGLE = {"rtol": 1e-4, "atol": 1e-5}
VARIANTS = [
    ("bi", "softmax"),
    ("bi", "symmetric"),
    ("bi", "triplet"),
    ("bi", "classification"),
    ("poly-learnt", "softmax"),
    ("poly-learnt", "symmetric"),
    ("poly-learnt", "extra"),
    ("poly-learnt", "taught-by-cross"),
    ("poly-last-and-first", "softmax"),
    ("poly-learnt", "cosent"),
    ("poly-learnt", "regression"),
    ("poly-learnt", "kl"),
    ("poly-learnt", "margin_mse"),
    ("cross", "listwise"),
    ("cross", "binary-pairs"),
    ("cross", "classification"),
    ("cross-interaction", "softmax"),
    ("cross-interaction", "listwise"),
]


def both(variant, folder, case, dropout=0.2, **settings):
    """The plain and the cached step from the same random state, and the states after them."""
    results, states = [], []
    for cache in ("never", "always"):
        module, collator, dataset = setup_of(variant, folder, case, cache=cache, **settings)
        set_dropout(module, dropout)
        torch.manual_seed(3)
        results.append(run_step(module, collator, dataset))
        states.append(torch.get_rng_state())
    return results, states


@pytest.mark.parametrize(("variant", "case"), VARIANTS)
def test_equal_to_the_plain_step_with_dropout(variant, case, bert):
    (plain, cached), (one, other) = both(variant, bert, case)
    assert_equal_steps(plain, cached, **(SINGLE if variant.startswith("cross") else {}))
    assert torch.equal(one, other), "a run goes on alike after either"


def test_codes_recency_and_projections_are_trained(bert):
    (plain, cached), _ = both("poly-learnt", bert, "softmax", projection=8)
    assert_equal_steps(plain, cached)
    for name in ("codes", "recency", "context_projection.weight", "candidate_projection.weight"):
        assert cached[1][f"model.{name}"].abs().max() > 1e-6


def test_shared_towers(bert):
    (plain, cached), _ = both("bi", bert, "softmax", shared_towers=True)
    assert_equal_steps(plain, cached)


def test_dropout_matters_here(bert):
    (with_dropout, _), _ = both("bi", bert, "softmax")
    (without, _), _ = both("bi", bert, "softmax", dropout=0.0)
    assert not torch.isclose(with_dropout[0], without[0])


def test_a_frozen_tower(bert):
    results = []
    for cache in ("never", "always"):
        module, collator, dataset = setup_of("bi", bert, "softmax", cache=cache)
        module.model.candidate_tower.requires_grad_(False)
        results.append(run_step(module, collator, dataset))
    assert_equal_steps(*results)
    assert not any("candidate_tower" in name for name in results[1][1])


def test_gradients_add_to_those_of_earlier_steps(bert):
    module, collator, dataset = setup_of("bi", bert, "softmax", cache="always")
    step = collator([dataset[place] for place in range(6)])
    for _ in range(2):
        cached_backward(module, step, contextlib.nullcontext)
    twice = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    _, once = run_step(module, collator, dataset, range(6))
    for name, gradient in twice.items():
        torch.testing.assert_close(gradient, 2 * once[name])


def test_in_bfloat16(bert):
    results = []
    autocast = partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    for cache in ("never", "always"):
        module, collator, dataset = setup_of("poly-learnt", bert, "softmax", cache=cache)
        results.append(run_step(module.float(), collator, dataset, autocast=autocast))
    (loss, gradients), (cached_loss, cached) = results
    torch.testing.assert_close(loss, cached_loss, rtol=1e-5, atol=1e-5)
    assert gradients.keys() == cached.keys()
    for name, gradient in gradients.items():
        if gradient.norm() > 1e-4:
            assert torch.cosine_similarity(gradient.ravel(), cached[name].ravel(), dim=0) > 0.99


def test_one_batchs_graph_at_a_time(bert, monkeypatch):
    """While one batch goes back, no other has a graph."""
    module, collator, dataset = setup_of("bi", bert, "softmax", cache="always")
    step = collator([dataset[place] for place in range(len(dataset))])
    alive, most = [0], [0]
    plain = module.encode

    def encode(part, batch):
        rows = plain(part, batch)
        if rows.requires_grad:
            alive[0] += 1
            most[0] = max(most[0], alive[0])
            rows.register_hook(lambda gradient: alive.__setitem__(0, alive[0] - 1))
        return rows

    monkeypatch.setattr(module, "encode", encode)
    cached_backward(module, step, contextlib.nullcontext)
    assert len(step["contexts"]) + len(step["candidates"]) > 3
    assert most == [1]


def test_on_by_itself_only_where_memory_would_run_out(bert, monkeypatch):
    module, collator, dataset = setup_of("bi", bert, "softmax", cache="auto")
    step = collator([dataset[place] for place in range(len(dataset))])
    batches = step["contexts"] + step["candidates"]
    needed = graph_bytes(module.model.context_tower, batches, 4)
    assert graph_bytes(module.model.context_tower, batches, 2) == needed / 2
    for memory, worthwhile in ((needed * 0.9, True), (needed * 1.1, False)):
        monkeypatch.setattr("polyrank.training.step.memory_for_graphs", lambda device, m=memory: m)
        assert is_worthwhile(module, step, 4) is worthwhile
    small = {**step, "contexts": step["contexts"][:1], "candidates": step["candidates"][:1]}
    monkeypatch.setattr("polyrank.training.step.memory_for_graphs", lambda device: 0)
    assert not is_worthwhile(module, small, 4)


def test_scores_in_blocks_are_those_at_once(bert, monkeypatch):
    module, collator, dataset = setup_of("poly-learnt", bert, "symmetric")
    whole = run_step(module, collator, dataset)
    monkeypatch.setattr("polyrank.training.module.LOGITS_AT_ONCE", 300)
    assert_equal_steps(whole, run_step(module, collator, dataset))


@pytest.mark.parametrize("sees", [False, True])
@pytest.mark.parametrize("variant", ["cross", "cross-interaction"])
def test_contexts_that_are_read_once(variant, sees, bert):
    settings = {"reading": "once", "context_sees_candidates": sees}
    (plain, cached), _ = both(variant, bert, "listwise", **settings)
    assert_equal_steps(plain, cached, **SINGLE)
    if variant == "cross-interaction":
        assert cached[1]["model.head.gate"].abs().min() > 1e-7
    module, collator, dataset = setup_of(variant, bert, "listwise", **settings)
    (pairs,) = (collator([dataset[place] for place in range(6)])[part] for part in module.parts)
    assert len(pairs) > 2
    needed = graph_bytes(module.model.tower, pairs, 4)
    padded = setup_of(variant, bert, "listwise")
    (others,) = (padded[1]([dataset[place] for place in range(6)])[part] for part in module.parts)
    assert 0 < needed < graph_bytes(module.model.tower, others, 4)

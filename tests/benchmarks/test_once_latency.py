"""The benchmark of reading once: equal weights, texts of so many tokens, both ways timed."""

from argparse import Namespace

import pytest

from benchmarks import once_latency


@pytest.fixture
def options(bert):
    return Namespace(
        base=bert, device="cpu", dtype="float32", head="linear", context=24, candidate=6,
        counts=[3, 5], rounds=1,
    )  # fmt: skip


def test_both_models_have_the_same_weights(options):
    pairs, once = (once_latency.models(options)[name].state_dict() for name in ("pairs", "once"))
    assert pairs.keys() == once.keys()
    assert all(pairs[name].equal(once[name]) for name in pairs)


def test_texts_have_so_many_tokens(options):
    model = once_latency.models(options)["pairs"]
    for text in once_latency.texts(model, 4, 6, 0):
        assert len(model.tokenizer.pretrained(text, add_special_tokens=False)["input_ids"]) == 6


def test_every_count_is_timed_both_ways(options):
    rows = once_latency.measure(options)
    assert [row[0] for row in rows] == [3, 5]
    assert all(value > 0 for row in rows for value in row)

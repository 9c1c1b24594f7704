from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
import torch
from fake_models import FakeCross, FakeTwoTower
from torch import Tensor

from polyrank.errors import UsageError
from polyrank.evaluation.latency import Latency, measure_latency
from polyrank.evaluation.table import ComparisonRow, markdown_table, terminal_table


class SlowCross(FakeCross):
    """0.2 ms a pair; remembers how many pairs each call had."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[int] = []

    def score_pairs(self, pairs: Sequence[tuple[object, str]], *, progress: bool = False) -> Tensor:
        self.calls.append(len(pairs))
        time.sleep(0.0002 * len(pairs))
        return torch.zeros(len(pairs))


def test_two_towers_are_measured_at_every_size() -> None:
    model = FakeTwoTower()
    found = measure_latency(model, ["a", "b"], ["x", "y", "z"], sizes=(10, 100), num_queries=4)
    assert list(found) == [10, 100]
    assert all(not latency.extrapolated for latency in found.values())
    assert all(latency.num_queries == 4 for latency in found.values())


def test_a_cross_encoder_is_extrapolated_where_it_takes_too_long() -> None:
    model = SlowCross()
    found = measure_latency(model, ["a"], ["x"], sizes=(10, 100, 10000), time_limit=0.3)
    assert set(model.calls) == {10, 100}
    assert [found[size].extrapolated for size in (10, 100, 10000)] == [False, False, True]
    assert found[10000].milliseconds == pytest.approx(100 * found[100].milliseconds)
    assert str(found[10000]).startswith("~")


def test_one_query_is_timed_however_long_it_takes() -> None:
    model = SlowCross()
    found = measure_latency(model, ["a"], ["x"], sizes=(100,), time_limit=0)
    assert found[100].num_queries == 1
    assert model.calls == [100, 100]  # the first warms up


def test_texts_are_needed() -> None:
    with pytest.raises(UsageError, match="1 contexts and 0 candidates"):
        measure_latency(FakeCross(), ["a"], [])


def make_rows() -> list[ComparisonRow]:
    fast = Latency(num_candidates=100, milliseconds=1.25, num_queries=5)
    slow = Latency(num_candidates=100, milliseconds=1234.5, num_queries=0, extrapolated=True)
    return [
        ComparisonRow(
            name="bi [a]",
            recall_at_1=0.5,
            mrr=0.61234,
            num_candidates="20",
            training_seconds=61.4,
            latency={100: fast},
        ),
        ComparisonRow(
            name="cross|b", recall_at_1=0.75, mrr=0.8, num_candidates="20", latency={100: slow}
        ),
    ]


def test_the_table_in_markdown() -> None:
    assert markdown_table(make_rows()) == (
        "| model | R@1/20 | MRR | training s | ms at 100 |\n"
        "| --- | ---: | ---: | ---: | ---: |\n"
        "| bi [a] | 0.500 | 0.612 | 61 | 1.2 |\n"
        "| cross\\|b | 0.750 | 0.800 | – | ~1,230 |\n"
        "\n~ extrapolated linearly from the largest size that was measured\n"
    )


def test_the_table_on_a_terminal() -> None:
    from rich.console import Console

    console = Console(width=100)
    with console.capture() as capture:
        console.print(terminal_table(make_rows(), title="Comparison"))
    text = capture.get()
    assert "bi [a]" in text
    assert "~1,230" in text
    assert make_rows()[1].to_json()["latency"][0]["extrapolated"] is True

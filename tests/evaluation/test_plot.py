from __future__ import annotations

import re
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.text import Text

from polyrank.errors import MissingExtraError, UsageError
from polyrank.evaluation import plot
from polyrank.evaluation.comparison import Comparison, Contender, Costs, compare_contenders
from polyrank.evaluation.latency import Latency
from polyrank.evaluation.metrics import QueryMetrics

KINDS = ("bm25", "bi", "poly", "poly", "poly", "poly", "cross")
NAMES = ("bm25", "bi", "poly-16", "poly-64", "poly-360", "poly-64, distilled $x$", "cross")
TIMES = (0.5, 4.2, 4.9, 5.1, 7.3, 5.15, 3950.0)
HITS = (60, 84, 86, 87, 90, 92, 99)


def crowded() -> Comparison:
    """Seven models, most of them close to each other."""
    contenders = []
    for name, kind, milliseconds, hits in zip(NAMES, KINDS, TIMES, HITS, strict=True):
        values = [1.0] * hits + [0.0] * (160 - hits)
        ids = tuple(map(str, range(160)))
        run = QueryMetrics.from_json(
            {"ids": ids, "values": {"recall@1": values}, "num_candidates": [20, 20]}
        )
        latency = Latency(
            num_candidates=1000,
            milliseconds=milliseconds,
            num_queries=3,
            extrapolated=kind == "cross",
        )
        contenders.append(
            Contender(
                name=name,
                architecture=kind,
                sources=(name,),
                runs=(run, run) if kind == "bi" else (run,),
                costs=Costs(latency={1000: latency}),
            )
        )
    return compare_contenders(contenders, num_resamples=200, num_permutations=99)


def test_png_and_svg_are_drawn_the_same_each_time(tmp_path: Path) -> None:
    found = crowded()
    first = plot.draw(found, tmp_path / "first", size=1000)
    assert [path.name for path in first] == ["first.png", "first.svg"]
    assert first[0].read_bytes().startswith(b"\x89PNG")
    svg = first[1].read_text(encoding="utf-8")
    texts = re.findall(r">([^<>]+)</text>", svg)
    assert {"bi", "poly-16", "cross", "poly-encoder", "extrapolated"} <= set(texts)
    assert "poly-64, distilled $x$" in texts
    second = plot.draw(found, tmp_path / "second", size=1000)
    assert [path.read_bytes() for path in second] == [path.read_bytes() for path in first]
    assert {path.name for path in tmp_path.iterdir()} == {
        "first.png",
        "first.svg",
        "second.png",
        "second.svg",
    }


def test_labels_overlap_neither_each_other_nor_the_points_nor_the_edge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Any] = []
    label_models = plot.label_models

    def watched(axes: Any, *rest: Any) -> None:
        label_models(axes, *rest)
        drawn.append(axes)

    monkeypatch.setattr(plot, "label_models", watched)
    plot.draw(crowded(), tmp_path / "plot", size=1000)
    [axes] = drawn
    axes.figure.draw_without_rendering()
    boxes = [Text.get_window_extent(label) for label in axes.texts]
    assert len(boxes) == len(NAMES)
    assert all(not one.overlaps(other) for one, other in combinations(boxes, 2))
    assert all(box.x0 > axes.get_window_extent().x1 for box in boxes)
    width, height = axes.figure.bbox.max
    assert all(box.x1 <= width and box.y0 >= 0 and box.y1 <= height for box in boxes)


def test_names_are_spread_no_more_than_they_have_to_be() -> None:
    assert plot.spread_out([0.1, 0.5, 0.9], 0.1) == [0.1, 0.5, 0.9]
    assert plot.spread_out([0.5, 0.5, 0.5], 0.1) == pytest.approx([0.4, 0.5, 0.6])


def test_matplotlibs_settings_are_left_alone(tmp_path: Path) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    plot.draw(crowded(), tmp_path / "plot", size=1000)
    assert dict(mpl.rcParams) == before


def test_a_time_that_nobody_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"timed at 77 candidates\. Plot one of 1000"):
        plot.draw(crowded(), tmp_path / "plot", size=77)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"polyrank\[plot\]"):
        plot.require_matplotlib()


@pytest.mark.parametrize(
    ("value", "text"), [(0.1, "0.1 ms"), (100.0, "100 ms"), (1000.0, "1 s"), (1e6, "1,000 s")]
)
def test_ticks_have_units(value: float, text: str) -> None:
    assert plot.milliseconds(value) == text

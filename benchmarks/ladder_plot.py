"""Quality against training seconds: a line for each recipe, a point for each budget.

Needs matplotlib. The lines join means over seeds; the bars are 95% bootstrap intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.ledger import Entry, contenders
from polyrank.evaluation.comparison import Mean, compare_contenders
from polyrank.evaluation.plot import COLOURS, MARKERS, STYLE, require_matplotlib, save, tidy

OTHER_COLOURS = ("#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's colours for recipes whose architecture's own is taken."""

CLOSE = 10
"""Seconds that differ by less than this factor have names between the powers of ten too."""
NAMED = (2, 3, 5, 7)

Lines = Mapping[str, Sequence[tuple[float, Mean]]]
"""By recipe, the training seconds and the figure of each budget, in rising order."""


def draw_budgets(found: Sequence[tuple[str, Entry]], path: Path) -> list[Path]:
    """Write `path` as .png and .svg, with an axis for each metric, from recipes and their runs.

    Raises MissingExtraError without matplotlib.
    """
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    labels = found[0][1].query_metrics().labels()
    looks = looks_of(found)
    with mpl.rc_context({**mpl.rcParamsDefault, "backend": "agg", **STYLE}):
        figure = Figure(figsize=(9.6, 4.4), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, metric in zip(
            figure.subplots(1, len(labels), squeeze=False)[0], labels, strict=True
        ):
            draw_lines(axes, lines_of(found, metric), looks)
            axes.set_xlabel("training seconds (log scale)")
            axes.set_ylabel(f"{labels[metric]} (95% interval)")
        handles, names = axes.get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=6, frameon=False)
        return save(figure, path)


def lines_of(found: Sequence[tuple[str, Entry]], metric: str) -> Lines:
    """The points of each recipe: one for each budget, its seeds averaged."""
    names = {entry.name: recipe for recipe, entry in found}
    lines: dict[str, list[tuple[float, Mean]]] = {}
    comparison = compare_contenders(
        contenders([entry for _, entry in found]), metric=metric, num_permutations=1
    )
    for one in comparison.contenders:
        seconds = one.costs.training_seconds or 0.0
        lines.setdefault(names[one.name], []).append((seconds, comparison.mean_of(one)))
    return {name: sorted(points, key=lambda point: point[0]) for name, points in lines.items()}


def looks_of(found: Sequence[tuple[str, Entry]]) -> dict[str, tuple[str, str]]:
    """The colour and the marker of each recipe: its architecture's, if none has them before it."""
    looks: dict[str, tuple[str, str]] = {}
    for recipe, entry in found:
        own, marker = COLOURS[entry.recipe.arch], MARKERS[entry.recipe.arch]
        taken = {colour for colour, _ in looks.values()}
        free = [colour for colour in (own, *OTHER_COLOURS) if colour not in taken]
        looks.setdefault(recipe, (free[0] if free else own, marker))
    return looks


def draw_lines(axes: Any, lines: Lines, looks: Mapping[str, tuple[str, str]]) -> None:
    """The recipes of one metric."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    plain = FuncFormatter(lambda seconds, _: f"{seconds:,g}")
    every = [each for points in lines.values() for each, _ in points]
    is_narrow = max(every) < CLOSE * min(every)
    axes.xaxis.set_major_formatter(plain)
    axes.xaxis.set_minor_formatter(plain if is_narrow else NullFormatter())
    if is_narrow:
        axes.xaxis.set_minor_locator(LogLocator(subs=NAMED))
    for name, points in lines.items():
        colour, marker = looks[name]
        seconds = [each for each, _ in points]
        for each, mean in points:
            axes.vlines(each, *mean.interval, color=colour, linewidth=1.2, alpha=0.6)
        means = [mean.mean for _, mean in points]
        axes.plot(seconds, means, color=colour, marker=marker, markeredgecolor="white", label=name)
    axes.margins(y=0.12)
    tidy(axes)

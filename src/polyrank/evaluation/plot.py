"""Quality against latency: one point per model, with its interval. Needs matplotlib (extra `plot`).

Knows a comparison; measures nothing. Draws without a display and leaves matplotlib's state alone.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

from polyrank.errors import MissingExtraError, UsageError
from polyrank.evaluation.comparison import Comparison, Contender
from polyrank.storage import storage_errors

NAMES = {"bi": "bi-encoder", "poly": "poly-encoder", "cross": "cross-encoder", "bm25": "BM25"}
COLOURS = {"bi": "#0072B2", "poly": "#D55E00", "cross": "#009E73", "bm25": "#7A7A7A"}
"""Okabe and Ito's colours, which are distinct in any colour vision."""

MARKERS = {"bi": "o", "poly": "s", "cross": "D", "bm25": "^"}
INK = "#222222"
STYLE: dict[str, Any] = {
    "axes.edgecolor": "#555555",
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "font.family": "sans-serif",
    "font.size": 9.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "polyrank",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
POINTS_PER_INCH = 72
LABEL_HEIGHT = 13
"""The least distance of two names, in points of print."""


def draw(comparison: Comparison, path: Path, *, size: int) -> list[Path]:
    """Write `path` as .png and .svg, with the time of a query against `size` candidates; of
    labelled pairs with that of one pair, for which `size` is 1.

    Models without that time are left out. Raises MissingExtraError without matplotlib, UsageError
    where no model has it.
    """
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [each for each in comparison.contenders if size in each.costs.latency]
    if not shown:
        raise UsageError(
            f"No model was timed at {size:,} candidates.",
            f"Plot one of {', '.join(map(str, comparison.sizes)) or 'some measured sizes'}.",
        )
    with mpl.rc_context({**mpl.rcParamsDefault, "backend": "agg", **STYLE}):
        figure = Figure(figsize=(6.8, 4.4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for each in shown:
            draw_model(axes, comparison, each, size)
        set_axes(axes, comparison, shown, size)
        figure.draw_without_rendering()  # lays out the axes, whose height the labels need
        label_models(axes, comparison, shown, size)
        return save(figure, path)


def save(figure: Any, path: Path) -> list[Path]:
    """Write a figure as .png and .svg. Raises StorageError."""
    written = []
    for suffix in (".png", ".svg"):
        target = path.with_suffix(suffix)
        metadata = {"Date": None} if suffix == ".svg" else {}
        with storage_errors(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            fresh = target.with_name(f".{target.name}.new")
            figure.savefig(fresh, format=suffix[1:], dpi=200, metadata=metadata)
            fresh.replace(target)
        written.append(target)
    return written


def draw_model(axes: Any, comparison: Comparison, contender: Contender, size: int) -> None:
    """A point, its interval, and faint points for the runs where there are several."""
    mean = comparison.mean_of(contender)
    latency = contender.costs.latency[size]
    colour = COLOURS.get(contender.architecture, INK)
    marker = MARKERS.get(contender.architecture, "o")
    x = latency.milliseconds
    axes.vlines(x, *mean.interval, color=colour, linewidth=1.4, alpha=0.75, zorder=2)
    for end in mean.interval:
        axes.plot(x, end, "_", color=colour, markersize=6, alpha=0.75, zorder=2)
    if len(mean.by_run) > 1:
        runs = [x] * len(mean.by_run)
        axes.scatter(
            runs, mean.by_run, s=14, color=colour, edgecolors="white", linewidths=0.6, zorder=3
        )
    axes.plot(
        x,
        mean.mean,
        marker,
        markersize=7.5,
        markerfacecolor="white" if latency.extrapolated else colour,
        markeredgecolor=colour if latency.extrapolated else "white",
        markeredgewidth=1.6 if latency.extrapolated else 0.9,
        zorder=4,
    )


def set_axes(axes: Any, comparison: Comparison, shown: list[Contender], size: int) -> None:
    """Scales, grid, titles and the legend."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    times = [each.costs.latency[size].milliseconds for each in shown]
    axes.set_xscale("log")
    low, high = min(times), max(times)
    span = max(high / low, 10) ** 0.14
    middle, least = (low * high) ** 0.5, 10**0.5
    axes.set_xlim(min(low / span, middle / least), max(high * span, middle * least))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: milliseconds(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(y=0.12)
    timed = f"query against {size:,} candidates" if comparison.unit == "query" else "pair"
    axes.set_xlabel(f"time of one {timed} (log scale)")
    axes.set_ylabel(f"{comparison.labels[comparison.metric]} (95% interval)")
    tidy(axes)
    axes.legend(
        handles=legend_handles(shown, size),
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=5,
        frameon=False,
        handletextpad=0.2,
        columnspacing=1.4,
    )


def tidy(axes: Any) -> None:
    """A grid behind the points, and two sides without a line."""
    axes.grid(True, which="major", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=3, width=0.8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def legend_handles(shown: list[Contender], size: int) -> list[Any]:
    """One entry per architecture, and one for hollow points."""
    from matplotlib.lines import Line2D

    kinds = [kind for kind in NAMES if any(each.architecture == kind for each in shown)]
    common: dict[str, Any] = {"linestyle": "none", "markersize": 7}
    handles = [
        Line2D(
            [],
            [],
            marker=MARKERS[kind],
            markerfacecolor=COLOURS[kind],
            markeredgecolor="white",
            label=NAMES[kind],
            **common,
        )
        for kind in kinds
    ]
    if any(each.costs.latency[size].extrapolated for each in shown):
        hollow: dict[str, Any] = {
            "markerfacecolor": "white",
            "markeredgecolor": INK,
            "markeredgewidth": 1.4,
        }
        handles.append(Line2D([], [], marker="o", label="extrapolated", **hollow, **common))
    return handles


def label_models(axes: Any, comparison: Comparison, shown: list[Contender], size: int) -> None:
    """Write the models' names in a column right of the axes, a thin line from each to its point.

    The names stand as near to the heights of their points as their own height lets them.
    """
    height = axes.get_window_extent().height / axes.figure.dpi * POINTS_PER_INCH
    ordered = sorted(shown, key=lambda each: comparison.mean_of(each).mean)
    points = [
        (each.costs.latency[size].milliseconds, comparison.mean_of(each).mean) for each in ordered
    ]
    to_axes = axes.transData - axes.transAxes
    gap = min(LABEL_HEIGHT / height, 1 / len(shown))
    heights = spread_out([float(to_axes.transform(point)[1]) for point in points], gap)
    for each, point, place in zip(ordered, points, heights, strict=True):
        colour = COLOURS.get(each.architecture, INK)
        axes.annotate(
            escaped(each.name),
            point,
            xytext=(1.04, place),
            textcoords="axes fraction",
            verticalalignment="center",
            color=colour,
            zorder=1.5,  # above the grid, below points and intervals
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.6,
                "alpha": 0.5,
                "relpos": (0, 0.5),
                "shrinkA": 2,
                "shrinkB": 5,
            },
        )


def spread_out(heights: list[float], gap: float) -> list[float]:
    """Rising heights, moved up and down alike until neighbours differ by at least `gap`."""
    up = accumulate(heights, lambda below, own: max(own, below + gap))
    down = accumulate(reversed(heights), lambda above, own: min(own, above - gap))
    return [(high + low) / 2 for high, low in zip(up, reversed(list(down)), strict=True)]


def escaped(text: str) -> str:
    """A text that matplotlib does not take for mathematics."""
    return text.replace("$", "\\$")


def milliseconds(value: float) -> str:
    """A tick of the time axis in the unit that fits it."""
    return f"{value:g} ms" if value < 1000 else f"{value / 1000:,g} s"


def require_matplotlib() -> None:
    """Raise MissingExtraError without matplotlib."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise MissingExtraError("matplotlib", "plot", "The plot") from None

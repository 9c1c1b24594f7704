"""Quality against latency: one point a model, with its interval. Needs matplotlib (extra `plot`).

Knows a comparison; measures nothing. Draws without a display and leaves matplotlib's state alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from polyrank.errors import MissingExtraError, UsageError
from polyrank.evaluation.comparison import Comparison, Contender
from polyrank.storage import storage_errors

NAMES = {"bi": "bi-encoder", "poly": "poly-encoder", "cross": "cross-encoder", "bm25": "BM25"}
COLOURS = {"bi": "#0072B2", "poly": "#D55E00", "cross": "#009E73", "bm25": "#7A7A7A"}
"""Okabe and Ito's colours, which people with any colour vision tell apart."""

MARKERS = {"bi": "o", "poly": "s", "cross": "D", "bm25": "^"}
INK, FAINT = "#222222", "#B8B8B8"
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
ANGLES = (0, 180, 90, 270, 45, 135, 315, 225, 20, 160, 340, 200, 65, 115, 295, 245)
FAR = 13
DISTANCES = (9, 15, 23, 33, 45, 60)
"""Where a label may stand around its point, the preferred place first; points of print."""


def draw(comparison: Comparison, path: Path, *, size: int) -> list[Path]:
    """Write `path` as .png and .svg, with the time of a query against `size` candidates.

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
    written = []
    with mpl.rc_context({**mpl.rcParamsDefault, "backend": "agg", **STYLE}):
        figure = Figure(figsize=(6.8, 4.4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        for each in shown:
            draw_model(axes, comparison, each, size)
        set_axes(axes, comparison, shown, size)
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # labels are placed where the axes now are
        place_labels(axes, comparison, shown, size)
        for suffix in (".png", ".svg"):
            target = path.with_suffix(suffix)
            metadata = {"Date": None} if suffix == ".svg" else {}
            with storage_errors(target):
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
    axes.set_xlabel(f"time of one query against {size:,} candidates (log scale)")
    axes.set_ylabel(f"{comparison.labels[comparison.metric]} (95% interval)")
    axes.grid(True, which="major", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", length=3, width=0.8)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(
        handles=legend_handles(shown, size),
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=5,
        frameon=False,
        handletextpad=0.2,
        columnspacing=1.4,
    )


def legend_handles(shown: list[Contender], size: int) -> list[Any]:
    """One entry an architecture, and what a hollow point is."""
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


def place_labels(axes: Any, comparison: Comparison, shown: list[Contender], size: int) -> None:
    """Write each model's name where it covers nothing, with a thin line where it stands far off.

    The places around each point are tried in turn, and the one with the least overlap is taken.
    """
    from matplotlib.transforms import Bbox

    figure = axes.figure
    renderer = figure.canvas.get_renderer()
    unit = figure.dpi / 72  # pixels of a point of print
    taken = []
    points = []
    for each in shown:
        mean, x = comparison.mean_of(each), each.costs.latency[size].milliseconds
        centre = axes.transData.transform((x, mean.mean))
        ends = axes.transData.transform([(x, end) for end in mean.interval])
        points.append(centre)
        taken.append(Bbox.from_extents(*(centre - 6 * unit), *(centre + 6 * unit)))
        taken.append(Bbox([ends[0] - 3 * unit, ends[1] + 3 * unit]))
    frame = axes.get_window_extent(renderer)
    order = sorted(range(len(shown)), key=lambda row: -points[row][1])
    for row in order:
        each, colour = shown[row], COLOURS.get(shown[row].architecture, INK)
        anchor = (each.costs.latency[size].milliseconds, comparison.mean_of(each).mean)
        ground = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6}
        text = write(axes, escaped(each.name), anchor, (0.0, 0.0), color=colour, bbox=ground)
        place = best_place(text, points[row], taken, frame, renderer, unit)
        taken.append(place)
        if gap(place, points[row]) > FAR * unit:
            link(axes, anchor, points[row], place, unit, colour)


def write(axes: Any, words: str, anchor: Any, offset: tuple[float, float], **how: Any) -> Any:
    """A text at an offset, in points of print, from a place in the data: at any resolution."""
    return axes.annotate(
        words,
        anchor,
        xytext=offset,
        textcoords="offset points",
        zorder=1.5,  # above the grid, below points and intervals
        annotation_clip=False,
        **how,
    )


def best_place(
    text: Any, point: Any, taken: list[Any], frame: Any, renderer: Any, unit: float
) -> Any:
    """Move a label to the place with the least overlap; the place that it covers."""
    from math import cos, radians, sin

    size = text.get_window_extent(renderer)
    best: tuple[float, Any, Any] | None = None
    for rank, (distance, angle) in enumerate((d, a) for d in DISTANCES for a in ANGLES):
        across, up = cos(radians(angle)), sin(radians(angle))
        centre_x = point[0] + across * (distance * unit + size.width / 2)
        centre_y = point[1] + up * (distance * unit + size.height / 2)
        left, bottom = centre_x - size.width / 2, centre_y - size.height / 2
        place = type(size).from_bounds(left, bottom, size.width, size.height)
        padded = place.padded(2 * unit)
        covered = sum(overlap(padded, other) for other in taken)
        outside = place.width * place.height - overlap(place, frame)
        cost = covered + 4 * outside + rank * unit**2
        if best is None or cost < best[0]:
            best = (cost, place, ((left - point[0]) / unit, (bottom - point[1]) / unit))
    assert best is not None
    text.set_position(best[2])
    text.set_verticalalignment("bottom")
    return best[1]


def overlap(first: Any, second: Any) -> float:
    """The area that two boxes share."""
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return max(width, 0.0) * max(height, 0.0)


def nearest_edge(box: Any, point: Any) -> tuple[float, float]:
    """The point of a box that is nearest to a point."""
    x = min(max(point[0], box.x0), box.x1)
    y = min(max(point[1], box.y0), box.y1)
    return float(x), float(y)


def gap(box: Any, point: Any) -> float:
    """How far a box is from a point."""
    x, y = nearest_edge(box, point)
    return float(((x - point[0]) ** 2 + (y - point[1]) ** 2) ** 0.5)


def link(axes: Any, anchor: Any, point: Any, box: Any, unit: float, colour: str) -> None:
    """A thin line from a point to its label."""
    x, y = nearest_edge(box, point)
    line = {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "alpha": 0.6, "shrinkB": 4}
    offset = ((x - point[0]) / unit, (y - point[1]) / unit)
    write(axes, "", anchor, offset, arrowprops={**line, "shrinkA": 2})


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

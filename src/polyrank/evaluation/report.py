"""A comparison for people and for programs: tables for a terminal, and the files of a folder.

    comparison.md       the tables, and the plot if there is one
    comparison.json     everything but single queries
    per-query.jsonl     the values of each query by each model, or what it says of each pair
    comparison.png, .svg    quality against latency, if asked for

Knows what a comparison holds; measures nothing.
"""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from polyrank._version import __version__
from polyrank.errors import UsageError
from polyrank.evaluation.comparison import CONFIDENCE, Comparison, Contender
from polyrank.evaluation.pairs import PairResults
from polyrank.evaluation.plot import draw
from polyrank.folder_files import read_json
from polyrank.runtime import resolve_device
from polyrank.storage import replaced_folder, write_text

if TYPE_CHECKING:
    from rich.table import Table

RESULT, PAGE, PER_QUERY, PLOT = "comparison.json", "comparison.md", "per-query.jsonl", "comparison"
FOOTNOTE = "~ extrapolated linearly from the largest size that was measured"
LEVEL = 1 - CONFIDENCE
HOW = {
    "query": "Intervals: 95%, BCa bootstrap over the queries. p: two-sided paired randomisation "
    "test; Holm's correction is over all pairs. Several runs of a model are averaged query by "
    "query first. cache: the vectors of the candidates in float32.",
    "pair": "Intervals: 95%, BCa bootstrap over the pairs of texts. p: two-sided paired "
    "randomisation test; Holm's correction is over all pairs of models. Of several runs of a "
    "model, correlations and accuracy are averaged, and macro F1 is that of their counts together. "
    "ms per pair: many pairs are scored at once.",
}
"""How the figures were made, by the unit of the comparison."""
Cells = list[list[str]]


def write_report(
    comparison: Comparison,
    folder: Path,
    about: Mapping[str, Any],
    *,
    plotted_size: int | None = None,
) -> list[str]:
    """Write the files of a comparison, all at once; their names.

    Raises StorageError and, for a plot with `plotted_size` candidates, MissingExtraError.
    `about` is what the values depend on, JSON-ready: data, device, command, … What else lies in the
    folder stays.
    """
    with replaced_folder(folder) as fresh:
        if folder.is_dir():
            shutil.copytree(folder, fresh, symlinks=True, dirs_exist_ok=True)
        if plotted_size is not None:
            draw(comparison, fresh / PLOT, size=plotted_size)
        picture = None if plotted_size is None else f"{PLOT}.png"
        result = json.dumps(to_json(comparison, about), indent=2, ensure_ascii=False)
        write_text(fresh / PER_QUERY, per_query_lines(comparison))
        write_text(fresh / PAGE, markdown(comparison, about, plot=picture))
        write_text(fresh / RESULT, result + "\n")
    return [PAGE, RESULT, PER_QUERY, *([picture] if picture else [])]


def read_report(folder: Path) -> dict[str, Any]:
    """What `write_report` wrote of a comparison for programs. Raises UsageError."""
    path = folder / RESULT
    remedy = "Give the folder that polyrank compare --output wrote."
    try:
        result = read_json(path)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise UsageError(f"There is no comparison to read in {folder}: {error}.", remedy) from None
    models = result.get("models") if isinstance(result, dict) else None
    if not isinstance(models, list) or not all(is_contender(each, result) for each in models):
        raise UsageError(f"{path} is not the result of a comparison.", remedy)
    return result


def is_contender(model: Any, result: Mapping[str, Any]) -> bool:
    """Whether this is what `contender_json` makes of a model."""
    try:
        figure = model["figures"][result["metric"]]
        numbers = [figure[name] for name in ("mean", "low", "high")]
        numbers += [each["milliseconds"] for each in model["latency"]]
        numbers += [each["num_candidates"] for each in model["latency"]]
        return all(isinstance(each, (int, float)) for each in numbers) and isinstance(
            model["name"] + model["architecture"], str
        )
    except (KeyError, TypeError):
        return False


def environment(device: str) -> dict[str, str]:
    """The machine and the versions: times depend on them, and the last digits of scores."""
    resolved = resolve_device(device)
    is_gpu = resolved.type == "cuda"
    name = torch.cuda.get_device_name(resolved) if is_gpu else platform.machine()
    return {
        "device": f"{resolved.type}, {name}, {torch.get_num_threads()} threads",
        "polyrank": __version__,
        "torch": torch.__version__,
    }


def quality_cells(comparison: Comparison) -> Cells:
    """A header, then one row per model: the means, with an interval for the one that is tested."""
    labels = comparison.labels
    metrics = [comparison.metric, *(name for name in labels if name != comparison.metric)]
    several = any(len(each.runs) > 1 for each in comparison.contenders)
    header = ["model", labels[metrics[0]], "95% interval"]
    header += ["runs", "sd of runs"] if several else []
    rows = [[*header, *(labels[name] for name in metrics[1:])]]
    for each in comparison.contenders:
        tested = comparison.mean_of(each)
        row = [each.name, f"{tested.mean:.3f}", f"{tested.interval.low:.3f} – "]
        row[-1] += f"{tested.interval.high:.3f}"
        if several:
            row += [str(len(each.runs)), "–" if tested.spread is None else f"{tested.spread:.3f}"]
        means = comparison.means[each.name]
        rows.append([*row, *(f"{means[name].mean:.3f}" for name in metrics[1:])])
    return rows


def cost_cells(comparison: Comparison) -> Cells:
    """A header, then one row per model: parameters, training, cache and the time of a query."""
    sizes = comparison.sizes
    largest = cache_size(comparison)
    of_pairs = comparison.unit == "pair"
    cache = [] if of_pairs else [f"cache at {largest:,}"]
    times = ["ms per pair" if of_pairs else f"ms at {size:,}" for size in sizes]
    rows = [["model", "parameters", "training s", *cache, *times]]
    for each in comparison.contenders:
        costs = each.costs
        bytes_kept = None if costs.vector_bytes is None else costs.vector_bytes * largest
        rows.append(
            [
                each.name,
                shown_count(costs.parameters),
                "–" if costs.training_seconds is None else f"{costs.training_seconds:,.0f}",
                *(["–" if bytes_kept is None else f"{bytes_kept / 1e6:,.1f} MB"] if cache else []),
                *(str(costs.latency.get(size, "–")) for size in sizes),
            ]
        )
    return rows


def difference_cells(comparison: Comparison) -> Cells:
    """A header, then one row per pair of models."""
    label = comparison.labels[comparison.metric]
    rows = [["better", "other", f"difference in {label}", "95% interval", "p", "p (Holm)", ""]]
    for each in comparison.differences:
        low, high = each.interval
        rows.append(
            [
                each.better,
                each.other,
                f"{each.difference:+.3f}",
                f"{low:+.3f} – {high:+.3f}",
                shown_p(each.p),
                shown_p(each.p_holm),
                "*" if each.p_holm < LEVEL else "",
            ]
        )
    return rows


def shown_p(p: float) -> str:
    """A p-value with three digits, or that it is below them."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def shown_count(count: int | None) -> str:
    """A number of parameters, in millions or thousands."""
    if count is None:
        return "–"
    return f"{count / 1e6:,.1f} M" if count >= 1e6 else f"{count / 1e3:,.1f} k"


def cache_size(comparison: Comparison) -> int:
    """The number of candidates that the size of a cache is given for."""
    return comparison.sizes[-1] if comparison.sizes else 100_000


def sections(comparison: Comparison) -> list[tuple[str, Cells, str]]:
    """Title, cells and footnote of each table."""
    label = comparison.labels[comparison.metric]
    what = "pairs" if comparison.unit == "pair" else "queries"
    found = [
        (f"Quality, {comparison.num_queries:,} {what}", quality_cells(comparison), ""),
        ("Costs", cost_cells(comparison), FOOTNOTE if has_extrapolated(comparison) else ""),
    ]
    if comparison.differences:
        note = f"* the models differ in {label} at the {LEVEL:.0%} level, corrected for all pairs"
        found.append(("Differences, paired randomisation test", difference_cells(comparison), note))
    return found


def has_extrapolated(comparison: Comparison) -> bool:
    """Whether any time was extrapolated."""
    return any(
        latency.extrapolated
        for each in comparison.contenders
        for latency in each.costs.latency.values()
    )


def terminal_tables(comparison: Comparison) -> list[Table]:
    """The tables for `Output.table`."""
    from rich.markup import escape
    from rich.table import Table

    tables = []
    for title, cells, note in sections(comparison):
        table = Table(title=title, caption=note or None, title_justify="left")
        texts = 2 if cells[0][0] == "better" else 1
        for place, name in enumerate(cells[0]):
            side: Any = "left" if place < texts else "right"
            table.add_column(escape(name), justify=side, no_wrap=True)
        for row in cells[1:]:
            table.add_row(*map(escape, row))
        tables.append(table)
    return tables


def markdown(comparison: Comparison, about: Mapping[str, Any], *, plot: str | None = None) -> str:
    """The page: what was compared, the plot, the tables and how each figure was made."""
    lines = ["# Comparison", ""]
    lines += [f"- {name}: {value}" for name, value in about.items() if value is not None] + [""]
    if plot is not None:
        lines += [f"![Quality against latency]({plot})", ""]
    for title, cells, note in sections(comparison):
        lines += [f"## {title}", "", *markdown_rows(cells), ""]
        lines += [note.replace("* ", "\\* ", 1), ""] if note else []
    lines += [HOW[comparison.unit], ""]
    return "\n".join(lines)


def markdown_rows(cells: Cells) -> list[str]:
    """The lines of a table, the first column on the left."""
    escaped = [[cell.replace("|", "\\|").replace("*", "\\*") for cell in row] for row in cells]
    ruler = ["---", *["---:"] * (len(cells[0]) - 1)]
    return [f"| {' | '.join(row)} |" for row in [escaped[0], ruler, *escaped[1:]]]


def to_json(comparison: Comparison, about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything but the values of single queries, JSON-ready."""
    return {
        **about,
        "metric": comparison.metric,
        f"num_{'pairs' if comparison.unit == 'pair' else 'queries'}": comparison.num_queries,
        "confidence": CONFIDENCE,
        "models": [contender_json(comparison, each) for each in comparison.contenders],
        "differences": [each.to_json() for each in comparison.differences],
    }


def contender_json(comparison: Comparison, contender: Contender) -> dict[str, Any]:
    """One model."""
    costs = contender.costs
    means = comparison.means[contender.name]
    return {
        "name": contender.name,
        "architecture": contender.architecture,
        "sources": list(contender.sources),
        "figures": {name: mean.to_json() for name, mean in means.items()},
        "parameters": costs.parameters,
        "vector_bytes": costs.vector_bytes,
        "training_seconds": costs.training_seconds,
        "latency": [asdict(latency) for latency in costs.latency.values()],
    }


def per_query_lines(comparison: Comparison) -> str:
    """JSONL: the values of each query by model and metric, averaged over a model's runs.

    Of a pair, its label and what each run of each model says of it.
    """
    if comparison.unit == "pair":
        return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in pair_rows(comparison))
    metrics = list(comparison.labels)
    values = {
        each.name: {name: each.averaged(name) for name in metrics} for each in comparison.contenders
    }
    lines: list[str] = []
    ids: Sequence[str] = comparison.contenders[0].runs[0].ids
    for row, identifier in enumerate(ids):
        record = {
            model: {name: float(array[row]) for name, array in figures.items()}
            for model, figures in values.items()
        }
        lines.append(json.dumps({"query": identifier, "models": record}, ensure_ascii=False))
    return "\n".join(lines) + "\n"


def pair_rows(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Yield the label of each pair and the scores or classes of all runs, by the model."""
    said = {
        each.name: [
            run.named(run.predicted).tolist() for run in each.runs if isinstance(run, PairResults)
        ]
        for each in comparison.contenders
    }
    first = comparison.contenders[0].runs[0]
    assert isinstance(first, PairResults)
    for row, (identifier, label) in enumerate(
        zip(first.ids, first.named(first.gold).tolist(), strict=True)
    ):
        models = {name: [run[row] for run in runs] for name, runs in said.items()}
        yield {"pair": identifier, "label": label, "models": models}

"""A finished table for people and for programs, the paper's figures beside the measured ones.

    TABLE.md      the table, its tests, and how it was made
    TABLE.json    everything but single queries

Measures nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank.evaluation.comparison import Comparison
from polyrank.evaluation.report import Cells, difference_cells, markdown_rows
from polyrank.reproduce.runs import RowResult, TableResult
from polyrank.storage import write_text

if TYPE_CHECKING:
    from rich.table import Table as RichTable

NOTE = (
    "Intervals: 95%, BCa bootstrap over the queries or pairs. p: two-sided paired randomisation "
    "test; Holm's correction is over all pairs of rows. The paper's figures come from its own "
    "data, encoders and scale."
)
LABELS = {"mrr": "MRR", "spearman": "Spearman", "pearson": "Pearson", "times": "× the first"}


def write_report(result: TableResult, folder: Path, about: Mapping[str, Any]) -> list[str]:
    """Write both files; their names. `about` is what the figures depend on. Raises StorageError."""
    name = result.table.name
    write_text(folder / f"{name}.md", markdown(result, about))
    record = json.dumps(to_json(result, about), indent=2, ensure_ascii=False)
    write_text(folder / f"{name}.json", record + "\n")
    return [f"{name}.md", f"{name}.json"]


def cells(result: TableResult) -> Cells:
    """A header, then a line for each row: what was measured, then the paper's figures."""
    table = result.table
    header = ["", label(result, table.metrics[0])]
    header += ["95% interval"] if result.comparison else []
    header += [label(result, metric) for metric in table.metrics[1:]]
    lines = [[*header, *(f"paper: {column}" for column in table.paper_columns)]]
    for row in result.rows:
        shown = [shown_figure(result, row, metric) for metric in table.metrics]
        if result.comparison is not None:
            low, high = result.comparison.means[row.row.label][table.metrics[0]].interval
            shown.insert(1, f"{low:.3f} – {high:.3f}")
        figures = (*row.row.paper, *[None] * len(table.paper_columns))
        papers = ["" if f is None else f"{f:,}" for f in figures[: len(table.paper_columns)]]
        lines.append([row.row.label, *shown, *papers])
    return lines


def label(result: TableResult, metric: str) -> str:
    """A metric as people write it."""
    if result.comparison is not None:
        return result.comparison.labels.get(metric, metric)
    if metric == "seconds":
        return "seconds for 1,000 contexts"
    if metric.startswith("ms@"):
        return f"ms at {int(metric[3:]):,}"
    return LABELS.get(metric, metric)


def figure(result: TableResult, row: RowResult, metric: str) -> float | None:
    """A figure of a row; `times` is its time over that of the first row."""
    if metric != "times":
        return row.figure(metric)
    own, first = row.figure("seconds"), result.rows[0].figure("seconds")
    return None if own is None or not first else own / first


def shown_figure(result: TableResult, row: RowResult, metric: str) -> str:
    """A figure as people read it."""
    value = figure(result, row, metric)
    if value is None:
        return "–"
    if metric.startswith("ms@"):
        size = int(metric[3:])
        guessed = any(
            each.extrapolated and each.num_candidates == size
            for run in row.runs
            for each in run.latency
        )
        return f"{'~' if guessed else ''}{value:,.{1 if value < 100 else 0}f}"
    return f"{value:,.1f}" if metric == "seconds" else f"{value:.3f}"


def shown_differences(comparison: Comparison) -> Cells:
    """The best row against each other one; every two rows are in the JSON."""
    best = max(comparison.contenders, key=lambda each: comparison.mean_of(each).mean)
    header, *lines = difference_cells(comparison)
    return [header, *(line for line in lines if best.name in line[:2])]


def terminal_tables(result: TableResult) -> list[RichTable]:
    """The tables for `Output.table`."""
    from rich.markup import escape
    from rich.table import Table as RichTable

    tables = []
    for title, lines in sections(result):
        table = RichTable(title=title, title_justify="left")
        for place, name in enumerate(lines[0]):
            side: Any = "left" if not place or name == "other" else "right"
            table.add_column(escape(name), justify=side, no_wrap=place == 0)
        for line in lines[1:]:
            table.add_row(*map(escape, line))
        tables.append(table)
    return tables


def sections(result: TableResult) -> list[tuple[str, Cells]]:
    """Title and cells of each table."""
    found = [(f"{result.table.about} ({result.table.source})", cells(result))]
    if result.comparison is not None and result.comparison.differences:
        words = "labelled pairs" if result.comparison.unit == "pair" else "queries"
        title = f"The best row against the others, {result.comparison.num_queries:,} {words}"
        found.append((title, shown_differences(result.comparison)))
    return found


def markdown(result: TableResult, about: Mapping[str, Any]) -> str:
    """The page."""
    lines = [f"# {result.table.name}", ""]
    lines += [f"- {name}: {shown(value)}" for name, value in about.items() if value is not None]
    lines += [""]
    for title, rows in sections(result):
        lines += [f"## {title}", "", *markdown_rows(rows), ""]
    return "\n".join([*lines, NOTE, ""])


def shown(value: Any) -> str:
    """A value of `about` in words."""
    if isinstance(value, Mapping):
        return "; ".join(f"{name} = {shown(item)}" for name, item in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ("; " if any("," in str(item) for item in value) else ", ").join(map(str, value))
    return str(value)


def to_json(result: TableResult, about: Mapping[str, Any]) -> dict[str, Any]:
    """Everything but the values of single queries, JSON-ready."""
    table = result.table
    rows = []
    for row in result.rows:
        papers = dict(zip(table.paper_columns, row.row.paper, strict=False))
        means = result.comparison.means[row.row.label] if result.comparison else {}
        rows.append(
            {
                "label": row.row.label,
                "figures": {name: figure(result, row, name) for name in table.metrics},
                "intervals": {name: list(each.interval) for name, each in means.items()},
                "paper": papers,
                "runs": [{"figures": run.figures, **run.about} for run in row.runs],
            }
        )
    tests = result.comparison.differences if result.comparison else ()
    return {
        "table": table.name,
        "source": table.source,
        **about,
        "rows": rows,
        "differences": [each.to_json() for each in tests],
    }

"""The comparison table of models, for a terminal and in markdown. Knows rows; measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from polyrank.evaluation.latency import Latency

FOOTNOTE = "~ extrapolated linearly from the largest size that was measured"


@dataclass(frozen=True, kw_only=True)
class ComparisonRow:
    """One model: its quality, what its training took and what a query takes at each size."""

    name: str
    recall_at_1: float
    mrr: float
    num_candidates: str
    training_seconds: float | None = None
    latency: dict[int, Latency] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """JSON-ready; times at each number of candidates with how they were found."""
        return {
            "name": self.name,
            "recall@1": self.recall_at_1,
            "mrr": self.mrr,
            "num_candidates": self.num_candidates,
            "training_seconds": self.training_seconds,
            "latency": [
                {
                    "num_candidates": size,
                    "milliseconds": found.milliseconds,
                    "extrapolated": found.extrapolated,
                }
                for size, found in self.latency.items()
            ],
        }


def header(rows: Sequence[ComparisonRow]) -> list[str]:
    """The names of the columns; C stands in the name of recall where all rows share it."""
    counts = dict.fromkeys(row.num_candidates for row in rows)
    recall = f"R@1/{next(iter(counts))}" if len(counts) == 1 else "R@1"
    return ["model", recall, "MRR", "training s", *(f"ms at {size:,}" for size in sizes_of(rows))]


def sizes_of(rows: Sequence[ComparisonRow]) -> list[int]:
    """Every number of candidates that any row was timed at."""
    return sorted({size for row in rows for size in row.latency})


def cells(row: ComparisonRow, sizes: Sequence[int]) -> list[str]:
    """A row as texts, in the order of the header; a dash stands for what was not measured."""
    seconds = "–" if row.training_seconds is None else f"{row.training_seconds:,.0f}"
    times = [str(row.latency.get(size, "–")) for size in sizes]
    return [row.name, f"{row.recall_at_1:.3f}", f"{row.mrr:.3f}", seconds, *times]


def has_extrapolated(rows: Sequence[ComparisonRow]) -> bool:
    """Whether the footnote is due."""
    return any(found.extrapolated for row in rows for found in row.latency.values())


def terminal_table(rows: Sequence[ComparisonRow], title: str | None = None) -> Table:
    """The table for `Output.table`."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, caption=FOOTNOTE if has_extrapolated(rows) else None)
    for number, name in enumerate(header(rows)):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(cell) for cell in cells(row, sizes_of(rows))))
    return table


def markdown_table(rows: Sequence[ComparisonRow]) -> str:
    """The table in markdown, ending in a line break."""
    names = header(rows)
    lines = [names, ["---", *["---:"] * (len(names) - 1)]]
    lines += [[cell.replace("|", "\\|") for cell in cells(row, sizes_of(rows))] for row in rows]
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return text + (f"\n{FOOTNOTE}\n" if has_extrapolated(rows) else "")

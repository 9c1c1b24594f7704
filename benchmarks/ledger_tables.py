"""The ledger as tables: all runs of a set by recipe, and how the recipes differ.

Differences are averaged over seeds and tested as `polyrank compare` tests them.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.ledger import Entry, contenders
from benchmarks.results_store import table
from polyrank.evaluation.comparison import Comparison, Contender, compare_contenders
from polyrank.evaluation.report import difference_cells, markdown_rows

LEVEL = 0.05
MOST_COMPARED = 6
PARTS = ("choose", "dev")


def report(entries: Sequence[Entry], names: Sequence[str] = ()) -> str:
    """The tables of runs, by the set that was trained on and what was measured on.

    With `names`, those of recipes, only they are shown and every two of them are compared.
    """
    chosen = [one for one in entries if not names or one.name in names or is_base(one)]
    pages: list[str] = []
    for name, on in dict.fromkeys((one.set, one.on) for one in chosen):
        own = [one for one in chosen if (one.set, one.on) == (name, on)]
        if on.partition(":")[0] in PARTS:
            own = [one for one in own if not names or one.name in names]
            pages += section(f"{name}, {on}", own, every_two=bool(names)) if own else []
        else:
            pages += section_elsewhere(f"trained on {name}, measured on {on}", own)
    return "\n".join(pages) or "The ledger has no such runs."


def section(title: str, entries: Sequence[Entry], *, every_two: bool) -> list[str]:
    """All runs of a set on a part: figures by recipe, then differences by metric.

    The differences are those of every two recipes or, of many, those from the best.
    """
    lines = [*heading(title, entries), recipe_table(entries), ""]
    for examples in dict.fromkeys(one.examples for one in entries):
        same = contenders([one for one in entries if one.examples == examples])
        for metric in entries[0].figures if len(same) > 1 else ():
            if every_two or len(same) <= MOST_COMPARED:
                lines += differences([same], metric)
            else:
                best = max(same, key=lambda one: float(one.averaged(metric).mean()))
                lines += differences([[best, one] for one in same if one is not best], metric)
    return lines


def section_elsewhere(title: str, entries: Sequence[Entry]) -> list[str]:
    """Runs on a set of another kind, each against the untrained base, and which of them lose."""
    lines = [*heading(title, entries), recipe_table(entries), ""]
    base = [one for one in entries if is_base(one)]
    if not base:
        return [*lines, "The untrained base was not measured.", ""]
    metric = next(iter(base[0].figures))
    first, *others = contenders([*base, *(one for one in entries if not is_base(one))])
    lines += differences([[first, one] for one in others], metric) if others else []
    losing = [one.name for one in others if loses(compare_contenders([first, one], metric=metric))]
    return [*lines, f"Below the untrained base, p < {LEVEL}: {', '.join(losing) or 'none'}.", ""]


def loses(comparison: Comparison) -> bool:
    """Whether the second of two models is significantly below the first."""
    (difference,) = comparison.differences
    return difference.other == comparison.contenders[1].name and difference.p < LEVEL


def is_base(entry: Entry) -> bool:
    """Whether this is the untrained bi-encoder."""
    return entry.recipe.arch == "bi" and not entry.steps


def heading(title: str, entries: Sequence[Entry]) -> list[str]:
    """The title, and how many runs there are."""
    recipes = len({one.digest for one in entries})
    return [f"## {title}", "", f"Runs: {len(entries)}, of {recipes} recipes.", ""]


def differences(groups: Sequence[Sequence[Contender]], metric: str) -> list[str]:
    """How the models of each group differ in a metric."""
    tables = [difference_cells(compare_contenders(group, metric=metric)) for group in groups]
    return [*markdown_rows([tables[0][0], *(row for cells in tables for row in cells[1:])]), ""]


def recipe_table(entries: Sequence[Entry]) -> str:
    """A row for each recipe, the best first."""
    metrics = list(entries[0].figures)
    rows = []
    for digest in dict.fromkeys(one.digest for one in entries):
        runs = [one for one in entries if one.digest == digest]
        means = [sum(one.figures[name] for one in runs) / len(runs) for name in metrics]
        by_seed = ", ".join(f"{one.seed}: {one.figures[metrics[0]]:.3f}" for one in runs)
        seconds = round(sum(one.seconds for one in runs) / len(runs))
        own = [runs[0].steps, runs[0].contexts, seconds, runs[0].recipe.words(), digest[:6]]
        rows.append([runs[0].name, *means, by_seed, *own])
    rows.sort(key=lambda row: -row[len(metrics)])
    labels = list(entries[0].query_metrics().labels().values())
    columns = ["name", *labels, f"{labels[0]} by seed", "steps", "contexts", "seconds"]
    return table([*columns, "recipe", "digest"], rows)

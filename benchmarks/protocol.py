"""A protocol whose choices are made on training data: train, measure, and report what was chosen.

Every setting is chosen on the part `choose` of a set, whose days, services, articles or modules are
not trained on (benchmarks/parts.py). A finished recipe is measured on `dev` once, with three seeds.
Every run is written to benchmarks/results/protocol.json (benchmarks/ledger.py), good or bad.

python -m benchmarks.protocol DATA run --set ubuntu_irc --arch poly --work DIR
    [--settings '{"num_codes": 64}'] [--training '{"max_steps": 160}'] [--seed 0] [--on choose]
    [--base FOLDER] [--teacher FOLDER] [--examples FILE] [--revision N] [--name poly-64]
python -m benchmarks.protocol DATA parts --set ubuntu_irc --work DIR
python -m benchmarks.protocol DATA report [--set ubuntu_irc] [--on choose] [--compare bi,poly-64]

`run` trains, or resumes, or finds the model that was trained before, and measures it; with `--on
dev` also on `choose`, if that was not done. `--untrained` measures a model that is not trained.
`parts` writes the parts as files that `polyrank` reads, to make negatives or scores for
`--examples` of; their examples must come from `train`. DATA is the folder of the sets.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.ledger import LEDGER, Entry, Ledger, contenders
from benchmarks.parts import SETS, parts_of
from benchmarks.results_store import table
from benchmarks.runs import UNTRAINED, Plan, measured, trained
from polyrank.errors import PolyrankError, UsageError, nearest
from polyrank.evaluation.comparison import compare_contenders
from polyrank.evaluation.report import difference_cells, markdown_rows
from polyrank.models.config import CONFIGS
from polyrank.progress import quieten_libraries

MEASURED = ("choose", "dev")
MOST_COMPARED = 6


def run(plan: Plan, on: str, data: Path, work: Path, ledger: Ledger) -> list[Entry]:
    """Train and measure a plan on a part; on `dev`, which is refused the second time, and `choose`.

    Raises UsageError for a recipe and seed that were measured on dev before.
    """
    recipe = plan.recipe()
    ledger.require_fresh(plan.set, recipe, plan.seed, on)
    entries = []
    parts = parts_of(data, plan.set, work)
    missing = [
        each
        for each in dict.fromkeys(("choose", on))
        if ledger.find(plan.set, recipe, plan.seed, each) is None
    ]
    if missing:
        model = trained(plan, parts, work, say=say)
        for each in missing:
            examples = getattr(parts, each)
            entries.append(measured(plan, model, each, examples, work, ledger))
    else:
        found = ledger.find(plan.set, recipe, plan.seed, on)
        assert found is not None
        entries.append(found)
        say(f"measured before, on {found.date}")
    for entry in entries:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in entry.figures.items())
        print(f"{entry.set} {entry.name} seed {entry.seed} on {entry.on}: {figures}")
    return entries


def say(words: str) -> None:
    """Print a line at once."""
    print(words, file=sys.stderr, flush=True)


def report(ledger: Ledger, sets: Sequence[str], on: Sequence[str], compared: Sequence[str]) -> str:
    """The tables of all runs, by set and part, and how the recipes differ."""
    pages = []
    for name in sets:
        for part in on:
            entries = [one for one in ledger.entries() if one.set == name and one.on == part]
            if compared:
                entries = [one for one in entries if one.name in compared]
            if entries:
                pages += section(f"{name}, {part}", entries, bool(compared))
    return "\n".join(pages) or "The ledger has no such runs."


def section(title: str, entries: Sequence[Entry], all_pairs: bool) -> list[str]:
    """All runs of a set on a part: figures by recipe, then differences by metric.

    Differences are those of every two recipes or, of more than MOST_COMPARED, those from the best.
    """
    count = len({one.digest for one in entries})
    lines = [f"## {title}", "", f"{len(entries)} runs of {count} recipes.", ""]
    lines += [recipe_table(entries), ""]
    for examples in dict.fromkeys(one.examples for one in entries):
        same = contenders([one for one in entries if one.examples == examples])
        for metric in ("recall@1", "mrr") if len(same) > 1 else ():
            if not all_pairs and len(same) > MOST_COMPARED:
                best = max(same, key=lambda one: float(one.averaged(metric).mean()))
                groups = [[best, one] for one in same if one is not best]
            else:
                groups = [same]
            tables = [difference_cells(compare_contenders(g, metric=metric)) for g in groups]
            rows = [tables[0][0], *(row for cells in tables for row in cells[1:])]
            lines += [*markdown_rows(rows), ""]
    return lines


def recipe_table(entries: Sequence[Entry]) -> str:
    """A row for each recipe, the best first."""
    rows = []
    for digest in dict.fromkeys(one.digest for one in entries):
        runs = [one for one in entries if one.digest == digest]
        means = [sum(one.figures[name] for one in runs) / len(runs) for name in ("recall@1", "mrr")]
        each = ", ".join(f"{one.seed}: {one.figures['recall@1']:.3f}" for one in runs)
        seconds = round(sum(one.seconds for one in runs) / len(runs))
        first = runs[0]
        own = [first.steps, first.contexts, seconds, first.recipe.words(), digest[:6]]
        rows.append([first.name, *means, each, *own])
    rows.sort(key=lambda row: -row[2])
    columns = ["name", "R@1/20", "MRR", "R@1/20 by seed", "steps", "contexts", "seconds"]
    return table([*columns, "recipe", "digest"], rows)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("data", type=Path)
    made.add_argument("--ledger", type=Path, default=LEDGER)
    commands = made.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("--set", choices=SETS, required=True)
    one.add_argument("--arch", choices=CONFIGS, required=True)
    one.add_argument("--work", type=Path, required=True)
    one.add_argument("--name", default="", help="what tables call the recipe")
    one.add_argument("--settings", type=json.loads, default={}, help="of the model, as JSON")
    one.add_argument("--training", type=json.loads, default={}, help="of training and objective")
    one.add_argument("--untrained", action="store_true")
    one.add_argument("--base")
    one.add_argument("--teacher", action="append", default=[], help="repeat it for several")
    one.add_argument("--examples", type=Path)
    one.add_argument("--revision", type=int, default=0)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--on", choices=MEASURED, default="choose")
    one.add_argument("--threads", type=int)
    one.add_argument("--device", default="auto")
    one.add_argument("--dtype", default="auto")
    files = commands.add_parser("parts")
    files.add_argument("--set", choices=SETS, required=True)
    files.add_argument("--work", type=Path, required=True)
    tables = commands.add_parser("report")
    tables.add_argument("--set", choices=SETS)
    tables.add_argument("--on", choices=MEASURED)
    tables.add_argument("--compare", type=lambda text: text.split(","), default=[])
    return made


def plan_of(given: argparse.Namespace) -> Plan:
    """The run that the command line asks for."""
    return Plan(
        set=given.set,
        arch=given.arch,
        name=given.name,
        settings=given.settings,
        training=UNTRAINED if given.untrained else given.training,
        base=given.base,
        teachers=tuple(given.teacher),
        examples=given.examples,
        revision=given.revision,
        seed=given.seed,
        device=given.device,
        dtype=given.dtype,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    given = parser().parse_args(arguments)
    quieten_libraries()
    ledger = Ledger(given.ledger)
    try:
        if given.command == "report":
            sets = SETS if given.set is None else (given.set,)
            on = MEASURED if given.on is None else (given.on,)
            known = {one.name for one in ledger.entries()}
            for name in given.compare:
                if name not in known:
                    raise UsageError(f"The ledger has no recipe {name!r}.", nearest(name, known))
            print(report(ledger, sets, on, given.compare))
        elif given.command == "parts":
            parts = parts_of(given.data, given.set, given.work)
            counts = ", ".join(f"{name} {len(own):,}" for name, own in vars(parts).items())
            print(f"{given.work / 'parts' / given.set}: {counts}")
        else:
            if given.threads:
                torch.set_num_threads(given.threads)
            run(plan_of(given), given.on, given.data, given.work, ledger)
    except PolyrankError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())

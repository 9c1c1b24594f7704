"""A protocol whose choices are made on training data: train, measure, and report what was chosen.

Every setting is chosen on the part `choose` of a set, whose days, services, articles or modules are
not trained on (benchmarks/parts.py). A finished recipe is measured on `dev` once, with three seeds.
Every run is written to benchmarks/results/protocol.json (benchmarks/ledger.py), good or bad.

python -m benchmarks.protocol DATA run --set ubuntu_irc --arch poly --work DIR
    [--settings '{"num_codes": 64}'] [--training '{"max_steps": 160}'] [--seed 0] [--on choose]
    [--base FOLDER] [--teacher FOLDER] [--examples FILE] [--revision N] [--name poly-64]
    [--limit 500] [--threads 1] [--device auto] [--dtype auto]
python -m benchmarks.protocol DATA parts --set ubuntu_irc --work DIR [--mined]
python -m benchmarks.protocol DATA generalise --names bi,poly-64 --work DIR [--seeds 0]
python -m benchmarks.protocol DATA report [--set ubuntu_irc] [--on choose] [--compare bi,poly-64]

`run` trains, or resumes, or finds the model that was trained before, and measures it; with `--on
dev` also on `choose`, if that was not done. `--untrained` measures a model that is not trained.
`parts` writes the parts as files that `polyrank` reads, to make negatives or scores for
`--examples` of; their examples must come from `train`. `--mined` writes `train` with negatives of
BM25 and the untrained bi-encoder, too. `generalise` measures trained models, and the untrained
base, on sets of other kinds (benchmarks/generalise.py). DATA is the folder of the sets.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import exit_code
from benchmarks.generalise import MEASURES, Elsewhere, lengths_for, suits
from benchmarks.ledger import LEDGER, Entry, Ledger
from benchmarks.ledger_tables import report
from benchmarks.parts import SETS, mined_training, parts_of
from benchmarks.runs import UNTRAINED, Plan, filed, measured, trained
from polyrank.errors import UsageError, nearest
from polyrank.models.checkpoint import load_model
from polyrank.models.config import CONFIGS
from polyrank.progress import Say

MEASURED = ("choose", "dev")


def say(words: str) -> None:
    """Print a line at once."""
    print(words, file=sys.stderr, flush=True)


def run(
    plan: Plan,
    on: str,
    data: Path,
    work: Path,
    ledger: Ledger,
    *,
    limit: int | None = None,
    say: Say = say,
) -> list[Entry]:
    """Train and measure a plan on `choose`, or on so many of its examples, and on `dev` if asked.

    Raises UsageError for a recipe and seed that were measured on dev before.
    """
    if limit is not None and on == "dev":
        raise UsageError("dev is measured once, so it is measured whole.", "Leave out --limit.")
    recipe = plan.recipe()
    ledger.require_fresh(plan.set, recipe, plan.seed, on)
    parts = parts_of(data, plan.set, work)
    measures = {
        ("choose" if limit is None else f"choose:{limit}"): parts.choose[:limit],
        **({"dev": parts.dev} if on == "dev" else {}),
    }
    known = {label: ledger.find(plan.set, recipe, plan.seed, label) for label in measures}
    model = None if all(known.values()) else trained(plan, parts, work, say=say)
    entries = []
    for label, examples in measures.items():
        entry = known[label] or measured(plan, model, label, examples, work, ledger)
        figures = ", ".join(f"{name} {value:.4f}" for name, value in entry.figures.items())
        before = ", measured before" if known[label] else ""
        print(f"{entry.set} {entry.name} seed {entry.seed} on {entry.on}: {figures}{before}")
        entries.append(entry)
    return entries


def generalise(
    names: Sequence[str],
    trained_on: str,
    on: Sequence[str],
    sets: Elsewhere,
    ledger: Ledger,
    seeds: Sequence[int] = (),
) -> None:
    """Measure the models of recipes, and their untrained base, on sets of other kinds.

    Without `seeds`, the models of all seeds. What the ledger has is not measured again. Raises
    UsageError where a model is not kept.
    """
    runs = {
        (one.digest, one.seed): one
        for one in ledger.entries()
        if one.set == trained_on and one.name in names and one.steps
        if not seeds or one.seed in seeds
    }
    plan = Plan(set=trained_on, arch="bi", name="untrained", training=UNTRAINED)
    base = Entry(name=plan.name, set=trained_on, on="", recipe=plan.recipe(), seed=0)
    for where in on:
        label = where if sets.limit is None else f"{where}:{sets.limit}"
        for entry in (base, *runs.values()):
            known = ledger.find(trained_on, entry.recipe, entry.seed, label)
            if known is not None or not suits(where, entry.recipe.arch):
                continue
            say(f"{entry.name}, seed {entry.seed}, on {label}")
            model = sets.untrained(where) if entry is base else kept_model(entry, where, sets.work)
            run_there = dataclasses.replace(entry, on=label)
            filed(run_there, model, sets.measure(where, model), label, sets.work, ledger)


def kept_model(entry: Entry, where: str, work: Path) -> Any:
    """The model of a run, with the lengths of a set. Raises UsageError where it is not kept."""
    folder = entry.folder(work)
    if not folder.is_dir():
        raise UsageError(
            f"The model of {entry.name}, seed {entry.seed}, is not in {work}.",
            "Give the --work that it was trained with, or leave the recipe out.",
        )
    return load_model(folder, **lengths_for(where))


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
    one.add_argument("--limit", type=int, help="examples of `choose`, to look at something quickly")
    one.add_argument("--threads", type=int)
    one.add_argument("--device", default="auto")
    one.add_argument("--dtype", default="auto")
    files = commands.add_parser("parts")
    files.add_argument("--set", choices=SETS, required=True)
    files.add_argument("--work", type=Path, required=True)
    files.add_argument("--mined", action="store_true", help="also train.mined.jsonl")
    others = commands.add_parser("generalise")
    others.add_argument("--names", type=listed, required=True, help="of recipes")
    others.add_argument("--work", type=Path, required=True)
    others.add_argument("--trained-on", choices=SETS, default="ubuntu_irc")
    others.add_argument("--on", type=listed, default=list(MEASURES), help=", ".join(MEASURES))
    others.add_argument("--seeds", type=numbers, default=(), help="of the models; default: all")
    others.add_argument("--limit", type=int, help="examples of each set")
    others.add_argument("--threads", type=int)
    tables = commands.add_parser("report")
    tables.add_argument("--set", choices=SETS)
    tables.add_argument("--on")
    tables.add_argument("--compare", type=listed, default=[])
    return made


def listed(text: str) -> list[str]:
    """Words between commas."""
    return text.split(",")


def numbers(text: str) -> list[int]:
    """Whole numbers between commas."""
    return list(map(int, listed(text)))


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
    return exit_code(parser().parse_args(arguments), perform)


def perform(given: argparse.Namespace) -> None:
    """Do what the command line asks for."""
    ledger = Ledger(given.ledger)
    known = {one.name for one in ledger.entries()}
    for name in (*getattr(given, "compare", ()), *getattr(given, "names", ())):
        if name not in known:
            raise UsageError(f"The ledger has no recipe {name!r}.", nearest(name, known))
    if given.command == "run":
        run(plan_of(given), given.on, given.data, given.work, ledger, limit=given.limit)
    elif given.command == "parts":
        parts = parts_of(given.data, given.set, given.work)
        counts = ", ".join(f"{name} {len(own):,}" for name, own in vars(parts).items())
        print(f"{given.work / 'parts' / given.set}: {counts}")
        if given.mined:
            file, mean = mined_training(given.data, given.set, given.work)
            print(f"{file}: {mean:.1f} negatives for each example")
    elif given.command == "generalise":
        sets = Elsewhere(data=given.data, work=given.work, limit=given.limit)
        generalise(given.names, given.trained_on, given.on, sets, ledger, given.seeds)
        print(
            report(
                [one for one in ledger.entries() if one.on.partition(":")[0] in MEASURES],
                given.names,
            )
        )
    else:
        wanted = [
            one
            for one in ledger.entries()
            if given.set in (None, one.set) and given.on in (None, one.on)
        ]
        print(report(wanted, given.compare))


if __name__ == "__main__":
    sys.exit(main())

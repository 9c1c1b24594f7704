"""How far a student gets on the way to its teachers: runs of the protocol, taught and untaught.

Teachers are cross-encoders of one recipe with several seeds, or given folders; they count as one,
the mean of their distributions, and teach in the batch. For each student, the temperature and then
the teachers' share of the loss are chosen on the part `choose` with the first seed. What was chosen
is trained with every seed, beside the same student without a teacher.

python -m benchmarks.teaching DATA --work DIR [--set ubuntu_irc] [--students bi,poly-64]
    [--training '{"max_steps": 160}'] [--seeds 0,1,2] [--on choose]
    [--teacher FOLDER …] [--teacher-settings '{}'] [--teacher-training '{"max_steps": 160}']
    [--temperatures 1,2,4,8] [--shares 0.5,0.8,1] [--candidates N] [--examples FILE] [--base FOLDER]

Every run is written to the ledger of benchmarks/protocol.py, and none is repeated, so the same
command resumes. `--examples` are the part `train` with negatives, for taught and untaught students.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import protocol
from benchmarks.command import exit_code
from benchmarks.ledger import LEDGER, Entry, Ledger, contenders
from benchmarks.parts import SETS, parts_of
from benchmarks.results_store import table
from benchmarks.runs import UNTRAINED, Plan, measured
from polyrank.evaluation.comparison import compare_contenders
from polyrank.evaluation.report import difference_cells, markdown_rows
from polyrank.evaluation.significance import resamples
from polyrank.models.checkpoint import load_model
from polyrank.records import Context
from polyrank.training.objectives.kl import mean_scores
from polyrank.training.teaching.teacher import Teacher

METRICS = {"recall@1": "R@1/20", "mrr": "MRR"}
CHOSEN_BY = "mrr"
NUM_RESAMPLES = 10_000


class Together:
    """Several models as one: the mean of their distributions over the candidates of a context."""

    def __init__(self, models: Sequence[Any]) -> None:
        self.teachers = [Teacher(model) for model in models]
        self.device = models[0].device
        self.compute_dtype = models[0].compute_dtype

    def score_pairs(
        self, pairs: Sequence[tuple[Context, str]], *, show_progress_bar: bool = False
    ) -> torch.Tensor:
        """The score of each pair, (n,); only those of one context can be compared."""
        given = [one.score(pairs, show_progress_bar=show_progress_bar) for one in self.teachers]
        scores = torch.tensor(given, dtype=torch.float64)  # (K, n)
        rows: dict[Context, list[int]] = {}
        for row, (context, _) in enumerate(pairs):
            rows.setdefault(context if isinstance(context, str) else tuple(context), []).append(row)
        joined = torch.empty(len(pairs), dtype=torch.float64)
        for own in rows.values():
            present = torch.ones(1, len(own), dtype=torch.bool)
            joined[own] = mean_scores(scores[:, None, own], present)[0]
        return joined


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What is compared, and where it is kept."""

    data: Path
    work: Path
    ledger: Ledger
    on: str
    seeds: Sequence[int]

    def entry(self, plan: Plan, on: str | None = None) -> Entry:
        """What the ledger has of a plan; otherwise the run is made."""
        where = self.on if on is None else on
        found = self.ledger.find(plan.set, plan.recipe(), plan.seed, where)
        if found is not None:
            return found
        return protocol.run(plan, where, self.data, self.work, self.ledger)[-1]

    def entries(self, plan: Plan) -> list[Entry]:
        """The runs of a plan with all seeds."""
        return [self.entry(replace(plan, seed=seed)) for seed in self.seeds]

    def of_folder(self, common: Plan, folder: str) -> Entry:
        """The figures of a model that was trained elsewhere."""
        model = load_model(folder, device=common.device, dtype=common.dtype)
        own: Any = {"arch": model.architecture, "base": folder, "name": Path(folder).name}
        return self.entry(replace(common, training=UNTRAINED, **own))

    def together(self, common: Plan, folders: Sequence[str]) -> Entry:
        """The figures of several teachers as one."""
        plan = replace(
            common, training=UNTRAINED, teachers=tuple(folders), name="teachers together"
        )
        found = self.ledger.find(plan.set, plan.recipe(), plan.seed, self.on)
        if found is not None:
            return found
        models = [load_model(folder, device=plan.device, dtype=plan.dtype) for folder in folders]
        examples = getattr(parts_of(self.data, plan.set, self.work), self.on)
        return measured(plan, Together(models), self.on, examples, self.work, self.ledger)

    def chosen(
        self, untaught: Plan, teachers: Sequence[str], grid: argparse.Namespace
    ) -> tuple[Plan, list[list[Any]]]:
        """The best plan of a taught student on `choose`, and a row for each that was tried.

        The temperature is chosen first, with the first share, and then the share.
        """
        rows: list[list[Any]] = []

        def tried(temperature: float, share: float) -> tuple[float, Plan]:
            own = {"distillation_temperature": temperature, "teacher_share": share}
            own |= {} if grid.candidates is None else {"teacher_candidates": grid.candidates}
            plan = replace(
                untaught,
                name=f"{untaught.name} taught T {temperature:g} share {share:g}",
                training={**untaught.training, "objective": "in_batch_softmax", **own},
                teachers=tuple(teachers),
                seed=self.seeds[0],
            )
            figures = self.entry(plan, "choose").figures
            row = [untaught.name, temperature, share, *(figures[name] for name in METRICS)]
            if row not in rows:
                rows.append(row)
            return figures[CHOSEN_BY], plan

        def best(plans: Sequence[tuple[float, Plan]]) -> Plan:
            return max(plans, key=lambda one: one[0])[1]

        found = best([tried(temperature, grid.shares[0]) for temperature in grid.temperatures])
        temperature = found.training["distillation_temperature"]
        return best([tried(temperature, share) for share in grid.shares]), rows


def way_to_teacher(
    untaught: NDArray[Any], taught: NDArray[Any], teacher: NDArray[Any]
) -> tuple[float, tuple[float, float] | None]:
    """(taught − untaught) / (teacher − untaught) of the means, and its 95% interval.

    Of the values (n,) of n examples; the interval is over examples drawn anew. There is none if the
    teacher is not above the untaught student in some draws.
    """
    gained, gap = taught - untaught, teacher - untaught
    draws = [(times @ gained, times @ gap) for times in resamples(len(gap), NUM_RESAMPLES, 0)]
    gains, gaps = np.concatenate(draws, axis=1)
    interval = None
    if gaps.min() > 0:
        low, high = np.quantile(gains / gaps, [0.025, 0.975])
        interval = float(low), float(high)
    return float(gained.mean() / gap.mean()), interval


def section(
    student: str, untaught: list[Entry], taught: list[Entry], teachers: list[Entry]
) -> list[str]:
    """What a student has learnt: figures, differences, and how far it got."""
    found = contenders([*untaught, *taught, *teachers])
    lines = [f"## {student}", ""]
    runs = [untaught, taught, teachers]
    means = [
        [own[0].name, *(float(np.mean([one.figures[name] for one in own])) for name in METRICS)]
        for own in runs
    ]
    each = [", ".join(f"{one.figures['recall@1']:.3f}" for one in own) for own in runs]
    rows = [[*row, one] for row, one in zip(means, each, strict=True)]
    lines += [table(["name", *METRICS.values(), "R@1/20 of each run"], rows), ""]
    for name, label in METRICS.items():
        values = [contender.averaged(name) for contender in found]
        lines += [*markdown_rows(difference_cells(compare_contenders(found, metric=name))), ""]
        if values[2].mean() <= values[0].mean():
            lines += [f"In {label}, the teachers are not above the untaught student.", ""]
            continue
        share, interval = way_to_teacher(*values)
        words = "no interval: in some samples of the examples there is no gap"
        if interval is not None:
            words = "95% interval {:.2f} to {:.2f}".format(*interval)
        lines += [f"{label}: {share:.2f} of the way to the teachers ({words}).", ""]
    return lines


def experiment(given: argparse.Namespace) -> str:
    """Make every run that is missing, and the page of results."""
    own = Experiment(
        data=given.data,
        work=given.work,
        ledger=Ledger(given.ledger),
        on=given.on,
        seeds=given.seeds,
    )
    common = Plan(
        set=given.set, arch="cross", base=given.base, device=given.device, dtype=given.dtype
    )
    folders = list(given.teacher)
    if not folders:
        recipe = replace(
            common,
            name="teacher",
            settings=given.teacher_settings,
            training=given.teacher_training,
        )
        teachers = own.entries(recipe)
        folders = [str(replace(recipe, seed=seed).folder(given.work)) for seed in given.seeds]
    else:
        teachers = [own.of_folder(common, folder) for folder in folders]
    if len(folders) > 1:
        teachers = [own.together(common, folders)]
    pages, tried = [], []
    for student in given.students:
        arch, _, num_codes = student.partition("-")
        untaught = replace(
            common,
            arch=arch,
            name=student,
            settings={"num_codes": int(num_codes)} if num_codes else {},
            training=given.training,
            examples=given.examples,
        )
        plan, rows = own.chosen(untaught, folders, given)
        tried += rows
        pages += section(student, own.entries(untaught), own.entries(plan), teachers)
    columns = ["student", "temperature", "share", *METRICS.values()]
    return "\n".join([*pages, "## Chosen on `choose`", "", table(columns, tried)])


def numbers(kind: type) -> Any:
    """Reads numbers between commas."""
    return lambda text: [kind(one) for one in text.split(",")]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("data", type=Path)
    made.add_argument("--work", type=Path, required=True)
    made.add_argument("--ledger", type=Path, default=LEDGER)
    made.add_argument("--set", choices=SETS, default="ubuntu_irc")
    made.add_argument("--students", type=numbers(str), default=["bi", "poly-64"])
    made.add_argument("--training", type=json.loads, default={}, help="of the students, as JSON")
    made.add_argument("--examples", type=Path, help="with negatives, for the students")
    made.add_argument("--seeds", type=numbers(int), default=[0, 1, 2])
    made.add_argument("--on", choices=protocol.MEASURED, default="choose")
    made.add_argument("--teacher", action="append", default=[], help="repeat it for several")
    made.add_argument("--teacher-settings", type=json.loads, default={}, help="as JSON")
    made.add_argument("--teacher-training", type=json.loads, default={}, help="as JSON")
    made.add_argument("--temperatures", type=numbers(float), default=[1.0, 2.0, 4.0, 8.0])
    made.add_argument("--shares", type=numbers(float), default=[0.5, 0.8, 1.0])
    made.add_argument("--candidates", type=int, help="teacher_candidates")
    made.add_argument("--base")
    made.add_argument("--threads", type=int)
    made.add_argument("--device", default="auto")
    made.add_argument("--dtype", default="auto")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    return exit_code(parser().parse_args(arguments), lambda given: print(experiment(given)))


if __name__ == "__main__":
    sys.exit(main())

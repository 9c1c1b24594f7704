"""A ladder of budgets: how good bi, poly-64 and cross become with 10k to 640k training contexts.

Every rung is a run of the protocol (benchmarks/protocol.py): a recipe trained from the start on so
many contexts, and measured on `choose`, or with `--on dev` on dev as well. The cheapest rung that
is not finished comes next. When the hours are over, the run at work stops, and the same command
resumes it; finished ones are not repeated. Two plots follow: quality against training seconds, and
against the time that a context with 100 candidates takes.

python -m benchmarks.ladder DATA --work DIR --output DIR [--set ubuntu_irc] [--hours 2]
    [--rungs 10k,40k,160k,640k] [--recipes bi,poly-64,cross,cross-once] [--more FILE]
    [--base 110m|FOLDER] [--seeds 0,1,2] [--on choose] [--device auto] [--threads 2]

FILE has more recipes, or others in place of those below, by name:
{"poly-16": {"arch": "poly", "settings": {"num_codes": 16}, "training": {"batch_size": 64}}}. The
base is by default all-MiniLM-L6-v2; `--base 110m` is a new BERT of 110 million parameters, with a
vocabulary of the set's own texts. Seconds depend on the machine, so each kind of machine has its
own ledger in benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, cycle, product
from pathlib import Path
from typing import Any

import torch

from benchmarks import protocol
from benchmarks.command import exit_code
from benchmarks.ladder_plot import draw_budgets
from benchmarks.ledger import LEDGER, Entry, Ledger, contenders
from benchmarks.ledger_tables import section
from benchmarks.parts import SETS, parts_of
from benchmarks.results_store import table
from benchmarks.runs import UNTRAINED, Plan, trained
from benchmarks.timing import interleaved
from polyrank.errors import UsageError, nearest
from polyrank.evaluation.comparison import Comparison, compare_contenders
from polyrank.evaluation.latency import Latency, asker
from polyrank.evaluation.plot import draw
from polyrank.models.config import NewEncoderConfig
from polyrank.runtime import resolve_device
from polyrank.storage import write_text
from polyrank.training.config import TrainingConfig
from polyrank.training.pretraining.new_base import make_base
from polyrank.training.result import processor

RECIPES: dict[str, dict[str, Any]] = {
    "bi": {"arch": "bi"},
    "poly-64": {"arch": "poly", "settings": {"num_codes": 64}},
    "cross": {"arch": "cross", "settings": {"reading": "pairs"}},
    "cross-once": {"arch": "cross", "settings": {"reading": "once"}},
}
PRICES = {"bi": 1.0, "poly-64": 1.1, "cross-once": 3.0}
"""What a context costs next to the bi-encoder's, until it has been measured."""
DEAREST = 6.0
NEW_BASES = {
    "110m": NewEncoderConfig(num_layers=12, width=768, num_heads=12, vocabulary=30_522),
}
TIMED = 100
"""Candidates of the context that is timed."""


class TimeOverError(Exception):
    """The hours are over."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A recipe, a budget of contexts, and the run of the protocol that it is."""

    recipe: str
    contexts: int
    plan: Plan


@dataclass(kw_only=True)
class Ladder:
    """The rungs, and what runs them until the hours are over."""

    rungs: Sequence[Rung]
    data: Path
    work: Path
    ledger: Ledger
    on: str = "choose"
    limit: int | None = None
    """How many examples of `choose` are measured; None is all."""
    deadline: float = math.inf
    """On the clock of `time.monotonic`."""

    def climb(self) -> None:
        """Run one rung after the other. Stops when all are finished or the hours are over."""
        try:
            while (rung := self.next_rung()) is not None:
                self.say(f"{rung.plan.name}, seed {rung.plan.seed}")
                where = (self.data, self.work, self.ledger)
                protocol.run(rung.plan, self.on, *where, limit=self.limit, say=self.say)
        except TimeOverError:
            protocol.say("The hours are over; the same command resumes.")

    def say(self, words: str) -> None:
        """Say something. Raises TimeOverError when the hours are over."""
        if time.monotonic() > self.deadline:
            raise TimeOverError
        protocol.say(words)

    def next_rung(self) -> Rung | None:
        """The cheapest rung that is not finished."""
        each = self.seconds_per_context()

        def price(rung: Rung) -> tuple[float, int]:
            return each[rung.recipe] * rung.contexts, rung.plan.seed

        return min((one for one in self.rungs if self.entry(one) is None), key=price, default=None)

    def entry(self, rung: Rung) -> Entry | None:
        """What the ledger has of a rung, if it is finished."""
        on = self.on if self.limit is None else f"{self.on}:{self.limit}"
        return self.ledger.find(rung.plan.set, rung.plan.recipe(), rung.plan.seed, on)

    def entries(self) -> list[tuple[Rung, Entry]]:
        """The finished rungs."""
        found = [(rung, self.entry(rung)) for rung in self.rungs]
        return [(rung, entry) for rung, entry in found if entry is not None]

    def seconds_per_context(self) -> dict[str, float]:
        """What a context of each recipe costs: as measured, otherwise as PRICES guesses."""
        measured: dict[str, list[float]] = {}
        for rung, entry in self.entries():
            measured.setdefault(rung.recipe, []).append(entry.seconds / max(entry.contexts, 1))
        known = {name: statistics.median(each) for name, each in measured.items()}
        unit = statistics.median([one / price_of(name) for name, one in known.items()] or [1.0])
        names = dict.fromkeys(rung.recipe for rung in self.rungs)
        return {name: known.get(name, unit * price_of(name)) for name in names}


def price_of(recipe: str) -> float:
    """What a context costs next to the bi-encoder's, as a guess."""
    return PRICES.get(recipe, DEAREST)


def rungs_of(
    recipes: Mapping[str, Mapping[str, Any]],
    budgets: Iterable[int],
    seeds: Iterable[int],
    **common: Any,
) -> list[Rung]:
    """A rung for each recipe, budget and seed; `common` are fields of all plans.

    Recipes that this version cannot train are left out, and it says so.
    """
    rungs = []
    for name, recipe in recipes.items():
        own = {**common, **recipe}
        training = dict(own.pop("training", {}))
        size = int(training.get("batch_size", TrainingConfig().batch_size))
        try:
            Plan(**own).recipe()
        except UsageError as error:
            protocol.say(f"{name} is left out: {error}")
            continue
        for contexts, seed in product(budgets, seeds):
            steps = {**training, "max_steps": max(contexts // size, 1)}
            plan = Plan(**own, name=f"{name} {short(contexts)}", training=steps, seed=seed)
            rungs.append(Rung(recipe=name, contexts=contexts, plan=plan))
    return rungs


def short(count: int) -> str:
    """A number as the command line takes it: 40k."""
    return f"{count // 1000}k" if count % 1000 == 0 else str(count)


def count_of(text: str) -> int:
    """The number of a text such as 40k."""
    return int(text[:-1]) * 1000 if text.endswith("k") else int(text)


def base_of(name: str | None, data: Path, set_name: str, work: Path) -> str | None:
    """The folder of the base: a new one made of the texts that are trained on, or the given one."""
    if name not in NEW_BASES:
        return name
    folder = work / "bases" / f"{set_name}-{name}"
    examples = parts_of(data, set_name, work).train
    turns = (
        (each.context,) if isinstance(each.context, str) else each.context for each in examples
    )
    responses = (each.response for each in examples)
    texts = list(dict.fromkeys(chain(chain.from_iterable(turns), responses)))
    identity = [set_name, len(examples)]
    make_base(folder, texts, NEW_BASES[name], identity=identity, seed=0)
    return str(folder)


def latencies(ladder: Ladder, rounds: int) -> dict[str, float]:
    """Milliseconds of one context with TIMED candidates, by recipe: medians, taken in turns.

    The models of the finished recipes are timed untrained: training does not change their cost.
    The vectors of candidates are kept; a cross-encoder reads the texts.
    """
    plans = {rung.recipe: rung.plan for rung, _ in ladder.entries()}
    parts = parts_of(ladder.data, ladder.rungs[0].plan.set, ladder.work)
    examples = parts.choose
    texts = list(dict.fromkeys(text for each in examples for text in each.candidates or ()))
    asked = [each.context for each in examples[: max(rounds, 1)]]
    ways = {}
    for name, plan in plans.items():
        model = trained(replace(plan, training=UNTRAINED), parts, ladder.work)
        ask, contexts = asker(model, texts, TIMED), cycle(asked)
        ways[name] = partial(ask_next, ask, contexts)
    found = interleaved(ways, rounds) if ways else {}
    return {name: 1000 * statistics.median(seconds) for name, seconds in found.items()}


def ask_next(ask: Callable[[Any], object], contexts: Iterator[Any]) -> object:
    """The scores of the next context's candidates."""
    return ask(next(contexts))


def contenders_of(found: Sequence[tuple[Rung, Entry]], times: Mapping[str, float]) -> Comparison:
    """The finished runs of one budget, with the time of a context, for the plot of latency."""
    by_name = {entry.name: rung.recipe for rung, entry in found}
    timed = []
    for one in contenders([entry for _, entry in found]):
        recipe = by_name[one.name]
        latency = Latency(num_candidates=TIMED, milliseconds=times[recipe], num_queries=1)
        costs = replace(one.costs, latency={TIMED: latency})
        timed.append(replace(one, name=recipe, costs=costs))
    return compare_contenders(timed)


def report(ladder: Ladder, output: Path, times: Mapping[str, float]) -> str:
    """The tables by budget, and both plots, written to a folder; the page."""
    found = ladder.entries()
    lines = [f"# Ladder of {ladder.rungs[0].plan.set}, {ladder.on}", ""]
    for contexts in sorted({rung.contexts for rung, _ in found}):
        own = [entry for rung, entry in found if rung.contexts == contexts]
        lines += section(f"{contexts:,} contexts", own, every_two=True)
    if times:
        rows = [[name, round(value, 1)] for name, value in times.items()]
        lines += [table(["recipe", f"ms of a context with {TIMED} candidates"], rows), ""]
    if found:
        draw_budgets([(rung.recipe, entry) for rung, entry in found], output / "budgets")
        lines += ["![Quality against training seconds](budgets.png)", ""]
        most = max(rung.contexts for rung, _ in found)
        top = [one for one in found if one[0].contexts == most]
        if times:
            draw(contenders_of(top, times), output / "latency", size=TIMED)
            lines += [f"![Quality at {most:,} contexts against latency](latency.png)", ""]
    page = "\n".join(lines)
    write_text(output / "ladder.md", page + "\n")
    return page


def ledger_of(device: str) -> Path:
    """The ledger of this kind of machine: of GPUs by their name, of CPUs by theirs and threads."""
    kind = resolve_device(device)
    name = (
        torch.cuda.get_device_name(kind)
        if kind.type == "cuda"
        else f"{processor()} {torch.get_num_threads()} threads"
    )
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return LEDGER.with_name(f"ladder-{words}.json")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("data", type=Path)
    made.add_argument("--work", type=Path, required=True)
    made.add_argument("--output", type=Path, required=True, help="folder of tables and plots")
    made.add_argument("--set", choices=SETS, default="ubuntu_irc")
    made.add_argument("--hours", type=float, default=math.inf)
    made.add_argument("--rungs", type=protocol.listed, default=["10k", "40k", "160k", "640k"])
    made.add_argument("--recipes", type=protocol.listed, default=list(RECIPES))
    made.add_argument("--more", type=Path, help="JSON file of recipes by name")
    made.add_argument("--base", help="110m, or a folder")
    made.add_argument("--seeds", type=protocol.numbers, default=[0])
    made.add_argument("--on", choices=protocol.MEASURED, default="choose")
    made.add_argument("--limit", type=int, help="examples of `choose`")
    made.add_argument("--rounds", type=int, default=11, help="of timing; 0 does not time")
    made.add_argument("--device", default="auto")
    made.add_argument("--threads", type=int)
    made.add_argument("--ledger", type=Path)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code."""
    return exit_code(parser().parse_args(arguments), lambda given: print(perform(given)))


def perform(given: argparse.Namespace) -> str:
    """Climb as far as the hours go; the page of what is finished."""
    deadline = time.monotonic() + 3600 * given.hours
    known = {**RECIPES, **(json.loads(given.more.read_text("utf-8")) if given.more else {})}
    for name in given.recipes:
        if name not in known:
            raise UsageError(f"There is no recipe {name!r}.", nearest(name, known))
    base = base_of(given.base, given.data, given.set, given.work)
    rungs = rungs_of(
        {name: known[name] for name in given.recipes},
        list(map(count_of, given.rungs)),
        given.seeds,
        set=given.set,
        base=base,
        device=given.device,
    )
    if not rungs:
        raise UsageError("No recipe can be trained.", "Name others with --recipes.")
    ladder = Ladder(
        rungs=rungs,
        data=given.data,
        work=given.work,
        ledger=Ledger(given.ledger or ledger_of(given.device)),
        on=given.on,
        limit=given.limit,
        deadline=deadline,
    )
    ladder.climb()
    times = latencies(ladder, given.rounds) if given.rounds else {}
    return report(ladder, given.output, times)


if __name__ == "__main__":
    sys.exit(main())

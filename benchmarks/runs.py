"""One run of the protocol: a recipe trained on the part `train` of a set with one seed, measured.

A trained model is kept in a folder whose name stands for its set, recipe and seed, so the same run
is not trained twice, and an interrupted one resumes.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks.ledger import (
    Entry,
    Ledger,
    Recipe,
    Values,
    digest_of_examples,
    model_folder,
    packed,
)
from benchmarks.parts import LENGTHS, Parts
from polyrank.config import from_mapping, to_mapping
from polyrank.data.examples import read_examples
from polyrank.errors import UsageError
from polyrank.evaluation.ranking import evaluate_examples
from polyrank.folder_files import sha256_of
from polyrank.models.checkpoint import ARCHITECTURES, load_model
from polyrank.models.config import CONFIGS
from polyrank.models.hub.card import RECORD
from polyrank.models.source import default_base, local_folder
from polyrank.progress import Say, silent
from polyrank.records import Example
from polyrank.runtime import set_seed
from polyrank.storage import write_text
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.result import hardware
from polyrank.training.run import train

DEFAULTS = Path(__file__).parent / "results" / "protocol-defaults.json"
"""The defaults that recipes are written against. They stay as they were when the ledger was begun,
so that a recipe means the same after the defaults of polyrank have changed."""
STEPS_PER_CHECKPOINT = 100
UNTRAINED = {"max_steps": 0}
METRICS = ("recall@1", "mrr")
TAUGHT = ("teacher_share", "teacher_candidates", "distillation_temperature")
"""Settings that have no effect without a teacher."""
NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A run that somebody asks for."""

    set: str
    arch: str
    name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    base: str | None = None
    """A folder or a hub id; None is all-MiniLM-L6-v2."""
    teachers: tuple[str, ...] = ()
    """Folders of models; several count as one."""
    examples: Path | None = None
    """What to train on in place of the part `train`: made of it, with negatives or scores."""
    revision: int = 0
    seed: int = 0
    device: str = "auto"
    dtype: str = "auto"

    def __post_init__(self) -> None:
        if "," in self.name:
            raise UsageError(
                f"The name {self.name!r} has a comma, which --compare and --names read as the end.",
                "Choose a name without one.",
            )

    @property
    def is_untrained(self) -> bool:
        """Whether the model is measured as it is."""
        return dict(self.training) == UNTRAINED

    def recipe(self) -> Recipe:
        """What is filed. Raises UsageError for an unknown setting, ModelError for no base."""
        return Recipe(
            arch=self.arch,
            settings=differing(
                f"model {self.arch}", CONFIGS[self.arch], self.settings, LENGTHS[self.set]
            ),
            training=UNTRAINED if self.is_untrained else self.training_settings(),
            base=Recipe.base if self.base is None else named(self.base),
            teacher=" + ".join(sorted(map(named, self.teachers))) or None,
            examples=None if self.examples is None else named(self.examples),
            revision=self.revision,
        )

    def training_settings(self) -> dict[str, Any]:
        """The settings of training and objective that differ from the defaults."""
        own = vars(TrainingConfig())
        parts = {
            "training": {n: one for n, one in self.training.items() if n in own},
            "objective": {n: one for n, one in self.training.items() if n not in own},
        }
        found = {
            **differing("training", TrainingConfig, parts["training"]),
            **differing("objective", ObjectiveConfig, parts["objective"]),
        }
        idle: set[str] = set()
        if not self.teachers:  # examples may bring scores; what is open then is as it always was
            idle = {name for name in TAUGHT if self.examples is None or found.get(name) is None}
        return {name: value for name, value in found.items() if name not in idle}

    def folder(self, work: Path) -> Path:
        """Where the trained model is."""
        return model_folder(work, self.set, self.recipe(), self.seed)


def differing(
    name: str, kind: type, given: Mapping[str, Any], own: Mapping[str, Any] = NOTHING
) -> dict[str, Any]:
    """The settings that are not as DEFAULTS has them, `given` ones and present defaults alike.

    `own` are settings of the set, which no recipe names. A setting that DEFAULTS does not know yet
    is newer, and counts if it is not as it is by default now.
    """
    before: dict[str, dict[str, Any]] = json.loads(DEFAULTS.read_text(encoding="utf-8"))
    now = plain(to_mapping(kind()))
    made = plain(to_mapping(from_mapping(kind, {**own, **given}, where=name)))
    usual = {**now, **before[name], **own}
    return {one: value for one, value in made.items() if value != usual[one]}


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings after a round trip through JSON."""
    found: dict[str, Any] = json.loads(json.dumps(dict(values)))
    return found


def complete_defaults() -> None:
    """Add settings that DEFAULTS does not know, as they are by default now; others stay."""
    kinds = {f"model {arch}": kind for arch, kind in CONFIGS.items()}
    kinds |= {"training": TrainingConfig, "objective": ObjectiveConfig}
    before = json.loads(DEFAULTS.read_text(encoding="utf-8")) if DEFAULTS.is_file() else {}
    found = {
        name: {**plain(to_mapping(kind())), **before.get(name, {})} for name, kind in kinds.items()
    }
    if found != before:
        lines = [f"{json.dumps(name)}: {json.dumps(values)}" for name, values in found.items()]
        write_text(DEFAULTS, "{\n" + ",\n".join(lines) + "\n}\n")


def named(source: str | Path) -> str:
    """What a model or a file is called in the ledger: its name and the digest of its weights."""
    path = Path(source) if Path(source).exists() else local_folder(source)
    files = [path] if path.is_file() else sorted(path.rglob("*.safetensors"))
    digest = "".join(sha256_of(file) for file in files)[:8]
    return f"{path.name} {digest}"


def trained(plan: Plan, parts: Parts, work: Path, say: Say = silent) -> Any:
    """The model of a plan: untrained, trained before, resumed or trained now."""
    folder = plan.folder(work)
    if not plan.is_untrained and (folder / RECORD).is_file():
        say(f"{folder.name} was trained before")
        return load_model(folder, device=plan.device, dtype=plan.dtype)
    set_seed(plan.seed)
    how: Any = {"device": plan.device, "dtype": plan.dtype}
    made: Any = ARCHITECTURES[plan.arch]
    source = default_base() if plan.base is None else plan.base
    model = made.from_pretrained(source, **how, defaults=LENGTHS[plan.set], **plan.settings)
    if plan.is_untrained:
        return model
    examples = parts.train if plan.examples is None else list(read_examples(plan.examples))
    training = dict(plan.training)
    steps = TrainingConfig(
        **{n: training[n] for n in ("batch_size", "epochs", "max_steps") if n in training}
    ).num_steps(len(examples))
    training.setdefault("evaluations", max(4, steps // STEPS_PER_CHECKPOINT))
    train(
        model,
        examples,
        folder,
        teacher=[load_model(folder, trainable=False, **how) for folder in plan.teachers],
        say=say,
        seed=plan.seed,
        **training,
    )
    return model


def measured(
    plan: Plan, model: Any, on: str, examples: list[Example], work: Path, ledger: Ledger
) -> Entry:
    """Measure a model of a plan on examples, and write the entry."""
    result = evaluate_examples(model, examples, show_progress_bar=True)
    recipe = plan.recipe()
    run = Entry(
        name=plan.name or recipe.words(), set=plan.set, on=on, recipe=recipe, seed=plan.seed
    )
    values = {name: result.per_query.values[name] for name in METRICS}
    return filed(run, model, values, digest_of_examples(examples), work, ledger)


def filed(
    run: Entry, model: Any, values: Values, examples: str, work: Path, ledger: Ledger
) -> Entry:
    """Write the entry of a run with what its model cost and the values of all examples."""
    file = run.folder(work) / RECORD
    record = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    entry = dataclasses.replace(
        run,
        steps=int(record.get("steps", 0)),
        contexts=int(record.get("pairs", 0)),
        seconds=round(float(record.get("seconds", 0.0)), 2),
        hardware=described(model),
        commit=commit(),
        date=str(date.today()),
        figures={name: round(float(one.mean()), 5) for name, one in values.items()},
        examples=examples,
        count=len(next(iter(values.values()))),
        values={name: packed(one) for name, one in values.items()},
    )
    ledger.add(entry)
    complete_defaults()
    return entry


def described(model: Any) -> str:
    """The machine, its threads, the precision and the versions."""
    facts = hardware(model)
    threads = facts.get("threads per process")
    words = [facts["device"], f"{threads} threads" if threads else "", facts["precision"]]
    return "; ".join(filter(None, [*words, facts["versions"]]))


def commit() -> str:
    """The commit of the code that runs, and a plus where it has been changed since."""

    def git(*arguments: str) -> str:
        where = Path(__file__).parent
        done = subprocess.run(
            ["git", *arguments], cwd=where, capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "../src", "../benchmarks")
    ours = [line for line in changed.splitlines() if "benchmarks/results/" not in line]
    return git("rev-parse", "--short", "HEAD") + ("+" if ours else "")

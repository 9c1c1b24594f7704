"""Every run of the protocol, in one file that is committed: recipe, seed, costs and figures.

A run is measured on `choose` as often as somebody likes, and on `dev` once: by then its recipe has
been chosen, and measuring it again, or measuring others there until one is good, would choose on
dev. The value of every example is kept, so that recipes can be compared as `polyrank compare` does.
Knows nothing of models.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.results_store import ResultsStore
from polyrank.errors import UsageError
from polyrank.evaluation.comparison import Contender, Costs
from polyrank.evaluation.metrics import QueryMetrics
from polyrank.jobs import digest_of
from polyrank.records import Example

LEDGER = Path(__file__).parent / "results" / "protocol.json"
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
OTHER = "?"
PLACES = 6
NUM_CANDIDATES = 20
RANKED = ("choose", "dev", "sgd")
"""What is measured by ranking the candidates of each example; elsewhere a corpus is searched."""
Values = Mapping[str, NDArray[np.float64]]
"""The value of every example, by metric."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a model is made of and how it is trained: all that differs from the defaults."""

    arch: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the model."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Of the training and of its objective, without the seed; empty for an untrained model."""
    base: str = "all-MiniLM-L6-v2"
    """The name of the encoder or model to start from and, unless it is the default, its digest."""
    teacher: str | None = None
    """The same of the model that teaches it; of several, with a plus between them."""
    examples: str | None = None
    """The name and the digest of the examples, where they are not those of the part `train`."""
    revision: int = 0
    """Tells runs apart whose settings are the same and whose code is not."""

    def digest(self, name: str) -> str:
        """Twelve letters that stand for the recipe on a set."""
        own = {
            one.name: value
            for one in dataclasses.fields(self)
            if (value := getattr(self, one.name)) != one.default
        }
        plain = json.dumps([name, own], sort_keys=True)
        return hashlib.sha256(plain.encode()).hexdigest()[:12]

    def words(self) -> str:
        """The recipe as people read it."""
        own = {**self.settings, **self.training}
        for part in ("teacher", "examples"):
            own |= {part: value} if (value := getattr(self, part)) else {}
        own |= {"base": self.base} if self.base != Recipe.base else {}
        own |= {"revision": self.revision} if self.revision else {}
        return " ".join([self.arch, *(f"{name}={value}" for name, value in own.items())])


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A run, measured on one part or set."""

    name: str
    """What the recipe is called in tables."""
    set: str
    """What it was trained on."""
    on: str
    """The part that it was measured on, or the name of another set."""
    recipe: Recipe
    seed: int
    steps: int = 0
    contexts: int = 0
    seconds: float = 0.0
    """Of training."""
    hardware: str = ""
    commit: str = ""
    date: str = ""
    figures: dict[str, float] = field(default_factory=dict)
    examples: str = ""
    """The digest of what it was measured on; figures are comparable where it is the same."""
    count: int = 0
    """How many examples it was measured on."""
    values: dict[str, Any] = field(default_factory=dict)
    """By metric, the value of every example, as `packed` writes it."""

    @property
    def digest(self) -> str:
        """What stands for the recipe."""
        return self.recipe.digest(self.set)

    @property
    def key(self) -> str:
        """What the ledger files it by."""
        return key_of(self.set, self.recipe, self.seed, self.on)

    def folder(self, work: Path) -> Path:
        """Where the trained model is."""
        return model_folder(work, self.set, self.recipe, self.seed)

    def query_metrics(self) -> QueryMetrics:
        """The value of every example."""
        return QueryMetrics(
            ids=tuple(f"{self.examples} {row}" for row in range(1, self.count + 1)),
            values={name: unpacked(values) for name, values in self.values.items()},
            num_candidates=(NUM_CANDIDATES, NUM_CANDIDATES),
            searched=self.on.partition(":")[0] not in RANKED,
        )

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Entry:
        """What the file has."""
        return cls(**{**record, "recipe": Recipe(**record["recipe"])})


class Ledger:
    """The entries in a file."""

    def __init__(self, path: Path = LEDGER) -> None:
        self.store = ResultsStore(path, names_machines=False)

    def entries(self) -> list[Entry]:
        """All entries, in the order in which they were written."""
        self.store.read()
        return [Entry.from_json(record) for record in self.store.results.values()]

    def find(self, name: str, recipe: Recipe, seed: int, on: str) -> Entry | None:
        """What was measured before."""
        self.store.read()
        record = self.store.results.get(key_of(name, recipe, seed, on))
        return None if record is None else Entry.from_json(record)

    def add(self, entry: Entry) -> None:
        """Write an entry. Raises UsageError for a run that was measured on dev before."""
        self.require_fresh(entry.set, entry.recipe, entry.seed, entry.on)
        self.store.add(entry.key, dataclasses.asdict(entry))

    def require_fresh(self, name: str, recipe: Recipe, seed: int, on: str) -> None:
        """Raise UsageError for a run that was measured on dev before."""
        before = self.find(name, recipe, seed, on) if on == "dev" else None
        if before is not None:
            figures = ", ".join(f"{one} {value:.4f}" for one, value in before.figures.items())
            raise UsageError(
                f"This recipe was already measured on the dev part of {name} with seed {seed}, on "
                f"{before.date}: {figures}.",
                "Choose by the part `choose`; a finished recipe is measured on dev once.",
            )


def key_of(name: str, recipe: Recipe, seed: int, on: str) -> str:
    """What an entry is filed by."""
    return f"{name} {recipe.arch} {recipe.digest(name)} seed={seed} on={on}"


def model_folder(work: Path, name: str, recipe: Recipe, seed: int) -> Path:
    """Where a run on the set `name` keeps its model."""
    return work / "models" / f"{name}-{recipe.arch}-{recipe.digest(name)}-seed{seed}"


def digest_of_examples(examples: Iterable[Example]) -> str:
    """Twelve letters that stand for examples with their candidates."""
    return digest_of(examples)[:12]


def packed(values: Sequence[float] | NDArray[np.float64]) -> Any:
    """Values of examples in few letters: 0, or k for 1 / k with k below 36, as digits to base 36.

    Other values have a question mark and follow the letters as numbers.
    """
    letters, others = [], []
    for value in map(float, values):
        k = round(1 / value) if value >= 1 / len(DIGITS) else 0
        if value == (1 / k if k else 0.0) and k < len(DIGITS):
            letters.append(DIGITS[k])
        else:
            letters.append(OTHER)
            others.append(round(value, PLACES))
    return ["".join(letters), *others] if others else "".join(letters)


def unpacked(values: Any) -> NDArray[np.float64]:
    """What `packed` wrote."""
    letters, *others = [values] if isinstance(values, str) else values
    remaining = iter(others)
    return np.array(
        [
            next(remaining) if letter == OTHER else 1 / k if (k := int(letter, 36)) else 0.0
            for letter in letters
        ],
        dtype=np.float64,
    )


def contenders(entries: Sequence[Entry]) -> list[Contender]:
    """Recipes with the runs of all their seeds, in the order of their first."""
    by_recipe: dict[str, list[Entry]] = {}
    for entry in entries:
        by_recipe.setdefault(entry.digest, []).append(entry)
    names = [runs[0].name for runs in by_recipe.values()]
    return [
        Contender(
            name=runs[0].name if names.count(runs[0].name) == 1 else f"{runs[0].name} ({digest})",
            architecture=runs[0].recipe.arch,
            sources=tuple(f"seed {run.seed}" for run in runs),
            runs=tuple(run.query_metrics() for run in runs),
            costs=Costs(training_seconds=sum(run.seconds for run in runs) / len(runs)),
        )
        for digest, runs in by_recipe.items()
    ]

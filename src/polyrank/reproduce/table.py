"""What a table is: rows, each of which is trained in stages and measured. Does not need torch. A
table is declared once and runs at any scale. Settings have the names of `polyrank train` and
`polyrank pretrain`; at the papers' scale they override the papers' recipes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from polyrank.training.recipes import PRETRAINING, RECIPES

Settings = Mapping[str, Any]
Kind = Literal["dialogues", "questions", "nli", "sts", "corpus"]
"""What data are for."""
Task = Literal["dialogues", "questions", "sts", "time", "speed"]
"""What a table measures: models on data of a kind, their training time, or a query's time."""

RECIPE_OF: Mapping[Kind, str] = {
    "dialogues": "poly-encoder-bert",
    "questions": "two-tower",
    "nli": "sbert-nli",
    "sts": "sbert-sts",
    "corpus": "two-tower-pretraining",
}
"""The recipe of the paper, by what is trained on."""
BM25 = "bm25"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How much is computed: the default settings, which a table overrides."""

    name: str
    about: str
    training: Settings = field(default_factory=dict)
    pretraining: Settings = field(default_factory=dict)
    layers: int = 12
    """Of a new encoder; a shallow one has a third of them, as in the two-tower paper."""
    width: int = 768
    vocabulary: int = 30_522
    most_tested: int | None = None
    """How many test examples or queries are used."""
    is_paper: bool = False
    """Whether the papers' recipes apply."""

    def encoder(self, *, shallow: bool = False) -> dict[str, Any]:
        """The settings of a new encoder."""
        layers = max(self.layers // 3, 1) if shallow else self.layers
        sizes = {"num_layers": layers, "width": self.width, "num_heads": max(self.width // 64, 1)}
        return {**sizes, "vocabulary": self.vocabulary}


LENGTHS = {"max_context_length": 128, "max_candidate_length": 96}
LONG = {"max_context_length": 360, "max_candidate_length": 128}
OF_PAIRS = {"max_context_length": 64, "max_candidate_length": 160}
SCALES: Mapping[str, Scale] = {
    scale.name: scale
    for scale in (
        Scale(
            name="small",
            about="minutes per run on two CPU cores",
            training={"max_steps": 40, "batch_size": 64, "evaluations": 1, **LENGTHS},
            pretraining={
                "max_steps": 300,
                "batch_size": 64,
                "evaluations": 1,
                "max_joined_length": 160,
                **OF_PAIRS,
            },
            layers=4,
            width=256,
            vocabulary=16_000,
            most_tested=1000,
        ),
        Scale(
            name="medium",
            about="minutes per run on a GPU",
            training={"max_steps": 1000, "batch_size": 128, "evaluations": 1, **LONG},
            pretraining={"max_steps": 10_000, "batch_size": 512, "evaluations": 1, **OF_PAIRS},
            layers=6,
            width=384,
        ),
        Scale(name="paper", about="the papers' recipes: days on GPUs", is_paper=True),
    )
}


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """What the user typed to replace a scale's settings."""

    max_steps: int | None = None
    pretraining_steps: int | None = None
    batch_size: int | None = None


@dataclass(frozen=True, kw_only=True)
class Train:
    """A model of an architecture, trained on data of a kind."""

    arch: Literal["bi", "poly", "cross"]
    data: Kind
    settings: Settings = field(default_factory=dict)
    share: float = 100.0
    """Per cent of all questions, including those for testing; a larger share contains a smaller
    one.
    """
    effort: float = 1.0
    """The share of the scale's steps; 0 leaves the model as it starts."""

    def resolved(self, scale: Scale, overrides: Overrides) -> dict[str, Any]:
        """All settings: the scale's or the recipe's, the table's own, and what was typed."""
        recipe = RECIPES[RECIPE_OF[self.data]].settings(self.arch) if scale.is_paper else {}
        values = {**recipe, **scale.training, **self.settings}
        if overrides.batch_size is not None and "batch_size" not in self.settings:
            values["batch_size"] = overrides.batch_size
        steps = overrides.max_steps or values.get("max_steps")
        if steps is not None and not (scale.is_paper and overrides.max_steps is None):
            steps = max(round(steps * self.effort), 1)
        if steps is not None:
            values["max_steps"] = steps
        values.pop("arch", None)
        return values


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """A bi-encoder, trained on pairs of a corpus: a new one, or one that starts from the base."""

    tasks: str = ""
    """Separated by commas; without any, the model stays as it starts."""
    settings: Settings = field(default_factory=dict)
    encoder: Settings = field(default_factory=dict)
    """For a new encoder, instead of the scale's."""

    def resolved(self, scale: Scale, overrides: Overrides, *, new: bool) -> dict[str, Any]:
        """All settings; `new` is whether the encoder is a new one."""
        name = RECIPE_OF["corpus"]
        recipe = PRETRAINING[name].settings("bi") if scale.is_paper else {"shared_towers": True}
        rate = {"learning_rate": 5e-4} if new and not scale.is_paper else {}
        values = {**recipe, **rate, **scale.pretraining, **self.settings}
        values |= {**scale.encoder(), **self.encoder} if new else {}
        values |= {"tasks": self.tasks} if self.tasks else {}
        typed = {"max_steps": overrides.pretraining_steps, "batch_size": overrides.batch_size}
        values |= {name: value for name, value in typed.items() if value is not None}
        values.pop("arch", None)
        return values


Stage = Train | Pretrain


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model of a table: the stages that make it, each from the one before."""

    label: str
    stages: tuple[Stage, ...] = ()
    """None for BM25."""
    paper: tuple[float | None, ...] = ()
    """The paper's figures, by the table's `paper_columns`; missing ones were not published."""


Rows = Callable[[Scale], Sequence[Row]]


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table of a paper, or an ablation."""

    name: str
    about: str
    source: str
    """Paper and table."""
    task: Task
    metrics: tuple[str, ...]
    """What is shown; models are compared by the first."""
    paper_columns: tuple[str, ...]
    """What the paper's figures measure."""
    rows: Rows
    always_new: bool = False
    """Whether its encoders are always new, because it varies their size."""

    def kinds(self, scale: Scale) -> tuple[Kind, ...]:
        """The kinds of data that it needs."""
        found: dict[Kind, None] = {}
        for stage in self.stages(scale):
            found[stage.data if isinstance(stage, Train) else "corpus"] = None
        if self.task in ("dialogues", "questions", "sts"):
            found[self.task] = None
        return tuple(found)

    @property
    def is_new(self) -> bool:
        """Whether it starts from new encoders unless a base is given."""
        return self.always_new or self.task == "questions"

    def stages(self, scale: Scale) -> Iterator[Stage]:
        """Yield the stages of all rows; a stage that several rows start with comes once."""
        seen: list[tuple[Stage, ...]] = []
        for row in self.rows(scale):
            for end in range(1, len(row.stages) + 1):
                chain = row.stages[:end]
                if chain not in seen:
                    seen.append(chain)
                    yield chain[-1]

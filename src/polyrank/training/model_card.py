"""The README.md of a trained model: what it is, what it was trained on and how, what it reached.

Knows the words; the facts are given to it. Needs no torch.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyrank._version import __version__

CARD = "README.md"
CLASSES = {"bi": "BiEncoder", "poly": "PolyEncoder", "cross": "CrossEncoder"}
USES = {
    "rank": 'model.rank("a question", ["one answer", "another"])',
    "pairs": 'model.score_pairs([("one text", "another")])',
}


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a run comes from, as far as it cannot know that itself."""

    base: str | None = None
    """What the model started from: a folder or a hub id."""
    train: str | None = None
    """The name of the training data."""
    dev: str | None = None
    """The name of the dev data."""
    recipe: str | None = None
    """The recipe whose settings the run began with."""
    command: str | None = None
    """The command line."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """One set of records: its name, how many, the SHA-256 of all in their order."""

    name: str | None
    count: int
    kind: str
    sha256: str

    def row(self, use: str) -> str:
        """A row of the table of data."""
        name = "(not named)" if self.name is None else f"`{self.name}`"
        return f"| {use} | {name} | {self.count:,} {self.kind} | `{self.sha256}` |"


@dataclass(frozen=True, kw_only=True)
class Card:
    """The facts of a model card."""

    name: str
    architecture: str
    task: str
    provenance: Provenance
    train: Data
    dev: Data | None
    model: Mapping[str, Any]
    objective: Mapping[str, Any]
    training: Mapping[str, Any]
    figures: Mapping[str, float]
    steps: int
    best_step: int
    seconds: float
    num_parameters: int
    num_trained: int
    hardware: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The page, in Markdown, with the metadata that the Hugging Face hub reads."""
        parts = [
            self.metadata(),
            f"# {self.name}",
            self.summary(),
            self.usage(),
            self.data(),
            self.results(),
            self.settings(),
            self.origin(),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def metadata(self) -> str:
        """The YAML at the top."""
        import yaml

        ranks = "text-ranking" if self.architecture == "cross" else "sentence-similarity"
        facts: dict[str, Any] = {
            "library_name": "polyrank",
            "pipeline_tag": ranks,
            "tags": ["polyrank", f"{self.architecture}-encoder"],
        }
        base = self.provenance.base
        if base is not None and not Path(base).exists() and base.count("/") <= 1:
            facts["base_model"] = base
        return f"---\n{yaml.safe_dump(facts, sort_keys=False)}---"

    def summary(self) -> str:
        """What it is, in a sentence."""
        base = self.provenance.base
        start = "" if base is None else f", from `{base}`"
        return (
            f"A {self.architecture}-encoder trained with polyrank {__version__}{start}: "
            f"{self.num_parameters:,} parameters, of which {self.num_trained:,} were trained."
        )

    def usage(self) -> str:
        """How to use it from Python."""
        use = USES["pairs" if self.task != "rank" else "rank"]
        name = CLASSES[self.architecture]
        return (
            "## Use\n\n```python\n"
            f"from polyrank import {name}\n\n"
            f'model = {name}.from_pretrained("path/to/this/folder")\n{use}\n```'
        )

    def data(self) -> str:
        """What it was trained on and chosen by."""
        rows = [self.train.row("training")]
        rows += [] if self.dev is None else [self.dev.row("dev")]
        return "\n".join(
            [
                "## Data\n",
                "| use | name | records | SHA-256 of the records, in their order |",
                "|---|---|---|---|",
                *rows,
            ]
        )

    def results(self) -> str:
        """The figures of the dev data."""
        if not self.figures:
            return (
                "## Results\n\nThere was no dev data: the model is that of the last step, "
                f"{self.steps:,}."
            )
        rows = [f"| {name} | {value:.4f} |" for name, value in self.figures.items()]
        return "\n".join(
            [
                "## Results\n",
                f"On the dev data, by the model of step {self.best_step:,} of {self.steps:,}, "
                "which is this one:\n",
                "| figure | value |",
                "|---|---:|",
                *rows,
            ]
        )

    def settings(self) -> str:
        """All settings, as YAML."""
        import yaml

        recipe = self.provenance.recipe
        lines = ["## Settings\n"]
        if recipe is not None:
            lines.append(f"The recipe `{recipe}`, with what was changed in it:\n")
        settings = {**self.model, **self.objective, **self.training}
        lines += ["```yaml", yaml.safe_dump(settings, sort_keys=False).rstrip(), "```"]
        return "\n".join(lines)

    def origin(self) -> str:
        """The command, the hardware and the versions."""
        lines = ["## How it was made\n"]
        if self.provenance.command is not None:
            lines += ["```", self.provenance.command, "```", ""]
        facts = {**self.hardware, "time of the steps": f"{self.seconds:,.0f} s"}
        lines += ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items())]
        return "\n".join(lines)


def processor() -> str:
    """The name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(found, "") or platform.processor() or platform.machine()

"""What to type after a training: the commands that measure and index what was trained."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank.cli.data import columns_of

if TYPE_CHECKING:
    from polyrank.cli.train import TrainOptions
    from polyrank.data.format import Kind

CANDIDATES = 20
"""How many candidates an example gets that has none."""
LARGE = 20_000
"""Examples among whose responses there are enough wrong ones for every context."""
LOOKED_AT = 100
"""Candidates of a table among which there must be a response."""


def next_commands(
    options: TrainOptions, models: Sequence[tuple[str, Path]], examples: Sequence[Any]
) -> list[str]:
    """The words and the commands: on the dev data or, without any, on the training data.

    `models` are the trained ones with their folders, `examples` what they were trained on.
    """
    kind = kind_of(options)
    data = data_flags(options, kind, examples)
    if len(models) > 1:
        folders = [str(folder) for _, folder in models]
        output = ["--output", str(folder_of(models) / "comparison")]
        plot = [] if find_spec("matplotlib") else ["--no-plot"]
        lines = [f"Compare them with: {typed('compare', *folders, *data, *output, *plot)}"]
    else:
        each = [typed("evaluate", *model_flags(*model, kind), *data) for model in models]
        lines = [f"Evaluate it with: {command}" for command in each]
    if options.dev is None and kind != "retrieval" and options.share is None:
        lines.append(
            "That is the data it was trained on: give other data for figures that count."
            if len(models) == 1
            else "That is the data they were trained on: give other data for figures that count."
        )
    architecture, folder = models[-1]
    if architecture != "cross" and len(models) == 1 and holds_candidates(options.train, examples):
        index = str(folder.with_name(f"{folder.name}-index"))
        build = typed("index build", str(folder), "--candidates", str(options.train))
        lines.append(f"Make its responses searchable with: {build} --output {shlex.quote(index)}")
    return lines


def holds_candidates(path: Path, examples: Sequence[Any]) -> bool:
    """Whether a table that was trained on is a file of candidates too: of the responses."""
    from polyrank.data.candidates import TABLES, read_candidates
    from polyrank.data.files import base_suffix
    from polyrank.errors import DataError

    if base_suffix(path) not in TABLES or not hasattr(examples[0], "response"):
        return False
    try:
        first = [candidate.text for candidate in islice(read_candidates(path), LOOKED_AT)]
    except DataError:
        return False
    return not {example.response for example in examples}.isdisjoint(first)


def kind_of(options: TrainOptions) -> Kind:
    """What the data hold that are measured on."""
    from polyrank.data.loading import AUTO, FORMATS, detect

    columns = columns_of(options)
    name = options.format
    if name == AUTO:
        name = detect(options.dev or options.train, columns=columns)
    return FORMATS[name].gives


def data_flags(options: TrainOptions, kind: Kind, examples: Sequence[Any]) -> list[str]:
    """The flags that have the data read as they were in the training."""
    flags = ["--data", str(options.dev or options.train)]
    if options.format != "auto":
        flags += ["--format", options.format]
    if options.columns:
        flags += ["--columns", ",".join(options.columns)]
    if options.dev is not None:
        return flags + ([] if options.dev_split is None else ["--split", options.dev_split])
    if options.share is not None and kind != "retrieval":
        flags += ["--except-share", str(options.share)]
        flags += ["--share-seed", str(options.share_seed)] if options.share_seed else []
    if kind == "examples" and (number := most_candidates(examples)) < CANDIDATES:
        flags += ["--num-candidates", str(number)]
    return flags


def most_candidates(examples: Sequence[Any]) -> int:
    """How many candidates every example can be given, as far as it has none; at least 2."""
    from polyrank.errors import DataError
    from polyrank.evaluation.tasks import with_sampled_candidates

    if len(examples) > LARGE:
        return CANDIDATES
    for number in range(CANDIDATES, 2, -1):
        with suppress(DataError):
            with_sampled_candidates(examples, number)
            return number
    return 2


def model_flags(architecture: str, folder: Path, kind: Kind) -> list[str]:
    """The model; a cross-encoder cannot search a corpus and reranks what BM25 finds."""
    if architecture == "cross" and kind == "retrieval":
        return ["bm25", "--reranker", str(folder)]
    return [str(folder)]


def folder_of(models: Sequence[tuple[str, Path]]) -> Path:
    """The folder that all models lie in."""
    return models[0][1].parent


def typed(command: str, *arguments: str) -> str:
    """A command as one types it."""
    return shlex.join(["polyrank", *command.split(), *arguments])

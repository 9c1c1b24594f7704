"""The model that `polyrank train` trains: its base, its settings, and what a cross-encoder learns.

Knows options and records; trains nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank.cli.flags import flag_of
from polyrank.cli.output import Output
from polyrank.config import field_types, from_mapping, to_mapping
from polyrank.models.config import CONFIGS, NAMES, CrossEncoderConfig

if TYPE_CHECKING:
    from polyrank.cli.train import TrainOptions
    from polyrank.cli.train_data import Records

HEADS = {
    "interaction": "it compares the texts token by token and starts from what the base knows",
    "pooler": "the base has one and keeps it",
    "linear": "one layer above one vector",
}
READINGS = {
    "once": "It reads a context once for all its candidates",
    "pairs": "It reads each pair of a context and a candidate",
}
"""What `auto` chose of head and reading, in words."""


def objective_of(options: TrainOptions, arch: str, examples: Records) -> str:
    """The name of the objective of one architecture, as far as it is known without the base.

    Raises UsageError where it does not suit the records.
    """
    from polyrank.training.objectives.registry import choose_objective, cross_settings

    if arch != "cross":
        return choose_objective(options.objective, arch, examples).name
    settings = {**to_mapping(CrossEncoderConfig()), **options.model}
    task, head = options.model.get("task"), options.model.get("head")
    settings |= cross_settings(options.objective, examples, task, head)
    task, head = task or settings["task"], settings["head"]
    if head == "auto":
        head = head_on(options.base, task, settings["reading"])
    return choose_objective(options.objective, arch, examples, task, head).name


def head_on(base: str | None, task: str, reading: str) -> str:
    """The head of a new cross-encoder, as far as it is known without fetching the base."""
    from polyrank.models.default_head import default_head

    if base is not None and Path(base).exists():
        return default_head(Path(base), task, reading)
    return "interaction" if task == "rank" else "linear"


def load_base(options: TrainOptions, device: str, examples: Records, output: Output) -> Any:
    """The model to train; a new cross-encoder gets the task that the examples call for."""
    from polyrank.models.checkpoint import ARCHITECTURES as CLASSES
    from polyrank.models.source import local_folder
    from polyrank.runtime import set_seed

    settings = settings_of(options, output)
    folder = local_folder(options.base, revision=options.revision, say=output.say)
    other = options.candidate_base
    candidates = None if other is None else local_folder(other, say=output.say)
    if options.arch == "cross":
        settings = cross_task(options, folder, examples, settings, output)
    set_seed(options.training.seed)
    return CLASSES[options.arch].from_folder(
        folder,
        is_own=Path(options.base).is_dir(),
        device=device,
        dtype=options.dtype,
        batch_tokens=options.batch_tokens,
        candidate_folder=candidates,
        **settings,
    )


def cross_task(
    options: TrainOptions,
    folder: Path,
    examples: Records,
    given: Mapping[str, Any],
    output: Output,
) -> dict[str, Any]:
    """The given settings of a cross-encoder, and the task that it needs on these examples.

    `folder` holds its base. A saved one whose head cannot learn from them gets a new head, and
    people are told.
    """
    from polyrank.models.default_head import with_head, without_auto
    from polyrank.models.description import read_description
    from polyrank.models.loading.settings import needs_new_head
    from polyrank.training.objectives.registry import cross_settings

    description = read_description(folder)
    saved: Mapping[str, Any] = {}
    if description is not None and description.architecture == "cross":
        saved = description.settings
    asked = given.get("task"), given.get("head")
    given = without_auto(given)
    needed = {**cross_settings(options.objective, examples, *asked, saved), **given}
    if saved and needs_new_head(saved, needed):
        output.say(
            f"{options.base} has a head for task = {saved['task']}. Its encoder is kept, and it "
            f"gets a new head for task = {needed.get('task', saved['task'])}."
        )
    if not saved and "head" not in given:
        needed = {"task": "rank", **needed}  # a base that tells classes may learn to rank
        needed = with_head(folder, saved, needed)
        chosen = from_mapping(CrossEncoderConfig, needed, where="The model")
        output.say(
            f"The cross-encoder has head = {chosen.head}: {HEADS[chosen.head]}. "
            f"{READINGS[chosen.reading]}."
        )
    return needed


def settings_of(options: TrainOptions, output: Output) -> dict[str, Any]:
    """The model settings that were given; ones of another architecture warn and have no effect."""
    known = field_types(CONFIGS[options.arch])
    for name in options.model:
        if name not in known:
            output.warn(f"{flag_of(name)} has no effect on a {NAMES[options.arch]}.")
    return {name: value for name, value in options.model.items() if name in known}

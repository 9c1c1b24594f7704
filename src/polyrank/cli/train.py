"""`polyrank train`: a bi-, poly- or cross-encoder from examples or labelled pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from polyrank.cli.command import command
from polyrank.cli.data import DataOptions, share_of, warn_of_idle_seed
from polyrank.cli.flags import flag_of
from polyrank.cli.next_command import next_commands
from polyrank.cli.options import any_of, flattened, option
from polyrank.cli.output import Output
from polyrank.cli.train_data import described, dev_for, is_pairs, load_data
from polyrank.cli.train_preview import preview
from polyrank.cli.training_command import (
    ARCHITECTURES,
    RunOptions,
    checkpoint_kept,
    joining_processes,
    run_training,
    show_config,
    summary,
    warn_of_idle_training,
)
from polyrank.config import field_types, require, to_mapping
from polyrank.models.config import (
    CONFIGS,
    BiEncoderConfig,
    CrossEncoderConfig,
    PolyEncoderConfig,
)
from polyrank.training import processes
from polyrank.training.config import TrainingConfig
from polyrank.training.model_card import Provenance
from polyrank.training.objectives.registry import ObjectiveConfig, objective_for, without_effect
from polyrank.training.recipes import RECIPES, find

if TYPE_CHECKING:
    from polyrank.cli.train_data import Dev, Records
    from polyrank.data.sampling import Share

Architecture = Literal["bi", "poly", "cross"]
HEADS = {
    "interaction": "it compares the texts token by token and starts from what the base knows",
    "pooler": "the base is a reranker and keeps its own",
    "linear": "one layer above the first output",
}
"""What `auto` chose, in words."""
EVERY: tuple[Architecture, ...] = ("bi", "poly", "cross")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(DataOptions, RunOptions):
    """Options of `polyrank train`."""

    arch: Literal["bi", "poly", "cross", "all"] = option(
        help="The architecture; all trains each of the three, in its own folder in the output.",
        unless=("show_config", "preview"),
    )
    base: str = option(
        help="The encoder or model to start from, a folder or hub id. It may be a "
        "sentence-transformers model or a polyrank model, whose own settings are kept unless flags "
        "override them.",
        metavar="MODEL",
        unless=("show_config", "preview"),
    )
    train: Path = option(
        help="The training data, a file or folder. It holds contexts with their responses, or "
        "labelled pairs of texts.",
        unless=("show_config",),
    )
    dev: Path | None = option(
        None,
        help="The data that choose the best checkpoint. Without it, the last checkpoint is kept.",
    )
    output: Path = option(
        help="The folder for the trained model; a model there is replaced.",
        unless=("show_config", "preview"),
    )
    preview: bool = option(
        False,
        help="Show how the data are read, and train nothing. Prints the first records and the "
        "objective.",
    )
    recipe: str | None = option(
        None,
        help="Start from the settings of a paper; --show-config shows them.",
        metavar="|".join(RECIPES),
    )
    train_split: str | None = option(None, help="The split to train on, if the data have several.")
    dev_split: str | None = option(None, help="The split of --dev to use; dev by default.")
    share: float | str | None = option(
        None,
        help="Train on this share of the examples, such as 1% or 0.01, or of the questions of a "
        "corpus with judgements. A smaller share lies inside a larger one with the same seed.",
        metavar="SHARE",
    )
    share_seed: int = option(0, help="The seed of --share. Another seed draws other examples.")
    limit: int | None = option(None, help="Use only the first N training examples of the share.")
    dev_limit: int | None = option(None, help="Use only the first N dev examples or questions.")
    dev_candidates: int | Literal["all"] | None = option(
        None,
        help="The number of candidates of each dev example that has none. They are drawn from "
        "the responses of the file; all takes every response. By default, 20; bi- and "
        "poly-encoders search the whole of a corpus with judgements.",
    )
    model: dict[str, Any] = any_of(
        {
            "bi": BiEncoderConfig(),
            "poly": PolyEncoderConfig(),
            "cross": CrossEncoderConfig(),
            "cross with --head interaction": CrossEncoderConfig(head="interaction"),
            "cross with --head linear": CrossEncoderConfig(head="linear"),
        }
    )
    objective: ObjectiveConfig = flattened(hide=("teacher_share",))
    training: TrainingConfig = flattened()

    @classmethod
    def presets(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings of the recipe, for the architecture."""
        recipe = values.get("recipe")
        return {} if recipe is None else find(recipe).settings(values.get("arch"))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("limit", "dev_limit"):
            value = getattr(self, name)
            require(value is None or value >= 1, flag_of(name), "at least 1", value)
        number = self.dev_candidates
        known = "at least 2, or all"
        require(number in (None, "all") or number >= 2, "--dev-candidates", known, number)  # type: ignore[operator]
        share_of(self.share, self.share_seed)

    @property
    def sample(self) -> Share | None:
        """The share of the training data, if it is not all."""
        return share_of(self.share, self.share_seed)


def interrupted(options: TrainOptions) -> str:
    """The words after Ctrl-C."""
    return checkpoint_kept(options.output)


@command("train", TrainOptions, interrupted=interrupted)
def train(options: TrainOptions, output: Output) -> None:
    """Train a bi-, poly- or cross-encoder on your own data.

    The data are contexts with their responses, or labelled pairs of texts.
    An interrupted run resumes from its last checkpoint when it is started again. Under torchrun,
    all processes train one model. docs/training.md explains recipes, settings and processes.
    """
    if options.show_config:
        show_config(options, architectures_of(options), output)
        return
    with joining_processes(options.device, output) as (device, output):
        with processes.sharing_errors():
            from polyrank.models.loading import require_architecture

            for architecture in architectures_of(options) if options.base is not None else ():
                require_architecture(architecture, options.base)
            examples, dev = load_data(options, output)
        if options.preview:
            objectives = objectives_of(options, examples, output)
            named = {ARCHITECTURES[arch]: name for arch, name in objectives.items()}
            preview(examples, dev, named, output)
            return
        if options.arch == "all":
            keep = not options.restart
            runs = each_alone(options, objectives_of(options, examples, output))
            made = [
                train_one(one, device, examples, dev, output, keep=keep, alone=False)
                for one in runs
            ]
            models = [(one.arch, one.output) for one in runs]
            for line in next_commands(options, models, examples):
                output.say(line)
            output.result({"output": options.output, "models": made})
        else:
            output.result(train_one(options, device, examples, dev, output))


def architectures_of(options: TrainOptions) -> Sequence[Architecture]:
    """The architectures that are trained; all of them where none has been chosen yet."""
    return [arch for arch in EVERY if options.arch in (arch, "all", None)]


def each_alone(options: TrainOptions, architectures: Iterable[Architecture]) -> list[TrainOptions]:
    """The options of each architecture's own run, without settings of another's model."""
    return [
        replace(
            options,
            arch=arch,
            output=options.output / arch,
            model={k: v for k, v in options.model.items() if k in field_types(CONFIGS[arch])},
        )
        for arch in architectures
    ]


def objectives_of(
    options: TrainOptions, examples: Records, output: Output
) -> dict[Architecture, str]:
    """The name of the objective of each architecture that is trained on such records.

    Of several architectures, those without one are left out, and people are told; UsageError where
    none is left.
    """
    from polyrank.errors import UsageError

    chosen: dict[Architecture, str] = {}
    refused: UsageError | None = None
    for arch in architectures_of(options):
        try:
            chosen[arch] = objective_of(options, arch, examples)
        except UsageError as error:
            refused = error
            if options.arch in ("all", None):
                output.say(f"No {ARCHITECTURES[arch]} on these data: {error.problem}")
    if refused is not None and not chosen:
        raise refused
    return chosen


def objective_of(options: TrainOptions, arch: Architecture, examples: Records) -> str:
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
        head = head_on(options.base, task)
    return choose_objective(options.objective, arch, examples, task, head).name


def head_on(base: str | None, task: str) -> str:
    """The head of a new cross-encoder, as far as it is known without fetching the base."""
    from polyrank.models.default_head import default_head

    if base is not None and Path(base).exists():
        return default_head(Path(base), task)
    return "interaction" if task == "rank" else "linear"


def train_one(
    options: TrainOptions,
    device: str,
    examples: Records,
    dev: Dev,
    output: Output,
    *,
    keep: bool = False,
    alone: bool = True,
) -> dict[str, Any]:
    """Train one model, unless `keep` is set and an earlier call has finished it.

    It is `alone` unless it is one of several. Returns what --json prints of it.
    """
    with processes.sharing_errors():
        dev = dev_for(options, dev, output)
        model = load_base(options, device, examples, output)
        record = finished_record(options, model, examples, dev) if keep else None
        if record is None:
            warn_of_idle(options, examples, model, output)
    if record is None:
        return run(options, model, examples, dev, output, alone=alone)
    output.say(f"The {ARCHITECTURES[options.arch]} in {options.output} is trained already.")
    return printed(options, record)


def finished_record(
    options: TrainOptions, model: Any, examples: Records, dev: Dev
) -> dict[str, Any] | None:
    """The record of the run in the output, if it is the run that is asked for."""
    import json

    from polyrank.training.identity import finished
    from polyrank.training.result import RECORD

    if not finished(
        model,
        examples,
        options.output,
        options.training,
        objective=options.objective,
        dev=dev,
        provenance=provenance_of(options),
    ):
        return None
    record: dict[str, Any] = json.loads((options.output / RECORD).read_text(encoding="utf-8"))
    return record


def run(
    options: TrainOptions,
    model: Any,
    examples: Records,
    dev: Dev,
    output: Output,
    *,
    teacher: Any = None,
    alone: bool = True,
) -> dict[str, Any]:
    """Train; returns what --json prints. Unless it is one of several, says what to do next."""
    kind = "labelled pairs" if is_pairs(examples) else "examples"
    result = run_training(
        model,
        examples,
        options.output,
        options.training,
        options,
        output,
        doing=f"Training a {ARCHITECTURES[options.arch]} on {len(examples):,} {kind}, "
        f"{described(dev)} for dev",
        done="Trained",
        then=next_commands(options, [(options.arch, options.output)], examples) if alone else [],
        objective=options.objective,
        provenance=provenance_of(options),
        dev=dev,
        teacher=teacher,
    )
    return printed(options, vars(result))


def provenance_of(options: TrainOptions) -> Provenance:
    """Where the run comes from."""
    return Provenance(
        base=options.base,
        train=str(options.train),
        share=None if options.sample is None else str(options.sample),
        dev=None if options.dev is None else str(options.dev),
        recipe=options.recipe,
    )


def printed(options: TrainOptions, result: Mapping[str, Any]) -> dict[str, Any]:
    """What --json prints of a trained model."""
    return summary(result, "dev", output=options.output, architecture=options.arch)


def load_base(options: TrainOptions, device: str, examples: Records, output: Output) -> Any:
    """The model to train; a new cross-encoder gets the task that the examples call for."""
    from polyrank.models.checkpoint import ARCHITECTURES as CLASSES
    from polyrank.models.source import local_folder
    from polyrank.runtime import set_seed

    settings = settings_of(options, output)
    folder = local_folder(options.base)
    if options.arch == "cross":
        settings = cross_task(options, folder, examples, settings, output)
    set_seed(options.training.seed)
    return CLASSES[options.arch].from_folder(
        folder,
        is_own=Path(options.base).is_dir(),
        device=device,
        dtype=options.dtype,
        batch_tokens=options.batch_tokens,
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
    from polyrank.models.default_head import with_head
    from polyrank.models.description import read_description
    from polyrank.models.loading import needs_new_head
    from polyrank.training.objectives.registry import cross_settings

    description = read_description(folder)
    saved: Mapping[str, Any] = {}
    if description is not None and description.architecture == "cross":
        saved = description.settings
    asked = given.get("task"), given.get("head")
    given = {name: value for name, value in given.items() if (name, value) != ("head", "auto")}
    needed = {**cross_settings(options.objective, examples, *asked, saved), **given}
    if saved and needs_new_head(saved, needed):
        output.say(
            f"{options.base} has a head for task = {saved['task']}. Its encoder is kept, and it "
            f"gets a new head for task = {needed.get('task', saved['task'])}."
        )
    if not saved and "head" not in given:
        needed = with_head(folder, saved, needed)
        output.say(f"The cross-encoder has head = {needed['head']}: {HEADS[needed['head']]}.")
    return needed


def settings_of(options: TrainOptions, output: Output) -> dict[str, Any]:
    """The model settings that were given; ones of another architecture warn and have no effect."""
    known = field_types(CONFIGS[options.arch])
    for name in options.model:
        if name not in known:
            output.warn(f"{flag_of(name)} has no effect on a {ARCHITECTURES[options.arch]}.")
    return {name: value for name, value in options.model.items() if name in known}


def warn_of_idle(options: TrainOptions, examples: Records, model: Any, output: Output) -> None:
    """Warn of settings that have no effect beside the others.

    Raises UsageError for an objective that does not suit the model or the examples.
    """
    warn_of_idle_seed(options.sample, options.share_seed, "--share", output)
    chosen = objective_for(model, examples, options.objective)
    presets = options.presets({"recipe": options.recipe, "arch": options.arch})
    for setting in without_effect(options.objective, chosen, options.arch, presets):
        output.warn(f"{flag_of(setting)} has no effect on the objective {chosen.name}.")
    if options.dev is None and options.training.metric != presets.get("metric"):
        output.warn("--metric has no effect without --dev.")
    if options.dev is None and options.dev_candidates is not None:
        output.warn("--dev-candidates has no effect without --dev.")
    warn_of_idle_training(options.training, output, presets=presets)

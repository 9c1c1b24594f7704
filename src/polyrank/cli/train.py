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
from polyrank.cli.train_data import described, dev_for, how_good, is_pairs, load_data
from polyrank.cli.train_defaults import held_out, is_missing, say_steps, with_choices
from polyrank.cli.train_model import load_base, objective_of
from polyrank.cli.train_preview import preview
from polyrank.cli.training_command import (
    RunOptions,
    checkpoint_kept,
    joining_processes,
    run_training,
    show_config,
    summary,
    warn_of_idle_training,
)
from polyrank.config import field_types, require
from polyrank.data.sampling import parse_share
from polyrank.folder_files import read_json
from polyrank.models.config import (
    CONFIGS,
    NAMES,
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
EVERY: tuple[Architecture, ...] = ("bi", "poly", "cross")


@dataclass(frozen=True, kw_only=True)
class TrainOptions(DataOptions, RunOptions):
    """Options of `polyrank train`."""

    # None until `with_choices` has chosen
    arch: Literal["bi", "poly", "cross", "all"] = option(
        None,
        help="The architecture, by default chosen by the data; all trains each of the three, in "
        "its own folder in the output.",
    )
    base: str = option(
        None,
        help="The encoder or model to start from, by default a small encoder. It is a folder or "
        "hub id of an encoder, of a sentence-transformers model or of a polyrank model, whose own "
        "settings are kept unless flags override them. The default is all-MiniLM-L6-v2, or a "
        "multilingual encoder if most letters are not Latin.",
        metavar="MODEL",
    )
    candidate_base: str | None = option(
        None,
        help="Another encoder for the candidates of a bi- or poly-encoder, of any size and kind. "
        "It keeps its own tokeniser and limits. If it is not as wide as --base, give --projection.",
        metavar="MODEL",
    )
    train: Path = option(
        help="The training data, a file or folder. It holds contexts with their responses, or "
        "labelled pairs of texts.",
        unless=("show_config",),
    )
    dev: Path | None = option(
        None,
        help="The data that choose the best checkpoint.",
    )
    dev_share: float | str = option(
        "auto",
        help="Without --dev, hold out this share of the training examples to choose the best "
        "checkpoint. auto holds out 10%, at most 1000, of 200 or more, and none with --recipe. "
        "Without dev data, the last checkpoint is kept.",
        metavar="auto|none|SHARE",
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
    share_seed: int = option(0, help="The seed of the shares. Another seed draws other examples.")
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
    objective: ObjectiveConfig = flattened(hide=("teacher_share", "teacher_candidates"))
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
        if self.dev_share not in ("auto", "none"):
            parse_share(self.dev_share)

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
        show_choices(options, output)
        return
    with joining_processes(options.device, output) as (device, output):
        with processes.sharing_errors():
            from polyrank.models.loading.settings import require_architecture

            if options.base is not None and options.arch is not None:
                for architecture in architectures_of(options):
                    require_architecture(architecture, options.base)
            examples, dev = load_data(options, output)
            given, options = options, with_choices(options, examples, output.say)
            examples, dev = held_out(options, examples, dev, output)
            if is_missing(given.arch) or is_missing(given.base):
                say_steps(options, examples, output)
        if options.preview:
            objectives = objectives_of(given, examples, output)
            named = {NAMES[arch]: name for arch, name in objectives.items()}
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


def show_choices(options: TrainOptions, output: Output) -> None:
    """Print the settings that would run; what is chosen by the data, if they are given."""
    chosen = not (is_missing(options.arch) or is_missing(options.base))
    examples = None if chosen or is_missing(options.train) else load_data(options)[0]
    words: list[str] = []
    options = with_choices(options, examples, words.append)
    if words:
        output.say("\n".join(f"# {line}" for line in words))
    show_config(options, architectures_of(options), output)


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
            candidate_base=None if arch == "cross" else options.candidate_base,
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
                output.say(f"No {NAMES[arch]} on these data: {error.problem}")
    if refused is not None and not chosen:
        raise refused
    return chosen


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
            warn_of_idle(options, examples, dev, model, output)
    if record is None:
        return run(options, model, examples, dev, output, alone=alone)
    output.say(f"The {NAMES[options.arch]} in {options.output} is trained already.")
    return printed(options, record)


def finished_record(
    options: TrainOptions, model: Any, examples: Records, dev: Dev
) -> dict[str, Any] | None:
    """The record of the run in the output, if it is the run that is asked for."""
    from polyrank.models.hub.card import RECORD
    from polyrank.training.identity import finished

    if not finished(
        model,
        examples,
        options.output,
        options.training,
        objective=options.objective,
        dev=dev,
        provenance=provenance_of(options, dev),
    ):
        return None
    record: dict[str, Any] = read_json(options.output / RECORD)
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
        doing=f"Training a {NAMES[options.arch]} on {len(examples):,} {kind}, "
        f"{described(dev)} for dev",
        done="Trained",
        objective=options.objective,
        provenance=provenance_of(options, dev),
        dev=dev,
        teacher=teacher,
    )
    if (words := how_good(result.figures, dev)) is not None:
        output.say(words)
    if alone:
        for line in next_commands(options, [(options.arch, options.output)], examples):
            output.say(line)
    return printed(options, vars(result))


def provenance_of(options: TrainOptions, dev: Dev) -> Provenance:
    """Where the run comes from."""
    held = f"held out from {options.train}" if dev else None
    return Provenance(
        base=options.base,
        candidate_base=options.candidate_base,
        train=str(options.train),
        share=None if options.sample is None else str(options.sample),
        dev=held if options.dev is None else str(options.dev),
        recipe=options.recipe,
    )


def printed(options: TrainOptions, result: Mapping[str, Any]) -> dict[str, Any]:
    """What --json prints of a trained model."""
    return summary(result, "dev", output=options.output, architecture=options.arch)


def warn_of_idle(
    options: TrainOptions, examples: Records, dev: Dev, model: Any, output: Output
) -> None:
    """Warn of settings that have no effect beside the others.

    Raises UsageError for an objective that does not suit the model or the examples.
    """
    if options.dev is not None or not dev:
        warn_of_idle_seed(options.sample, options.share_seed, "--share", output)
    chosen = objective_for(model, examples, options.objective)
    presets = options.presets({"recipe": options.recipe, "arch": options.arch})
    for setting in without_effect(options.objective, chosen, options.arch, presets):
        output.warn(f"{flag_of(setting)} has no effect on the objective {chosen.name}.")
    if not dev and options.training.metric != presets.get("metric"):
        output.warn("--metric has no effect without dev data.")
    if not dev and options.dev_candidates is not None:
        output.warn("--dev-candidates has no effect without dev data.")
    warn_of_idle_training(options.training, output, presets=presets)

"""`polyrank pretrain`: an encoder from the pairs of a corpus, new or continued."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from polyrank.cli.command import NOTHING_KEPT, command
from polyrank.cli.flags import flag_of
from polyrank.cli.options import any_of, flattened, option
from polyrank.cli.output import Output
from polyrank.cli.training_command import (
    RunOptions,
    checkpoint_kept,
    joining_processes,
    run_training,
    show_config,
    summary,
    warn_of_idle_training,
)
from polyrank.config import require
from polyrank.errors import PolyrankError, UsageError
from polyrank.models.config import BiEncoderConfig, NewEncoderConfig
from polyrank.pretraining.registry import USUAL, TaskSettings, reading_of
from polyrank.pretraining.split import TablesSettings
from polyrank.tokens.masking_config import MaskingConfig
from polyrank.training import processes
from polyrank.training.config import LORA, TrainingConfig
from polyrank.training.model_card import Provenance
from polyrank.training.pretraining.config import PretrainingConfig
from polyrank.training.recipes import PRETRAINING, find

if TYPE_CHECKING:
    from polyrank.pretraining.corpus.schema import Kind
    from polyrank.training.pretraining.corpora import Corpora, CorpusPairs

NEW = {"projection": 512, "learning_rate": 5e-4}
"""The defaults of a new encoder."""
LENGTHS = {"max_context_length": 64, "max_candidate_length": 288}
MODEL: dict[str, Any] = {"shared_towers": True, **LENGTHS}
"""The defaults of the model around any encoder."""
UNUSED = ("num_negatives", "lora_rank", *LORA)
"""Settings of training that have no effect on pre-training, or cannot be used for it."""
METRIC = (
    "The held-out figure that chooses the best checkpoint: held_out, which is the mean "
    "over the tasks, or loss. By default, held_out."
)
TRAINING = TrainingConfig(epochs=1.0)


@dataclass(frozen=True, kw_only=True)
class PretrainOptions(RunOptions):
    """Options of `polyrank pretrain`."""

    corpus: tuple[Path, ...] = option(
        help="The folder that `polyrank corpus` made. Give several, separated by commas, to "
        "train on articles and on conversations.",
        unless=("show_config",),
    )
    output: Path | None = option(
        None, help="The folder for the encoder; a model there is replaced. Required for training."
    )
    base: str | None = option(
        None,
        help="The encoder or model to continue training. By default, a new encoder with its own "
        "vocabulary. A saved model keeps its settings, except for the lengths of texts.",
        metavar="MODEL",
    )
    recipe: str | None = option(
        None,
        help="Start from the settings of a paper; --show-config shows them.",
        metavar="|".join(PRETRAINING),
    )
    preview: bool = option(
        False, help="Print statistics of the corpus and some pairs of each task, and train nothing."
    )
    preview_pairs: int = option(3, help="How many pairs of each task --preview prints.")
    pretraining: PretrainingConfig = flattened()
    masking: MaskingConfig = flattened()
    tables: TablesSettings = flattened(hide=("held_out_ids",))
    tasks_settings: TaskSettings = flattened()
    encoder: NewEncoderConfig = flattened()
    model: dict[str, Any] = any_of({"bi": BiEncoderConfig(**MODEL)})
    training: TrainingConfig = flattened(TRAINING, hide=UNUSED, help={"metric": METRIC})

    CASES: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "with --base": {"base": "MODEL"},
        "where no task compares vectors (--tasks mlm)": {"tasks": "mlm"},
    }

    @classmethod
    def presets(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings of the recipe and, for a new encoder, those that suit it."""
        recipe = values.get("recipe")
        papers = {} if recipe is None else find(recipe, PRETRAINING).settings("bi")
        papers.pop("arch", None)
        asked = {**papers, **values}
        if asked.get("base") is not None:
            return papers
        new = NEW if trains_vectors(asked) else {**NEW, "projection": None}
        return {**new, **papers}

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.preview_pairs >= 1, "--preview-pairs", "at least 1", self.preview_pairs)


def trains_vectors(asked: Mapping[str, Any]) -> bool:
    """Whether any of the tasks compares vectors, so that a projection would be trained.

    `asked` are settings by name; without tasks, those that are usual for the corpora count. Raises
    UsageError for unknown tasks.
    """
    if asked.get("tasks") is not None:
        tasks = list(PretrainingConfig(tasks=asked["tasks"]).weights)
    else:
        tasks = [name for kind in kinds_of(asked.get("corpus", ())) for name in USUAL[kind]]
    return any(reading_of(name, asked) == "apart" for name in tasks)


def kinds_of(corpora: Sequence[Path]) -> set[Kind]:
    """What corpora hold, as far as they can be read; articles if none can."""
    from polyrank.pretraining.corpus.manifest import read_manifest

    kinds: set[Kind] = set()
    for path in corpora:
        with suppress(PolyrankError):  # which is told when the corpora are opened
            kinds.add(read_manifest(path).kind)
    return kinds or {"articles"}


def interrupted(options: PretrainOptions) -> str:
    """The words after Ctrl-C."""
    if options.preview or options.output is None:
        return NOTHING_KEPT
    return checkpoint_kept(options.output)


@command("pretrain", PretrainOptions, interrupted=interrupted)
def pretrain(options: PretrainOptions, output: Output) -> None:
    """Pre-train an encoder on pairs drawn from a corpus.

    The tasks are ICT, BFS, WLP, MLM, CMAE, next sentences and next utterances. The result is a base
    for `polyrank train`, for every architecture. --preview shows the pairs. An interrupted run
    resumes from its last checkpoint when it is started again. Under torchrun, all processes train
    one encoder. docs/pretraining.md explains the tasks and losses.
    """
    if options.show_config:
        show_config(options, ["bi"], output, MODEL)
        return
    if options.output is None and not options.preview:
        raise UsageError(
            "polyrank pretrain: --output is required and missing.",
            "Give it, or --preview to look at the pairs.",
        )
    with joining_processes(options.device, output) as (device, output):
        corpora = processes.run_on_first(lambda: open_corpora(options, output))
        with processes.sharing_errors():
            if options.preview:
                if processes.is_first():
                    look(options, corpora, output)
                return
            model = load_base(options, corpora, device, output)
        run(options, corpora, model, output)


def target_of(options: PretrainOptions) -> Path:
    """The folder of the result."""
    assert options.output is not None
    return options.output


def open_corpora(options: PretrainOptions, output: Output) -> Corpora:
    """The tables of the corpora, built where they are not there yet, with all that tasks need.

    Says which tasks there are, where the options name none.
    """
    from polyrank.pretraining.corpus.store import Corpus
    from polyrank.training.pretraining.corpora import Corpora

    corpora = Corpora(
        [Corpus.open(path) for path in options.corpus],
        options.pretraining,
        tables=options.tables,
        tasks=options.tasks_settings,
        batch_size=options.training.batch_size,
        seed=options.training.seed,
    )
    for task in corpora.tasks():
        task.require_pairs()
    if options.pretraining.tasks is None:
        left = "".join(f"; not {name}, which needs {why}" for name, why in corpora.left_out.items())
        output.say(f"Tasks for this corpus: {', '.join(corpora.config.weights)}{left}.")
    return corpora


def look(options: PretrainOptions, corpora: Corpora, output: Output) -> None:
    """Print what there is and some pairs of each task.

    Tokens are counted with the tokeniser of the base: that of a new encoder would take minutes.
    """
    from polyrank.models.loading.load import tokenizer_of
    from polyrank.pretraining.statistics import preview, statistics, statistics_lines
    from polyrank.tokens.tokenizer import TextTokenizer

    tasks = corpora.tasks()
    if options.base is None:
        count_tokens = None
        output.say("Lengths are in words. With --base MODEL, its tokens are counted as well.")
    else:
        texts = TextTokenizer(tokenizer_of(options.base, options.revision))

        def count_tokens(text: str) -> int:
            return len(texts.encode([text])[0])

    rows = [statistics(task, count_tokens=count_tokens) for task in tasks]
    for line in statistics_lines(rows):
        output.say(line)
    shown = {}
    for task in tasks:
        lines = preview(task, options.preview_pairs)
        shown[task.name] = lines
        output.say()
        for line in lines:
            output.say(line)
    tables = [{"kind": one.kind, "counts": one.counts} for one in corpora.tables]
    output.result({"corpora": tables, "tasks": rows, "preview": shown})


def load_base(options: PretrainOptions, corpora: Corpora, device: str, output: Output) -> Any:
    """The bi-encoder that is trained, around a new encoder or a given one."""
    from polyrank.models.bi_encoder import BiEncoder
    from polyrank.runtime import set_seed
    from polyrank.training.pretraining.new_base import base_folder, make_base

    base = options.base
    if base is None:
        base = str(base_folder(target_of(options)))
        if processes.is_first():
            most = options.encoder.vocabulary
            output.say(f"Making a vocabulary of at most {most:,} pieces")
            make_base(
                Path(base),
                corpora.texts(),
                options.encoder,
                identity=corpora.identity,
                seed=options.training.seed,
            )
    else:
        for name, value in vars(options.encoder).items():
            if value != getattr(NewEncoderConfig(), name):
                output.warn(f"{flag_of(name)} has no effect with --base.")
    processes.barrier()
    set_seed(options.training.seed)
    return BiEncoder.from_pretrained(
        base,
        device=device,
        dtype=options.dtype,
        batch_tokens=options.batch_tokens,
        defaults=MODEL,
        revision=None if options.base is None else options.revision,
        **options.model,
    )


def say_of_towers(
    options: PretrainOptions, corpora: Corpora, model: Any, examples: CorpusPairs, output: Output
) -> None:
    """Say how pairs with masked tokens train two towers, and what nothing trains."""
    from polyrank.training.pretraining.objective import one_for_both

    masked = " and ".join(task.name for task in corpora.tasks() if task.reading != "apart")
    if model.candidate_tower is not None and masked:
        if one_for_both(model, examples):
            output.say(
                f"Two towers: pairs of {masked} are of neither side, so one encoder is trained, "
                "and both towers become it."
            )
        else:
            output.say(f"Two towers: each is trained on half of the pairs of {masked}.")
    drawn = options.base is None and model.context_projection is not None
    if drawn and "apart" not in examples.readings:
        output.warn(
            f"No task compares vectors, so the projection to {model.dimension} stays as it was "
            "drawn. Leave it out with --projection none."
        )


def run(options: PretrainOptions, corpora: Corpora, model: Any, output: Output) -> None:
    """Train, and say what came of it."""
    import shutil

    from polyrank.pretraining.corpus.manifest import read_manifest
    from polyrank.training.objectives.registry import ObjectiveConfig
    from polyrank.training.pretraining.new_base import base_folder

    one_pass = len(corpora.mixture)
    steps = options.training.num_steps(one_pass)
    papers = {} if options.recipe is None else find(options.recipe, PRETRAINING).settings("bi")
    warn_of_idle_training(options.training, output, TRAINING, papers)
    examples = corpora.pairs(steps * options.training.batch_size, options.masking)
    say_of_towers(options, corpora, model, examples, output)
    parameters = sum(one.numel() for one in model.parameters()) / 1e6
    folder = target_of(options)
    result = run_training(
        model,
        examples,
        folder,
        replace(options.training, max_steps=steps),
        options,
        output,
        doing=f"Pre-training {parameters:.1f} million parameters on "
        f"{', '.join(corpora.config.weights)}: {len(examples):,} pairs of {one_pass:,} in a "
        "pass",
        done="Pre-trained",
        then=[f"Train from it with: polyrank train --arch bi --base {folder} --train FILE"],
        objective=ObjectiveConfig(logq=options.pretraining.logq),
        provenance=Provenance(
            base=options.base,
            train=", ".join(map(str, options.corpus)),
            languages=tuple(read_manifest(path).language for path in options.corpus),
            recipe=options.recipe,
        ),
    )
    if processes.is_first() and options.base is None:
        shutil.rmtree(base_folder(folder), ignore_errors=True)
    output.result(summary(vars(result), "held_out", output=folder))

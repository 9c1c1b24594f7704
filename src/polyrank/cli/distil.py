"""`polyrank distil`: a cross-encoder teaches a bi- or poly-encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from polyrank.cli import train as training
from polyrank.cli.command import command
from polyrank.cli.flags import flag_of
from polyrank.cli.mine import load_pool
from polyrank.cli.options import any_of, fixed, flattened, load, option
from polyrank.cli.output import Output
from polyrank.cli.train import TrainOptions
from polyrank.cli.train_data import dev_for, load_dev
from polyrank.cli.train_defaults import with_base
from polyrank.cli.train_model import load_base, objective_of
from polyrank.cli.train_preview import preview
from polyrank.cli.training_command import (
    checkpoint_kept,
    joining_processes,
    show_config,
)
from polyrank.errors import UsageError, nearest
from polyrank.models.config import NAMES, BiEncoderConfig, PolyEncoderConfig
from polyrank.progress import silent
from polyrank.retrieval.bm25.config import BM25Config
from polyrank.training import processes
from polyrank.training.config import TrainingConfig
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.objectives.registry import ObjectiveConfig

if TYPE_CHECKING:
    from polyrank.records import Example, LabelledPair, RetrievalSet
    from polyrank.training.negatives.methods import Method
    from polyrank.training.negatives.pool import Pool

    Dev = Sequence[Example] | Sequence[LabelledPair] | RetrievalSet

PAIRS = ("given", "random", "dialogue", "bm25", "model")


@dataclass(frozen=True, kw_only=True)
class DistilOptions(TrainOptions):
    """Options of `polyrank distil`."""

    teacher: tuple[Path, ...] = option(
        help="The folder of the model that scores the pairs, best a cross-encoder; repeat it for "
        "several, whose mean is learnt.",
        metavar="PATH",
        split=False,
    )
    arch: Literal["bi", "poly"] = option(help="The architecture.", unless=("show_config",))
    dev_share: float | str = fixed("none")
    pairs: tuple[str, ...] = option(
        ("given",),
        help="What the teacher scores besides the responses. given: the negatives in the data; "
        "random, dialogue, bm25 and model: negatives found as by `polyrank mine`. From labelled "
        "pairs, random, bm25 and model make new pairs.",
        metavar="|".join(PAIRS) + ",…",
    )
    retriever: Path | None = option(
        None, help="The folder of the bi- or poly-encoder for --pairs model."
    )
    candidates: Path | None = option(
        None,
        help="The texts to take negatives from, one per line or JSONL. By default, the responses "
        "in the data, or the documents of a BEIR folder.",
    )
    labels: Path | None = option(
        None,
        help="The JSONL file that keeps the teacher's scores for later runs. By default, "
        "OUTPUT.labels.jsonl beside the output. The scores of dev examples, and those of each of "
        "several teachers, are kept beside it.",
    )
    in_batch: bool = option(
        False,
        help="Let the teacher score the candidates of each step. Otherwise it scores some pairs "
        "before the training. A teacher that reads texts separately (a bi- or poly-encoder, or a "
        "cross-encoder with head = interaction) scores all of them for each context. For others, "
        "see --teacher-candidates.",
    )
    relabel: bool = option(False, help="Discard the scores in --labels and score again.")
    model: dict[str, Any] = any_of({"bi": BiEncoderConfig(), "poly": PolyEncoderConfig()})
    objective: ObjectiveConfig = flattened(
        hide=("symmetric", "logq", "triplet_margin"),
        help={
            "objective": "The loss: margin_mse or kl. By default, margin_mse; with --in-batch, "
            "in_batch_softmax; on labelled pairs, as for `polyrank train`."
        },
    )
    training: TrainingConfig = flattened(hide=("num_negatives",))
    negatives: NegativesConfig = flattened(
        hide=(
            "seed",
            "reranker_max_score",
            "reranker_margin",
            "reranker_relative_margin",
            "missing",
        )
    )
    bm25: BM25Config = flattened()

    @classmethod
    def presets(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """The settings of the recipe, but for what the teacher decides."""
        found = super().presets(values)
        left_out = ("num_negatives", "objective", "triplet_margin")
        return {name: value for name, value in found.items() if name not in left_out}

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.pairs:
            if name not in PAIRS:
                raise UsageError(f"There is no kind of --pairs {name!r}.", nearest(name, PAIRS))
        if not self.teacher:
            raise UsageError("--teacher is empty.", "Give the folder of a model.")
        if not self.pairs:
            raise UsageError("--pairs is empty.", f"Give some of {', '.join(PAIRS)}.")
        if "model" in self.pairs and self.retriever is None:
            raise UsageError(
                "--pairs model needs a bi- or poly-encoder to find pairs with.",
                "Give its folder with --retriever.",
            )

    @property
    def store(self) -> Path:
        """Where the teacher's scores are kept."""
        beside = self.output.with_name(f"{self.output.name}.labels.jsonl")
        return beside if self.labels is None else self.labels


def interrupted(options: DistilOptions) -> str:
    """The words after Ctrl-C."""
    return checkpoint_kept(
        options.output, "; the teacher's scores and the last checkpoint are kept"
    )


@command("distil", DistilOptions, interrupted=interrupted)
def distil(options: DistilOptions, output: Output) -> None:
    """Train a bi- or poly-encoder to score like a cross-encoder.

    The teacher scores each response and its negatives once, and the scores are kept for the next
    run; the objective is margin_mse, by default, or kl. From labelled pairs, new pairs are made and
    labelled by the teacher, and the model is trained on both (Augmented SBERT). With --in-batch,
    nothing is scored beforehand: at each step, the teacher scores the candidates of the step.
    Several teachers count as one: the mean of their softmaxes, or of their scores for margin_mse.
    An interrupted run resumes when it is started again.
    """
    if options.show_config:
        options = with_base(options, None, silent)
        show_config(options, [options.arch] if options.arch else ["bi", "poly"], output)
        return
    with joining_processes(options.device, output) as (device, output):
        with processes.sharing_errors():
            require_free(options)
            pool = load_pool(
                options.train,
                options,
                split=options.train_split,
                candidates=options.candidates,
                share=options.sample,
                limit=options.limit,
                say=output.say,
            )
            options = settled(options, pool, output)
            records = pool if isinstance(pool, list) else list(pool.examples)
            options = with_base(options, records, output.say)
            dev = dev_for(options, load_dev(options, output), output)
            if options.preview:
                objective = objective_of(options, options.arch, records)
                preview(records, dev, {NAMES[options.arch]: objective}, output)
                return
            model = load_base(options, device, records, output)
            training.warn_of_idle(options, records, dev, model, output)
        if options.in_batch:
            teachers = loaded(replace(options, device=device))
            output.result(training.run(options, model, records, dev, output, teacher=teachers))
            return
        labelled, dev = processes.run_on_first(lambda: taught(options, pool, dev, output))
        output.result(training.run(options, model, labelled, dev, output))


def require_free(options: DistilOptions) -> None:
    """Raise UsageError for an output that is in the way, before hours of scoring."""
    from polyrank.models.description import DESCRIPTION
    from polyrank.storage import require_replaceable

    require_replaceable(options.output, DESCRIPTION, "a model")


def settled(
    options: DistilOptions, pool: Pool | list[LabelledPair], output: Output
) -> DistilOptions:
    """The options with the objective that learns from the teacher. Warns of idle settings."""
    from polyrank.training.teaching.lessons import taught_objective

    unused = ["retriever"] if options.retriever is not None and "model" not in options.pairs else []
    if "bm25" not in options.pairs:
        standard = vars(BM25Config())
        unused += [name for name, value in vars(options.bm25).items() if value != standard[name]]
    for name in unused:
        output.warn(f"{flag_of(name)} has no effect with --pairs {','.join(options.pairs)}.")
    if options.in_batch:
        given = {"pairs": options.pairs != ("given",), "labels": options.labels is not None}
        for name in [name for name, is_given in given.items() if is_given]:
            output.warn(f"{flag_of(name)} has no effect with --in-batch.")
    objective = taught_objective(
        options.objective, of_pairs=isinstance(pool, list), in_batch=options.in_batch
    )
    return replace(options, objective=objective)


def taught(
    options: DistilOptions, pool: Pool | list[LabelledPair], dev: Dev, output: Output
) -> tuple[list[Example] | list[LabelledPair], Dev]:
    """The records with the teachers' labels: the training data and the dev data."""
    from polyrank.training.teaching.lessons import Lesson

    lesson = Lesson(
        teachers=loaded(options),
        names=list(map(str, options.teacher)),
        objective=options.objective,
        methods=methods_of(options),
        given="given" in options.pairs,
        settings=replace(options.negatives, seed=options.training.seed),
        store=options.store,
        relabel=options.relabel,
        show_progress_bar=True,
    )
    records = lesson.label(pool, output.say)
    return records, lesson.label_dev(dev, output.say)


def loaded(options: DistilOptions) -> list[Any]:
    """The teachers."""
    return [load(folder, options) for folder in options.teacher]


def methods_of(options: DistilOptions) -> list[Method]:
    """The methods that find pairs."""
    from polyrank.training.negatives.methods import method_of

    names = [name for name in dict.fromkeys(options.pairs) if name != "given"]
    model = load(options.retriever, options) if "model" in names and options.retriever else None
    return [
        method_of(name, retriever=model, bm25=options.bm25, show_progress_bar=True)
        for name in names
    ]

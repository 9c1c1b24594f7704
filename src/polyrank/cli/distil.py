"""`polyrank distil`: a cross-encoder teaches a bi- or poly-encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from polyrank.cli import train as training
from polyrank.cli.command import command
from polyrank.cli.flags import flag_of
from polyrank.cli.mine import load_pool
from polyrank.cli.options import any_of, flattened, load, option
from polyrank.cli.output import Output
from polyrank.cli.train import TrainOptions
from polyrank.cli.train_data import dev_for, is_pairs, load_dev
from polyrank.cli.train_preview import preview
from polyrank.cli.training_command import (
    ARCHITECTURES,
    checkpoint_kept,
    joining_processes,
    show_config,
)
from polyrank.errors import UsageError, nearest
from polyrank.models.config import BiEncoderConfig, PolyEncoderConfig
from polyrank.retrieval.bm25.config import BM25Config
from polyrank.training import processes
from polyrank.training.config import TrainingConfig
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.objectives.registry import OBJECTIVES, ObjectiveConfig

if TYPE_CHECKING:
    from polyrank.records import Example, LabelledPair, RetrievalSet
    from polyrank.training.negatives.methods import Method
    from polyrank.training.negatives.pool import Pool

    Dev = Sequence[Example] | Sequence[LabelledPair] | RetrievalSet

PAIRS = ("given", "random", "dialogue", "bm25", "model")
TAUGHT = [name for name, one in OBJECTIVES.items() if one.learns_from_scores]
"""The objectives that learn from a teacher's scores."""


@dataclass(frozen=True, kw_only=True)
class DistilOptions(TrainOptions):
    """Options of `polyrank distil`."""

    teacher: Path = option(help="The folder of the cross-encoder that scores the pairs.")
    arch: Literal["bi", "poly"] = option(help="The architecture.", unless=("show_config",))
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
        help="The texts to take negatives from, one per line or JSONL; by default, the responses "
        "in the data or its corpus.",
    )
    labels: Path | None = option(
        None,
        help="The JSONL file that keeps the teacher's scores for later runs; by default "
        "OUTPUT.labels.jsonl, beside the output. Those of the dev examples are kept "
        "beside it.",
    )
    in_batch: bool = option(
        False,
        help="Let the teacher score all candidates of each step. Otherwise it scores some pairs "
        "before the training. The teacher must encode texts separately: a bi- or poly-encoder, or "
        "a cross-encoder with head = interaction.",
    )
    relabel: bool = option(False, help="Discard the scores in --labels and score again.")
    model: dict[str, Any] = any_of({"bi": BiEncoderConfig(), "poly": PolyEncoderConfig()})
    objective: ObjectiveConfig = flattened(
        hide=("symmetric", "logq", "extra_negatives", "triplet_margin"),
        help={
            "objective": "The loss, margin_mse or kl. By default, margin_mse; with --in-batch, "
            "in_batch_softmax; on labelled pairs, that of `polyrank train`."
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
    nothing is scored beforehand: at each step, the teacher scores every candidate for every
    context. An interrupted run resumes when it is started again.
    """
    if options.show_config:
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
            dev = dev_for(options, load_dev(options, output), output)
            if options.preview:
                objective = training.objective_of(options, options.arch, records)
                preview(records, dev, {ARCHITECTURES[options.arch]: objective}, output)
                return
            model = training.load_base(options, device, records, output)
            training.warn_of_idle(options, records, model, output)
        if options.in_batch:
            teacher = load(options.teacher, replace(options, device=device))
            output.result(training.run(options, model, records, dev, output, teacher=teacher))
            return
        labelled, dev = processes.run_on_first(lambda: taught(options, pool, dev, output))
        output.result(training.run(options, model, labelled, dev, output))


def require_free(options: DistilOptions) -> None:
    """Raise UsageError for an output that is in the way, before hours of scoring."""
    from polyrank.models.folder import DESCRIPTION
    from polyrank.storage import require_replaceable

    require_replaceable(options.output, DESCRIPTION, "a model")


def settled(
    options: DistilOptions, pool: Pool | list[LabelledPair], output: Output
) -> DistilOptions:
    """The options with the objective that learns from the teacher. Warns of idle settings."""
    unused = ["retriever"] if options.retriever is not None and "model" not in options.pairs else []
    if "bm25" not in options.pairs:
        standard = vars(BM25Config())
        unused += [name for name, value in vars(options.bm25).items() if value != standard[name]]
    for name in unused:
        output.warn(f"{flag_of(name)} has no effect with --pairs {','.join(options.pairs)}.")
    objective = options.objective.objective
    if options.in_batch:
        if isinstance(pool, list) or objective not in ("auto", "in_batch_softmax"):
            raise UsageError(
                "--in-batch is for examples and the objective in_batch_softmax.",
                "Leave it out, or give examples of a context and its response.",
            )
        return replace(options, objective=replace(options.objective, objective="in_batch_softmax"))
    if isinstance(pool, list):
        return options
    if objective == "auto":
        return replace(options, objective=replace(options.objective, objective="margin_mse"))
    if objective not in TAUGHT:
        raise UsageError(
            f"The objective {objective} learns nothing from a teacher's scores of examples.",
            f"Choose one of {', '.join(TAUGHT)}, or use polyrank train.",
        )
    return options


def taught(
    options: DistilOptions, pool: Pool | list[LabelledPair], dev: Dev, output: Output
) -> tuple[list[Example] | list[LabelledPair], Dev]:
    """The records with the teacher's labels: the training data and the dev data."""
    from polyrank.training.teaching.labelling import label
    from polyrank.training.teaching.silver import silver_pairs

    teacher = load(options.teacher, options)
    methods = methods_of(options)
    settings = replace(options.negatives, seed=options.training.seed)
    common: dict[str, Any] = {
        "store": options.store,
        "methods": methods,
        "settings": settings,
        "relabel": options.relabel,
        "show_progress_bar": True,
        "say": output.say,
    }
    if not isinstance(pool, list):
        given = "given" in options.pairs
        examples = label(teacher, pool.examples, pool=pool, given=given, **common)
        num_pairs = sum(1 + len(example.negatives) for example in examples)
        left_out = len(pool.examples) - len(examples)
        if left_out:
            output.warn(f"{left_out:,} examples without negatives are left out.")
        output.say(f"{num_pairs:,} scores of {options.teacher} are in {options.store}")
        return examples, taught_dev(options, teacher, dev, output)
    if not methods:
        raise UsageError(
            "Labelled pairs have labels of their own, and --pairs given adds nothing to them.",
            "Let new pairs be found, with --pairs bm25, model or random.",
        )
    silver = silver_pairs(teacher, pool, **common)
    output.say(
        f"{len(pool):,} gold pairs, and {len(silver):,} silver ones labelled by "
        f"{options.teacher} in {options.store}"
    )
    return [*pool, *silver], dev


def taught_dev(options: DistilOptions, teacher: Any, dev: Dev, output: Output) -> Dev:
    """Dev examples with the teacher's scores of some of their wrong candidates, for the dev loss.

    Labelled pairs and a corpus that is searched stay as they are.
    """
    from polyrank.jobs import digest_of
    from polyrank.training.objectives.checks import with_candidates_as_negatives
    from polyrank.training.teaching.labelling import label

    if not isinstance(dev, Sequence) or not dev or is_pairs(dev):
        return dev
    most = options.negatives.num_negatives
    examples = with_candidates_as_negatives(cast("Sequence[Example]", dev), most)
    to_score = [example for example in examples if example.negatives]
    if not to_score:
        return dev
    store = options.store.with_name(f"{options.store.stem}.dev-{digest_of(to_score)[:8]}.jsonl")
    found = label(
        teacher,
        to_score,
        store=store,
        relabel=options.relabel,
        show_progress_bar=True,
        say=output.say,
    )
    scored = iter(found)
    output.say(f"The teacher's scores of {len(found):,} dev examples are in {store}")
    for place, example in enumerate(examples):
        if example.negatives:
            own = next(scored)
            examples[place] = replace(example, negatives=own.negatives, scores=own.scores)
    return examples


def methods_of(options: DistilOptions) -> list[Method]:
    """The methods that find pairs."""
    from polyrank.training.negatives import methods

    made: list[Method] = []
    for name in dict.fromkeys(options.pairs):
        if name == "random":
            made.append(methods.random_method())
        elif name == "dialogue":
            made.append(methods.dialogue_method())
        elif name == "bm25":
            made.append(methods.bm25_method(options.bm25, show_progress_bar=True))
        elif name == "model":
            assert options.retriever is not None
            made.append(methods.model_method(load(options.retriever, options)))
    return made

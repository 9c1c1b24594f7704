"""A student learns to score as its teachers do: `polyrank.distil`.

Knows what the arguments mean; other modules label and train.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from polyrank.config import with_keywords
from polyrank.data.loading import Data, load_examples
from polyrank.data.memory import name_of
from polyrank.errors import UsageError
from polyrank.models.base import Model
from polyrank.models.two_tower import TwoTower
from polyrank.progress import Say
from polyrank.records import Example, LabelledPair
from polyrank.retrieval.bm25.config import BM25Config
from polyrank.training import processes
from polyrank.training.config import TrainingConfig
from polyrank.training.given import (
    ELSEWHERE,
    dev_of,
    objective_given,
    require_model,
    require_settings,
)
from polyrank.training.model_card import Provenance
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.negatives.methods import method_of
from polyrank.training.negatives.mine import Candidates, candidates_of, opened
from polyrank.training.negatives.pool import Pool
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.result import TrainingResult
from polyrank.training.run import listener, train
from polyrank.training.teaching.lessons import Lesson, taught_objective

LARGE = 10_000
"""Examples from which on the teacher's labels are kept in a file, unless one is given."""
HIDDEN = (
    ("config", "num_negatives"),
    ("negatives", "seed"),
    ("negatives", "missing"),
)
"""Settings that have another meaning here, or none."""


def distil(
    student: TwoTower,
    teacher: Any,
    examples: Data,
    output: str | Path,
    *,
    pairs: Sequence[str] | None = None,
    retriever: TwoTower | str | Path | None = None,
    candidates: Candidates | None = None,
    in_batch: bool = False,
    labels: str | Path | None = None,
    relabel: bool = False,
    config: TrainingConfig | None = None,
    objective: ObjectiveConfig | str | None = None,
    negatives: NegativesConfig | None = None,
    bm25: BM25Config | None = None,
    dev: Data | None = None,
    dev_candidates: int | Literal["all"] | None = None,
    restart: bool = False,
    show_progress_bar: bool = True,
    say: Say | None = None,
    **settings: Any,
) -> TrainingResult:
    """Train a bi- or poly-encoder to score as a cross-encoder does, and save it to a folder.

    The teacher scores each response and its negatives once; the student learns these scores by
    `margin_mse`, or by `kl`. From labelled pairs, new pairs are made and labelled by the teacher,
    and the student is trained on both (Augmented SBERT). Several teachers count as one: `kl` and
    `in_batch` take the mean of their distributions, `margin_mse` the mean of their scores.

    Args:
        student: The bi- or poly-encoder that is trained, in place.
        teacher: A model that gives one score for a pair, best a cross-encoder, or its folder; or a
            list of several. From labelled pairs, a cross-encoder.
        examples: Examples or labelled pairs of any kind, as for `load_examples`.
        output: The folder for the student; a model there is replaced when the run is complete.
        pairs: What the teacher scores besides the responses: the negatives of the examples
            (`given`), and such as `mine` finds (`random`, `dialogue`, `bm25`, `model`). By default
            `given` where examples have negatives, else `random`.
        retriever: The bi- or poly-encoder of the pairs `model`, or its folder.
        candidates: The texts to take negatives from, or their file; by default the responses.
        in_batch: Let the teacher score the candidates of each step instead of pairs beforehand:
            all, or `teacher_candidates` of each context.
        labels: A JSONL file that keeps the teacher's labels for later runs; each of several
            teachers has a file of its own beside it. By default they stay in memory, and those of
            10,000 examples or more in OUTPUT.labels.jsonl.
        relabel: Discard the labels in the file and score again.
        config: All settings of the training, instead of keywords.
        objective: The name of the loss, or all settings of the objective.
        negatives: All settings of the pairs, instead of keywords.
        bm25: Settings of BM25.
        dev: What chooses the best checkpoint, as for `train`.
        dev_candidates: Candidates of each dev example that has none, as for `train`.
        restart: Discard an unfinished run of the same output.
        show_progress_bar: Show on standard error how far the work is; False is silent.
        say: Gets the lines that are otherwise printed on standard error.
        **settings: Any field of `TrainingConfig`, `ObjectiveConfig` and `NegativesConfig`, such as
            `epochs=3`, `batch_size=64`, `num_negatives=4`.

    Returns:
        What the run did: its steps, time and dev figures; `print` shows them.

    Raises:
        UsageError: A setting is unknown or given twice, the teacher cannot teach this student, or
            the labels in the file are others.
        DataError: The data cannot be read, or no negative was found.
        TrainingError: The loss is not finite or has diverged.
        StorageError: The model or the labels cannot be written.
    """
    say = listener(say, show_progress_bar)
    if not isinstance(student, TwoTower):
        raise UsageError(
            f"The student must be a bi- or poly-encoder, got a {type(student).__name__}.",
            "Load one first, for example with BiEncoder.from_pretrained(path).",
        )
    student.require_weights("be trained")
    processes.connect(student.device.type)
    settings, objective = objective_given(objective, settings)
    for name, given, cls in (
        ("config", config, TrainingConfig),
        ("negatives", negatives, NegativesConfig),
    ):
        require_settings(name, given, cls)
    made = with_keywords(
        "distil()",
        settings,
        hidden=HIDDEN,
        elsewhere=ELSEWHERE,
        config=config or TrainingConfig,
        objective=objective or ObjectiveConfig,
        negatives=negatives or NegativesConfig,
    )
    run: TrainingConfig = made["config"]
    records = load_examples(examples, say=say)
    of_pairs = isinstance(records[0], LabelledPair)
    taught = taught_objective(made["objective"], of_pairs=of_pairs, in_batch=in_batch)
    found = dev_of(dev, dev_candidates, student.architecture, run.seed, say)
    teachers = teachers_given(teacher)
    if not in_batch:
        chosen = chosen_pairs(pairs, records, say)
        lesson = Lesson(
            teachers=teachers,
            names=names_of(teachers),
            objective=taught,
            methods=[
                method_of(
                    one,
                    retriever=opened(retriever),
                    bm25=bm25,
                    show_progress_bar=show_progress_bar,
                )
                for one in chosen
                if one != "given"
            ],
            given="given" in chosen,
            settings=replace(made["negatives"], seed=run.seed),
            store=store_of(labels, Path(output), len(records)),
            relabel=relabel,
            show_progress_bar=show_progress_bar,
        )
        data: Any = records
        if not of_pairs:
            own: Any = [] if candidates is None else candidates_of(candidates)
            data = Pool.of_examples(data, own)
        records, found = processes.run_on_first(
            lambda: (lesson.label(data, say), lesson.label_dev(found, say))
        )
    return train(
        student,
        records,
        output,
        run,
        objective=taught,
        dev=found,
        teacher=teachers if in_batch else None,
        restart=restart,
        show_progress_bar=show_progress_bar,
        say=say,
        provenance=Provenance(train=name_of(examples), dev=name_of(dev)),
    )


def teachers_given(teacher: Any) -> list[Model]:
    """The teachers, loaded. Raises UsageError where there is none, or something else."""
    listed = teacher if isinstance(teacher, (list, tuple)) else [teacher]
    if not listed:
        raise UsageError("There is no teacher.", "Give a model, its folder, or a list of several.")
    teachers = [opened(one) for one in listed]
    for one in teachers:
        require_model(one, "teacher")
    return teachers


def names_of(teachers: Sequence[Model]) -> list[str]:
    """What people call each teacher: its folder, or its number."""
    unnamed = ["the teacher"]
    if len(teachers) > 1:
        unnamed = [f"teacher {number}" for number in range(1, len(teachers) + 1)]
    return [name_of(one) or other for one, other in zip(teachers, unnamed, strict=True)]


def chosen_pairs(
    pairs: Sequence[str] | None, records: Sequence[Example] | Sequence[LabelledPair], say: Say
) -> tuple[str, ...]:
    """What the teacher scores, each once; people are told what was chosen for them."""
    if isinstance(pairs, str):
        return (pairs,)
    if pairs is not None:
        return tuple(dict.fromkeys(pairs))
    if any(isinstance(one, Example) and one.negatives for one in records):
        return ("given",)
    say("The data have no negatives: the teacher scores random ones. Choose others with pairs.")
    return ("random",)


def store_of(labels: str | Path | None, output: Path, count: int) -> Path | None:
    """Where the labels of so many examples are kept; None for memory alone."""
    if labels is not None:
        return Path(labels)
    return output.with_name(f"{output.name}.labels.jsonl") if count >= LARGE else None

"""What `polyrank train` trains and evaluates on: its records, as the architecture takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polyrank.cli import data
from polyrank.cli.output import Output
from polyrank.progress import silent

if TYPE_CHECKING:
    from polyrank.cli.train import TrainOptions
    from polyrank.records import Example, LabelledPair, RetrievalSet

    Records = Sequence[Example] | Sequence[LabelledPair]
    Dev = Records | RetrievalSet


def load_data(options: TrainOptions, output: Output | None = None) -> tuple[Records, Dev]:
    """The training records and the dev records; without an output, nothing is said."""
    examples = data.load_training(
        options.train,
        options,
        split=options.train_split,
        share=options.sample,
        limit=options.limit,
        say=silent if output is None else output.say,
    )
    return examples, [] if output is None else load_dev(options, output)


def load_dev(options: TrainOptions, output: Output) -> Dev:
    """The dev records: examples with candidates, labelled pairs or a whole corpus."""
    from polyrank.records import RetrievalSet
    from polyrank.training.dev_data import dev_examples

    if options.dev is None:
        return []
    found = data.load_records(options.dev, options, split=options.dev_split, say=output.say)
    of_pairs = not isinstance(found, RetrievalSet) and is_pairs(found)
    if of_pairs and options.dev_candidates is not None:
        output.warn("--dev-candidates has no effect on labelled pairs.")
    return dev_examples(
        found,
        options.dev_candidates,
        limit=options.dev_limit,
        seed=options.training.seed,
        name=options.dev.name,
        say=output.say,
    )


def with_dev_candidates(options: TrainOptions, dev: Records, source: Records) -> Dev | None:
    """Held-out records with candidates from all responses; None if there are too few of these."""
    from polyrank.errors import DataError
    from polyrank.evaluation.tasks import with_all_candidates
    from polyrank.training.dev_data import drawn

    if is_pairs(dev):
        return dev
    examples: Any = dev
    everything: Any = source
    number = options.dev_candidates
    if number == "all":
        return with_all_candidates(examples, options.train.name, source=everything)
    try:
        return drawn(examples, number, options.training.seed, everything)[0]
    except DataError:
        if number is not None:
            raise
    return None


def how_good(figures: Mapping[str, float], dev: Dev) -> str | None:
    """What the dev figures mean, in words; None for data without figures that have some."""
    if not isinstance(dev, Sequence):
        return None
    if "accuracy" in figures:
        return f"It told the class of {figures['accuracy']:.0%} of {len(dev):,} dev pairs."
    if "spearman" in figures:
        return (
            f"Its scores of {len(dev):,} dev pairs follow their labels with a rank correlation of "
            f"{figures['spearman']:.2f}, where 1 is perfect."
        )
    if "recall@1" not in figures:
        return None
    examples: Any = dev
    fewest = min(len(example.candidates) for example in examples)
    most = max(len(example.candidates) for example in examples)
    count = f"{most}" if fewest == most else f"{fewest} to {most}"
    return (
        f"For {figures['recall@1']:.0%} of {len(dev):,} dev contexts, it put the right response "
        f"first among {count}; by chance that would be {100 / most:.0f}%."
    )


def dev_for(options: TrainOptions, dev: Dev, output: Output) -> Dev:
    """The dev records as the architecture takes them."""
    from polyrank.training import dev_data

    return dev_data.dev_for(
        dev,
        options.arch,
        options.dev_candidates,
        limit=options.dev_limit,
        seed=options.training.seed,
        say=output.say,
    )


def described(dev: Dev) -> str:
    """How many dev records there are."""
    if isinstance(dev, Sequence):
        return f"{len(dev):,}"
    return f"{len(dev.queries):,} questions of {len(dev.corpus):,} documents"


def is_pairs(records: Records) -> bool:
    """Whether the records are labelled pairs."""
    from polyrank.training.objectives.objective import records_of

    return records_of(records) == "pairs"

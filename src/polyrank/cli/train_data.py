"""What `polyrank train` trains and evaluates on: its records, as the architecture takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polyrank.cli import data
from polyrank.cli.output import Output

if TYPE_CHECKING:
    from polyrank.cli.train import TrainOptions
    from polyrank.records import Example, LabelledPair, RetrievalSet

    Records = Sequence[Example] | Sequence[LabelledPair]
    Dev = Records | RetrievalSet


def load_data(options: TrainOptions, output: Output) -> tuple[Records, Dev]:
    """The training records and the dev records."""
    examples = data.load_training(
        options.train,
        options,
        split=options.train_split,
        share=options.sample,
        limit=options.limit,
        say=output.say,
    )
    return examples, load_dev(options, output)


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

"""What `polyrank train` trains and evaluates on: its records, as the architecture takes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from polyrank.cli import data
from polyrank.cli.output import Output

if TYPE_CHECKING:
    from polyrank.cli.train import TrainOptions
    from polyrank.records import Example, LabelledPair, RetrievalSet

    Records = Sequence[Example] | Sequence[LabelledPair]
    Dev = Records | RetrievalSet

DEV_CANDIDATES = 20


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
    from polyrank.evaluation.tasks import with_all_candidates, with_sampled_candidates
    from polyrank.records import RetrievalSet

    if options.dev is None:
        return []
    found = data.load_records(options.dev, options, split=options.dev_split, say=output.say)
    if isinstance(found, RetrievalSet):
        return found
    everything: Any = found
    if is_pairs(everything):
        if options.dev_candidates is not None:
            output.warn("--dev-candidates has no effect on labelled pairs.")
        return cast("Records", everything[: options.dev_limit])
    if options.dev_candidates == "all":
        return with_all_candidates(everything, options.dev.name)
    return with_sampled_candidates(
        everything[: options.dev_limit],
        options.dev_candidates or DEV_CANDIDATES,
        options.training.seed,
        source=everything,
    )


def dev_for(options: TrainOptions, dev: Dev, output: Output) -> Dev:
    """The dev records as the architecture takes them: a corpus becomes examples with drawn
    candidates for a cross-encoder, which cannot search, and where so many were asked for.
    """
    from polyrank.evaluation.tasks import with_sampled_candidates
    from polyrank.records import Example

    if isinstance(dev, Sequence):
        return dev
    number, questions = options.dev_candidates, dev.first(options.dev_limit)
    if options.arch != "cross" and not isinstance(number, int):
        return questions
    count = number if isinstance(number, int) else DEV_CANDIDATES
    if options.arch == "cross":
        output.say(
            f"A cross-encoder cannot search a corpus: each dev question gets {count} candidates, "
            "drawn from it."
        )
    documents = (Example(context=each.text, response=each.text) for each in dev.corpus)
    return with_sampled_candidates(
        list(questions.examples()),
        count,
        options.training.seed,
        source=[*dev.examples(), *documents],
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

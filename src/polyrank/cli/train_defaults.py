"""What `polyrank train` chooses where nothing was said: architecture, base and dev data; and why.

Knows options and records; loads and trains nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from polyrank.cli.output import Output
from polyrank.cli.train_data import with_dev_candidates
from polyrank.config import field_types
from polyrank.data.sampling import hold_out, parse_share
from polyrank.models.config import CONFIGS
from polyrank.progress import Say
from polyrank.training.objectives.registry import OBJECTIVES

if TYPE_CHECKING:
    from polyrank.cli.train import TrainOptions
    from polyrank.cli.train_data import Dev, Records

    Chosen = TypeVar("Chosen", bound=TrainOptions)

Architecture = Literal["bi", "poly", "cross"]
REASONS = {
    "examples": (
        ("poly", "it ranks better than a bi-encoder and is indexed and searched like one"),
        ("bi", "it is indexed and searched fastest"),
        ("cross", "it ranks best, but cannot be indexed"),
    ),
    "classes": (
        ("cross", "it reads both texts at once, which tells classes best"),
        ("bi", "it learns classes too"),
    ),
    "scores": (
        ("bi", "its cosines learn the scores, and it can be indexed"),
        ("poly", "it can learn scores"),
        ("cross", "it reads both texts at once"),
    ),
}
"""The architectures that can learn from each kind of data, the recommended first."""
FEWEST = 200
"""Training examples of which none are held out: a tenth of fewer would measure little."""
MOST = 1000
LOOKED_AT = 1000
"""Records whose letters are counted, spread over all."""
LATIN = ("\u0250", "\u1e00", "\u1f00")
"""Letters below the first are Latin, and those from the second to before the third."""


def is_missing(value: object) -> bool:
    """Whether an architecture or a base is still to be chosen."""
    return value is None


def with_choices(options: Chosen, examples: Records | None, say: Say) -> Chosen:
    """The options with an architecture and a base, chosen by the records where none was given.

    Without records, what would be chosen for examples in English. People are told what and why.
    """
    if is_missing(options.arch):
        arch, why = architecture_for(options, examples)
        options = replace(options, arch=arch)
        say(f"Architecture: {arch}, since {why} (--arch bi, poly, cross or all).")
    return with_base(options, examples, say)


def with_base(options: Chosen, examples: Records | None, say: Say) -> Chosen:
    """The options with a base."""
    from polyrank.models.source import HUB_ID, MULTILINGUAL, REQUIREMENT, comes_from_package

    if not is_missing(options.base):
        return options
    if examples is None or is_mostly_latin(examples):
        place = (
            f", from the package {REQUIREMENT.partition('=')[0]}" if comes_from_package() else ""
        )
        say(
            f"Base: {HUB_ID}, a small encoder for English{place}. For other languages, give "
            f"--base {MULTILINGUAL}."
        )
        return replace(options, base=HUB_ID)
    say(
        f"Base: {MULTILINGUAL}, since most letters are not Latin; it knows about 50 languages "
        "(--base MODEL)."
    )
    return replace(options, base=MULTILINGUAL)


def architecture_for(options: TrainOptions, examples: Records | None) -> tuple[Architecture, str]:
    """The recommended architecture that suits the records, the base and the settings; and why."""
    saved = architecture_of(options.base)
    if saved is not None:
        return saved
    listed = REASONS[kind_of(examples)]
    suited = [one for one in listed if suits(one[0], options)] or listed
    return suited[0]  # type: ignore[return-value]


def suits(architecture: str, options: TrainOptions) -> bool:
    """Whether an architecture has the settings and the objective that were given."""
    name = options.objective.objective
    learns = name == "auto" or architecture in OBJECTIVES[name].architectures
    return learns and set(options.model) <= set(field_types(CONFIGS[architecture]))


def architecture_of(base: str | None) -> tuple[Architecture, str] | None:
    """The architecture that a base on this machine has already, and the words for it."""
    if base is None or not Path(base).exists():
        return None
    from polyrank.models.default_head import ranker_of
    from polyrank.models.description import read_description
    from polyrank.models.static.embeddings import is_static

    folder = Path(base)
    description = read_description(folder)
    if is_static(folder):
        return "bi", "static embeddings have one vector per text"
    if description is not None:
        return description.architecture, "the base has it"  # type: ignore[return-value]
    return ("cross", "the base is a reranker") if ranker_of(folder) else None


def kind_of(examples: Records | None) -> str:
    """What an architecture learns from: examples, classes or scores."""
    from polyrank.cli.train_data import is_pairs

    if examples is None or not is_pairs(examples):
        return "examples"
    labels: Any = examples
    return "classes" if isinstance(labels[0].label, int) else "scores"


def is_mostly_latin(examples: Sequence[Any]) -> bool:
    """Whether most letters of the texts are Latin; so it is where there are none."""
    step = max(len(examples) // LOOKED_AT, 1)
    letters = [
        sign
        for one in examples[::step]
        for text in texts_of(one)
        for sign in text
        if sign.isalpha()
    ]
    return 2 * sum(map(is_latin, letters)) >= len(letters)


def is_latin(sign: str) -> bool:
    """Whether a letter is Latin."""
    return sign < LATIN[0] or LATIN[1] <= sign < LATIN[2]


def texts_of(record: Any) -> list[str]:
    """The texts of an example or a labelled pair."""
    first, second = (
        (record.context, record.response)
        if hasattr(record, "context")
        else (record.first, record.second)
    )
    return [*([first] if isinstance(first, str) else first), second]


def held_out(
    options: TrainOptions, examples: Records, dev: Dev, output: Output
) -> tuple[Records, Dev]:
    """The training records and the dev records, some held out where no dev data were given."""
    if options.dev is not None:
        if options.dev_share != "auto":
            output.warn("--dev-share has no effect with --dev.")
        return examples, dev
    if options.dev_share == "none" or (options.dev_share == "auto" and options.recipe):
        return examples, dev  # a recipe is for the data of its paper
    if options.dev_share == "auto":
        size = min(len(examples) // 10, MOST) if len(examples) >= FEWEST else 0
    else:
        size = round(parse_share(options.dev_share) * len(examples))
    records: Any = examples
    kept, others = hold_out(records, size, options.share_seed, group=context_of)
    found = with_dev_candidates(options, others, examples) if kept and others else None
    if not found:
        output.say(
            f"Dev data: none, since {len(examples):,} {called(examples)} are too few to hold some "
            "out. Give others with --dev FILE."
        )
        return examples, dev
    output.say(
        f"Dev data: {len(others):,} of the {len(examples):,} {called(examples)} are held out, to "
        "choose the best checkpoint (--dev FILE, or --dev-share none to train on all)."
    )
    return kept, found


def context_of(record: Any) -> int:
    """What records that belong together share: the context, or the first text of a pair."""
    from polyrank.data.answers import text_identity

    context = record.context if hasattr(record, "context") else record.first
    return text_identity(context)


def called(records: Records) -> str:
    """What people call the records."""
    return "examples" if kind_of(records) == "examples" else "labelled pairs"


def say_steps(options: TrainOptions, examples: Records, output: Output) -> None:
    """Say how long the training is, where no number of steps was given."""
    training = options.training
    if training.max_steps is None:
        output.say(
            f"Training: {training.epochs:g} epochs of {len(examples):,} {called(examples)}, "
            f"{training.batch_size} at a time (--epochs, --batch-size)."
        )

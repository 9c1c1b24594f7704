"""`polyrank train`: a bi-, poly- or cross-encoder from examples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from polyrank.cli.command import command
from polyrank.cli.models import ModelOptions, set_batch_tokens
from polyrank.cli.options import any_of, flattened, option
from polyrank.cli.output import Output
from polyrank.config import field_types, require
from polyrank.models.config import (
    CONFIGS,
    BiEncoderConfig,
    CrossEncoderConfig,
    PolyEncoderConfig,
)
from polyrank.training.config import TrainingConfig

if TYPE_CHECKING:
    from polyrank.records import Example

ARCHITECTURES = {"bi": "bi-encoder", "poly": "poly-encoder", "cross": "cross-encoder"}
DEV_CANDIDATES = 20


@dataclass(frozen=True, kw_only=True)
class TrainOptions(ModelOptions):
    """Options of `polyrank train`."""

    arch: Literal["bi", "poly", "cross"] = option(help="The architecture.")
    base: str = option(
        help="What to start from: the folder or hub id of an encoder, a sentence-transformers "
        "folder, or a saved polyrank model.",
        metavar="MODEL",
    )
    train: Path = option(help="JSONL of examples with context and response.")
    dev: Path | None = option(
        None, help="JSONL of examples to choose the best checkpoint by; the last one without it."
    )
    output: Path = option(help="The folder of the trained model; a model there is replaced.")
    limit: int | None = option(None, help="Use only the first N training examples.")
    dev_limit: int | None = option(None, help="Use only the first N dev examples.")
    restart: bool = option(False, help="Discard an unfinished run of the same output.")
    model: dict[str, Any] = any_of(BiEncoderConfig, PolyEncoderConfig, CrossEncoderConfig)
    training: TrainingConfig = flattened()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("limit", "dev_limit"):
            value = getattr(self, name)
            flag = "--" + name.replace("_", "-")
            require(value is None or value >= 1, flag, "at least 1", value)


def interrupted(options: TrainOptions) -> str:
    """The words after Ctrl-C."""
    return (
        f"What stood at {options.output} before is unchanged, and the last checkpoint is kept: "
        "run the same command again to go on."
    )


@command("train", TrainOptions, interrupted=interrupted)
def train(options: TrainOptions, output: Output) -> None:
    """Train a bi-, poly- or cross-encoder on contexts and their responses.

    An interrupted run goes on from its last checkpoint when it is started again.
    """
    from polyrank.data.examples import load_examples

    examples = load_examples(options.train, limit=options.limit)
    dev = load_dev(options)

    from polyrank.models.checkpoint import ARCHITECTURES as CLASSES
    from polyrank.runtime import set_seed
    from polyrank.training.run import train as run

    settings = settings_of(options, output)
    set_seed(options.training.seed)
    model = CLASSES[options.arch].from_pretrained(
        options.base, device=options.device, dtype=options.dtype, **settings
    )
    set_batch_tokens(model, options)
    output.say(
        f"Training a {ARCHITECTURES[options.arch]} on {len(examples):,} examples, "
        f"{len(dev):,} for dev, on {model.device.type} in "
        f"{str(model.compute_dtype).removeprefix('torch.')}"
    )
    result = run(
        model,
        examples,
        options.output,
        options.training,
        dev=dev,
        restart=options.restart,
        say=output.say,
    )
    output.say(f"Trained in {result.seconds:.0f} s; the model of step {result.best_step} is in")
    output.say(f"  {options.output}")
    data = options.dev or "FILE"
    output.say(f"Evaluate it with: polyrank evaluate {options.output} --data {data}")
    output.result(
        {
            "output": options.output,
            "architecture": options.arch,
            "steps": result.steps,
            "pairs": result.pairs,
            "seconds": result.seconds,
            "best_step": result.best_step,
            "dev": result.figures,
        }
    )


def load_dev(options: TrainOptions) -> list[Example]:
    """The dev examples, with drawn candidates where they have none."""
    from polyrank.data.examples import load_examples
    from polyrank.evaluation.sampling import with_sampled_candidates

    if options.dev is None:
        return []
    everything = load_examples(options.dev)
    pool = (example.response for example in everything)
    examples = everything[: options.dev_limit]
    return with_sampled_candidates(examples, DEV_CANDIDATES, options.training.seed, pool=pool)


def settings_of(options: TrainOptions, output: Output) -> dict[str, Any]:
    """The model settings that were given; ones of another architecture warn and have no effect."""
    known = field_types(CONFIGS[options.arch])
    for name in options.model:
        if name not in known:
            flag = "--" + name.replace("_", "-")
            output.warn(f"{flag} has no effect on a {ARCHITECTURES[options.arch]}.")
    return {name: value for name, value in options.model.items() if name in known}

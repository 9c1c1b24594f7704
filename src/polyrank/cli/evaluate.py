"""`polyrank evaluate`: a model's recall@k and MRR on a file of examples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank.cli.command import command
from polyrank.cli.models import ModelOptions, load
from polyrank.cli.options import option, positional
from polyrank.cli.output import Output
from polyrank.config import require
from polyrank.errors import UsageError

if TYPE_CHECKING:
    from polyrank.evaluation.evaluate import EvaluationResult
    from polyrank.records import Example

DEFAULT_NUM_CANDIDATES = 20


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ModelOptions):
    """Options of `polyrank evaluate`."""

    model: Path = positional("MODEL", help="The folder of a saved model.")
    data: Path = option(
        help="JSONL of examples with context, response and, optionally, candidates."
    )
    num_candidates: int | None = option(
        None,
        help="Candidates, the response included, of each example that has none of its own: the "
        f"others are drawn from the responses of the file; {DEFAULT_NUM_CANDIDATES} by default.",
    )
    limit: int | None = option(None, help="Use only the first N examples.")
    ks: tuple[int, ...] = option((1, 2, 5, 10), help="The k of recall@k.")
    seed: int = option(0, help="Seed of the drawn candidates.")
    output: Path | None = option(None, help="Write what each example scored to this JSONL file.")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.limit is None or self.limit >= 1, "--limit", "at least 1", self.limit)
        if not self.ks or any(k < 1 for k in self.ks):
            raise UsageError(f"--ks must be whole numbers from 1, got {self.ks}.", "Change them.")


@command("evaluate", EvaluateOptions)
def evaluate(options: EvaluateOptions, output: Output) -> None:
    """Rank the candidates of examples with a model: recall@k of C candidates, and MRR.

    Ties count at chance. Examples without candidates get the same ones for the same seed.
    """
    examples = load_with_candidates(options, output)

    from polyrank.evaluation import evaluate as evaluation

    model = load(options.model, options)
    result = evaluation.evaluate(model, examples, ks=options.ks, progress=True)
    if options.output is not None:
        write_per_query(options.output, result)
    fewest = result.num_candidates[0]
    left_out = [k for k in options.ks if k not in result.recall]
    if left_out:
        listed = ", ".join(f"recall@{k}" for k in left_out)
        output.warn(f"{listed} left out: an example has only {fewest} candidates.")
    output.say(f"{options.model} on {options.data}")
    output.say(f"{result.num_examples:,} examples, C = {result.candidates_text} candidates each")
    for name, value in result.named().items():
        output.say(f"  {name:<10} {value:.4f}")
    if options.output is not None:
        output.say(f"Every example's own scores: {options.output}")
    output.result(summary(options, result))


def load_with_candidates(options: EvaluateOptions, output: Output) -> list[Example]:
    """The examples, with candidates drawn from the whole file for those that have none."""
    from polyrank.data.examples import load_examples
    from polyrank.evaluation.sampling import with_sampled_candidates

    everything = load_examples(options.data)
    examples = everything[: options.limit]
    if all(example.candidates is not None for example in examples):
        if options.num_candidates is not None:
            output.warn("--num-candidates has no effect: every example has its own candidates.")
        return examples
    count = DEFAULT_NUM_CANDIDATES if options.num_candidates is None else options.num_candidates
    pool = (example.response for example in everything)
    return with_sampled_candidates(examples, count, options.seed, pool=pool)


def write_per_query(path: Path, result: EvaluationResult) -> None:
    """One JSON object an example, replacing the file at once."""
    import json

    from polyrank.storage import write_text

    rows = (json.dumps(row, ensure_ascii=False) + "\n" for row in result.per_query.rows())
    write_text(path, "".join(rows))


def summary(options: EvaluateOptions, result: EvaluationResult) -> dict[str, Any]:
    """What --json prints."""
    return {
        "model": options.model,
        "data": options.data,
        **result.to_json(),
        "seed": options.seed,
        "per_query": options.output,
    }

"""`polyrank predict`: a model's scores or classes of texts, one line for each input."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from polyrank.cli.command import command
from polyrank.cli.data import DataOptions, columns_of
from polyrank.cli.options import InferenceOptions, SourceOptions, load, option, positional
from polyrank.cli.output import Output
from polyrank.config import require
from polyrank.display.words import span
from polyrank.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polyrank.progress import Say
    from polyrank.records import ScoringInput

STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True, kw_only=True)
class PredictOptions(DataOptions, SourceOptions, InferenceOptions):
    """Options of `polyrank predict`."""

    model: Path = positional("MODEL", help="The folder of a saved model, of any architecture.")
    data: Path = option(
        help="Contexts with candidates, or pairs of texts, in any format. Labels are not needed. "
        "In a BEIR folder, the judged documents are scored."
    )
    output: Path = option(
        STANDARD_OUTPUT,
        help="The JSONL file for the predictions; an existing file is replaced. - prints them.",
    )
    kind: Literal["auto", "scores", "classes"] = option(
        "auto",
        help="What to predict. auto is classes for a model that was trained on classes, and "
        "scores otherwise.",
    )
    split: str | None = option(
        None, help="The split to use, if the data have several. By default, test."
    )
    limit: int | None = option(None, help="Predict only for the first N contexts or pairs.")
    restart: bool = option(False, help="Discard an unfinished prediction of the same output.")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.limit is None or self.limit >= 1, "--limit", "at least 1", self.limit)


def interrupted(options: PredictOptions) -> str:
    """The words after Ctrl-C."""
    if options.output == STANDARD_OUTPUT:
        return "The lines that were printed are whole."
    return (
        f"What stood at {options.output} before is unchanged, and the predictions so far are kept: "
        "run the same command again to resume."
    )


@command("predict", PredictOptions, interrupted=interrupted)
def predict(options: PredictOptions, output: Output) -> None:
    """Score or classify texts, one line of JSON per input.

    The lines have the order of the data. A line has `row`, from 1, and the `id` of its input. A
    pair has its `score`, or its `class` and the `probabilities` of all classes; a context with
    candidates has `scores`, or `classes` and `probabilities`, in their order. The data are read as
    they are needed, so they may be of any size. An interrupted prediction into a file resumes when
    it is started again.
    """
    to_file = options.output != STANDARD_OUTPUT
    if not to_file and output.json:
        raise UsageError(
            "--json prints one object, and without --output the predictions are printed.",
            "Give the file for the predictions with --output, or leave --json out.",
        )
    if not to_file and options.restart:
        output.warn("--restart has no effect without --output.")
    words = output if to_file else Output(json=True)  # the lines alone are on standard output
    model = load(options.model, options, revision=options.revision)
    inputs = read(options, words.say)
    if to_file:
        write(options, model, inputs, output)
        return

    from itertools import islice

    from polyrank.evaluation import prediction

    for rows in prediction.predict(model, islice(inputs, options.limit), kind=options.kind):
        sys.stdout.write("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))
        sys.stdout.flush()


def read(options: PredictOptions, say: Say) -> Iterator[ScoringInput]:
    """What is to be scored."""
    from polyrank.data.scoring_inputs import read_scoring_inputs

    return read_scoring_inputs(
        options.data,
        format=options.format,
        split=options.split,
        columns=columns_of(options),
        say=say,
    )


def write(
    options: PredictOptions, model: Any, inputs: Iterator[ScoringInput], output: Output
) -> None:
    """Write the predictions to a file, and say what is there."""
    from polyrank.data.scoring_inputs import identity_of
    from polyrank.evaluation.prediction import resolve_kind, write_predictions

    kind = resolve_kind(model, options.kind)
    found = write_predictions(
        model,
        inputs,
        options.output,
        data=identity_of(options.data),
        reading={
            "format": options.format,
            "split": options.split,
            "columns": list(options.columns),
        },
        kind=kind,
        limit=options.limit,
        restart=options.restart,
        show_progress_bar=True,
        say=output.say,
    )
    output.say(
        f"{found.num_pairs:,} {kind} in {found.num_rows:,} rows: {options.output}, "
        f"{span(output.seconds)}"
    )
    output.result(
        {
            "output": options.output,
            "model": options.model,
            "data": options.data,
            "kind": kind,
            "classes": model.classes if kind == "classes" else None,
            "num_rows": found.num_rows,
            "num_pairs": found.num_pairs,
        }
    )

"""A model's predictions for texts, a score or a class for each: block by block, also into a file.

A block is a few thousand pairs, which the model batches by their tokens, so memory does not grow
with the data. Knows neither files of data nor right answers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from polyrank.errors import DataError, ModelError, UsageError
from polyrank.evaluation.ranking import score_candidates
from polyrank.jobs import Job, working
from polyrank.models.base import Model
from polyrank.progress import Say, bar, silent, watched
from polyrank.records import Example, ScoringInput

BLOCK = 4096
"""At most this many pairs are scored, and written, at once, but at least one input."""
WORDS = {
    "model": "another model",
    "dtype": "another precision",
    "data": "other data",
    "reading": "data that were read in another way",
    "kind": "another kind of prediction ({})",
    "limit": "another limit ({})",
}

Kind = Literal["auto", "scores", "classes"]
Row = dict[str, Any]
"""A prediction, JSON-ready."""


@dataclass(frozen=True, kw_only=True)
class PredictionResult:
    """What was predicted."""

    num_rows: int
    num_pairs: int
    """The scores or classes in all rows."""


def resolve_kind(model: Model, kind: Kind) -> Literal["scores", "classes"]:
    """What the model predicts: by default classes, if it has a classifier, and else scores.

    Raises UsageError for what it cannot predict.
    """
    if kind == "auto":
        return "scores" if model.classes is None else "classes"
    if kind == "classes" and model.classes is None:
        raise UsageError(
            "The model has no classifier, so it has no classes.",
            "Ask for scores, or give a model that was trained on classes.",
        )
    if kind == "scores" and getattr(model.config, "task", None) == "classify":
        raise UsageError(
            "The model predicts classes, not scores.",
            "Ask for classes, or give a model that ranks or regresses.",
        )
    return kind


def predict(
    model: Model,
    inputs: Iterable[ScoringInput],
    *,
    kind: Kind = "auto",
    start: int = 0,
    block_size: int = BLOCK,
) -> Iterator[list[Row]]:
    """Yield the predictions of each block of inputs, one row for each input, in their order.

    A row has `row`, its number from 1, and the `id` of its input. A pair of texts has `score`; or
    `class` and `probabilities`, by the name of each class. A list of candidates has `scores`, or
    `classes` and `probabilities`, in the order of the candidates, and the ids of these if they have
    any. The first `start` inputs are passed over. Scores are those of `rank` and `score_pairs`.
    Raises UsageError for what the model cannot predict, ModelError for a score that is not a
    number.
    """
    wanted = resolve_kind(model, kind)
    row = start
    for block in blocks(islice(inputs, start, None), block_size):
        yield rows_of(model, block, wanted, row)
        row += len(block)


def blocks(inputs: Iterator[ScoringInput], size: int) -> Iterator[list[ScoringInput]]:
    """Yield runs of inputs with at most `size` pairs, or of one input that has more."""
    block: list[ScoringInput] = []
    count = 0
    for one in inputs:
        if block and count + len(one.candidates) > size:
            yield block
            block, count = [], 0
        block.append(one)
        count += len(one.candidates)
    if block:
        yield block


def rows_of(model: Any, block: Sequence[ScoringInput], kind: str, start: int) -> list[Row]:
    """The rows of a block whose first input has the place `start`, from 0."""
    if kind == "classes":
        found = class_fields(model, block)
    else:
        examples = [
            Example(context=one.context, response=one.candidates[0], candidates=one.candidates)
            for one in block
        ]
        scored = score_candidates(model, examples, show_progress_bar=watched())
        scores = [values.tolist() for values in scored]
        found = [{"scores": values} for values in scores]
    rows = []
    for number, (one, fields) in enumerate(zip(block, found, strict=True), start=start + 1):
        require_numbers(fields, number)
        row: Row = {"row": number}
        row |= {} if one.id is None else {"id": one.id}
        row |= {} if one.candidate_ids is None else {"candidates": list(one.candidate_ids)}
        if one.is_pair:
            fields = {SINGLE.get(name, name): values[0] for name, values in fields.items()}
        rows.append({**row, **fields})
    return rows


SINGLE = {"scores": "score", "classes": "class"}
"""What the fields of several candidates are called for one."""


def class_fields(model: Model, block: Sequence[ScoringInput]) -> list[dict[str, list[Any]]]:
    """For each input, the class of each candidate and the probabilities of all classes."""
    names = model.classes or ()
    pairs = [(one.context, text) for one in block for text in one.candidates]
    values = iter(model.class_probabilities(pairs, show_progress_bar=watched()).tolist())
    found = []
    for one in block:
        rows = list(islice(values, len(one.candidates)))
        found.append(
            {
                "classes": [names[row.index(max(row))] for row in rows],
                "probabilities": [dict(zip(names, row, strict=True)) for row in rows],
            }
        )
    return found


def require_numbers(fields: Mapping[str, list[Any]], row: int) -> None:
    """Raise ModelError where a score or a probability is not a number."""
    values = chain.from_iterable(
        one.values() if isinstance(one, dict) else [one]
        for one in fields.get("scores", fields.get("probabilities", ()))
    )
    if not all(map(math.isfinite, values)):
        raise ModelError(
            f"The model scored a text of row {row} with something that is not a number.",
            "The weights are probably broken: train with a lower learning rate, or load another "
            "checkpoint.",
        )


def write_predictions(
    model: Model,
    inputs: Iterable[ScoringInput],
    output: str | Path,
    *,
    data: str | None,
    reading: Mapping[str, Any],
    kind: Kind = "auto",
    limit: int | None = None,
    restart: bool = False,
    block_size: int = BLOCK,
    show_progress_bar: bool = False,
    say: Say = silent,
) -> PredictionResult:
    """Write the rows of `predict` as JSONL; the file appears when it is complete.

    `data` identifies what `inputs` are read from, and `reading` how; an interrupted call resumes
    where both are the same. Without `data`, nothing is resumed. Raises as `predict`, StorageError,
    and UsageError where unfinished predictions of something else are in the way (unless `restart`).
    """
    wanted = resolve_kind(model, kind)
    job = Job(
        output=Path(output),
        doing="predicting",
        noun="prediction",
        identity={
            "model": model.classes_fingerprint() if wanted == "classes" else model.fingerprint(),
            "dtype": str(model.compute_dtype),
            "data": data,
            "reading": dict(reading),
            "kind": wanted,
            "limit": limit,
        },
        words=WORDS,
    )
    with working(job, restart=restart or data is None) as work:
        journal = work.line_journal()
        done = journal.total("rows")
        if done:
            say(f"Resuming after {done:,} rows.")
        found = predict(
            model, islice(inputs, limit), kind=wanted, start=done, block_size=block_size
        )
        try:
            with bar(
                "Predicting" if show_progress_bar else None, unit="rows", done=done
            ) as advance:
                for rows in found:
                    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
                    journal.append_lines(lines, {"rows": len(rows), "pairs": pairs_in(rows)})
                    advance(len(rows))
        except DataError:
            work.forget()  # the data will be mended, and are others then
            raise
        work.place_file(journal.file)
        return PredictionResult(num_rows=journal.total("rows"), num_pairs=journal.total("pairs"))


def pairs_in(rows: Sequence[Row]) -> int:
    """How many scores or classes some rows have."""
    return sum(len(row.get("scores") or row.get("classes") or [row]) for row in rows)

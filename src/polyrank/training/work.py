"""The folder beside the output in which a run works, and what tells one run from another.

    .lock            held by the run that works here
    run.json         all that the result depends on; written before the first step
    log.jsonl        what has been logged, for whoever wants to look on
    checkpoint-N/    the state after step N; its `trainer_state.json` is written last

Knows nothing of how a run is trained.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from polyrank.config import to_mapping
from polyrank.errors import UsageError
from polyrank.models.base import Model
from polyrank.records import Example, LabelledPair
from polyrank.storage import exclusive, write_text
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.pretraining.corpora import CorpusPairs
from polyrank.training.processes import gather_objects, said_once

RUN = "run.json"
LOCK = ".lock"
STATE = "trainer_state.json"
Records = Sequence[Example] | Sequence[LabelledPair] | CorpusPairs


def work_folder(output: Path) -> Path:
    """Where a run that makes `output` keeps its checkpoints."""
    output = output.absolute()
    return output.with_name(f".{output.name}.training")


def digest_of(records: Records) -> str:
    """The SHA-256 of records, in their order; of pairs of a corpus, what tells them."""
    if isinstance(records, CorpusPairs):
        return records.fingerprint
    digest = hashlib.sha256()
    for record in records:
        digest.update(repr(record).encode())
    return digest.hexdigest()


def identity(
    model: Model,
    examples: Records,
    dev: Records,
    config: TrainingConfig,
    objective: ObjectiveConfig,
) -> dict[str, Any]:
    """All that a run's result depends on, to tell whether an unfinished run is the same."""
    return {
        "architecture": model.config.architecture,
        "training": to_mapping(config),
        "objective": to_mapping(objective),
        "model": model.fingerprint(),
        "dtype": str(model.compute_dtype),
        "examples": digest_of(examples),
        "dev": digest_of(dev),
    }


WORDS = {
    "architecture": "another architecture",
    "training": "other settings",
    "objective": "another objective",
    "model": "another base or other settings of the model",
    "dtype": "another precision",
    "examples": "other training data",
    "dev": "other dev data",
    "teacher": "another teacher",
}


def differences(one: dict[str, Any], other: dict[str, Any]) -> str:
    """In words, in what the runs of two identities differ; settings by name and value."""
    found = []
    for part, words in WORDS.items():
        mine, others = one.get(part), other.get(part)
        if mine == others:
            continue
        if isinstance(mine, dict) and isinstance(others, dict):
            names = [name for name in mine if mine[name] != others.get(name)]
            shown = ", ".join(f"{name} = {others.get(name)}" for name in names[:4])
            words += f" ({shown})"
        elif part == "architecture":
            words += f" ({others})"
            return words
        found.append(words)
    return ", ".join(found) or "something that an older version did not write down"


def require_agreement(identified: dict[str, Any]) -> None:
    """Raise UsageError unless all processes are about to do the same run."""
    everyone = gather_objects(identified)
    odd = next((number for number, one in enumerate(everyone) if one != everyone[0]), None)
    if odd is None:
        return
    raise said_once(
        UsageError(
            f"The processes do not agree on the run: process {odd} has "
            f"{differences(everyone[0], everyone[odd])} than process 0.",
            "Give every process the same files, base and settings.",
        )
    )


@contextmanager
def holding(work: Path) -> Iterator[None]:
    """Hold the work folder, made if it is not there. Raises UsageError if another run has it."""
    problem = f"Another run is training into {work.parent / work.name[1 : -len('.training')]}."
    with exclusive(work / LOCK, problem, "Wait for it, or choose another output."):
        yield


def open_work(work: Path, identified: dict[str, Any], restart: bool) -> Path | None:
    """Write down the run, or find the last whole checkpoint of the same run. Hold the folder."""
    written = work / RUN
    if restart:
        clear(work)
    if not written.is_file():
        clear(work)
        write_text(written, json.dumps(identified, indent=2) + "\n")
        return None
    other = json.loads(written.read_text(encoding="utf-8"))
    if other == identified:
        return last_checkpoint(work)
    raise UsageError(
        f"An unfinished run with {differences(identified, other)} lies in {work}.",
        "Repeat that command to finish it, give --restart to discard it, or choose another output.",
    )


def last_checkpoint(work: Path) -> Path | None:
    """The newest whole checkpoint: its state is written last, and can be read."""
    whole = [path for path in work.glob("checkpoint-*") if is_whole(path)]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def is_whole(checkpoint: Path) -> bool:
    """Whether a checkpoint was written to its end."""
    try:
        return isinstance(json.loads((checkpoint / STATE).read_text(encoding="utf-8")), dict)
    except (OSError, ValueError):
        return False


def clear(work: Path) -> None:
    """Remove all but the lock."""
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != LOCK:
            path.unlink(missing_ok=True)


def discard(work: Path) -> None:
    """Remove the folder of a finished run; its lock last, so that nobody works in half of it."""
    clear(work)
    (work / LOCK).unlink(missing_ok=True)
    try:
        os.rmdir(work)
    except OSError:
        return

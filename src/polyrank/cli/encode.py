"""`polyrank encode`: candidates to vectors in parts, by many processes or machines."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from polyrank.cli.command import command
from polyrank.cli.options import (
    CANDIDATES,
    InferenceOptions,
    SourceOptions,
    load,
    option,
    positional,
)
from polyrank.cli.output import Output
from polyrank.config import require
from polyrank.display.words import took
from polyrank.errors import UsageError

if TYPE_CHECKING:
    from polyrank.retrieval.bulk.encode import EncodedPart

WORDS = {
    "encoded": "encoded",
    "there": "was there",
    "busy": "is being encoded by another process",
}


@dataclass(frozen=True, kw_only=True)
class EncodeOptions(SourceOptions, InferenceOptions):
    """Options of `polyrank encode`."""

    model: Path = positional("MODEL", help="The folder of a saved bi- or poly-encoder.")
    candidates: Path = option(help="The candidates: " + CANDIDATES)
    output: Path = option(
        help="The folder for the parts. All processes share it; finished parts are skipped."
    )
    num_parts: int = option(help="The number of contiguous parts to cut the candidates into.")
    part_index: int | None = option(
        None,
        help="Encode only this part, counted from 0. By default, every part that is missing and "
        "that no other process encodes.",
    )
    storage: Literal["float32", "bfloat16", "float16", "int8"] = option(
        "float32", help="The type of the stored vectors: 4, 2, 2 or 1 bytes per component."
    )
    processes: int = option(
        1,
        help="The number of processes that encode parts on this machine. They share its cores, "
        "or have one GPU each.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.num_parts >= 1, "--num-parts", "at least 1", self.num_parts)
        require(self.processes >= 1, "--processes", "at least 1", self.processes)
        index, last = self.part_index, self.num_parts - 1
        fits = index is None or 0 <= index <= last
        require(fits, "--part-index", f"from 0 to {last}", index)


def interrupted(options: EncodeOptions) -> str:
    """The words after Ctrl-C."""
    return (
        f"The finished parts in {options.output} and the vectors made so far are kept: run the "
        "same command again to resume."
    )


@command("encode", EncodeOptions, interrupted=interrupted)
def encode(options: EncodeOptions, output: Output) -> None:
    """Encode a file of candidates in parts, on one or more machines.

    `polyrank index build --encoded` makes an index of the parts. Processes on any number of
    machines that share the folder can encode parts at the same time. With --part-index, each
    process encodes one part; without it, each takes the next free part. A finished part is skipped,
    and an interrupted one resumes.
    """
    started = time.perf_counter()
    parts = []
    for part in encoded_parts(options):
        say(part, options, output)
        parts.append(part)
    seconds = time.perf_counter() - started
    encoded = sum(part.num_candidates for part in parts if part.state == "encoded")
    if encoded:
        output.say(f"{encoded:,} candidates encoded in {took(seconds, encoded, 'candidates')}")
    missing = missing_parts(options)
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (", …" if len(missing) > 10 else "")
        output.say(f"Not there yet: {len(missing)} of {options.num_parts} parts ({shown})")
    else:
        output.say(
            f"All {options.num_parts} parts are there. Make an index of them with: polyrank "
            f"index build {options.model} --encoded {options.output} --output INDEX"
        )
    output.result(
        {
            "output": options.output,
            "model": options.model,
            "storage": options.storage,
            "num_parts": options.num_parts,
            "parts": [
                {
                    "part_index": part.part_index,
                    "state": part.state,
                    "num_candidates": part.num_candidates,
                }
                for part in sorted(parts)
            ],
            "missing": missing,
            "seconds": seconds,
        }
    )


def encoded_parts(options: EncodeOptions) -> Iterator[EncodedPart]:
    """Encode the parts that the options ask for."""
    if options.processes > 1:
        yield from encoded_by_processes(options)
        return

    from polyrank.retrieval.bulk.encode import BulkEncoder, encode_part

    model = load(options.model, options, revision=options.revision)
    source, folder, count = options.candidates, options.output, options.num_parts
    if options.part_index is None:
        yield from BulkEncoder(model, source, folder, count, storage=options.storage).encode_all()
    else:
        index = options.part_index
        yield encode_part(model, source, folder, count, index, storage=options.storage)


def encoded_by_processes(options: EncodeOptions) -> Iterator[EncodedPart]:
    """Encode all parts with several processes."""
    if options.part_index is not None:
        raise UsageError(
            "--processes and --part-index do not go together: a part is encoded by one process.",
            "Leave one of them out.",
        )

    from polyrank.retrieval.bulk.workers import encode_in_processes

    yield from encode_in_processes(
        partial(load, options.model, options, revision=options.revision),
        options.candidates,
        options.output,
        options.num_parts,
        options.processes,
        storage=options.storage,
        use_gpus=options.device in ("auto", "cuda"),
    )


def say(part: EncodedPart, options: EncodeOptions, output: Output) -> None:
    """Tell people what happened to a part."""
    output.say(
        f"part {part.part_index} of {options.num_parts}: {part.num_candidates:,} candidates, "
        f"{WORDS[part.state]}"
    )


def missing_parts(options: EncodeOptions) -> list[int]:
    """The parts that are missing."""
    from polyrank.retrieval.bulk.parts import part_folder

    everything = range(options.num_parts)
    return [index for index in everything if not part_folder(options.output, index).is_dir()]

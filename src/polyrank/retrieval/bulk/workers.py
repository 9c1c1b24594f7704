"""Bulk encoding by several processes of this machine, each with a model and a share of it.

Every process goes through the parts and takes the next free one. The processes share the cores;
each sees one GPU if there are GPUs. They end when the process that started them ends, however it
ends; what they have encoded is kept.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch

from polyrank.errors import PolyrankError, UsageError
from polyrank.progress import Report, bar, reporting
from polyrank.retrieval.bulk.encode import BulkEncoder, EncodedPart, PartState, rows_done
from polyrank.retrieval.bulk.survey import survey
from polyrank.retrieval.store.manifest import ShardLayout, Storage
from polyrank.retrieval.store.writing import ENCODING, UNIT
from polyrank.retrieval.vector_model import VectorModel

Load = Callable[[], VectorModel]
"""Loads the model; it is called in the process that uses it, so it must be picklable."""

RANK: Mapping[PartState, int] = {"encoded": 0, "there": 1, "busy": 2}


class Heard(NamedTuple):
    """The progress of one process."""

    process: int
    report: Report


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """What a process may use; `gpu` is as in CUDA_VISIBLE_DEVICES, None for all."""

    threads: int
    gpu: str | None


def encode_in_processes(
    load: Load,
    source: str | Path,
    output: str | Path,
    num_parts: int,
    num_processes: int,
    *,
    storage: Storage = "float32",
    layout: ShardLayout | None = None,
    use_gpus: bool = True,
) -> Iterator[EncodedPart]:
    """Encode all missing parts as `encode_part` does, and yield them as they finish.

    Raises what `encode_part` raises in any process, and PolyrankError if a process dies. Then, and
    when the iterator is closed, the other processes are terminated.
    """
    if num_processes < 1:
        raise UsageError(f"There must be at least one process, got {num_processes}.", "Give more.")
    # once, not in every process
    folder = Path(os.path.realpath(output))
    rows = survey(Path(source), folder).rows
    job = (str(source), str(output), num_parts, {"storage": storage, "layout": layout})
    found: dict[int, EncodedPart] = {}
    processes = running(load, job, shares(min(num_processes, num_parts), use_gpus))
    peaks: dict[int, int] = {}
    """The peak memory of each process."""

    def memory() -> int:
        return sum(peaks.values())

    shown = bar(ENCODING, total=rows, unit=UNIT, done=rows_done(folder), memory=memory)
    with processes as workers, shown as task:
        for message in messages(workers):
            if isinstance(message, Heard):
                process, report = message
                task.count(report.advance, report.is_new)
                peaks[process] = report.peak_memory or 0
                continue
            part = message
            best = found.setdefault(part.part_index, part)
            if part.state == "encoded":
                yield part
            if RANK[part.state] < RANK[best.state]:
                found[part.part_index] = part
    yield from (found[index] for index in sorted(found) if found[index].state != "encoded")


def shares(num_processes: int, use_gpus: bool) -> list[Share]:
    """The share of each process."""
    threads = max(torch.get_num_threads() // num_processes, 1)
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count() if use_gpus else 0
    names = given.split(",") if given else [str(number) for number in range(count)]
    gpus: list[str | None] = list(names[:count]) or [None]
    return [Share(threads=threads, gpu=gpus[n % len(gpus)]) for n in range(num_processes)]


@contextlib.contextmanager
def running(
    load: Load, job: tuple[Any, ...], shares: list[Share]
) -> Iterator[dict[Connection, SpawnProcess]]:
    """Encoding processes by the connections they report through; terminated at the end."""
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, SpawnProcess] = {}
    try:
        with without_interrupts():
            for share in shares:
                reader, writer = context.Pipe(duplex=False)
                process = context.Process(target=work, args=(load, job, share, writer))
                process.start()
                writer.close()
                workers[reader] = process
        yield workers
    finally:
        for process in workers.values():
            process.terminate()
        for process in workers.values():
            process.join()


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Let Ctrl-C reach this process alone, not the processes started here."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def messages(workers: Mapping[Connection, SpawnProcess]) -> Iterator[EncodedPart | Heard]:
    """The reports of the processes, parts and their progress, until all have ended.

    Raises the first error of any.
    """
    left = dict(workers)
    while left:
        for reader in wait(list(left)):
            assert isinstance(reader, Connection)
            try:
                message = reader.recv()
            except EOFError:
                process = left.pop(reader)
                process.join()
                if process.exitcode:
                    raise PolyrankError(
                        f"An encoding process ended with the exit code {process.exitcode}.",
                        "Run the same command again to resume; use fewer processes if memory is "
                        "short.",
                    ) from None
                continue
            if isinstance(message, PolyrankError):
                raise message
            yield message


def work(load: Load, job: tuple[Any, ...], share: Share, writer: Connection) -> None:
    """Encode parts and report them, in a process of its own."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    os.environ["RAYON_NUM_THREADS"] = str(share.threads)
    if share.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = share.gpu
    torch.set_num_threads(share.threads)
    source, output, num_parts, settings = job

    def send(report: Report) -> None:
        if report.description == ENCODING:
            writer.send(Heard(os.getpid(), report))

    try:
        with reporting(send):
            for part in BulkEncoder(load(), source, output, num_parts, **settings).encode_all():
                writer.send(part)
    except PolyrankError as error:
        writer.send(error)


def end_with_parent() -> None:
    """End this process when the one that started it has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)

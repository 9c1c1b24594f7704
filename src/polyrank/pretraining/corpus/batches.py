"""Batches of pages or documents, and their conversion, in this process or in others.

Batches depend only on the source, so an interrupted run, or one with another number of processes,
gives the same files.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from typing import Any

from polyrank.errors import DataError, PolyrankError
from polyrank.pretraining.corpus.manifest import DroppedCounter
from polyrank.pretraining.corpus.redirects import Redirects
from polyrank.pretraining.corpus.schema import Kind, count, kind_of, load_pyarrow, to_batch
from polyrank.pretraining.corpus.source import Convert, Dropped, Redirect
from polyrank.records import Article, Conversation

AHEAD = 2
"""Batches that wait for each process; this bounds memory."""
CONVERT: list[Convert | None] = [None]
"""What a converting process has to do; set when it starts."""


@dataclass
class Batch:
    """Pages or documents, and the count of what was dropped and of redirects among them."""

    items: list[Any] = field(default_factory=list)
    dropped: DroppedCounter = field(default_factory=DroppedCounter)
    num_redirects: int = 0
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class ConvertedBatch:
    """The result of a batch: a record batch in Arrow's own bytes, if any document was left."""

    kind: Kind | None
    rows: bytes | None
    num_documents: int
    counts: dict[str, int]
    dropped: dict[str, tuple[int, list[str]]]


class Batches:
    """Cuts a stream into batches of about `size` characters; redirects go to a file of their own.

    If the source cannot be read further, the batches end, and `damage` has the error.
    """

    def __init__(self, items: Iterable[Any], size: int, redirects: Redirects) -> None:
        self.items = items
        self.size = size
        self.redirects = redirects
        self.damage: DataError | None = None

    def __iter__(self) -> Iterator[Batch]:
        batch = Batch()
        try:
            for item in self.items:
                if isinstance(item, Dropped):
                    batch.dropped.add(item)
                elif isinstance(item, Redirect):
                    self.redirects.add(*item)
                    batch.num_redirects += 1
                else:
                    batch.items.append(item)
                    batch.size += size_of(item)
                if batch.size >= self.size:
                    yield batch
                    batch = Batch()
        except DataError as error:
            self.damage = error
        if batch.items or batch.num_redirects or batch.dropped.counts:
            yield batch


def size_of(item: Any) -> int:
    """About how many characters a document has, or a page that will be converted to one."""
    if isinstance(item, Article):
        return sum(len(p.text) for section in item.sections for p in section.paragraphs)
    if isinstance(item, Conversation):
        return sum(len(turn.text) for turn in item.turns)
    return len(item.text)


def convert_batches(
    convert: Convert | None, batches: Iterable[Batch], num_processes: int
) -> Generator[ConvertedBatch, None, None]:
    """Convert batches, in their order. Raises PolyrankError if a process dies."""
    if num_processes == 1 or convert is None:
        yield from (convert_batch(convert, batch) for batch in batches)
        return
    waiting: deque[Future[ConvertedBatch]] = deque()
    pool = ProcessPoolExecutor(
        num_processes,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=prepare_process,
        initargs=(convert,),
    )
    try:
        for batch in batches:
            waiting.append(pool.submit(convert_in_process, batch))
            if len(waiting) >= AHEAD * num_processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise PolyrankError(
            "A converting process ended unexpectedly.",
            "Run the same command again to resume, with fewer processes if memory is short.",
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def prepare_process(convert: Convert) -> None:
    """Prepare a process: Ctrl-C is for its parent, and it ends when that has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()
    CONVERT[0] = convert


def end_with_parent() -> None:
    """End this process when the one that started it has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def convert_in_process(batch: Batch) -> ConvertedBatch:
    """Convert one batch, in a process that `prepare_process` prepared."""
    return convert_batch(CONVERT[0], batch)


def convert_batch(convert: Convert | None, batch: Batch) -> ConvertedBatch:
    """Make the documents of a batch."""
    made = batch.items if convert is None else convert(batch.items)
    documents = []
    for item in made:
        if isinstance(item, Dropped):
            batch.dropped.add(item)
        else:
            documents.append(item)
    counts = count(documents)
    if batch.num_redirects:
        counts["redirects"] = batch.num_redirects
    kind = kind_of(documents[0]) if documents else None
    return ConvertedBatch(
        kind=kind,
        rows=None if kind is None else to_bytes(to_batch(documents, kind)),
        num_documents=len(documents),
        counts=counts,
        dropped=batch.dropped.plain(),
    )


def to_bytes(batch: Any) -> bytes:
    """A record batch in Arrow's own bytes."""
    pa = load_pyarrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> Any:
    """The record batch of such bytes."""
    pa = load_pyarrow()
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()

"""Pieces of work: some pages to convert, or documents to write, and what came between them.

Where a piece begins and ends depends on the source alone, so that a run that is interrupted and
one with other processes give the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from polyrank.errors import DataError
from polyrank.pretraining.corpus.reading import Dropped
from polyrank.pretraining.corpus.schema import Kind, count, kind_of, require_pyarrow, to_batch
from polyrank.pretraining.corpus.tally import Tally
from polyrank.pretraining.corpus.wikipedia.dump import Page
from polyrank.pretraining.corpus.wikipedia.reader import Redirect
from polyrank.records import Article, Document

Make = Callable[[Sequence[Any]], Sequence[Document | Dropped]]


@dataclass
class Task:
    """Pages or documents, and the count of what was dropped and of redirects among them."""

    items: list[Any] = field(default_factory=list)
    dropped: Tally = field(default_factory=Tally)
    num_redirects: int = 0
    size: int = 0


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of a task: a record batch in Arrow's own bytes, if any document was left."""

    kind: Kind | None
    batch: bytes | None
    num_documents: int
    counts: dict[str, int]
    dropped: dict[str, tuple[int, list[str]]]


class Tasks:
    """Cuts a stream into tasks of about `size` characters.

    Where the source cannot be read on, the tasks end, and `damage` has the error.
    """

    def __init__(
        self, items: Iterable[Any], size: int, redirect: Callable[[str, str], None]
    ) -> None:
        self.items = items
        self.size = size
        self.redirect = redirect
        self.damage: DataError | None = None

    def __iter__(self) -> Iterator[Task]:
        task = Task()
        try:
            for item in self.items:
                if isinstance(item, Dropped):
                    task.dropped.add(item)
                elif isinstance(item, Redirect):
                    self.redirect(*item)
                    task.num_redirects += 1
                else:
                    task.items.append(item)
                    task.size += size_of(item)
                if task.size >= self.size:
                    yield task
                    task = Task()
        except DataError as error:
            self.damage = error
        if task.items or task.num_redirects or task.dropped.counts:
            yield task


def size_of(item: Page | Document) -> int:
    """About how many characters an item has."""
    if isinstance(item, Page):
        return len(item.text)
    if isinstance(item, Article):
        return sum(len(p.text) for section in item.sections for p in section.paragraphs)
    return sum(len(turn.text) for turn in item.turns)


def convert_task(make: Make | None, task: Task) -> Result:
    """Make the documents of a task."""
    made = task.items if make is None else make(task.items)
    documents = []
    for item in made:
        if isinstance(item, Dropped):
            task.dropped.add(item)
        else:
            documents.append(item)
    counts = count(documents)
    if task.num_redirects:
        counts["redirects"] = task.num_redirects
    kind = kind_of(documents[0]) if documents else None
    return Result(
        kind=kind,
        batch=None if kind is None else to_bytes(to_batch(documents, kind)),
        num_documents=len(documents),
        counts=counts,
        dropped=task.dropped.plain(),
    )


def to_bytes(batch: Any) -> bytes:
    """A record batch in Arrow's own bytes."""
    pa = require_pyarrow()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def from_bytes(data: bytes) -> Any:
    """The record batch of such bytes."""
    pa = require_pyarrow()
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()

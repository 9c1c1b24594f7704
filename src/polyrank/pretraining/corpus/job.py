"""What a conversion is of, and the hidden folder beside the output in which it works.

.lock             held by the process that works here
job.json          the source and the settings, to tell one conversion from another
journal.jsonl     a line a finished part
part-N.parquet    its documents, with the links as their pages have them
redirects.sqlite  which title leads to which
corpus/           the folder that will take its place, when all is read
"""

from __future__ import annotations

import contextlib
import glob
import json
import platform
import shutil
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from polyrank.errors import DataError, UsageError
from polyrank.pretraining.corpus.kinds import PYTHON_DOCS
from polyrank.pretraining.corpus.manifest import MANIFEST, read_manifest
from polyrank.storage import (
    discard,
    exclusive,
    require_replaceable,
    sha256_of,
    storage_errors,
    write_text,
)

LOCK = ".lock"
JOB = "job.json"
FINISHED = "part-*.parquet"
HASHED_UP_TO = 1 << 30
Job = dict[str, Any]


def work_folder(output: Path) -> Path:
    """Where a conversion to `output` works."""
    output = output.absolute()
    return output.with_name(f".{output.name}.converting")


def describe_source(path: Path, kind: str) -> dict[str, Any]:
    """What tells a source apart from others. Raises DataError if there is none.

    By content up to a GiB; a larger file by its size and when it was last changed.
    """
    if kind == PYTHON_DOCS:
        python = platform.python_version()
        return {"name": str(path) if path.is_dir() else PYTHON_DOCS, "python": python}
    if not path.is_file():
        what = "This is a folder, not a file." if path.is_dir() else "There is no such file."
        raise DataError(what, "Give the path of a file.", path=path)
    status = path.stat()
    described: dict[str, Any] = {"name": path.name, "bytes": status.st_size}
    if status.st_size <= HASHED_UP_TO:
        return described | {"sha256": sha256_of(path)}
    changed = datetime.fromtimestamp(status.st_mtime, timezone.utc)
    return described | {"modified": changed.isoformat(timespec="microseconds")}


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two jobs give the same corpus; a file may have got another name."""
    return unnamed(one) == unnamed(other)


def unnamed(job: Mapping[str, Any]) -> Any:
    """A job without the name of a file that its content tells apart."""
    source = dict(job["source"])
    if "sha256" in source:
        del source["name"]
    return json.loads(json.dumps({**job, "source": source}))


def difference(job: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """In words, in what another job differs."""
    if unnamed(job)["source"] != unnamed(other)["source"]:
        return f"another source ({other['source'].get('name')})"
    if job["polyrank"] != other.get("polyrank"):
        return f"another version of polyrank ({other.get('polyrank')})"
    names = [
        name for name in job["settings"] if job["settings"][name] != other["settings"].get(name)
    ]
    shown = ", ".join(f"{name} = {other['settings'].get(name)}" for name in names)
    return f"other settings ({shown})"


def is_made(output: Path, job: Job, *, restart: bool) -> bool:
    """Whether the corpus at `output` is the one that the job would make.

    Raises UsageError if, without `restart`, it is another one; or if no corpus stands there.
    """
    require_replaceable(output, MANIFEST, "a corpus")
    if restart or not (output / MANIFEST).is_file():
        return False
    found = read_manifest(output)
    other = {**job, "source": found.source, "settings": found.settings}
    if same(job, other):
        return True
    raise UsageError(
        f"The corpus at {output} was made from {difference(job, other)}.",
        "Choose another output, or give --restart to replace it.",
    )


@contextlib.contextmanager
def working(output: Path, job: Job, *, restart: bool) -> Iterator[Path]:
    """Hold the work folder of a job, with what an earlier run of the same left in it.

    Raises UsageError where another process works there or, without `restart`, another job's
    unfinished work lies there. On an error, the folder stays if a part is finished.
    """
    work = work_folder(output)
    busy = f"The corpus {output} is being made by another process."
    with exclusive(work / LOCK, busy, "Wait for it, or choose another output."):
        if restart:
            clear(work)
        written = work / JOB
        if not written.is_file():
            clear(work)
            write_text(written, json.dumps(job, indent=2) + "\n")
        other = json.loads(written.read_text(encoding="utf-8"))
        if not same(job, other):
            raise UsageError(
                f"An unfinished conversion of {difference(job, other)} lies in {work}.",
                "Repeat that command to finish it, give --restart to discard it, or choose "
                "another output.",
            )
        try:
            yield work
        except BaseException:
            if not any(work.glob(FINISHED)):
                discard(work, output.absolute())
            raise


def tidy(output: Path) -> None:
    """Remove what a process left beside `output` that was killed when the corpus stood there."""
    for stale in output.parent.glob(f".{glob.escape(output.name)}.old-*"):
        shutil.rmtree(stale, ignore_errors=True)
    work = work_folder(output)
    if work.is_dir():
        with contextlib.suppress(UsageError), exclusive(work / LOCK, "busy", "wait"):
            discard(work, output)


def clear(work: Path) -> None:
    """Remove everything in a work folder but its lock."""
    with storage_errors(work):
        for path in work.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != LOCK:
                path.unlink()

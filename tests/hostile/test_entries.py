"""Folders in which something else stands in a file's place: a link, a pipe, a folder, nothing.

Each is read, or refused with a message, and nothing is waited for. Without POLYRANK_HOSTILE_CASES,
each file is replaced once.
"""

import contextlib
import itertools
import os
import shutil
import threading
import time

import pytest
from readers import folder_readers, write

from polyrank.errors import InputError, PolyrankError, UsageError
from polyrank.folder_files import FOLLOW_LINKS
from polyrank.jobs import Job, working
from polyrank.models.bi_encoder import BiEncoder
from polyrank.retrieval.index import Index
from tiny_encoders import load_variant

EVERY = "POLYRANK_HOSTILE_CASES" in os.environ
SECONDS = 5.0
"""After these, whoever waits for a pipe is released, so that the test ends."""
OPEN = ("parlai", "labels", "info of")
"""Readers of files that a person names one by one, and of what a folder says of itself."""


def link_outside(path, elsewhere):
    shutil.move(path, elsewhere)
    path.symlink_to(elsewhere)


def link_to_itself(path, _):
    path.unlink()
    path.symlink_to(path.name)


def pipe(path, _):
    path.unlink()
    os.mkfifo(path)


def folder(path, _):
    path.unlink()
    path.mkdir()


def nothing(path, _):
    path.unlink()


KINDS = (link_outside, pipe, link_to_itself, folder, nothing)


@contextlib.contextmanager
def released(path):
    """Whoever reads the pipe at a path finds its end after a while."""

    def release():
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))

    timer = threading.Timer(SECONDS, release)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def replaced(reader, name, kind, place):
    """The error of a reader of a folder in which something stands in the place of a file."""
    shutil.rmtree(place, ignore_errors=True)
    write(reader, place)
    elsewhere = place.with_name("elsewhere")
    kind(place / name, elsewhere)
    start, error = time.monotonic(), None
    with released(place / name):
        try:
            reader.read(place)
        except PolyrankError as caught:
            error = caught
    assert time.monotonic() - start < SECONDS, f"it waits for {name}"
    return error


def must_be_own(reader, name):
    """Whether a file of a reader may not be a link that leads out of its folder."""
    if reader.name == "parts":
        return name.startswith("saved/part-")
    return not reader.name.startswith(OPEN)


def test_something_else_in_the_place_of_each_file(bert, tmp_path, record_property):
    cases, kinds = 0, itertools.cycle(KINDS)
    for reader in folder_readers(bert, ()):
        for name in sorted(reader.files):
            for kind in KINDS if EVERY else [next(kinds)]:
                error = replaced(reader, name, kind, tmp_path / "folder")
                if kind is link_outside and must_be_own(reader, name):
                    assert error is not None, (reader.name, name)
                    assert "link" in error.problem
                cases += 1
    record_property("cases", cases)


@pytest.fixture
def index(bert, tmp_path):
    load_variant("bi", bert).save_pretrained(tmp_path / "bi")
    folder = tmp_path / "index"
    Index.build(BiEncoder.from_pretrained(tmp_path / "bi"), ["a file", "a disk"], folder).close()
    return folder


def test_whoever_trusts_links_may_follow_them(index, tmp_path, monkeypatch):
    for file in [*index.rglob("vectors.npy"), *index.rglob("model.safetensors")]:
        link_outside(file, tmp_path / file.name)
    with pytest.raises(InputError, match=f"set {FOLLOW_LINKS}=1"):
        Index.open(index)
    monkeypatch.setenv(FOLLOW_LINKS, "1")
    with Index.open(index) as found:
        assert found.search("a disk", top_k=1)[0].text == "a disk"


def test_links_within_a_folder_are_followed(index):
    for file in [*index.rglob("vectors.npy"), *index.rglob("model.safetensors")]:
        file.rename(file.with_name("moved"))
        file.symlink_to("moved")
    with Index.open(index) as found:
        assert found.search("a disk", top_k=1)[0].text == "a disk"


@pytest.mark.parametrize("name", ["lock", ".manifest.json.new", "shards/00001"])
@pytest.mark.parametrize("follows", [False, True])
def test_nothing_is_written_through_a_link(name, follows, index, tmp_path, monkeypatch):
    victim = tmp_path / "victim"
    with Index.open(index) as writer:  # it was opened before the link was there
        if name.startswith("shards"):
            victim.mkdir()
        else:
            victim.write_text("mine")
        (index / name).unlink(missing_ok=True)
        (index / name).symlink_to(victim)
        monkeypatch.setenv(FOLLOW_LINKS, "1" if follows else "0")
        for change in (lambda: writer.add([("new", "a kernel")]), lambda: writer.delete(["new"])):
            with contextlib.suppress(PolyrankError):
                change()
    if victim.is_dir():
        assert list(victim.iterdir()) == []
    else:
        assert victim.read_text() == "mine"


def test_unfinished_work_with_a_link_is_not_resumed(tmp_path):
    job = Job(output=tmp_path / "made", doing="making", noun="job", identity={"a": 1})
    with contextlib.suppress(KeyboardInterrupt), working(job) as work:
        work.keep()
        raise KeyboardInterrupt
    (job.work / "lines.jsonl").symlink_to(tmp_path / "victim")
    (tmp_path / "victim").write_text("mine")
    with pytest.raises(UsageError, match="is a link to"), working(job):
        pass
    with working(job, restart=True) as work:
        assert not (work.folder / "lines.jsonl").exists()
    assert (tmp_path / "victim").read_text() == "mine"

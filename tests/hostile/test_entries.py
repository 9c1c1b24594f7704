"""Folders in which something else stands in a file's place: a link, a pipe, a folder, nothing.

Each is read, or refused with a message, and nothing is waited for. POLYRANK_HOSTILE_CASES is how
often some files of each folder are replaced; without it, each file is replaced once.
"""

import contextlib
import itertools
import os
import shutil
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from readers import folder_readers, write

from damage import drawing
from polyrank.errors import InputError, PolyrankError, UsageError
from polyrank.folder_files import FOLLOW_LINKS
from polyrank.jobs import Job, working
from polyrank.models.bi_encoder import BiEncoder
from polyrank.retrieval.index import Index
from tiny_encoders import load_variant

CASES = int(os.environ.get("POLYRANK_HOSTILE_CASES", "0"))
MOST = 3
"""Files of a folder that are replaced at once."""
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


def error_of(reader, kinds, place):
    """The error of a reader of a folder in which other things stand in the place of some files."""
    shutil.rmtree(place, ignore_errors=True)
    elsewhere = place.with_name("elsewhere")
    shutil.rmtree(elsewhere, ignore_errors=True)
    elsewhere.mkdir()
    write(reader, place)
    for name, kind in kinds.items():
        kind(place / name, elsewhere / name.replace("/", "-"))
    start, error = time.monotonic(), None
    with contextlib.ExitStack() as stack:
        for name in kinds:
            stack.enter_context(released(place / name))
        try:
            reader.read(place)
        except PolyrankError as caught:
            error = caught
    assert time.monotonic() - start < SECONDS, f"it waits for one of {list(kinds)}"
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
            for kind in KINDS if CASES else [next(kinds)]:
                error = error_of(reader, {name: kind}, tmp_path / "folder")
                if kind is link_outside and must_be_own(reader, name):
                    assert error is not None, (reader.name, name)
                    assert "link" in error.problem
                cases += 1
    record_property("cases", cases)


def test_something_else_in_the_place_of_some_files(bert, tmp_path, record_property):
    readers = folder_readers(bert, ())
    tried = sum(replace_some(reader, tmp_path / "folder") for reader in readers)
    record_property("cases", tried)


def replace_some(reader, place):
    """Draw what stands in the place of some files of a reader; returns how often."""
    count = max((CASES or 1) // reader.one_in, 1)
    names = st.sampled_from(sorted(reader.files))

    @drawing(count, anew=CASES > 0)
    @given(st.dictionaries(names, st.sampled_from(KINDS), min_size=1, max_size=MOST))
    def each(kinds):
        error_of(reader, kinds, place)

    each()
    return count


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

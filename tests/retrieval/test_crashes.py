import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hash_model import HashModel, contents, numbered, pairs
from polyrank import storage, tables
from polyrank.errors import StorageError
from polyrank.retrieval.index import Index
from polyrank.retrieval.store import arrays, vectors
from polyrank.retrieval.store.manifest import ShardLayout

SMALL = ShardLayout(block_rows=10, shard_rows=30)
HERE = Path(__file__).parent
SEED = os.environ.get("POLYRANK_HOSTILE_SEED", "0")
CHANGES = {
    "add": lambda index: index.add([("new", "x", {"lang": "en"}), ("b", "y")]),
    "replace": lambda index: index.add([("new", "x"), ("id40", "y")], replace=True),
    "delete": lambda index: index.delete(["id1", "id40"]),
    "compact": lambda index: index.compact(),
}


def test_killed_anywhere_the_old_or_the_new_state_stands(tmp_path, record_property):
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, HERE / "killed.py", tmp_path, SEED],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["change"] for each in found] == ["add", "replace", "delete", "compact", "rebuild"]
    record_property("cases", sum(each["operations"] for each in found))
    for each in found:
        assert each["faults"] == []
        assert 0 < each["new"] < each["operations"]


@pytest.fixture
def index(tmp_path):
    index = Index.build(HashModel(), numbered(75), tmp_path / "index", layout=SMALL)
    index.delete(["id0"])
    return index


@pytest.mark.parametrize("change", CHANGES)
def test_a_full_disk_keeps_the_old_state_wherever_it_fills_up(index, change, monkeypatch):
    before, shown = contents(index.path), pairs(index)
    written = storage.write_all
    failures = 0
    while True:
        left = failures

        def write_all(handle, data):
            nonlocal left
            if not left:
                handle.write(bytes(data)[:3])
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            left -= 1
            written(handle, data)

        for module in (arrays, tables, vectors):
            monkeypatch.setattr(module, "write_all", write_all)
        try:
            CHANGES[change](index)
        except StorageError as error:
            said = str(error)
        else:
            break
        assert "failed: No space left on device. Nothing that was there before has ch" in said
        assert contents(index.path) == before
        assert pairs(index) == shown
        failures += 1
    assert failures >= 1
    monkeypatch.undo()
    index.verify()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["replace", "fsync"])
def test_a_disk_that_fails_before_the_commit_keeps_the_old_state(index, change, name, monkeypatch):
    before = contents(index.path)

    def fail(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, name, fail)
    with pytest.raises(StorageError, match="Input/output error"):
        CHANGES[change](index)
    monkeypatch.undo()
    assert contents(index.path) == before
    CHANGES[change](index)
    index.verify()


@pytest.mark.parametrize("change", CHANGES)
def test_all_is_on_the_disk_itself_before_the_manifest_names_it(index, change, monkeypatch):
    flushed = {}
    fsync, replace = os.fsync, os.replace
    before = set(index.engine.manifest.files)
    checked = []

    def note(descriptor):
        found = os.fstat(descriptor)
        flushed[found.st_ino] = found.st_size
        fsync(descriptor)

    def check(source, target):
        plain = json.loads(Path(source).read_text())
        for name in set(plain["files"]) - before:
            file = index.path / name
            assert flushed[file.stat().st_ino] == file.stat().st_size
            assert all(folder.stat().st_ino in flushed for folder in list(file.parents)[:2])
            checked.append(name)
        assert flushed[Path(source).stat().st_ino] == Path(source).stat().st_size
        flushed.pop(index.path.stat().st_ino, None)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "replace", check)
    CHANGES[change](index)
    assert checked
    assert index.path.stat().st_ino in flushed

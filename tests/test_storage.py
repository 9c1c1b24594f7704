import errno
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from polyrank import storage
from polyrank.errors import StorageError, UsageError
from polyrank.storage import (
    exclusive,
    names_file,
    replaced_folder,
    require_replaceable,
    swap_folders,
    write_text,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_when_it_is_complete(tmp_path):
    with replaced_folder(tmp_path / "deep" / "new") as fresh:
        (fresh / "file").write_text("new")
        assert not (tmp_path / "deep" / "new").exists()
    assert names(tmp_path / "deep") == ["new"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_failure_keeps_what_was_there(error, tmp_path):
    place = tmp_path / "folder"
    place.mkdir()
    (place / "file").write_text("old")

    def fail():
        with replaced_folder(place) as fresh:
            (fresh / "file").write_text("new")
            raise error

    with pytest.raises(error):
        fail()
    assert (place / "file").read_text() == "old"
    assert names(tmp_path) == ["folder"]


def test_success_replaces_and_leaves_nothing_else(tmp_path):
    place = tmp_path / "folder"
    for text in ("old", "new"):
        with replaced_folder(place) as fresh:
            (fresh / text).write_text(text)
    assert names(place) == ["new"]
    assert names(tmp_path) == ["folder"]


def test_a_full_disk_is_a_storage_error(tmp_path, monkeypatch):
    place = tmp_path / "file"
    write_text(place, "old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(StorageError, match="No space left on device"):
        write_text(place, "new")
    assert place.read_text() == "old"
    assert names(tmp_path) == ["file"]


def test_a_swap_that_fails_puts_the_old_folder_back(tmp_path, monkeypatch):
    place = tmp_path / "folder"
    with replaced_folder(place) as fresh:
        (fresh / "old").write_text("")
    rename = os.rename

    def fail_second(source, target):
        if target == place and ".new-" in str(source):
            raise OSError(errno.EIO, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail_second)
    monkeypatch.setattr(storage, "exchange", lambda *_: False)
    with pytest.raises(StorageError), replaced_folder(place) as fresh:
        (fresh / "new").write_text("")
    assert names(place) == ["old"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems rename twice")
def test_folders_change_places_with_no_moment_without_one(tmp_path, monkeypatch):
    for name in ("fresh", "place"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text("")
    monkeypatch.setattr(os, "rename", lambda *_: pytest.fail("renamed"))
    swap_folders(tmp_path / "fresh", tmp_path / "place")
    assert names(tmp_path) == ["place"]
    assert names(tmp_path / "place") == ["fresh"]


def test_a_lock_is_held_by_one(tmp_path):
    lock = tmp_path / "lock"
    with exclusive(lock, "Held.", "Wait."):
        with pytest.raises(UsageError, match=r"Held\. Wait\."), exclusive(lock, "Held.", "Wait."):
            pass
        # a folder that was replaced has another lock
        lock.unlink()
        with exclusive(lock, "Held.", "Wait."):
            pass
    with exclusive(lock, "Held.", "Wait."):
        pass


def test_a_lock_whose_file_was_replaced_meanwhile_is_taken_again(tmp_path, monkeypatch):
    lock = tmp_path / "lock"
    seen = []

    def replaced_once(path, descriptor):
        if not seen:
            path.unlink()
            path.touch()
        seen.append(names_file(path, descriptor))
        return seen[-1]

    monkeypatch.setattr(storage, "names_file", replaced_once)
    with exclusive(lock, "Held.", "Wait."):
        assert seen == [False, True]


def test_only_its_own_kind_is_replaceable(tmp_path):
    require_replaceable(tmp_path / "free", "mark", "a model")
    require_replaceable(tmp_path, "mark", "a model")
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="already exists and is not a model"):
        require_replaceable(tmp_path, "mark", "a model")
    with pytest.raises(UsageError):
        require_replaceable(tmp_path / "thesis.tex", "mark", "a model")
    (tmp_path / "mark").write_text("")
    require_replaceable(tmp_path, "mark", "a model")


def test_what_a_killed_process_left_behind_is_removed(tmp_path):
    script = textwrap.dedent("""
        import os, signal, sys
        from pathlib import Path
        from polyrank.storage import replaced_folder
        with replaced_folder(Path(sys.argv[1])) as fresh:
            (fresh / "half").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    """)
    path = tmp_path / "out[1]"
    killed = subprocess.run([sys.executable, "-c", script, path], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = tmp_path.glob(".out*")
    with replaced_folder(path) as other:  # just made: the process might still live
        assert left.exists()
        (other / "a").touch()
    past = time.time() - 60
    os.utime(left, (past, past))
    with replaced_folder(path) as fresh:
        os.utime(fresh, (past, past))
        assert not left.exists()
        with replaced_folder(path):
            assert fresh.exists(), "it is in use"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]

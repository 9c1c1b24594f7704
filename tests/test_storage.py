import errno
import os

import pytest

from polyrank.errors import StorageError, UsageError
from polyrank.storage import replaced_folder, require_replaceable, write_text


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
    with pytest.raises(StorageError), replaced_folder(place) as fresh:
        (fresh / "new").write_text("")
    assert names(place) == ["old"]


def test_only_its_own_kind_is_replaceable(tmp_path):
    require_replaceable(tmp_path / "free", "mark", "model")
    require_replaceable(tmp_path, "mark", "model")
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match="is no model that could be replaced"):
        require_replaceable(tmp_path, "mark", "model")
    with pytest.raises(UsageError):
        require_replaceable(tmp_path / "thesis.tex", "mark", "model")
    (tmp_path / "mark").write_text("")
    require_replaceable(tmp_path, "mark", "model")

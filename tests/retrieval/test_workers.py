"""Processes on this machine; each loads its model by a function of this file."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from test_bulk import SMALL, encode_all, rows, write

from hash_model import HashModel, contents
from polyrank import progress
from polyrank.errors import DataError, PolyrankError, UsageError
from polyrank.retrieval.bulk import workers as workers_module
from polyrank.retrieval.bulk.workers import encode_in_processes
from polyrank.retrieval.index import Index

HERE = Path(__file__).parent


def dying(folder):
    """A model whose first process, and no other, is killed after its second block."""
    model = HashModel()

    def before_block():
        if model.encoded == 20:
            try:
                (folder / "died").touch(exist_ok=False)
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    model.before_block = before_block
    return model


def slow(folder):
    """A model that takes long and says who it is."""
    (folder / str(os.getpid())).touch()
    model = HashModel()
    model.before_block = lambda: time.sleep(0.2)
    return model


def test_a_killed_process_is_an_error_and_the_next_run_goes_on(tmp_path):
    source, parts = write(tmp_path / "candidates.jsonl"), tmp_path / "parts"
    load = partial(dying, tmp_path)
    with pytest.raises(PolyrankError, match=r"exit code -9\. Run the same command again"):
        list(encode_in_processes(load, source, parts, 3, 2, layout=SMALL))
    assert multiprocessing.active_children() == []

    made = list(encode_in_processes(load, source, parts, 3, 2, layout=SMALL))
    assert sorted(part.part_index for part in made) == [0, 1, 2]
    assert {part.state for part in made} <= {"encoded", "there"}
    encode_all(source, tmp_path / "others", 3)
    assert contents(parts) == contents(tmp_path / "others")
    index = Index.assemble(HashModel(), parts, tmp_path / "index")
    assert rows(index) == rows(Index.build(HashModel(), source, tmp_path / "single", layout=SMALL))


def test_closing_ends_all_processes_and_an_error_comes_from_any(tmp_path):
    source, parts = write(tmp_path / "candidates.jsonl"), tmp_path / "parts"
    for reported in encode_in_processes(partial(slow, tmp_path), source, parts, 8, 2, layout=SMALL):
        assert reported.state == "encoded"
        assert len(multiprocessing.active_children()) == 2
        break
    assert multiprocessing.active_children() == []
    other = partial(HashModel, salt="other")
    with pytest.raises(UsageError, match=r"was encoded by the model .* not by"):
        list(encode_in_processes(other, source, parts, 8, 1, layout=SMALL))
    assert multiprocessing.active_children() == []


def test_processes_end_with_the_one_that_started_them(tmp_path):
    write(tmp_path / "candidates.jsonl", 2000)
    program = f"""
import sys
sys.path[:0] = {[str(HERE), str(HERE.parent)]!r}
from functools import partial
from pathlib import Path
from test_workers import SMALL, encode_in_processes, slow
if __name__ == "__main__":
    list(encode_in_processes(partial(slow, Path()), "candidates.jsonl", "p", 2, 2, layout=SMALL))
"""
    (tmp_path / "program.py").write_text(program)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, "program.py"], cwd=tmp_path, env=environment) as parent:
        end = time.monotonic() + 60
        while len(found := list(tmp_path.glob("[0-9]*"))) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        parent.kill()
    started = [int(path.name) for path in found]
    assert len(started) == 2
    while any(map(runs, started)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(runs, started))


def runs(process):
    """Whether a process is there and no corpse."""
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    except FileNotFoundError:
        return False
    return state.split()[0] != "Z"


def test_bad_input_starts_no_process(tmp_path, monkeypatch):
    monkeypatch.setattr(workers_module, "running", None)
    with pytest.raises(DataError, match="no such file"):
        list(encode_in_processes(HashModel, tmp_path / "none", tmp_path / "parts", 2, 2))
    with pytest.raises(UsageError, match="at least one process, got 0"):
        list(encode_in_processes(HashModel, tmp_path / "none", tmp_path / "parts", 2, 0))


@pytest.mark.parametrize(
    ("visible", "count", "use_gpus", "expected"),
    [
        (None, 0, True, [None, None, None]),
        (None, 2, True, ["0", "1", "0"]),
        ("4,7,9", 3, True, ["4", "7", "9"]),
        ("4", 1, True, ["4", "4", "4"]),
        (None, 2, False, [None, None, None]),
    ],
)
def test_the_machine_is_divided(monkeypatch, visible, count, use_gpus, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    shares = workers_module.shares(3, use_gpus)
    assert [share.gpu for share in shares] == expected
    assert {share.threads for share in shares} == {2}
    assert workers_module.shares(20, use_gpus)[0].threads == 1


def test_bars_report_to_whom_the_process_works_for():
    heard = []
    with progress.reporting(heard.append):
        with progress.bar("Encoding") as advance:
            advance(3)
        with progress.bar(None) as advance:
            advance(4)
    with progress.bar("Encoding") as advance:
        advance(5)
    assert [(report.description, report.advance, report.is_new) for report in heard] == [
        ("Encoding", 3, True)
    ]

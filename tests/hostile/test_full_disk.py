"""A disk that is really full: a small file system in memory, in a mount namespace of its own.

POLYRANK_HOSTILE_KILLS is the number of disks for each command; without it, three commands meet one
each. What is left behind where a disk fills up within a change of an index is in
tests/retrieval/test_crashes.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mounting import ALONE, may_mount

TRIES = os.environ.get("POLYRANK_HOSTILE_KILLS")
FEW = ("index build", "corpus", "train")
SEED = os.environ.get("POLYRANK_HOSTILE_SEED", "0")


@pytest.mark.skipif(not may_mount(), reason="this machine lets nobody mount")
def test_a_full_disk_is_a_message_and_changes_nothing(bert, tmp_path, record_property):
    path = os.pathsep.join(filter(None, sys.path))
    program = Path(__file__).with_name("full_disk.py")
    line = [*ALONE, sys.executable, program, tmp_path, bert, TRIES or "1", SEED]
    done = subprocess.run(
        [*line, *([] if TRIES else FEW)],
        env={
            **os.environ,
            "PYTHONPATH": path,
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",  # its threads do not survive a fork
        },
        timeout=1800,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    assert len(found) == (11 if TRIES else len(FEW))
    record_property("cases", sum(each["full"] for each in found))
    assert {each["command"]: each["faults"] for each in found if each["faults"]} == {}

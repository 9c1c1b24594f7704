"""kill -9 at random moments of every long command: the same command resumes and ends the same.

POLYRANK_HOSTILE_KILLS is the number of kills of each command; without it, four commands are killed
once. POLYRANK_HOSTILE_SEED draws the moments. What each storage operation of an index leaves
behind is in tests/retrieval/test_crashes.py, and a server that is killed in
tests/serving/test_kills.py.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

KILLS = os.environ.get("POLYRANK_HOSTILE_KILLS")
FEW = ("corpus", "mine", "train", "compare")
SEED = os.environ.get("POLYRANK_HOSTILE_SEED", "0")


def test_killed_commands_end_as_if_they_were_not(bert, tmp_path, record_property):
    path = os.pathsep.join(filter(None, sys.path))
    program = Path(__file__).with_name("killed_commands.py")
    done = subprocess.run(
        [sys.executable, program, tmp_path, bert, KILLS or "1", SEED, *([] if KILLS else FEW)],
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
    assert len(found) == (11 if KILLS else len(FEW))
    record_property("cases", sum(each["killed"] for each in found))
    assert {each["command"]: each["faults"] for each in found if each["faults"]} == {}

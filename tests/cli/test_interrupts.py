"""Ctrl-C at moments that are hard to meet from outside: none shows a traceback."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import atexit, signal, sys
from polyrank.__main__ import main

def ctrl_c():
    signal.raise_signal(signal.SIGINT)
    for _ in range(1000):  # where it is heard
        pass

class Importing:
    def find_spec(self, name, *_):
        if name == "polyrank.cli.train":
            ctrl_c()

def parse(*_):
    exec("ctrl_c()", {"ctrl_c": ctrl_c})

moment = sys.argv.pop(1)
if moment == "importing":
    sys.meta_path.insert(0, Importing())
elif moment == "in code made of a string":
    import polyrank.cli.main
    polyrank.cli.main.parse = parse
else:
    atexit.register(ctrl_c)
main()
"""


@pytest.mark.parametrize(
    ("moment", "code", "printed", "said"),
    [
        ("importing", 130, False, "\nInterrupted.\n"),
        ("in code made of a string", 130, False, "\nInterrupted.\n"),
        ("when all is done", -signal.SIGINT, True, ""),
    ],
)
def test_ctrl_c_shows_no_traceback_and_keeps_the_exit_code(moment, code, printed, said, tmp_path):
    (tmp_path / "interrupted.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "interrupted", moment, "--version"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert (done.returncode, bool(done.stdout), done.stderr) == (code, printed, said)

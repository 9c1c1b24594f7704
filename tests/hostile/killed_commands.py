"""Kills commands at random moments and starts them again, until they are done, and compares.

`killed_commands.py FOLDER ENCODER KILLS SEED [COMMAND…]`. For each command it prints a line of
JSON: how often it was killed, how many runs were finished, and what was wrong. A run is right if
its output is that of a run without a kill, bit by bit, and if until then nothing stands where the
output will be; where a command changes something, what was there or what will be.
"""

import os
import signal
import time
from pathlib import Path

from long_commands import COMMANDS, is_there, run_trial, start

LONGER = 1.3
"""A run may be killed up to so many times the seconds that one without a kill takes."""


def ended(child, seconds):
    """How a process ended within so many seconds, or None if it was killed after them."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.killpg(child, signal.SIGKILL) if group_of(child) == child else os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return None if code == -signal.SIGKILL else code


def group_of(child):
    try:
        return os.getpgid(child)
    except ProcessLookupError:
        return None


def tried(name, kills, draw):
    """How often a command was killed, how many runs were finished, and what was wrong."""
    command = COMMANDS[name]
    folder = Path(name.replace(" ", "-") + ".tried")
    folder.mkdir()
    log, faults = folder / "log", []

    output = folder / "whole"
    before = time.monotonic()
    code = ended(start(name, output, log), 600)
    seconds = time.monotonic() - before
    assert code == 0, log.read_text()
    expected = command.digest(output)
    unchanged = command.digest(Path(command.changes)) if command.changes else None
    assert unchanged != expected
    killed = finished = 0
    while killed < kills or not finished:
        output = folder / f"cut{finished}"
        code = ended(start(name, output, log), draw.uniform(0, LONGER * seconds))
        killed += code is None
        if code is None:
            found = command.digest(output) if is_there(name, output) else unchanged
            if found not in (unchanged, expected):
                faults.append(f"half of the output after kill {killed}")
            if command.changes and found == expected:  # killed after the change
                finished += 1
            continue
        finished += 1
        if code != 0:
            faults.append(f"exit code {code} after kill {killed}: {log.read_text()[-500:]}")
        elif command.digest(output) != expected:
            faults.append(f"another output after kill {killed}")
        left = [each.name for each in folder.glob(f".{output.name}*")]
        if any(".new-" not in each for each in left):
            faults.append(f"left behind: {left}")
    return {"command": name, "killed": killed, "finished": finished, "faults": faults}


if __name__ == "__main__":
    run_trial(tried)

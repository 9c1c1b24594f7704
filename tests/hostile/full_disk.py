"""Runs commands on a disk of some kilobytes, and again when it has space, and compares.

`full_disk.py FOLDER ENCODER TRIES SEED [COMMAND…]`, started so that it may mount, for example by
`unshare --map-root-user --mount`. For each command it prints a line of JSON: how often the disk was
full, and what was wrong. A full disk is a message, and nothing half-made stands where the output
will be; with space, the same command ends as if the disk had never been full.
"""

import os
import subprocess
import time
from pathlib import Path

from long_commands import COMMANDS, is_there, run_trial, start

SPACE = 1 << 28
LEAST = 1 << 14
FULL = "No space left on device"


def tried(name, tries, draw):
    """How often the disk was full for a command, and what was wrong."""
    command = COMMANDS[name]
    disk = Path("disk").absolute()
    disk.mkdir(exist_ok=True)
    os.environ["TMPDIR"] = str(disk)
    output, log, faults = disk / "output", Path("log").absolute(), []

    def begin(size):
        """A new disk of a size, with what the command changes."""
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk], check=True)

    begin(SPACE)
    code, needed = ended(start(name, output, log), disk)
    assert code == 0, log.read_text()
    expected = command.digest(output)
    subprocess.run(["umount", disk], check=True)
    unchanged = command.digest(Path(command.changes)) if command.changes else None
    full = 0
    for number in range(tries):
        begin(size := draw.randint(LEAST, needed))
        try:
            child = start(name, output, log)
        except OSError:  # what it changes does not fit
            subprocess.run(["umount", disk], check=True)
            continue
        code, _ = ended(child, disk)
        said = log.read_text()
        what = f"try {number} with {size} bytes"
        full += code != 0
        if code != 0 and (FULL not in said or "Traceback" in said or code < 0):
            faults.append(f"{what}: exit code {code}, {said[-500:]}")
        found = command.digest(output) if code and is_there(name, output) else unchanged
        if found not in (unchanged, expected):
            faults.append(f"{what}: half of the output")
        resized = f"remount,size={SPACE}"
        subprocess.run(["mount", "-o", resized, "tmpfs", disk], check=True)
        code, _ = ended(start(name, output, log), disk) if code else (code, 0)
        if code != 0:
            faults.append(f"{what}, then with space: exit code {code}, {log.read_text()[-500:]}")
        elif command.digest(output) != expected:
            faults.append(f"{what}, then with space: another output")
        subprocess.run(["umount", disk], check=True)
    return {"command": name, "full": full, "faults": faults}


def ended(child, disk):
    """How a process ended, and the most bytes of the disk that were taken meanwhile."""
    most = 0
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        space = os.statvfs(disk)
        most = max(most, (space.f_blocks - space.f_bfree) * space.f_frsize)
        if done:
            return os.waitstatus_to_exitcode(status), most
        time.sleep(0.001)


if __name__ == "__main__":
    run_trial(tried)

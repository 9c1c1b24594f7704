"""Two processes on this machine, as a user starts them."""

import os
import subprocess
import sys


def launch(*arguments):
    """Start two processes under torchrun and wait; their exit code, output and errors."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def started(arguments, environment=None, **options):
    """The command in a process of its own; a variable that is None is not there."""
    everything = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    return subprocess.Popen(
        [sys.executable, "-m", "polyrank", *map(os.fsencode, map(str, arguments))],
        env={name: value for name, value in everything.items() if value is not None},
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        **options,
    )

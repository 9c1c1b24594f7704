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

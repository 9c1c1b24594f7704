"""A mount namespace of one's own, where a process may mount what it likes."""

import shutil
import subprocess

ALONE = ["unshare", "--map-root-user", "--mount"]
"""What comes before a command that mounts."""


def may_mount():
    """Whether this machine lets a process have one."""
    if shutil.which(ALONE[0]) is None:
        return False
    mounts = [*ALONE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(mounts, capture_output=True, check=False).returncode == 0

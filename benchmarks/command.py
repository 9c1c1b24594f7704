"""A command of polyrank, run in this process as it would be typed."""

from __future__ import annotations

import sys

from polyrank.cli.main import commands, run


def call(*arguments: str) -> None:
    """Run a command; a failure ends the benchmark with its exit code."""
    if code := run(list(arguments), commands()):
        sys.exit(code)

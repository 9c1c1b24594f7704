"""Commands: one of polyrank, run in this process as it would be typed; and a benchmark's own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

import torch

from polyrank.cli.main import commands, run
from polyrank.errors import PolyrankError
from polyrank.progress import quieten_libraries


def call(*arguments: str) -> None:
    """Run a command; a failure ends the benchmark with its exit code."""
    if code := run(list(arguments), commands()):
        sys.exit(code)


def exit_code(given: argparse.Namespace, perform: Callable[[argparse.Namespace], None]) -> int:
    """Do what a benchmark's command line asks for: 0, or 2 with a message for bad input."""
    quieten_libraries()
    if getattr(given, "threads", None):
        torch.set_num_threads(given.threads)
    try:
        perform(given)
    except PolyrankError as error:
        print(error, file=sys.stderr)
        return 2
    return 0

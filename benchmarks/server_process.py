"""Servers as processes of their own: started, waited for, paused, measured and ended.

Every server has the same cores, and so has whoever sends it requests.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from typing_extensions import Self

from benchmarks.load import HOST

START_SECONDS = 300
SET_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of Linux' prctl."""
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "INFINITY_ANONYMOUS_USAGE_STATS": "0",
}


class ServerProcess:
    """A server on a free port; `with` ends it."""

    def __init__(
        self, command: Sequence[str], *, log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a server and wait until it is ready.

        Args:
            command: What to run; `PORT` stands for the port.
            log: Where its output goes.
            environment: Variables that it gets besides ours.
        """
        self.port = free_port()
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        typed = [str(self.port) if word == "PORT" else word for word in command]
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                typed,
                env=os.environ | OFFLINE | dict(environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - no thread of ours holds a lock
            )
        self.process = psutil.Process(self.popen.pid)
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        until = time.monotonic() + START_SECONDS
        while not self.is_ready():
            if self.popen.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{self.popen.args} did not start:\n{self.output()[-3000:]}")
            time.sleep(0.1)

    def is_ready(self) -> bool:
        """Whether /ready says so, or /health of a server that knows no /ready."""
        status = self.status("/ready")
        return (self.status("/health") if status == 404 else status) == 200

    def status(self, path: str) -> int | None:
        """The status of an answer; None where there is none."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self.port}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def output(self) -> str:
        """What it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def family(self) -> list[psutil.Process]:
        """The process and its children."""
        return [self.process, *self.process.children(recursive=True)]

    def resident(self) -> int:
        """The bytes of memory that it and its children take."""
        return sum(each.memory_info().rss for each in self.family())

    def processor_seconds(self) -> float:
        """The seconds of a core that it and its children have taken."""
        times = [each.cpu_times() for each in self.family()]
        return sum(each.user + each.system for each in times)

    def pause(self) -> None:
        """Let it take no core while another is measured."""
        os.killpg(self.popen.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        os.killpg(self.popen.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it, kindly at first."""
        if self.popen.poll() is None:
            self.resume()
            self.popen.terminate()
            try:
                self.popen.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(self.popen.pid, signal.SIGKILL)
                self.popen.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()


def die_with_parent() -> None:
    """Have the kernel end this process when the benchmark ends, however it does."""
    ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as trial:
        trial.bind((HOST, 0))
        return int(trial.getsockname()[1])


def polyrank_server(*options: str) -> list[str]:
    """The command of our server."""
    return [sys.executable, "-m", "polyrank", "serve", "--port", "PORT", *options]


def share_cores(cores: int) -> None:
    """Keep this process and those that it starts on the first cores that it may have."""
    mine = sorted(os.sched_getaffinity(0))
    if len(mine) < cores:
        raise SystemExit(f"{cores} cores are asked for; this process may have {len(mine)}.")
    os.sched_setaffinity(0, mine[:cores])

"""Several processes on one socket: started, watched, told of signals, and asked for their metrics.

The first process listens, loads nothing, and starts the others anew rather than by forking: torch's
threads do not survive a fork. They accept from the one socket, so that a process that ends takes no
waiting connection with it, and the one with fewest connections takes the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank.errors import OutOfMemoryError, PolyrankError, is_out_of_memory
from polyrank.serving.draining import Gate
from polyrank.serving.logs import LOG, configure, log_failure
from polyrank.serving.scraping import Scrape
from polyrank.serving.server import Service, Tell, run

if TYPE_CHECKING:
    from fastapi import FastAPI

ABSENT, LOADING, READY = range(3)
PATIENCE = 5
"""How often a process leaves a connection to another before it takes it after all."""
LEAVE_SECONDS = 0.01
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
"""Seconds before a process that has ended is started again; twice as many each time."""
STABLE_SECONDS = 60.0


class Board:
    """What processes show each other: their state and how many connections they have."""

    def __init__(self, num_workers: int, context: Any) -> None:
        self.states = context.RawArray("i", num_workers)
        self.connections = context.RawArray("i", num_workers)

    def may_accept(self, worker: int) -> bool:
        """Whether the next connection is for this process."""
        ready = [number for number, state in enumerate(self.states) if state == READY]
        if self.states[worker] == LOADING:
            return not ready  # to answer that it loads, while no other can do better
        fewest = min(self.connections[number] for number in ready)
        return bool(self.connections[worker] <= fewest)


@dataclass(frozen=True, kw_only=True)
class Worker:
    """What a process is given when it starts."""

    number: int
    service: Service
    listening: socket.socket
    board: Board
    folder: Path
    """Where the sockets are by which processes ask each other."""
    pipe: Pipe


class SharedGate(Gate):
    """Leaves connections to the process that has fewest, unless it does not take them."""

    def __init__(self, worker: Worker) -> None:
        self.number = worker.number
        self.board = worker.board
        self.times_left = 0

    def count(self, num_connections: int) -> None:
        """Show the others how many connections this process has."""
        self.board.connections[self.number] = num_connections

    def pause(self, num_connections: int) -> float:
        """Seconds to leave it to another process; 0 to take it."""
        self.count(num_connections)
        is_ready = self.board.states[self.number] == READY
        if self.board.may_accept(self.number) or (is_ready and self.times_left >= PATIENCE):
            self.times_left = 0
            return 0.0
        self.times_left += 1
        return LEAVE_SECONDS


def supervise(service: Service, listening: socket.socket, tell: Tell) -> int | None:
    """Serve by several processes until a signal comes; gives the first one.

    Raises InputError or another error where what is served cannot be loaded.
    """
    with tempfile.TemporaryDirectory(prefix="polyrank-") as folder:
        return Supervisor(service, listening, tell, Path(folder)).run()


class Supervisor:
    """The process that starts the others."""

    def __init__(
        self, service: Service, listening: socket.socket, tell: Tell, folder: Path
    ) -> None:
        self.service = service
        self.listening = listening
        self.tell = tell
        self.folder = folder
        self.context = multiprocessing.get_context("spawn")
        number = service.config.workers
        self.board = Board(number, self.context)
        self.processes: dict[int, Any] = {}
        self.pipes: dict[int, Pipe] = {}
        self.started: dict[int, float] = {}
        self.pauses = dict.fromkeys(range(number), FIRST_PAUSE)
        self.starts = dict.fromkeys(range(number), 0.0)
        self.facts: dict[str, Any] | None = None
        self.was_ready = False
        self.signals: list[int] = []

    def run(self) -> int | None:
        """Start all, and start again what ends, until a signal comes."""
        with self.signalled():
            try:
                while not self.signals:
                    for number, moment in list(self.starts.items()):
                        if moment <= time.monotonic():
                            del self.starts[number]
                            self.start(number)
                    self.listen(0.2)
                self.listening.close()
                self.end()
            finally:
                for process in self.processes.values():
                    process.kill()
                    process.join()
        return self.signals[0]

    @contextlib.contextmanager
    def signalled(self) -> Iterator[None]:
        """Pass signals on to all processes."""

        def pass_on(sig: int, frame: Any) -> None:
            if sig != getattr(signal, "SIGHUP", None):
                self.signals.append(sig)
            for process in list(self.processes.values()):
                if process.is_alive():
                    os.kill(process.pid, sig)

        taken = [signal.SIGINT, signal.SIGTERM]
        taken += [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []
        before = {each: signal.signal(each, pass_on) for each in taken}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def start(self, number: int) -> None:
        """Start a process."""
        ours, theirs = self.context.Pipe()
        worker = Worker(
            number=number,
            service=self.service,
            listening=self.listening,
            board=self.board,
            folder=self.folder,
            pipe=theirs,
        )
        self.board.states[number] = LOADING
        process = self.context.Process(target=work, args=(worker,), name=f"worker-{number}")
        process.start()
        theirs.close()
        self.processes[number], self.pipes[number] = process, ours
        self.started[number] = time.monotonic()

    def listen(self, seconds: float) -> None:
        """Hear what processes say, and notice which have ended."""
        watched = {pipe: number for number, pipe in self.pipes.items()}
        if not watched:
            time.sleep(seconds)
        for pipe in wait(list(watched), seconds):
            number = watched[pipe]  # type: ignore[index]
            try:
                kind, value = self.pipes[number].recv()
            except (EOFError, OSError):
                self.ended(number)
                continue
            if kind == "failed" and not self.was_ready:
                raise value
            if kind == "failed":
                LOG.error("process %d could not load: %s", number, value)
            elif kind == "reload":
                self.reload_others(number)
            elif kind == "ready":
                self.ready(value)

    def ready(self, facts: dict[str, Any]) -> None:
        """Tell of what is served when all processes serve it."""
        self.facts = facts
        if not self.was_ready and all(state == READY for state in self.board.states):
            self.was_ready = True
            self.tell({**facts, "pid": os.getpid()})

    def reload_others(self, number: int) -> None:
        """Have the other processes reload as this one has."""
        for other, process in self.processes.items():
            if other != number and process.is_alive():
                os.kill(process.pid, signal.SIGHUP)

    def ended(self, number: int) -> None:
        """Start a process again that has ended, the later the more often it ends."""
        process = self.processes.pop(number)
        self.pipes.pop(number).close()
        process.join()
        self.board.states[number] = ABSENT
        if self.signals:
            return
        if time.monotonic() - self.started[number] > STABLE_SECONDS:
            self.pauses[number] = FIRST_PAUSE
        pause = self.pauses[number]
        self.pauses[number] = min(2 * pause, LONGEST_PAUSE)
        self.starts[number] = time.monotonic() + pause
        LOG.error("process %d ended with code %s and is started again", number, process.exitcode)

    def end(self) -> None:
        """Wait for all processes to answer what they have accepted."""
        config = self.service.config
        end = time.monotonic() + config.drain_seconds + config.timeout + 10
        while self.processes and time.monotonic() < end:
            self.listen(0.1)


def work(worker: Worker) -> None:
    """What a process does."""
    os.setpgrp()  # Ctrl-C of the terminal goes to the first process, which passes it on
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the server takes the signals
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    config = worker.service.config
    configure(config.log_format)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (cores or 1) // config.workers)))
    threading.Thread(target=follow, args=(worker.pipe,), daemon=True).start()
    board, number = worker.board, worker.number

    def loaded(app: FastAPI) -> None:
        app.state.scrape = Scrape(app.state.metrics, worker.number, config.workers, worker.folder)
        app.state.on_reload = lambda: worker.pipe.send(("reload", None))
        answering.append(
            asyncio.get_running_loop().create_task(
                asyncio.start_unix_server(app.state.scrape.answer, path)
            )
        )

    def ready(facts: Any) -> None:
        board.states[number] = READY
        worker.pipe.send(("ready", facts))

    answering: list[asyncio.Task[Any]] = []
    path = str(worker.folder / str(number))
    Path(path).unlink(missing_ok=True)
    try:
        run(worker.service, worker.listening, ready, prepare=loaded, gate=SharedGate(worker))
    except Exception as error:
        worker.pipe.send(("failed", told(error)))
        raise SystemExit(1) from None


def told(error: Exception) -> PolyrankError:
    """What the first process is told of a failure; the log has what only developers understand."""
    if isinstance(error, PolyrankError):
        return error
    if is_out_of_memory(error):
        return OutOfMemoryError(error)
    log_failure("loading", error)
    return PolyrankError(
        f"A process could not load: {type(error).__name__}.", "The log says where."
    )


def follow(pipe: Pipe) -> None:
    """End this process if the first one is gone."""
    with contextlib.suppress(EOFError, OSError):
        pipe.recv()
    os.kill(os.getpid(), signal.SIGTERM)

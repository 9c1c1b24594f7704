"""Whether the server stands a storm: thousands of requests, some malformed, some given up.

python -m benchmarks.serving_storm [--data DATA] [--output FILE.json]

200 clients send 10,000 requests to embeddings, rerank, score and search. A tenth is malformed, and
of a tenth the client goes away at a random moment. These must hold, or the exit status is 1:

- Every right request gets the answer that the models give for its own texts in Python, and every
  malformed one the documented status and body.
- A probe, in a process of its own, asks for /health every 50 ms and never waits for 100 ms.
- The server's memory in the second half is within 5% of that in the first, in the median and at the
  most.
- The server lives, has logged no traceback, answers as before, and ends with status 0.

Models and an index are kept in --work, build/serving by default.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from benchmarks.load import Client, ask, together
from benchmarks.results_store import table
from benchmarks.server_process import ServerProcess, polyrank_server, share_cores
from benchmarks.serving_models import candidates_file, index_folder, model_folder
from benchmarks.storm_requests import (
    KEY,
    MAX_BODY_MB,
    MAX_ITEMS,
    Models,
    RightRequests,
    Shot,
    given_up,
    malformed,
)
from benchmarks.timing import machine
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries
from polyrank.retrieval.index import Index

CANDIDATES = 2000
GROWTH = 1.05
"""How many times the first half's memory the second half may take."""
SLOWEST_MS = 100.0
"""What /health may take at the most."""
WARMING = 0.1
"""The share of further requests that come first, while nothing is measured: oneDNN keeps a kernel
for every shape of a batch that it meets, and most are met early."""
SHOWN = 20
"""How many wrong answers are printed."""


@dataclass
class Outcome:
    """What became of the requests of one kind."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    given_up: int = 0
    """How many were cancelled before their answer."""


Outcomes = dict[str, Outcome]


def loaded(folders: dict[str, Path], index: Path) -> Models:
    """The models as they are served, in float32."""
    place = {"device": "cpu", "dtype": "float32"}
    poly = PolyEncoder.from_pretrained(folders["poly"], **place)
    return Models(
        BiEncoder.from_pretrained(folders["bi"], **place),
        poly,
        CrossEncoder.from_pretrained(folders["cross"], **place),
        Index.open(index, poly),
    )


def make_shots(source: RightRequests, count: int, seed: int) -> list[Shot]:
    """A tenth malformed, a tenth cancelled, the others right."""
    draw = random.Random(seed)
    tenth = count // 10
    shots = [malformed(draw, source.texts) for _ in range(tenth)]
    shots += [given_up(draw, shot) for shot in source.take(tenth)]
    shots += source.take(count - 2 * tenth)
    draw.shuffle(shots)
    return shots


async def fire(port: int, shots: Sequence[Shot], clients: int) -> Outcomes:
    """Send every request once and check every answer."""
    outcomes: Outcomes = collections.defaultdict(Outcome)
    waiting = iter(shots)

    async def one(client: Client) -> None:
        for shot in waiting:
            outcome = outcomes[shot.kind]
            try:
                wrong = await answered(client, shot)
            except asyncio.TimeoutError:
                outcome.given_up += 1
                continue
            except (OSError, KeyError, TypeError, ValueError) as error:
                wrong = repr(error)
            if wrong is None:
                outcome.right += 1
            else:
                outcome.wrong.append(wrong)

    await together([Client(port) for _ in range(clients)], one)
    return dict(outcomes)


async def answered(client: Client, shot: Shot) -> str | None:
    """What is wrong with the answer; TimeoutError if the client went away before it came."""
    try:
        answer = await asyncio.wait_for(client.send(shot.raw), shot.cancelled_after)
    except asyncio.TimeoutError:
        client.close()
        raise
    return shot.check(answer)


class Watch:
    """Samples the memory of a server until it is left."""

    def __init__(self, server: ServerProcess, every: float = 0.2) -> None:
        self.samples: list[int] = []
        self._ended = threading.Event()
        self._server, self._every = server, every
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._ended.wait(self._every):
            self.samples.append(self._server.resident())

    def halves(self) -> tuple[list[int], list[int]]:
        """The samples of the first half of the time, and those of the second."""
        middle = len(self.samples) // 2
        return self.samples[:middle], self.samples[middle:]

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._thread.join()


@contextlib.contextmanager
def probed(port: int) -> Iterator[list[float]]:
    """Probe /health meanwhile; the list holds the milliseconds afterwards."""
    found: list[float] = []
    command = [sys.executable, "-m", "benchmarks.health_probe", str(port), "--every", "0.05"]
    probe = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield found
    finally:
        output, _ = probe.communicate()
    found += [1000 * seconds for seconds in json.loads(output)]


def problems(
    outcomes: Outcomes, health: Sequence[float], watch: Watch, server: ServerProcess
) -> list[str]:
    """Everything that must hold and does not."""
    found = [
        f"{kind}: {len(outcome.wrong)} wrong answers, such as {outcome.wrong[0]}"
        for kind, outcome in outcomes.items()
        if outcome.wrong
    ]
    if not health or max(health) >= SLOWEST_MS:
        found.append(f"/health took {max(health, default=np.inf):.0f} ms of {SLOWEST_MS:.0f}")
    first, second = watch.halves()
    for name, measure in (("median", statistics.median), ("greatest", max)):
        ratio = measure(second) / measure(first)
        if not 2 - GROWTH <= ratio <= GROWTH:
            found.append(f"the {name} memory of the second half is {ratio:.3f} times the first's")
    if server.popen.poll() is not None:
        found.append(f"the server ended with status {server.popen.returncode}")
    if "Traceback" in server.output():
        found.append(f"the server logged a traceback, see {server.log}")
    return found


def report(outcomes: Outcomes, health: Sequence[float], watch: Watch) -> dict[str, Any]:
    """What was measured, for people and for programs."""
    rows = [
        [kind, each.right, each.given_up, len(each.wrong)]
        for kind, each in sorted(outcomes.items())
    ]
    print(f"\n{table(['requests', 'right', 'given up', 'wrong'], rows)}")
    first, second = watch.halves()
    memory = {
        half: {"median": statistics.median(samples) / 2**20, "greatest": max(samples) / 2**20}
        for half, samples in (("first half", first), ("second half", second))
    }
    print(
        f"\n/health: {len(health)} times, median {np.median(health):.1f} ms, 99th percentile "
        f"{np.percentile(health, 99):.1f} ms, slowest {max(health):.1f} ms"
    )
    for half, each in memory.items():
        print(
            f"memory in the {half}: median {each['median']:.1f} MiB, "
            f"greatest {each['greatest']:.1f} MiB"
        )
    kinds = {
        kind: {"right": each.right, "given_up": each.given_up, "wrong": each.wrong}
        for kind, each in outcomes.items()
    }
    return {"requests": kinds, "health_ms": list(health), "memory_mib": memory}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="a folder of text data sets")
    parser.add_argument("--work", type=Path, default=Path("build/serving"))
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="a JSON file for every figure")
    options = parser.parse_args()
    quieten_libraries()
    share_cores(options.cores)
    folders = {name: model_folder(options.work, name) for name in ("poly", "cross")}
    folders["bi"] = default_base()
    candidates = candidates_file(options.work, options.data, CANDIDATES)
    index = index_folder(options.work, folders["poly"], candidates, "exact")
    source = RightRequests(loaded(folders, index), options.data, options.seed)
    started = time.perf_counter()
    warming = make_shots(source, round(WARMING * options.requests), options.seed + 1)
    shots = make_shots(source, options.requests, options.seed)
    print(
        f"{len(shots):,} requests and their answers made in {time.perf_counter() - started:.0f} s"
    )
    command = polyrank_server(
        *itertools.chain.from_iterable(("--model", f"{n}={f}") for n, f in folders.items()),
        *("--index", str(index), "--dtype", "float32"),
        *("--max-items", str(MAX_ITEMS), "--max-body-mb", str(MAX_BODY_MB)),
    )
    log = options.work / "storm.log"
    with ServerProcess(command, log=log, environment={"POLYRANK_API_KEYS": KEY}) as server:
        uvloop.run(fire(server.port, warming, options.clients))
        started = time.perf_counter()
        with Watch(server) as watch, probed(server.port) as health:
            outcomes = uvloop.run(fire(server.port, shots, options.clients))
        seconds = time.perf_counter() - started
        wrong = problems(outcomes, health, watch, server)
        after = next(shot for shot in shots if shot.kind == "embeddings")
        [answer] = uvloop.run(ask(server.port, [after.raw]))
        if (late := after.check(answer)) is not None:
            wrong.append(f"after the storm: {late}")
        server.stop()
        if server.popen.returncode != 0:
            wrong.append(f"SIGTERM ended the server with status {server.popen.returncode}")
    content = report(outcomes, health, watch)
    print(f"\n{len(shots):,} requests, {options.clients} clients, {seconds:.0f} s; {machine()}")
    print(*(f"MISSED: {each}" for each in wrong) if wrong else ["everything holds"], sep="\n")
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        content |= {"machine": machine(), "seconds": seconds, "problems": wrong}
        options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

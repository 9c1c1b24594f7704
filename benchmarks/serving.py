r"""Embeddings per second and latency under many clients: our server against others.

python -m benchmarks.serving [--infinity ENVIRONMENT] [--data DATA] [--output FILE.json]

Every server has the same weights, all-MiniLM-L6-v2, and the same two cores, and so has the load. A
round measures each of them once, while the others are paused. Clients wait for an answer before
they send the next request, four in five of them one text, the others 8 or 32; texts have 3 to 250
tokens, spread evenly on a logarithmic scale. All servers of a round get the same requests, which no
other round repeats. The vectors are compared, too.

Peers: a FastAPI app that encodes one request after another (`benchmarks/plain_server.py`), and, if
its environment is given, Infinity 0.0.78, in float32, its default on a CPU, and in bfloat16:

    python3.11 -m venv ENVIRONMENT
    ENVIRONMENT/bin/pip install torch==2.13.0      # the CPU build
    ENVIRONMENT/bin/pip install "infinity-emb[torch,server]==0.0.78" "optimum<2" "transformers<4.49"

The last two let it use BetterTransformer, its default, which computes no padding. With them came
optimum 1.27.0, transformers 4.48.3, sentence-transformers 3.4.1, typer 0.12.5 and numpy 1.26.4.
Without them it takes transformers 4.57.6 and leaves BetterTransformer out, which can be measured
in the same run: --infinity bare=OTHER. Telemetry is off, and nothing is downloaded.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import uvloop
from numpy.typing import NDArray

from benchmarks.load import Load, Request, ask, closed_loop, post
from benchmarks.results_store import table
from benchmarks.server_process import ServerProcess, polyrank_server, share_cores
from benchmarks.texts import TextsOfLengths
from benchmarks.timing import machine
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries

Format = Literal["float", "base64"]
FORMATS: tuple[Format, ...] = ("float", "base64")
MODEL = "minilm"
DTYPES = ("float32", "bfloat16")
SIZES, WEIGHTS = (1, 8, 32), (0.80, 0.15, 0.05)
LENGTHS = 3, 250
COLUMNS = (
    "server",
    "embeddings/s",
    *(f"p{percent} ms" for percent in (50, 95, 99)),
    "per core second",
    "its cores",
    "the load's",
)
WARMING_SECONDS = 1.0
BEFORE = 3.0
"""Seconds of load before a period, so that the server is as busy at its start as at its end."""
FASTER = 1.5
"""How many times the embeddings per second of the peer we want."""
POOL = 400
"""Requests that are prepared for each second, more than any server answers."""


def commands(infinity: Sequence[str]) -> dict[str, list[str]]:
    """The servers by name, ours first; of each environment in two precisions."""
    folder = str(default_base())
    servers = {
        f"polyrank {dtype}": polyrank_server("--model", f"{MODEL}={folder}", "--dtype", dtype)
        for dtype in DTYPES
    }
    for source in infinity:
        name, is_named, environment = source.rpartition("=")
        executable = str(Path(environment).resolve() / "bin" / "infinity_emb")
        options = ["--model-id", folder, "--served-model-name", MODEL, "--url-prefix", "/v1"]
        place = ["--engine", "torch", "--device", "cpu", "--host", "127.0.0.1", "--port", "PORT"]
        for dtype in DTYPES:
            label = f"{name if is_named else 'Infinity'} {dtype}"
            servers[label] = [executable, "v2", *options, *place, "--dtype", dtype]
    plain = [sys.executable, "-m", "benchmarks.plain_server", folder, "--port", "PORT"]
    return {**servers, "plain float32": plain}


def make_requests(
    texts: TextsOfLengths, draw: random.Random, count: int, encoding: Format
) -> list[Request]:
    """Prepared requests of one text, 8 or 32."""
    sizes = draw.choices(SIZES, WEIGHTS, k=count)
    return [request_of(texts.take(size), encoding) for size in sizes]


def request_of(texts: Sequence[str], encoding: Format) -> Request:
    """A request for the vectors of some texts; one text comes as a string, as clients send it."""
    body = {
        "model": MODEL,
        "input": texts[0] if len(texts) == 1 else texts,
        "encoding_format": encoding,
    }
    return Request(post("/v1/embeddings", body), len(texts))


def vectors_of(server: ServerProcess, texts: Sequence[str], encoding: Format) -> NDArray[Any]:
    """The server's vectors of some texts, (n, d)."""
    [answer] = uvloop.run(ask(server.port, [request_of(texts, encoding).raw]))
    if answer.status != 200:
        raise SystemExit(f"the server answered {answer.status}: {answer.body[:500]!r}")
    rows = [each["embedding"] for each in answer.json()["data"]]
    if encoding == "base64":
        rows = [np.frombuffer(base64.b64decode(row), np.float32) for row in rows]
    return np.array(rows, np.float32)


def lowest_cosines(servers: dict[str, ServerProcess], texts: Sequence[str]) -> dict[str, float]:
    """How near the vectors of each server are to those of the last, of the text that is worst."""
    vectors = {}
    for name, server in servers.items():
        found = [vectors_of(server, texts, encoding) for encoding in FORMATS]
        np.testing.assert_allclose(found[0], found[1], rtol=0, atol=0.02)
        vectors[name] = found[0] / np.linalg.norm(found[0], axis=1, keepdims=True)
    last = vectors[list(servers)[-1]]
    return {name: float((rows * last).sum(1).min()) for name, rows in vectors.items()}


def measure(
    servers: dict[str, ServerProcess], options: argparse.Namespace
) -> dict[str, dict[Format, list[dict[str, float]]]]:
    """The figures of every round, by server and by format; the servers are paused meanwhile."""
    texts = TextsOfLengths(options.data, *LENGTHS, seed=options.seed)
    draw = random.Random(options.seed)
    found: dict[str, dict[Format, list[dict[str, float]]]] = {
        name: {encoding: [] for encoding in FORMATS} for name in servers
    }
    for each in servers.values():
        each.pause()
    for number in range(-1, options.rounds):  # the first only warms up
        seconds = options.seconds if number >= 0 else WARMING_SECONDS
        for encoding in FORMATS:
            requests = make_requests(texts, draw, round(POOL * (BEFORE + seconds)), encoding)
            for name, server in servers.items():
                server.resume()
                used = server.processor_seconds()
                load = uvloop.run(
                    closed_loop(server.port, requests, options.clients, seconds, before=BEFORE)
                )
                used = server.processor_seconds() - used
                server.pause()
                if number >= 0:
                    found[name][encoding].append(figures(load, used))
                    line = figures_line(found[name][encoding][-1])
                    print(f"round {number + 1}, {encoding}, {name}: {line}", flush=True)
    return found


def figures(load: Load, processor_seconds: float) -> dict[str, float]:
    """What one period says; latencies in milliseconds."""
    return {
        "embeddings_per_second": load.items_per_second,
        "requests": len(load.latencies),
        **{f"p{percent}": load.latency(percent) for percent in (50, 95, 99)},
        "embeddings_per_core_second": load.all_items / processor_seconds,
        "server_cores": processor_seconds / load.elapsed,
        "load_cores": load.processor_seconds / load.elapsed,
    }


def figures_line(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in found.items())


def median_of(rounds: Sequence[dict[str, float]], name: str) -> float:
    """The median of a figure over the rounds."""
    return statistics.median(each[name] for each in rounds)


def median_ratio(
    ours: Sequence[dict[str, float]], theirs: Sequence[dict[str, float]], name: str
) -> float:
    """The median over the rounds of how many times the peer's figure ours is."""
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(own[name] / their[name] for own, their in pairs)


def rows_of(
    found: dict[str, dict[Format, list[dict[str, float]]]], encoding: Format
) -> list[list[Any]]:
    """A row for each server: medians, and how its rate compares with that of each peer."""
    columns: list[tuple[str, Callable[[float], str]]] = [
        ("embeddings_per_second", "{:.0f}".format),
        *((f"p{percent}", "{:.0f}".format) for percent in (50, 95, 99)),
        ("embeddings_per_core_second", "{:.0f}".format),
        ("server_cores", "{:.2f}".format),
        ("load_cores", "{:.3f}".format),
    ]
    rows = []
    for name, by_format in found.items():
        rounds = by_format[encoding]
        ratios = [
            median_ratio(rounds, found[peer][encoding], "embeddings_per_second")
            for peer in peers_of(found)
        ]
        medians = [text(median_of(rounds, column)) for column, text in columns]
        rows.append([name, *medians, *(f"{ratio:.2f}" for ratio in ratios)])
    return rows


def peers_of(found: Any) -> list[str]:
    """The servers that are not ours."""
    return [name for name in found if not name.startswith("polyrank")]


def verdicts(found: dict[str, dict[Format, list[dict[str, float]]]]) -> list[str]:
    """Ours against the first peer of the same precision; the first of all where none has it."""
    lines = []
    peers = peers_of(found)
    for name in found.keys() - set(peers):
        alike = [peer for peer in peers if peer.split()[-1] == name.split()[-1]]
        peer = (alike or peers)[0]
        for encoding in FORMATS:
            ours, theirs = found[name][encoding], found[peer][encoding]
            rate = median_ratio(ours, theirs, "embeddings_per_second")
            slowest = median_ratio(ours, theirs, "p99")
            reached = "reached" if rate >= FASTER and slowest < 1 else "MISSED"
            lines.append(
                f"{reached}: {name}, {encoding}: {rate:.2f} times the embeddings per second of "
                f"{peer} (target: {FASTER}), {slowest:.2f} times its p99 latency (below 1)"
            )
    return sorted(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--infinity",
        action="append",
        default=[],
        metavar="[NAME=]ENVIRONMENT",
        help="an environment that has infinity-emb; repeat it for several",
    )
    parser.add_argument("--data", type=Path, help="a folder of text data sets")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--logs", type=Path, default=Path("build/serving"))
    parser.add_argument("--output", type=Path, help="a JSON file for every figure")
    options = parser.parse_args()
    quieten_libraries()
    share_cores(options.cores)
    with contextlib.ExitStack() as running:
        servers = {
            name: running.enter_context(
                ServerProcess(command, log=options.logs / f"{name.replace(' ', '-')}.log")
            )
            for name, command in commands(options.infinity).items()
        }
        cosines = lowest_cosines(servers, TextsOfLengths(options.data, *LENGTHS, seed=-1).take(64))
        found = measure(servers, options)
    load = f"{options.clients} clients, {options.rounds} rounds of {options.seconds:g} s"
    print(f"\n{load}; {machine()}")
    for encoding in FORMATS:
        columns = [*COLUMNS, *(f"× {peer}" for peer in peers_of(found))]
        print(f"\n{encoding}\n\n{table(columns, rows_of(found, encoding))}")
    print(f"\nlowest cosine to {list(found)[-1]}:")
    for name, cosine in cosines.items():
        print(f"  {name}: {cosine:.6f}")
    print(*verdicts(found), sep="\n")
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        settings = {key: str(value) for key, value in vars(options).items()}
        report = {"machine": machine(), "options": settings, "cosines": cosines, "rounds": found}
        options.output.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

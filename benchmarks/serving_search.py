"""Search over HTTP: a poly-encoder's latency for one client, and for many at once.

python -m benchmarks.serving_search [--model POLY] [--data DATA] [--workers N]
    [--output FILE.json]

An index of 100,000 short texts, searched exactly, and another with a structure for approximate
search (hnsw), each behind a server of its own. Contexts are short questions or dialogues of six
turns; no context is sent twice in a round. In every round, one client sends one request after
another, and then 16 clients do; the other server is paused. The target: with 16 clients, the 95th
percentile is below 4 times the median of one client.

The headers of the answers say where the time goes; `Python` is `index.search` of one context after
another in this process. Some answers are compared with those of `index.search` beforehand.

Models and indexes are kept in --work, build/serving by default, for the next run. Without --model,
the poly-encoder is all-MiniLM-L6-v2 with 64 new codes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks.load import TIMES, Load, Request, ask, closed_loop, post
from benchmarks.results_store import table
from benchmarks.server_process import ServerProcess, polyrank_server, share_cores
from benchmarks.serving_models import candidates_file, index_folder, model_folder
from benchmarks.texts import TextsOfLengths
from benchmarks.timing import machine
from polyrank.progress import quieten_libraries
from polyrank.records import Context
from polyrank.retrieval.index import Index

BACKENDS = ("exact", "hnsw")
KINDS = ("question", "dialogue")
QUESTION, TURN, NUM_TURNS = (6, 16), (8, 30), 6
"""How many tokens a question and a turn have, and how many turns a dialogue."""
TOP_K = 10
MOST = 4.0
"""How many times the latency of one client the 95th percentile of many may be."""
RATE = 300
"""Requests that are prepared for each second, more than are answered."""
COMPARED = 20
SAME = 1e-2
"""How far apart scores may be: bfloat16 batches of another shape round in another way."""


class Contexts:
    """An endless supply of contexts of each kind."""

    def __init__(self, data: Path | None, seed: int) -> None:
        self.questions = TextsOfLengths(data, *QUESTION, seed=seed)
        self.turns = TextsOfLengths(data, *TURN, seed=seed + 1)

    def take(self, kind: str, count: int) -> list[Context]:
        """The next `count` contexts of a kind."""
        if kind == "question":
            return list(self.questions.take(count))
        return [self.turns.take(NUM_TURNS) for _ in range(count)]


def request_of(context: Context) -> Request:
    """A search for one context."""
    body = {"context": context, "top_k": TOP_K, "rerank": False}
    return Request(post("/search", body))


def check(server: ServerProcess, index: Index, contexts: Sequence[Context]) -> None:
    """End the benchmark unless the served hits are those of `index.search`."""
    answers = uvloop.run(ask(server.port, [request_of(context).raw for context in contexts]))
    for context, answer in zip(contexts, answers, strict=True):
        if answer.status != 200:
            raise SystemExit(f"the server answered {answer.status}: {answer.body[:500]!r}")
        served = [hit["score"] for hit in answer.json()["results"][0]["hits"]]
        expected = [hit.score for hit in index.search([context], TOP_K)[0]]
        if len(served) != len(expected) or any(
            abs(one - other) > SAME for one, other in zip(served, expected, strict=True)
        ):
            raise SystemExit(f"served {served}, expected {expected} for {context!r}")


def in_python(index: Index, contexts: Sequence[Context]) -> float:
    """The median milliseconds of `index.search`, one context after another."""
    found = []
    for context in contexts:
        started = time.perf_counter()
        index.search([context], TOP_K)
        found.append(time.perf_counter() - started)
    return 1e3 * statistics.median(found)


def figures(load: Load) -> dict[str, float]:
    """What one period says, in milliseconds but for the first."""
    return {
        "searches_per_second": load.items_per_second,
        **{f"p{percent}": load.latency(percent) for percent in (50, 95, 99)},
        **load.median_times(),
    }


Found = dict[str, dict[str, dict[str, list[dict[str, float]]]]]
"""Figures by index, kind of context, number of clients, and round."""


def measure(
    servers: dict[str, ServerProcess], indexes: dict[str, Index], options: argparse.Namespace
) -> Found:
    """The figures of every round."""
    contexts = Contexts(options.data, options.seed)
    found: Found = {
        name: {kind: {"1": [], "many": [], "Python": []} for kind in KINDS} for name in servers
    }
    for server in servers.values():
        server.pause()
    for number in range(-1, options.rounds):  # the first only warms up
        for name, server in servers.items():
            for kind in KINDS:
                here = found[name][kind]
                python = {"p50": in_python(indexes[name], contexts.take(kind, options.compared))}
                server.resume()
                loads = {}
                for label, clients in (("1", 1), ("many", options.clients)):
                    needed = round(RATE * (options.seconds + options.before))
                    requests = [request_of(each) for each in contexts.take(kind, needed)]
                    loads[label] = uvloop.run(
                        closed_loop(
                            *(server.port, requests, clients, options.seconds),
                            before=options.before,
                            keep_times=True,
                        )
                    )
                server.pause()
                if number >= 0:
                    here["Python"].append(python)
                    for label, load in loads.items():
                        here[label].append(figures(load))
                    print(f"round {number + 1}, {name}, {kind}: {line_of(here)}", flush=True)
    return found


def line_of(here: dict[str, list[dict[str, float]]]) -> str:
    one, many = here["1"][-1], here["many"][-1]
    return (
        f"one client {one['p50']:.1f} ms; many: {many['p50']:.1f}, p95 {many['p95']:.1f}; "
        f"{many['searches_per_second']:.1f} a second; Python {here['Python'][-1]['p50']:.1f} ms"
    )


def median_of(rounds: Sequence[dict[str, float]], name: str) -> float:
    return statistics.median(each[name] for each in rounds)


def ratio_of(here: dict[str, list[dict[str, float]]]) -> float:
    """The 95th percentile of many over the median of one, the median of the rounds."""
    pairs = zip(here["many"], here["1"], strict=True)
    return statistics.median(many["p95"] / one["p50"] for many, one in pairs)


def report(found: Found, clients: int) -> None:
    """Print the latencies, where the time goes, and whether the target is reached."""
    columns = ["index", "contexts", "Python ms", "1: p50", "1: p95"]
    columns += [f"{clients}: p50", f"{clients}: p95", f"{clients}: p99", "p95 / single"]
    rows, parts = [], []
    for name, kinds in found.items():
        for kind, here in kinds.items():
            one, many = here["1"], here["many"]
            cells = [median_of(here["Python"], "p50"), median_of(one, "p50"), median_of(one, "p95")]
            cells += [median_of(many, each) for each in ("p50", "p95", "p99")]
            rows.append([name, kind, *(f"{cell:.1f}" for cell in cells), f"{ratio_of(here):.2f}"])
            for label, rounds in (("1", one), (str(clients), many)):
                rate = median_of(rounds, "searches_per_second")
                times = [median_of(rounds, each) for each in TIMES]
                parts.append([name, kind, label, *(f"{each:.1f}" for each in (rate, *times))])
    print(f"\nmilliseconds\n\n{table(columns, rows)}")
    names = [each.removeprefix("x-").removesuffix("-time") for each in TIMES]
    print(
        f"\nwhere the time goes, medians in milliseconds\n\n"
        f"{table(['index', 'contexts', 'clients', 'searches/s', *names], parts)}\n"
    )
    for name, kinds in found.items():
        for kind, here in kinds.items():
            ratio = ratio_of(here)
            reached = "reached" if ratio < MOST else "MISSED"
            print(
                f"{reached}: {name}, {kind}: p95 is {ratio:.2f} times one client's latency "
                f"(target: below {MOST:g})"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="the folder of a poly-encoder")
    parser.add_argument("--data", type=Path, help="a folder of text data sets")
    parser.add_argument("--work", type=Path, default=Path("build/serving"))
    parser.add_argument("--count", type=int, default=100_000, help="candidates")
    parser.add_argument("--backends", nargs="+", default=BACKENDS)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--before", type=float, default=2.0, help="seconds of load before those")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compared", type=int, default=COMPARED)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--workers", type=int, default=1, help="processes of each server")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="a JSON file for every figure")
    options = parser.parse_args()
    quieten_libraries()
    share_cores(options.cores)
    model = options.model or model_folder(options.work, "poly")
    candidates = candidates_file(options.work, options.data, options.count)
    folders = {
        backend: index_folder(options.work, model, candidates, backend)
        for backend in options.backends
    }
    with contextlib.ExitStack() as running:
        indexes = {
            name: running.enter_context(Index.open(folder)) for name, folder in folders.items()
        }
        servers = {
            name: running.enter_context(
                ServerProcess(
                    polyrank_server("--index", str(folder), "--workers", str(options.workers)),
                    log=options.work / f"search-{name}.log",
                )
            )
            for name, folder in folders.items()
        }
        compared = Contexts(options.data, seed=-10)
        for name, server in servers.items():
            for kind in KINDS:
                check(server, indexes[name], compared.take(kind, options.compared))
        found = measure(servers, indexes, options)
    load = f"{options.rounds} rounds of {options.seconds:g} s, --workers {options.workers}"
    print(f"\n{options.count:,} candidates, top {TOP_K}, {load}; {machine()}")
    report(found, options.clients)
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        settings = {key: str(value) for key, value in vars(options).items()}
        content = {"machine": machine(), "options": settings, "rounds": found}
        options.output.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

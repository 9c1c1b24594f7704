r"""What a server of some size answers, and what memory it takes.

python -m benchmarks.serving_sizing [--models 22M,109M,335M] [--cores 1,2] [--output FILE.json]

A row for each encoder, number of cores and `--workers`: texts embedded per second for 32 clients
that send one text, 8 or 32 (3 to 250 tokens), the median time of one text alone, pairs scored per
second by a cross-encoder of the same encoder for 8 clients that rerank 20 passages each, and the
memory of all processes of each server after the load. Pages that processes share count once.

22M is all-MiniLM-L6-v2. The others have the shape of BERT base and large, and random weights: the
values of weights do not change the time. The models are as `polyrank train` makes them by default:
an encoder for each side. The load runs on the same cores.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any

import uvloop

from benchmarks.load import Request, closed_loop, post
from benchmarks.results_store import table
from benchmarks.server_process import ServerProcess, polyrank_server
from benchmarks.serving import LENGTHS, MODEL, POOL, make_requests, request_of
from benchmarks.texts import TextsOfLengths
from benchmarks.timing import machine
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries
from polyrank.storage import write_text

SHAPES = {"22M": (384, 6, 12), "109M": (768, 12, 12), "335M": (1024, 24, 16)}
"""Width, layers and heads by the name of a size."""
CLIENTS, RERANKING_CLIENTS = 32, 8
PASSAGES = 20
WARMING_SECONDS = 3.0


def encoder_of(size: str, work: Path) -> Path:
    """The folder of an encoder, made unless it is there."""
    if size == "22M":
        return default_base()
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    folder = work / size
    if not folder.is_dir():
        width, layers, heads = SHAPES[size]
        config = AutoConfig.from_pretrained(default_base())
        config.hidden_size, config.intermediate_size = width, 4 * width
        config.num_hidden_layers, config.num_attention_heads = layers, heads
        AutoModel.from_config(config).save_pretrained(folder)
        AutoTokenizer.from_pretrained(default_base()).save_pretrained(folder)
    return folder


def models_of(encoder: Path, folder: Path) -> dict[str, Path]:
    """A bi- and a cross-encoder with the weights of an encoder, saved."""
    from polyrank import BiEncoder, CrossEncoder

    kinds = {"bi": BiEncoder, "cross": CrossEncoder}
    for name, kind in kinds.items():
        if not (folder / name).is_dir():
            kind.from_pretrained(encoder, device="cpu").save_pretrained(folder / name)
    return {name: folder / name for name in kinds}


def memory_of(server: ServerProcess) -> float:
    """The memory of all processes in GB; a page that some share counts once."""
    return sum(each.memory_full_info().pss for each in server.family()) / 1e9


def loaded(server: ServerProcess, requests: list[Request], clients: int, seconds: float) -> Any:
    """A period of load, after one that only warms up."""
    uvloop.run(closed_loop(server.port, requests, clients, min(WARMING_SECONDS, seconds)))
    return uvloop.run(closed_loop(server.port, requests, clients, seconds))


def rerank_request(texts: TextsOfLengths, draw: random.Random) -> Request:
    """A request to rerank passages for a question of a few words."""
    query = " ".join(texts.take(1)[0].split()[: draw.randint(4, 12)])
    documents = texts.take(PASSAGES)
    body = {"model": MODEL, "query": query or "a", "documents": documents}
    return Request(post("/v1/rerank", body), len(documents))


def measured(
    models: dict[str, Path], workers: int, texts: TextsOfLengths, options: argparse.Namespace
) -> dict[str, float]:
    """The figures of one row."""
    draw = random.Random(options.seed)
    found = {}
    for name, path in models.items():
        command = polyrank_server(
            "--model", f"{MODEL}={path}", "--workers", str(workers), "--device", "cpu",
            "--dtype", options.dtype,
        )  # fmt: skip
        with ServerProcess(command, log=options.work / f"{name}.log") as server:
            if name == "bi":
                count = round(POOL * options.seconds)
                load = loaded(
                    server, make_requests(texts, draw, count, "base64"), CLIENTS, options.seconds
                )
                alone = [request_of(texts.take(1), "base64") for _ in range(count)]
                one = loaded(server, alone, 1, options.seconds / 2)
                found["texts_per_second"] = load.items_per_second
                found["one_text_ms"] = 1e3 * statistics.median(one.latencies)
                found["bi_gb"] = memory_of(server)
            else:
                made = [rerank_request(texts, draw) for _ in range(round(10 * options.seconds))]
                load = loaded(server, made, RERANKING_CLIENTS, options.seconds)
                found["pairs_per_second"] = load.items_per_second
                found["cross_gb"] = memory_of(server)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="22M,109M,335M", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--cores", default="1,2")
    parser.add_argument("--workers", default="1,2", help="no more of them than cores")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each period of load")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="where the models are kept for another run")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if "OMP_NUM_THREADS" in os.environ:
        raise SystemExit(
            "OMP_NUM_THREADS is set, so the number of cores would not be used: unset it."
        )
    quieten_libraries()
    mine = sorted(os.sched_getaffinity(0))
    texts = TextsOfLengths(None, *LENGTHS, seed=options.seed)
    with tempfile.TemporaryDirectory() as temporary:
        options.work = options.work or Path(temporary)
        print(f"{options.seconds:g} s a period; {machine()}", flush=True)
        rows = []
        for size in options.models.split(","):
            models = models_of(encoder_of(size, options.work), options.work / f"{size}-models")
            for cores in map(int, options.cores.split(",")):
                if len(mine) < cores:
                    raise SystemExit(f"{cores} cores are asked for; there are {len(mine)}.")
                os.sched_setaffinity(0, mine[:cores])  # the servers inherit it
                for workers in map(int, options.workers.split(",")):
                    if workers <= cores:
                        found = measured(models, workers, texts, options)
                        rows.append({"size": size, "cores": cores, "workers": workers, **found})
                        print(rows[-1], flush=True)
    shown = [
        [row["size"], row["cores"], row["workers"], f"{row['texts_per_second']:.0f}",
         f"{row['one_text_ms']:.1f} ms", f"{row['bi_gb']:.2f} GB",
         f"{row['pairs_per_second']:.0f}", f"{row['cross_gb']:.2f} GB"]
        for row in rows
    ]  # fmt: skip
    columns = ["encoder", "cores", "`--workers`", "texts per second", "one text", "memory"]
    print(table([*columns, "pairs per second", "memory"], shown))
    if options.output is not None:
        made = {"machine": machine(), "seconds": options.seconds, "dtype": options.dtype}
        write_text(options.output, json.dumps({**made, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

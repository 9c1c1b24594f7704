"""Search over real sentences: exhaustive, certified and approximate, against exact scans.

Vectors of a trained poly-64, made once and kept; contexts are those of a dialogue data set.

python -m benchmarks.sentences DATA --output TEXTS
    a million texts
python -m benchmarks.search encode MODEL TEXTS CONTEXTS WORK
    their vectors, once
python -m benchmarks.search build MODEL TEXTS WORK --count N --storage bfloat16 --backend hnsw
    an index of the first N, with its seconds and peak memory
python -m benchmarks.search exhaustive WORK
    100k in memory: the kernel, the formula of two products, one-vector scans
python -m benchmarks.search query MODEL CONTEXTS WORK
    encode and search, poly and bi
python -m benchmarks.search million WORK --count N
    scan, certified and approximate search
python -m benchmarks.search certify WORK --count N --queries 1000
    the ids, against brute force
python -m benchmarks.search memory WORK --count N
    what opening and searching adds
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from torch import Tensor

from benchmarks.timing import interleaved, machine, median_ratio
from polyrank.data.loading import load_examples
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.progress import quieten_libraries
from polyrank.retrieval.folder_engine import FolderEngine
from polyrank.retrieval.index import Index
from polyrank.retrieval.search.approximate import search_approximate
from polyrank.retrieval.search.exact import search_exact
from polyrank.scoring.matmul import product
from polyrank.scoring.poly import ExactScorer
from polyrank.scoring.screen import ScreenRows, norms_of, quantised
from polyrank.scoring.topk import BLOCK_ROWS, Best, CandidateBlock, best_rows, top_k

K = 100
STEP = 20_000


class Encoded:
    """A model whose candidates' vectors were made before; they must come in the same order."""

    def __init__(self, model: Any, path: Path) -> None:
        vectors = np.load(path, mmap_mode="r")
        self._model = model
        self._handle = open(path, "rb")  # noqa: SIM115 - read, not mapped: that is not our memory
        self._handle.seek(vectors.offset)
        self._width = vectors.shape[1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def encode_candidates(self, texts: Sequence[str]) -> Tensor:
        """The next vectors."""
        read = np.fromfile(self._handle, np.float32, len(texts) * self._width)
        return torch.from_numpy(read.reshape(len(texts), self._width))


def vectors_of(work: Path) -> np.ndarray:
    return np.load(work / "candidates.npy", mmap_mode="r")


def contexts_of(work: Path) -> Tensor:
    return torch.from_numpy(np.load(work / "contexts.npy", mmap_mode="r"))


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def index_folder(work: Path, count: int, storage: str) -> Path:
    return work / f"index-{count}-{storage}"


def encode(options: argparse.Namespace) -> None:
    """The vectors of all texts and contexts; goes on where it was."""
    options.work.mkdir(parents=True, exist_ok=True)
    model = load_model(options.model)
    contexts = [example.context for example in load_examples(options.contexts)]
    np.save(options.work / "contexts.npy", model.encode_for_scoring(contexts).numpy())
    texts = lines(options.texts)
    path, done = options.work / "candidates.npy", options.work / "encoded.txt"
    place = int(done.read_text()) if done.exists() else 0
    shape = (len(texts), model.dimension)
    mode = "r+" if place else "w+"
    vectors = np.lib.format.open_memmap(path, mode=mode, dtype=np.float32, shape=shape)
    for start in range(place, len(texts), STEP):
        vectors[start : start + STEP] = model.encode_candidates(texts[start : start + STEP]).numpy()
        vectors.flush()
        done.write_text(str(min(start + STEP, len(texts))))
        print(f"{start + STEP:,} of {len(texts):,}", flush=True)


def build(options: argparse.Namespace) -> None:
    """An index of the first texts; its seconds and peak memory, verified."""
    model = load_model(options.model)
    encoded: Any = Encoded(model, options.work / "candidates.npy")
    with open(options.texts, encoding="utf-8") as handle:
        texts = (
            (str(n), line.rstrip("\n")) for n, line in enumerate(islice(handle, options.count))
        )
        started = time.perf_counter()
        index = Index.build(
            encoded,
            texts,
            index_folder(options.work, options.count, options.storage),
            storage=options.storage,
            backend=options.backend,
            contexts=None if options.tune is None else tuning(options),
        )
        seconds = time.perf_counter() - started
        index.verify()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    search = index.engine.manifest.search
    print(
        f"{len(index):,} {options.storage} {options.backend}: {seconds:.0f} s, verified, "
        f"peak {peak:.2f} GiB; {json.dumps(search)}; {machine()}"
    )


def tuning(options: argparse.Namespace) -> list[Any]:
    """200 contexts drawn from those behind the first 1,000, which are measured with."""
    examples = load_examples(options.tune)[1000:]
    return [example.context for example in random.Random(0).sample(examples, 200)]


def one_vector_scans(vectors: np.ndarray) -> dict[str, Callable[[Tensor], object]]:
    """Exact float32 scans for one vector (d,), each with its best k."""
    tensor, count = torch.from_numpy(vectors), len(vectors)
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)

    def scan(vector: Tensor) -> object:
        scores = vectors @ vector.numpy()
        best = np.argpartition(scores, count - K)[count - K :]
        return best[np.argsort(-scores[best])]

    return {
        "one vector, numpy": scan,
        "one vector, torch": lambda vector: torch.topk(tensor @ vector, K),
        "one vector, faiss": lambda vector: flat.search(vector[None].numpy(), K),
    }


def exhaustive(options: argparse.Namespace) -> None:
    """100k candidates in memory: the kernel, the two-product formula, one-vector scans."""
    vectors = np.array(vectors_of(options.work)[: options.count])
    tensor = torch.from_numpy(vectors)
    half, sketch = tensor.bfloat16(), quantised(tensor)
    norms = norms_of(tensor)
    contexts = cycle(contexts_of(options.work)[: options.queries])

    def formula(context: Tensor) -> object:
        logits = torch.einsum("bmd,nd->bmn", context[None], tensor)
        attended = torch.einsum("bmn,bmd->bnd", logits.softmax(1), context[None])
        return torch.topk((attended * tensor[None]).sum(-1), K)

    def over(rows: ScreenRows, stored: Tensor) -> Callable[[Tensor], object]:
        def search(context: Tensor) -> object:
            blocks = [
                CandidateBlock(start, ScreenRows(*(cut(part, start) for part in rows)))
                for start in range(0, len(vectors), BLOCK_ROWS)
            ]
            best = [Best(K, lambda row: row)]
            gather = lambda found: stored[torch.from_numpy(found)].float()  # noqa: E731
            return best_rows(context[None], "basic", blocks, gather, best)

        return search

    def cut(part: Tensor | None, start: int) -> Any:
        return None if part is None else part[start : start + BLOCK_ROWS]

    ways: dict[str, Callable[[Tensor], object]] = {
        "formula, two products": formula,
        **{n: lambda c, f=f: f(c[0]) for n, f in one_vector_scans(vectors).items()},  # type: ignore[misc]
        "poly-64, every score, bfloat16": every_score(lambda: [half]),
        "poly-64, float32": over(ScreenRows(tensor, None, norms), tensor),
        "poly-64, bfloat16": over(ScreenRows(half, None, norms_of(half)), half),
        "poly-64, 8-bit sketch of float32": over(sketch, tensor),
    }
    current: list[Tensor] = [next(contexts)]
    timed = {name: (lambda way=way: way(current[0])) for name, way in ways.items()}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    with torch.inference_mode():
        for _ in range(options.rounds):
            current[0] = next(contexts)
            for name, values in interleaved(timed, 1).items():
                seconds[name] += values
    show(seconds, "formula, two products", fastest(seconds))


def every_score(blocks: Callable[[], Iterable[Tensor]]) -> Callable[[Tensor], object]:
    """Exhaustive search: the score of every candidate in bfloat16 products, a running best k."""

    def search(context: Tensor) -> object:
        multiply = product(context.bfloat16(), 4096)
        best = torch.empty(0)
        for block in blocks():
            for part in block.split(4096):
                logits = multiply(part).float()  # (n, m)
                scores = (logits.softmax(1) * logits).sum(1)
                best = torch.cat([best, scores]).topk(min(K, len(best) + len(scores))).values
        return best

    return search


def fastest(seconds: dict[str, list[float]]) -> str:
    scans = [name for name in seconds if name.startswith("one vector")]
    return min(scans, key=lambda name: statistics.median(seconds[name]))


def show(seconds: dict[str, list[float]], slow: str, quick: str) -> None:
    """Medians, how many times as fast as `slow`, and how many times the time of `quick`."""
    print(machine())
    for name, values in seconds.items():
        print(
            f"{name:34} {1e3 * statistics.median(values):8.2f} ms  "
            f"{median_ratio(seconds, slow, name):7.2f} times as fast as {slow};  "
            f"{1 / median_ratio(seconds, quick, name):6.2f} of {quick}"
        )


def query(options: argparse.Namespace) -> None:
    """Encode and search at 100k candidates: poly-64 and a bi-encoder of the same towers."""
    poly = load_model(options.model)
    bi = BiEncoder.from_pretrained(options.model)
    contexts = [example.context for example in load_examples(options.contexts)]
    folder = index_folder(options.work, options.count, options.storage)
    vectors = np.array(vectors_of(options.work)[: options.count])
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    engine = FolderEngine(folder)
    place = [0]

    def ask(model: Any, **how: Any) -> Callable[[], object]:
        def run() -> object:
            encoded = model.encode_for_scoring([contexts[place[0]]])
            return engine.search(encoded, K, filter=None, **how)

        return run

    def flat_search() -> object:
        encoded = bi.encode_for_scoring([contexts[place[0]]])
        return flat.search(encoded[:, 0].numpy(), K)

    ways = {
        "bi, faiss Flat": flat_search,
        "bi, exact": ask(bi, exact=True),
        "poly-64, exact": ask(poly, exact=True),
        "bi, approximate": ask(bi, exact=False),
        "poly-64, approximate": ask(poly, exact=False),
        "bi, encode only": lambda: bi.encode_for_scoring([contexts[place[0]]]),
        "poly-64, encode only": lambda: poly.encode_for_scoring([contexts[place[0]]]),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        place[0] += 1
        for name, values in interleaved(ways, 1).items():
            seconds[name] += values
    show(seconds, "bi, exact", "bi, exact")


def million(options: argparse.Namespace) -> None:
    """Scan, certified and approximate search of one index; recall and candidates scored."""
    engine = FolderEngine(index_folder(options.work, options.count, options.storage))
    cache, structure = engine.cache, engine.structure
    contexts = contexts_of(options.work)[: options.queries]
    stored = [vectors.components for vectors in cache.vectors]
    every = every_score(lambda: stored)
    ways: dict[str, Callable[[Tensor], Any]] = {
        "every score": lambda c: [every(c[0])],
        "scan": lambda c: search_exact(c, "basic", cache, K, strategy="scan")[0],
        "certified": lambda c: search_exact(c, "basic", cache, K, strategy="bounded")[0],
    }
    if structure is not None:
        ways["approximate"] = lambda c: search_approximate(
            c, "basic", cache, structure.graph, structure.effort, K, cache.alive
        )
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    scored: dict[str, list[int]] = {name: [] for name in ways}
    recall = []
    for context in contexts:
        found = {}
        for name, way in ways.items():
            started = time.perf_counter()
            (found[name],) = way(context[None])
            seconds[name].append(time.perf_counter() - started)
        for name in ("scan", "certified", "approximate"):
            if name in found:
                scored[name].append(found[name].num_scored)
        assert found["scan"].rows == found["certified"].rows
        if "approximate" in found:
            recall.append(len(set(found["scan"].rows) & set(found["approximate"].rows)) / K)
    print(f"{options.count:,} {options.storage}, {len(contexts)} queries")
    show(seconds, "every score", "every score")
    for name, values in scored.items():
        if values:
            print(
                f"{name:34} scored: median {statistics.median(values):,.0f}, most {max(values):,}"
            )
    if recall:
        print(f"recall@{K} of the approximate search {statistics.mean(recall):.4f}")


def certify(options: argparse.Namespace) -> None:
    """The certified hits of many queries are those of brute force, all scores in float32."""
    engine = FolderEngine(index_folder(options.work, options.count, options.storage))
    cache = engine.cache
    contexts = contexts_of(options.work)[: options.queries]
    different, furthest, scored = 0, 0.0, []
    for start in range(0, len(contexts), 8):
        group = contexts[start : start + 8].clone()
        multiply = product(group.flatten(0, 1), 1 << 12)
        best: tuple[Tensor, Tensor] = (
            torch.empty(len(group), 0),
            torch.empty(len(group), 0).long(),
        )
        for first in range(0, cache.num_rows, 1 << 12):
            rows = np.arange(first, min(first + (1 << 12), cache.num_rows))
            logits = multiply(cache.gather(rows)).view(len(rows), *group.shape[:2])  # (n, B, m)
            scores = (logits.softmax(2) * logits).sum(2).T  # (B, n)
            values, places = scores.topk(K)
            values = torch.cat([best[0], values], 1)
            places = torch.cat([best[1], places + first], 1)
            values, kept = values.topk(K)
            best = values, places.gather(1, kept)
        for context, values, places in zip(group, *best, strict=True):
            ((ours,), _) = search_exact(context[None], "basic", cache, K)
            scored.append(ours.num_scored)
            furthest = max(furthest, float((torch.tensor(ours.scores) - values).abs().max()))
            if set(ours.rows) != set(places.tolist()):
                # only a tie, to the rounding of float32, may be decided otherwise
                apart = sorted(set(ours.rows) ^ set(places.tolist()))
                again = ExactScorer(context, "basic").scores(cache.gather(np.array(apart)))
                different += float(again.max() - again.min()) > 1e-5
        print(
            f"{start + len(group):,} queries: {different} different, scores within "
            f"{furthest:.1e}; scored: median {statistics.median(scored):,.0f}, most "
            f"{max(scored):,}",
            flush=True,
        )


def resident() -> tuple[float, float]:
    """GiB of this process: all, and without pages of files."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    whole, anonymous = (int(fields[name].split()[0]) / 2**20 for name in ("VmRSS", "RssAnon"))
    return whole, anonymous


def memory(options: argparse.Namespace) -> None:
    """What opening an index and searching it adds to the memory of a process."""
    contexts = contexts_of(options.work)[: options.queries].clone()
    torch.ones(8, 8) @ torch.ones(8, 8)
    top_k(contexts[:1], torch.randn(1000, contexts.shape[2]), 5)
    before = resident()
    engine = FolderEngine(index_folder(options.work, options.count, options.storage))
    for context in contexts:
        search_exact(context[None], "basic", engine.cache, K, strategy=options.strategy)
    after = resident()
    print(
        f"{options.count:,} {options.storage}, {options.strategy or 'chosen by cost'}: "
        f"{after[0] - before[0]:.2f} GiB more resident, of which {after[1] - before[1]:.2f} are "
        f"not pages of files; {machine()}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    for function, files in (
        (encode, ("model", "texts", "contexts")),
        (build, ("model", "texts")),
        (exhaustive, ()),
        (query, ("model", "contexts")),
        (million, ()),
        (certify, ()),
        (memory, ()),
    ):
        command = commands.add_parser(function.__name__, help=function.__doc__)
        for name in (*files, "work"):
            command.add_argument(name, type=Path)
        command.add_argument("--count", type=int, default=100_000)
        command.add_argument("--storage", default="float32")
        command.add_argument("--backend", default="exact")
        command.add_argument("--tune", type=Path)
        command.add_argument("--queries", type=int, default=100)
        command.add_argument("--rounds", type=int, default=30)
        command.add_argument("--strategy", choices=["scan", "bounded"])
        command.set_defaults(function=function)
    options = parser.parse_args()
    quieten_libraries()
    options.function(options)


if __name__ == "__main__":
    main()

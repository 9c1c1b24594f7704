"""The search structure of an index: a graph, tuned for a recall.

It has a folder of its own below the index: `graph.faiss`, and `contexts.npy`, the contexts it was
tuned and measured with, so that it can be rebuilt without the model.

Recall is the share of the index's exact k best hits. Of all efforts that reach the target on one
half of the contexts, the fastest is chosen; the reported recall is measured on the other half.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import IndexFolderError
from polyrank.progress import bar
from polyrank.retrieval.search.approximate import Effort, neighbours
from polyrank.retrieval.search.exact import search_exact
from polyrank.retrieval.search.graph import Graph, GraphKind, sample_rows
from polyrank.retrieval.store.cache import CandidateCache
from polyrank.retrieval.store.manifest import REBUILD, Manifest
from polyrank.scoring.poly import Attention
from polyrank.storage import storage_errors

GRAPH = "graph.faiss"
CONTEXTS = "contexts.npy"
FEWEST_ROWS = 1000
"""Below this many, a scan is as fast and nothing is built."""

BLOCK_ROWS = 1 << 14
NUM_CONTEXTS = 128
SEED = 0

RECALL_AT = 100
MARGIN = 0.1
"""The tuning half must exceed the target by this share of what is missing to 1."""

PROBES = (2, 4, 8, 16)
SPREADS = (2, 4, 8)
MOST_BREADTH = 4096

SampleContexts = Callable[[CandidateCache], Tensor]
"""Contexts (B, m, d) to tune an index with."""


class Structure(NamedTuple):
    """A graph over the first rows of an index, and the effort of a search in it."""

    graph: Graph
    effort: Effort


def write_structure(
    folder: Path, cache: CandidateCache, kind: GraphKind, contexts: Tensor, recall: float
) -> dict[str, Any]:
    """Build and tune a structure over all rows and write it to `folder`; returns its description.

    Raises StorageError if the disk is full.
    """
    rows = cache.num_rows
    graph = Graph.build(kind, restored_blocks(cache), sampled(cache, sample_rows(kind, rows)), rows)
    attention = cast("Attention", cache.manifest.model.attention)
    effort, measured = tune(graph, contexts, attention, cache, recall)
    with storage_errors(folder):
        try:
            graph.write(folder / GRAPH)
        except RuntimeError as error:  # faiss' form of a failed write
            raise OSError(str(error).splitlines()[0]) from error
        np.save(folder / CONTEXTS, contexts.numpy(), allow_pickle=False)
    return {
        "kind": kind,
        "target": recall,
        "rows": rows,
        "effort": dataclasses.asdict(effort),
        "recall": dataclasses.asdict(measured),
    }


def read_structure(folder: Path, manifest: Manifest) -> Structure | None:
    """The structure of an index, if it has one. Raises IndexFolderError if it is damaged."""
    if manifest.search is None or not manifest.search.get("rows"):
        return None
    search = described(folder, manifest.search)
    graph = Graph.read(search["kind"], folder / search["folder"] / GRAPH, int(search["rows"]))
    return Structure(graph, Effort(**search["effort"]))


def described(folder: Path, search: Mapping[str, Any]) -> Mapping[str, Any]:
    """The description of a structure. Raises IndexFolderError if something is missing."""
    try:
        Effort(**search["effort"])
        int(search["rows"])
        str(search["folder"]), str(search["kind"])
    except (KeyError, TypeError, ValueError) as error:
        raise IndexFolderError(
            f"The manifest of {folder} is damaged: its search structure lacks {error}.", REBUILD
        ) from error
    return search


def tuning_contexts(folder: Path, manifest: Manifest) -> Tensor | None:
    """The contexts that the structure of an index was tuned with, if it has one."""
    if manifest.search is None or not manifest.search.get("rows"):
        return None
    path = folder / described(folder, manifest.search)["folder"] / CONTEXTS
    try:
        return torch.from_numpy(np.load(path, allow_pickle=False))
    except (OSError, ValueError) as error:
        raise IndexFolderError(f"{path} cannot be read: {error}.", REBUILD) from error


def restored_blocks(cache: CandidateCache) -> Iterator[NDArray[np.float32]]:
    """All vectors, deleted ones included, as float32."""
    for start in range(0, cache.num_rows, BLOCK_ROWS):
        yield cache.gather(np.arange(start, min(start + BLOCK_ROWS, cache.num_rows))).numpy()


def sampled(cache: CandidateCache, count: int) -> NDArray[np.float32]:
    """`count` of the vectors, drawn at random."""
    drawn = np.random.default_rng(SEED).choice(cache.num_rows, count, replace=False)
    return cache.gather(np.sort(drawn)).numpy()


def sampled_texts(cache: CandidateCache) -> list[str]:
    """Texts of candidates that serve as contexts if none are given."""
    rows = np.arange(cache.num_rows) if cache.alive is None else np.flatnonzero(cache.alive)
    count = min(NUM_CONTEXTS, len(rows))
    drawn = np.random.default_rng(SEED).choice(rows, count, replace=False)
    return [cache.candidate(int(row)).text for row in np.sort(drawn)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recall:
    """The target and the measurement: recall at k on `contexts` that were not tuned on."""

    target: float
    measured: float
    k: int
    contexts: int


def tune(
    graph: Graph, contexts: Tensor, attention: Attention, cache: CandidateCache, target: float
) -> tuple[Effort, Recall]:
    """Find the effort for a target recall, from at least 2 contexts (B, m, d).

    If no effort reaches the target, the greatest is chosen, and the recall says what it reaches.
    """
    k = min(RECALL_AT, max(1, len(cache) // 10))
    ranked, _ = search_exact(contexts, attention, cache, k)
    truth = [np.array(each.rows) for each in ranked]
    half = len(contexts) // 2

    def worth(tried: tuple[Effort, float, float]) -> tuple[float, float]:
        """The order of efforts, less is better: missing recall, then time."""
        return max(0.0, wanted - tried[1]), tried[2]

    def measure(effort: Effort, part: slice) -> tuple[float, float]:
        """Recall and seconds per context."""
        started = time.perf_counter()
        named = neighbours(contexts[part], graph, effort, k, cache.alive)
        for rows in named:
            cache.gather(rows)  # what is named has to be read, too
        seconds = (time.perf_counter() - started) / len(named)
        return recall_of(named, truth[part]), seconds

    wanted = target + MARGIN * (1 - target)
    best: tuple[Effort, float, float] | None = None
    with bar("Tuning for recall"):
        for probes, spread in product(PROBES, SPREADS):
            for breadth in breadths(graph):
                tried = Effort(probes=probes, spread=spread, breadth=breadth)
                reached, seconds = measure(tried, slice(half))
                if best is not None and best[1] >= wanted and seconds > best[2]:
                    break
                best = min(best or (tried, reached, seconds), (tried, reached, seconds), key=worth)
                if reached >= wanted:
                    break
    assert best is not None
    effort = best[0]
    measured, _ = measure(effort, slice(half, None))
    return effort, Recall(target=target, measured=measured, k=k, contexts=len(contexts) - half)


def recall_of(named: list[NDArray[np.int64]], truth: list[NDArray[np.int64]]) -> float:
    """The share of the true rows that were found."""
    hits = sum(len(np.intersect1d(rows, best)) for rows, best in zip(named, truth, strict=True))
    return hits / max(1, sum(len(best) for best in truth))


def breadths(graph: Graph) -> Iterator[int]:
    """The breadths to try, ascending."""
    breadth = 64 if graph.kind == "hnsw" else 4
    most = min(MOST_BREADTH, graph.most_breadth)
    while breadth < most:
        yield breadth
        breadth *= 2
    yield most

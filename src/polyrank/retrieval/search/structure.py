"""The search structure of an index: a graph, how much effort its searches take, what they find.

It lies in a folder of its own below the index: `graph.faiss`, and `contexts.npy`, the contexts that
it was tuned and measured with, so that it can be built anew without the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polyrank.errors import IndexFolderError
from polyrank.retrieval.search.approximate import Effort
from polyrank.retrieval.search.graph import Graph, GraphKind, sample_rows
from polyrank.retrieval.search.tuning import tune
from polyrank.retrieval.store.cache import CandidateCache
from polyrank.retrieval.store.manifest import REBUILD, Manifest
from polyrank.scoring.poly import Attention
from polyrank.storage import storage_errors

GRAPH = "graph.faiss"
CONTEXTS = "contexts.npy"
FEWEST_ROWS = 1000
"""Below, a scan is as fast and nothing is built."""

BLOCK_ROWS = 1 << 14
NUM_CONTEXTS = 128
SEED = 0

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
    """The structure of an index, if it has one. Raises IndexFolderError where it is damaged."""
    if manifest.search is None or not manifest.search.get("rows"):
        return None
    search = described(folder, manifest.search)
    graph = Graph.read(search["kind"], folder / search["folder"] / GRAPH, int(search["rows"]))
    return Structure(graph, Effort(**search["effort"]))


def described(folder: Path, search: Mapping[str, Any]) -> Mapping[str, Any]:
    """The description of a structure. Raises IndexFolderError where something of it is missing."""
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
    """Texts of candidates to stand for contexts where no contexts are given."""
    rows = np.arange(cache.num_rows) if cache.alive is None else np.flatnonzero(cache.alive)
    count = min(NUM_CONTEXTS, len(rows))
    drawn = np.random.default_rng(SEED).choice(rows, count, replace=False)
    return [cache.candidate(int(row)).text for row in np.sort(drawn)]

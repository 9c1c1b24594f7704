"""Nearest-neighbour structures over candidate vectors, by faiss, for approximate search.

    hnsw    a navigable graph; fastest, and takes longest to build
    ivf     lists around centroids, 8 bits per component
    ivfpq   lists around centroids, product-quantised; a twelfth of the memory or less

They only name candidates; the full score is computed from the stored vectors, so they keep coarse
copies. Their parameters follow from the number of candidates. Knows nothing of contexts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from polyrank.errors import IndexFolderError, MissingExtraError
from polyrank.progress import bar

GraphKind = Literal["hnsw", "ivf", "ivfpq"]
GRAPH_KINDS: tuple[GraphKind, ...] = get_args(GraphKind)

LINKS = 32
"""Neighbours of a node of the graph; twice as many in its lowest layer."""

BREADTH_OF_BUILDING = 200
POINTS_A_CENTROID = 64
FEWEST_POINTS = 1 << 15
PARTS_A_VECTOR = 8
"""Components that the product quantiser turns into one byte."""

Vectors = NDArray[np.float32]


class Graph:
    """One structure over the first `len(graph)` rows of an index."""

    def __init__(self, kind: GraphKind, index: Any) -> None:
        self.kind = kind
        self._index = index

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def most_breadth(self) -> int:
        """The breadth beyond which nothing is gained."""
        return len(self) if self.kind == "hnsw" else int(self._index.nlist)

    @classmethod
    def build(cls, kind: GraphKind, blocks: Iterable[Vectors], sample: Vectors, rows: int) -> Graph:
        """Build it from blocks (n, d) that hold `rows` vectors, trained on a `sample` (s, d).

        Raises MissingExtraError without faiss.
        """
        index = empty_index(kind, sample, rows)
        with bar(f"Building {kind}", total=rows, unit="vectors") as advance:
            for block in blocks:
                for start in range(0, len(block), 4096):  # a short step, so that Ctrl-C is heard
                    part = np.ascontiguousarray(block[start : start + 4096])
                    index.add(part)
                    advance(len(part))
        return cls(kind, index)

    def write(self, path: Path) -> None:
        """Write it to a file."""
        faiss().write_index(self._index, str(path))

    @classmethod
    def read(cls, kind: GraphKind, path: Path, rows: int) -> Graph:
        """Read it. Raises IndexFolderError if it is damaged, MissingExtraError without faiss."""
        library = faiss()
        remedy = "Compact the index to rebuild the structure, or build the index again."
        try:
            index = library.read_index(str(path))
        except MemoryError as error:  # the sizes of a damaged one may be absurd
            raise IndexFolderError(
                f"{path} is damaged, or there is not enough memory for it.",
                "Run `polyrank index verify`, which says whether it is damaged.",
            ) from error
        except RuntimeError as error:
            raise IndexFolderError(f"{path} is damaged: faiss cannot read it.", remedy) from error
        if index.ntotal != rows:
            raise IndexFolderError(f"{path} has {index.ntotal} rows instead of {rows}.", remedy)
        return cls(kind, index)

    def search(
        self,
        probes: Sequence[Vectors],
        depth: int,
        breadth: int,
        allowed: NDArray[np.bool_] | None = None,
    ) -> list[NDArray[np.int64]]:
        """The rows among the `depth` nearest of any probe (p, d) of a context: (n,), sorted, each
        once; for each context.

        `breadth` is how far to look: the number of nodes kept, or of lists read. `allowed` (rows,)
        says which rows may be named. The probes of all contexts are one request, whose threads
        share them.
        """
        library = faiss()
        options: dict[str, Any] = {}
        if allowed is not None:
            bits = np.packbits(allowed[: len(self)], bitorder="little")
            options["sel"] = library.IDSelectorBitmap(bits)
        if self.kind == "hnsw":
            parameters = library.SearchParametersHNSW(efSearch=max(breadth, depth), **options)
        else:
            parameters = library.SearchParametersIVF(nprobe=breadth, **options)
        together = np.concatenate(probes)
        _, rows = self._index.search(together, min(depth, len(self)), params=parameters)
        ends = np.cumsum([len(own) for own in probes])[:-1]
        return [named(own) for own in np.split(rows, ends)]


def named(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows that a search has found, sorted, each once; it fills up with −1."""
    found: NDArray[np.int64] = np.unique(rows)
    return found[found >= 0]


def empty_index(kind: GraphKind, sample: Vectors, rows: int) -> Any:
    """A trained faiss index without vectors."""
    library = faiss()
    dimension = sample.shape[1]
    metric = library.METRIC_INNER_PRODUCT
    eight_bits = library.ScalarQuantizer.QT_8bit
    if kind == "hnsw":
        index = library.IndexHNSWSQ(dimension, eight_bits, LINKS, metric)
        index.hnsw.efConstruction = BREADTH_OF_BUILDING
    else:
        centroids = number_of_lists(rows)
        coarse = library.IndexFlatIP(dimension)
        if kind == "ivf":
            index = library.IndexIVFScalarQuantizer(
                coarse, dimension, centroids, eight_bits, metric, True
            )
        else:
            most = max(1, dimension // PARTS_A_VECTOR)
            parts = next(n for n in range(most, 0, -1) if not dimension % n)
            index = library.IndexIVFPQ(coarse, dimension, centroids, parts, 8, metric)
            index.pq.cp.min_points_per_centroid = 1  # faiss would print a warning
        index.own_fields = True
        coarse.this.disown()
        index.cp.min_points_per_centroid = 1
        index.cp.seed = 1234
    with bar(f"Training {kind}"):
        index.train(np.ascontiguousarray(sample))
    return index


def number_of_lists(rows: int) -> int:
    """The number of lists: about 4 √N, a power of two, at most a 39th of the rows."""
    wanted = 4 * math.sqrt(rows)
    return max(1, min(1 << round(math.log2(wanted)), rows // 39))


def sample_rows(kind: GraphKind, rows: int) -> int:
    """How many vectors a structure over `rows` vectors is trained on."""
    wanted = FEWEST_POINTS
    if kind != "hnsw":
        wanted = max(wanted, POINTS_A_CENTROID * number_of_lists(rows))
    return min(rows, wanted)


def faiss() -> Any:
    """The library, with torch's number of threads. Raises MissingExtraError."""
    try:
        import faiss as library
    except ImportError as error:
        raise MissingExtraError("faiss-cpu", "faiss", "Approximate search") from error
    library.omp_set_num_threads(torch.get_num_threads())
    return library

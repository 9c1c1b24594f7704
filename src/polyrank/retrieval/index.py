"""The index: build it from candidates, open it, search it, change it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast, get_args, overload

import torch
from torch import Tensor

from polyrank.config import require, require_choice, require_whole
from polyrank.errors import IndexFolderError
from polyrank.models.base import Model
from polyrank.models.config import EngineName
from polyrank.models.inputs import Contexts, as_contexts, as_ids
from polyrank.records import Candidate, Context
from polyrank.retrieval.bulk.assemble import assemble_folder
from polyrank.retrieval.engine import Engine, Hits, SearchResults, delete_listed
from polyrank.retrieval.filters import Filter, parse_filter
from polyrank.retrieval.folder_engine import FolderEngine, give_structure
from polyrank.retrieval.milvus.address import is_milvus, parse_backend
from polyrank.retrieval.milvus.engine import MilvusEngine
from polyrank.retrieval.milvus.folder import Remote, build_remote, is_remote, read_remote
from polyrank.retrieval.milvus.schema import MilvusIndex
from polyrank.retrieval.model_record import model_folder, recorded_model
from polyrank.retrieval.search.graph import GRAPH_KINDS, GraphKind, faiss
from polyrank.retrieval.search.structure import SampleContexts, sampled_texts
from polyrank.retrieval.source import Candidates, Source
from polyrank.retrieval.store.build import Complete, build_folder, nothing_more
from polyrank.retrieval.store.cache import CandidateCache
from polyrank.retrieval.store.manifest import MANIFEST, ShardLayout, Storage, read_plain
from polyrank.retrieval.vector_model import VectorModel, require_vectors
from polyrank.storage import require_replaceable

BACKENDS = ("exact", *GRAPH_KINDS)
RECALL = 0.99
"""The recall that an approximate index is tuned for by default."""


class Index:
    """Candidates, their vectors and the model that made them. Get an index by `build` or `open`.

    Searching changes nothing, so threads and processes may share an index. It shows the state at
    its opening; `refresh` shows what others have changed since. A process that it is sent to opens
    it again, with the index's own model.
    """

    def __init__(self, model: VectorModel, engine: Engine, path: Path) -> None:
        self.model = model
        self.engine = engine
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        if not isinstance(self.model, Model):
            return reopened, (self.path, self.model)
        return reopened, (self.path, None, str(self.model.device), self.model.compute_dtype)

    @classmethod
    def build(
        cls,
        model: VectorModel,
        candidates: Source,
        path: str | Path,
        *,
        copy_model: bool = True,
        layout: ShardLayout | None = None,
        storage: Storage = "float32",
        backend: str = "exact",
        recall: float = RECALL,
        contexts: Sequence[Context] | None = None,
        milvus_index: str = "HNSW",
    ) -> Index:
        """Encode candidates into an index folder and open it.

        An index at `path` is replaced once the new one is complete. The same call resumes an
        interrupted one.

        Args:
            model: A bi- or poly-encoder.
            candidates: A file of any size, or texts, pairs (id, text), triples (id, text, metadata)
                or `Candidate`s; bare texts are named by their place, from 0.
            path: The folder of the index.
            copy_model: Keep a copy of the model in the folder; otherwise the index names the folder
                that the model was loaded from.
            layout: How many candidates a shard and a block hold.
            storage: How vectors are stored: float32, bfloat16, float16 or int8.
            backend: `exact`; `hnsw`, `ivf` or `ivfpq`, which also build a structure for approximate
                search; or the address of a Milvus collection: `milvus://host:port/collection`, or a
                path that ends in .db for embedded Milvus.
            recall: The share of the best 100 that approximate search should find; the structure is
                tuned for it, and the manifest records what was measured.
            contexts: What the structure is tuned on; by default, texts of candidates.
            milvus_index: The type of a Milvus index, with parameters that override polyrank's, such
                as `HNSW:M=32,efConstruction=400`.

        Returns:
            The open index.

        Raises:
            UsageError: The model has no vectors, or `path` holds something other than an index.
            DataError: The candidates cannot be read.
            StorageError: The disk is full, or Milvus does not answer.
            MissingExtraError: The package of the backend is missing.
        """
        require_vectors(model)
        require_choice("storage", storage, get_args(Storage))
        folder = Path(os.path.realpath(path))
        require_replaceable(folder, MANIFEST, "an index", valid=is_index_manifest)
        model_from = None if copy_model else model_folder(model, folder)
        if is_milvus(backend):
            address, kind = parse_backend(backend), MilvusIndex.parse(milvus_index)
            source = Candidates(candidates)
            build_remote(model, source, folder, address, kind, model_from=model_from)
            return cls.open(folder, model)
        build_folder(
            model,
            candidates,
            folder,
            model_from=model_from,
            layout=layout or ShardLayout(),
            storage=storage,
            complete=completion(model, backend, recall, contexts),
        )
        return cls(model, FolderEngine(folder, sampler(model, contexts)), folder)

    @classmethod
    def assemble(
        cls,
        model: VectorModel,
        encoded: str | Path,
        path: str | Path,
        *,
        copy_model: bool = True,
        backend: str = "exact",
        recall: float = RECALL,
        contexts: Sequence[Context] | None = None,
    ) -> Index:
        """Make an index folder from parts that were encoded in bulk, and open it.

        The index equals the one that `build` makes from the same candidates, with other shards. It
        shares the files of the parts if the system can link.

        Args:
            model: The model that encoded the parts.
            encoded: The folder of all parts (see `retrieval/bulk`).
            path: The folder of the index.
            copy_model: As for `build`.
            backend: `exact`, `hnsw`, `ivf` or `ivfpq`, as for `build`.
            recall: As for `build`.
            contexts: As for `build`.

        Returns:
            The open index.

        Raises:
            UsageError: A part is missing, or belongs to another job.
            IndexFolderError: A part is damaged, or made by another model.
            DataError: An id occurs twice.
        """
        require_vectors(model)
        folder = Path(os.path.realpath(path))
        require_replaceable(folder, MANIFEST, "an index", valid=is_index_manifest)
        assemble_folder(
            model,
            Path(os.path.realpath(encoded)),
            folder,
            model_from=None if copy_model else model_folder(model, folder),
            complete=completion(model, backend, recall, contexts),
        )
        return cls(model, FolderEngine(folder, sampler(model, contexts)), folder)

    @classmethod
    def open(
        cls,
        path: str | Path,
        model: VectorModel | None = None,
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        batch_tokens: int | None = None,
        engine: EngineName = "auto",
    ) -> Index:
        """Open an index folder; its vectors stay on disk.

        Args:
            path: The folder of the index.
            model: The model that made the index; by default, its own is loaded.
            device: Where the index's own model computes.
            dtype: Its precision.
            batch_tokens: The most padded tokens of one of its batches.
            engine: What runs the index's own model, as for `load_model`.

        Returns:
            The index.

        Raises:
            IndexFolderError: This is not an index, or it is damaged, or another model made it.
        """
        folder = Path(os.path.realpath(path))
        plain = read_plain(folder)
        loading: dict[str, Any] = {
            "device": device,
            "dtype": dtype,
            "batch_tokens": batch_tokens,
            "engine": engine,
        }
        if is_remote(plain):
            remote = read_remote(folder, plain)
            model = recorded_model(folder, remote.model, remote.files, model, **loading)
            return cls(model, connected(remote), folder)
        cache = CandidateCache.open(folder)
        manifest = cache.manifest
        model = recorded_model(folder, manifest.model, manifest.files, model, **loading)
        return cls(model, FolderEngine(folder, sampler(model, None), cache=cache), folder)

    @overload
    def search(  # type: ignore[overload-overlap]
        self,
        contexts: str,
        top_k: int = ...,
        *,
        exact: bool = ...,
        filter: str | Filter | None = ...,
    ) -> Hits: ...

    @overload
    def search(
        self,
        contexts: Sequence[Context],
        top_k: int = ...,
        *,
        exact: bool = ...,
        filter: str | Filter | None = ...,
    ) -> SearchResults: ...

    def search(
        self,
        contexts: Contexts,
        top_k: int = 10,
        *,
        exact: bool = False,
        filter: str | Filter | None = None,
    ) -> Hits | SearchResults:
        """The best candidates for each context, best first; the larger id wins a tie.

        Args:
            contexts: One text, or a list of contexts: texts, and dialogues as lists of turns.
            top_k: Hits for each context, at least 1. If there are fewer candidates, or fewer pass
                the filter, all of them are hits.
            exact: Certify that there are no better candidates. By default, an index with a search
                structure may miss some.
            filter: A condition on the metadata, such as `lang == "en" and year >= 2020`.

        Returns:
            A list of hits for each context; for one text, its list of hits. The `report` of a list
            of hits says how they were found.

        Raises:
            UsageError: `contexts` are not texts, `top_k` is below 1, or the filter does not fit the
                index.
        """
        require_whole("top_k", top_k)
        listed, is_one = as_contexts(contexts)
        passing = None if filter is None else parse_filter(filter)
        if not listed:
            return SearchResults([])
        encoded = self.model.encode_for_scoring(listed)  # (B, m, d)
        top_k = max(min(top_k, len(self)), 1)
        found = self.engine.search(encoded, top_k, exact=exact, filter=passing)
        return Hits(found[0]) if is_one else SearchResults(found)

    def add(self, candidates: Source, *, replace: bool = False) -> int:
        """Add candidates, given as to `build`, and return their number. If it fails, none is added.

        With `replace`, a candidate replaces the one with the same id; without, it raises DataError.
        Raises UsageError while another process changes the index, StorageError if the disk is
        full.
        """
        encode = self.model.encode_candidates_for_scoring
        return self.engine.add(Candidates(candidates), encode, replace=replace)

    def delete(self, identifiers: str | Path | Sequence[str]) -> int:
        """Delete candidates by id and return their number. If it fails, none is deleted.

        `identifiers` is one id, a list of ids, or the `Path` of a file with one id per line. Raises
        DataError for an unknown id, or one given twice in a file.
        """
        if isinstance(identifiers, Path):
            return delete_listed(self.engine, identifiers)
        return self.engine.delete(as_ids(identifiers))

    def get(self, identifier: str) -> Candidate | None:
        """The candidate with this id, if there is one."""
        return self.engine.get(identifier)

    def compact(self) -> None:
        """Free the space of deleted candidates."""
        self.engine.compact()

    def refresh(self) -> bool:
        """Show what other processes have committed since; return whether anything changed."""
        return self.engine.refresh()

    def verify(self) -> None:
        """Compare every file with its checksum. Raises IndexFolderError at the first difference."""
        self.engine.verify()

    def close(self) -> None:
        """Close files and connections."""
        self.engine.close()

    def __enter__(self) -> Index:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.engine)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.engine)

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self)} candidates)"


def reopened(
    path: Path,
    model: VectorModel | None,
    device: str = "auto",
    dtype: str | torch.dtype = "auto",
) -> Index:
    """An index that was sent here from another process."""
    return Index.open(path, model, device=device, dtype=dtype)


def open_engine(path: str | Path) -> Engine:
    """The engine of an index without its model, which only adding and searching need.

    Raises IndexFolderError if there is none, StorageError if Milvus does not answer.
    """
    folder = Path(os.path.realpath(path))
    plain = read_plain(folder)
    if not is_remote(plain):
        return FolderEngine(folder)
    return connected(read_remote(folder, plain))


def connected(remote: Remote) -> MilvusEngine:
    """The collection of an index in Milvus. Raises StorageError if Milvus does not answer."""
    return MilvusEngine.open(remote.address, fingerprint=remote.model.fingerprint)


def completion(
    model: VectorModel, backend: str, recall: float, contexts: Sequence[Context] | None
) -> Complete:
    """What a backend adds to a folder before it is moved into place. Raises UsageError."""
    require_choice("backend", backend, BACKENDS)
    if backend == "exact":
        return nothing_more
    require(0 < recall <= 1, "recall", "above 0 and at most 1", recall)
    faiss()  # fails before hours of encoding, not after
    kind = cast("GraphKind", backend)
    sample = sampler(model, contexts)
    return lambda folder: give_structure(folder, model.fingerprint(), kind, recall, sample)


def sampler(model: VectorModel, contexts: Sequence[Context] | None) -> SampleContexts:
    """A function that encodes the contexts to tune with: `contexts`, or texts of candidates."""

    def sample(cache: CandidateCache) -> Tensor:
        return model.encode_for_scoring(contexts or sampled_texts(cache))

    return sample


def is_index_manifest(path: Path) -> bool:
    """Whether a file is the manifest of an index."""
    try:
        read_plain(path.parent)
    except IndexFolderError:
        return False
    return True

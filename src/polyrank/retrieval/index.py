"""The index: build it from candidates, open it, search it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import torch

from polyrank.errors import IndexFolderError, ModelError, UsageError
from polyrank.models.checkpoint import load_model
from polyrank.records import Candidate, Context, Hit
from polyrank.retrieval.search.scan import search_exact
from polyrank.retrieval.source import Source
from polyrank.retrieval.store.build import Layout, build_folder
from polyrank.retrieval.store.cache import CandidateCache
from polyrank.retrieval.store.manifest import Manifest, check_sums, read_manifest, read_plain
from polyrank.retrieval.vector_model import VectorModel, require_vectors


class Index:
    """Candidates, their vectors and the model that made them. Get one by `build` or `open`.

    Searching changes nothing, so that threads and processes may share an index.
    """

    def __init__(self, model: VectorModel, path: Path, manifest: Manifest) -> None:
        self.model = model
        self.path = path
        self.manifest = manifest
        self.cache = CandidateCache(path, manifest)

    @classmethod
    def build(
        cls,
        model: VectorModel,
        candidates: Source,
        path: str | Path,
        *,
        copy_model: bool = True,
        layout: Layout | None = None,
    ) -> Index:
        """Encode candidates into an index folder and open it.

        `candidates` is a file of any size, or texts, pairs (id, text) or `Candidate`s; bare texts
        are named by their place, from 0. The folder keeps a copy of the model, unless
        `copy_model` is false: then it names the folder the model was loaded from. An index that
        stands at `path` is replaced when the new one is complete. Interrupted, the same call goes
        on where it was.

        Raises UsageError for a model without vectors or a `path` that is something else than an
        index, DataError for bad candidates, StorageError if the disk is full.
        """
        require_vectors(model)
        folder = Path(os.path.realpath(path))
        require_replaceable(folder)
        model_from = None if copy_model else model_folder(model, folder)
        build_folder(model, candidates, folder, model_from=model_from, layout=layout or Layout())
        return cls(model, folder, read_manifest(folder))

    @classmethod
    def open(
        cls,
        path: str | Path,
        model: VectorModel | None = None,
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
    ) -> Index:
        """Open an index folder; its vectors stay on the disk.

        Without `model`, the index's own is loaded to `device`, to encode contexts in `dtype`.
        Raises IndexFolderError if this is no index, if it is damaged, or if it was made by
        another model.
        """
        folder = Path(os.path.realpath(path))
        manifest = read_manifest(folder)
        if model is None:
            model = load_own_model(folder, manifest, device, dtype)
        else:
            require_vectors(model)
            require_same_model(folder, manifest, model)
        return cls(model, folder, manifest)

    def search(
        self, contexts: Sequence[Context], top_k: int = 10, *, exact: bool = True
    ) -> list[list[Hit]]:
        """The best `top_k` candidates for each context, best first; ties by the larger id.

        This index scores every candidate, so that its hits are exact with or without `exact`.
        Raises UsageError for a `top_k` that is not between 1 and the number of candidates.
        """
        if isinstance(contexts, str):
            raise UsageError("contexts must be a list, got a single text.", "Write [text].")
        if not 1 <= top_k <= len(self):
            raise UsageError(
                f"top_k must be from 1 to the number of candidates in the index, {len(self)}, "
                f"got {top_k}.",
                "Ask for fewer." if top_k > len(self) else "Ask for at least one.",
            )
        if not len(contexts):
            return []
        encoded = self.model.encode_contexts(contexts)  # (B, m, d)
        found = search_exact(self.model.score, encoded, self.cache, top_k)
        return [
            [Hit(each.id, each.score, self.cache.candidate(each.row).text) for each in ranked]
            for ranked in found
        ]

    def get(self, identifier: str) -> Candidate | None:
        """The candidate with this id, if there is one."""
        row = self.cache.row(identifier)
        return None if row is None else self.cache.candidate(row)

    def verify(self) -> None:
        """Compare every file with its checksum. Raises IndexFolderError at the first difference."""
        check_sums(self.path, self.manifest)

    def __len__(self) -> int:
        return len(self.cache)

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.cache)

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self)} candidates)"


def require_replaceable(folder: Path) -> None:
    """Raise UsageError if `folder` is something that an index must not replace."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        read_plain(folder)
    except IndexFolderError as error:
        raise UsageError(
            f"{folder} exists and is no index that could be replaced.",
            "Choose another folder, or remove this one.",
        ) from error


def model_folder(model: VectorModel, folder: Path) -> Path:
    """The folder the model was loaded from. Raises UsageError if it cannot be named."""
    path = None if model.path is None else Path(os.path.realpath(model.path))
    if path is None or not path.is_dir():
        raise UsageError(
            "The model was not loaded from a folder that the index could name.",
            "Save it with save_pretrained and load it from there, or let the index keep a copy.",
        )
    if path == folder or folder in path.parents:
        raise UsageError(
            f"The model lies in {path}, inside the index folder that is to be replaced.",
            "Let the index keep a copy of its model, or move the model elsewhere.",
        )
    return path


def load_own_model(
    folder: Path, manifest: Manifest, device: str | torch.device, dtype: str | torch.dtype
) -> VectorModel:
    """Load the model the manifest names. Raises IndexFolderError if it is gone or another."""
    record = manifest.model
    places = [folder / record.folder]
    if record.absolute is not None:
        places.insert(0, Path(record.absolute))
    found = next((place for place in places if place.is_dir()), None)
    remedy = "Give the model that made the index (--model), or build the index again."
    if found is None:
        raise IndexFolderError(f"The index {folder} misses its model {places[0]}.", remedy)
    try:
        model = cast("VectorModel", load_model(found, device=device, dtype=dtype))
    except ModelError as error:
        raise IndexFolderError(
            f"The model of the index {folder} cannot be loaded: {error.problem}", remedy
        ) from error
    require_same_model(folder, manifest, model)
    return model


def require_same_model(folder: Path, manifest: Manifest, model: VectorModel) -> None:
    """Raise IndexFolderError if the vectors were made by another model."""
    fingerprint = model.fingerprint()
    if fingerprint != manifest.model.fingerprint:
        raise IndexFolderError(
            f"The index {folder} was made by the model {manifest.model.fingerprint[:12]}, not by "
            f"{fingerprint[:12]}; its vectors mean nothing to another model.",
            "Give the model that made the index (--model), or build the index again.",
        )

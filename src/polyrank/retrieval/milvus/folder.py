"""An index whose candidates are in Milvus: the folder that names the collection and its model.

The folder holds a manifest and a copy of the model; ids, texts, metadata and vectors are in the
collection. Knows nothing of searching.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from polyrank._version import __version__
from polyrank.errors import IndexFolderError
from polyrank.folder_files import FileRecord
from polyrank.retrieval.milvus.address import MilvusAddress, parse_backend
from polyrank.retrieval.milvus.engine import MilvusEngine
from polyrank.retrieval.milvus.schema import MilvusIndex
from polyrank.retrieval.source import Candidates
from polyrank.retrieval.store.build import copy_model, name_model
from polyrank.retrieval.store.manifest import (
    FORMAT,
    MANIFEST,
    REBUILD,
    VERSION,
    ModelRecord,
    new_records,
    require_version,
)
from polyrank.retrieval.vector_model import VectorModel
from polyrank.scoring.poly import Attention
from polyrank.storage import replaced_folder, write_text

MILVUS = "milvus"
BUILDING = "_building"


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Remote:
    """Where the candidates of an index are, and its model."""

    address: MilvusAddress
    model: ModelRecord
    files: Mapping[str, FileRecord]


def build_remote(
    model: VectorModel,
    candidates: Candidates,
    folder: Path,
    address: MilvusAddress,
    index: MilvusIndex,
    *,
    model_from: Path | None,
) -> None:
    """Write all candidates to a collection and the folder that names it, replacing both.

    The collection is filled under another name and takes its own when it is complete.
    """
    building = dataclasses.replace(address, collection=address.collection + BUILDING)
    record = name_model(model, folder, model_from)
    engine = MilvusEngine.create(
        building,
        fingerprint=record.fingerprint,
        dimension=model.dimension,
        num_vectors=record.num_vectors,
        attention=cast("Attention", record.attention),
        index=index,
    )
    with contextlib.closing(engine):
        engine.add(candidates, model.encode_candidates_for_scoring, replace=False)
        engine.publish(address.collection)
    with replaced_folder(folder) as fresh:
        copy_model(model, fresh, record)
        files = new_records(fresh, [path for path in fresh.rglob("*") if path.is_file()])
        plain = {
            "format": FORMAT,
            "version": VERSION,
            "polyrank": __version__,
            MILVUS: str(address),
            "model": dataclasses.asdict(record),
            "files": {name: dataclasses.asdict(file) for name, file in files.items()},
        }
        text = json.dumps(plain, indent=1, ensure_ascii=False) + "\n"
        write_text(fresh / MANIFEST, text)


def is_remote(plain: Mapping[str, Any]) -> bool:
    """Whether a manifest belongs to an index in Milvus."""
    return MILVUS in plain


def read_remote(folder: Path, plain: Mapping[str, Any]) -> Remote:
    """The manifest of an index in Milvus. Raises IndexFolderError."""
    require_version(folder, plain)
    try:
        return Remote(
            address=parse_backend(plain[MILVUS]),
            model=ModelRecord(**plain["model"]),
            files={name: FileRecord(**record) for name, record in plain["files"].items()},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IndexFolderError(
            f"The manifest {folder / MANIFEST} is damaged: {error}.", REBUILD
        ) from error

"""What the benchmarks of the server serve: models and indexes, made once and kept in a folder."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from benchmarks.command import call
from benchmarks.texts import short_texts
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.models.source import default_base

Known = dict[str, type[PolyEncoder] | type[CrossEncoder]]
CLASSES: Known = {"poly": PolyEncoder, "cross": CrossEncoder}


def model_folder(work: Path, architecture: str) -> Path:
    """A poly- or cross-encoder made of all-MiniLM-L6-v2, untrained above it."""
    folder = work / architecture
    if not folder.exists():
        torch.manual_seed(0)
        CLASSES[architecture].from_pretrained(default_base(), dtype="float32").save_pretrained(
            folder
        )
    return folder


def candidates_file(work: Path, data: Path | None, count: int) -> Path:
    """Short texts as JSON lines, a sentence or less each."""
    path = work / f"candidates-{'python' if data is None else data.name}-{count}.jsonl"
    if not path.exists():
        work.mkdir(parents=True, exist_ok=True)
        lines = (
            json.dumps({"id": str(number), "text": text})
            for number, text in enumerate(short_texts(data, count))
        )
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def index_folder(work: Path, model: Path, candidates: Path, backend: str) -> Path:
    """An index of the candidates; whatever of it is there is reused.

    The candidates are encoded once for all backends.
    """
    folder = work / f"index-{model.name}-{candidates.stem}-{backend}"
    if not folder.exists():
        parts = work / f"encoded-{model.name}-{candidates.stem}"
        encoding = ("encode", str(model), "--candidates", str(candidates), "--num-parts", "4")
        call(*encoding, "--output", str(parts))
        building = ("index", "build", str(model), "--encoded", str(parts))
        call(*building, "--output", str(folder), "--backend", backend)
    return folder

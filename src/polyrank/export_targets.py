"""What `polyrank export` writes: the settings of each target, and the module that writes it.

Only names: nothing of `interop` is imported before a target is written, so `--help` stays fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

EXPORTED = "polyrank_export.json"
"""The file that makes a folder an export, which another may replace."""


class Target(NamedTuple):
    """A format of another project."""

    home: str
    """The module whose `write(model, folder, config, path)` writes it and returns `Written`."""
    config: type[Any]
    """The settings of the export."""


@dataclass(frozen=True, kw_only=True)
class SentenceTransformersExport:
    """Settings of an export for sentence-transformers."""

    only_candidates: bool = False
    """Export only the encoder of the candidates, for a vector database for instance."""


@dataclass(frozen=True, kw_only=True)
class OnnxExport:
    """Settings of an export to ONNX: there are none, since everything is the model's."""


TARGETS: dict[str, Target] = {
    "sentence-transformers": Target(
        "polyrank.interop.sentence_transformers.writer", SentenceTransformersExport
    ),
    "onnx": Target("polyrank.interop.onnx", OnnxExport),
}
"""Each target by its name."""

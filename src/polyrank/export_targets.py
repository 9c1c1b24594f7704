"""What `polyrank export` writes: the settings of each target, and the module that writes it.

Only names: nothing of `interop` is imported before a target is written, so `--help` stays fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from polyrank.errors import UsageError

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
class GraphExport:
    """Settings of an export to ONNX or OpenVINO."""

    quantise: Literal["int8"] | None = None
    """Let the encoders multiply in 8 bits: the fastest on CPUs, with slightly other ranks."""
    calibration: Path | None = None
    """Texts of the kind that the model will read; int8 needs a few hundred. Any file that evaluate
    or index reads."""
    min_overlap: float = 0.95
    """Write int8 only if it keeps this share of the best 10 of texts that it was not calibrated
    on."""

    def __post_init__(self) -> None:
        if not 0 <= self.min_overlap <= 1:
            raise UsageError(
                f"min_overlap must be between 0 and 1, got {self.min_overlap}.", "Change the value."
            )
        if self.quantise is not None and self.calibration is None:
            raise UsageError(
                "quantise = int8 needs texts to choose the scales with, and other texts to check "
                "the result with.",
                "Give a file with a few hundred texts of the kind that the model will read, such "
                "as its candidates: --calibration FILE.",
            )
        if self.quantise is None and self.calibration is not None:
            raise UsageError(
                "calibration is only used with quantise = int8.",
                "Add --quantise int8, or leave out --calibration.",
            )


TargetName = Literal["sentence-transformers", "onnx", "openvino"]
TARGETS: dict[str, Target] = {
    "sentence-transformers": Target(
        "polyrank.interop.sentence_transformers.writer", SentenceTransformersExport
    ),
    "onnx": Target("polyrank.interop.graphs.onnx", GraphExport),
    "openvino": Target("polyrank.interop.graphs.openvino", GraphExport),
}
"""Each target by its name."""

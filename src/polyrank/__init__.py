"""polyrank: multi-sentence scoring with bi-, poly- and cross-encoders.

Names are loaded when first used, so that `import polyrank` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyrank._version import __version__
    from polyrank.data.loading import load_examples
    from polyrank.errors import (
        DataError,
        IndexFolderError,
        InputError,
        LockedError,
        MissingExtraError,
        ModelError,
        OutOfMemoryError,
        PolyrankError,
        StorageError,
        TrainingError,
        UsageError,
    )
    from polyrank.evaluation.compare import ComparisonResult, compare
    from polyrank.evaluation.evaluate import EvaluationResult, evaluate
    from polyrank.interop.export import ExportResult, export
    from polyrank.interop.parlai.importing import import_checkpoint
    from polyrank.models.bi_encoder import BiEncoder
    from polyrank.models.checkpoint import load_model
    from polyrank.models.config import BiEncoderConfig, CrossEncoderConfig, PolyEncoderConfig
    from polyrank.models.cross_encoder import CrossEncoder
    from polyrank.models.poly_encoder import PolyEncoder
    from polyrank.records import Candidate, Example, Hit, LabelledPair, RetrievalSet
    from polyrank.retrieval.index import Index
    from polyrank.retrieval.rerank import RetrieveRerank
    from polyrank.training.config import TrainingConfig
    from polyrank.training.negatives.config import NegativesConfig
    from polyrank.training.negatives.mine import mine
    from polyrank.training.objectives.registry import ObjectiveConfig
    from polyrank.training.result import TrainingResult
    from polyrank.training.run import train
    from polyrank.training.teaching.distil import distil

__all__ = [
    "BiEncoder",
    "BiEncoderConfig",
    "Candidate",
    "ComparisonResult",
    "CrossEncoder",
    "CrossEncoderConfig",
    "DataError",
    "EvaluationResult",
    "Example",
    "ExportResult",
    "Hit",
    "Index",
    "IndexFolderError",
    "InputError",
    "LabelledPair",
    "LockedError",
    "MissingExtraError",
    "ModelError",
    "NegativesConfig",
    "ObjectiveConfig",
    "OutOfMemoryError",
    "PolyEncoder",
    "PolyEncoderConfig",
    "PolyrankError",
    "RetrievalSet",
    "RetrieveRerank",
    "StorageError",
    "TrainingConfig",
    "TrainingError",
    "TrainingResult",
    "UsageError",
    "__version__",
    "compare",
    "distil",
    "evaluate",
    "export",
    "import_checkpoint",
    "load_examples",
    "load_model",
    "mine",
    "train",
]

_HOMES = {
    "BiEncoder": "models.bi_encoder",
    "BiEncoderConfig": "models.config",
    "Candidate": "records",
    "ComparisonResult": "evaluation.compare",
    "CrossEncoder": "models.cross_encoder",
    "CrossEncoderConfig": "models.config",
    "DataError": "errors",
    "EvaluationResult": "evaluation.evaluate",
    "Example": "records",
    "ExportResult": "interop.export",
    "Hit": "records",
    "Index": "retrieval.index",
    "IndexFolderError": "errors",
    "InputError": "errors",
    "LabelledPair": "records",
    "LockedError": "errors",
    "MissingExtraError": "errors",
    "ModelError": "errors",
    "NegativesConfig": "training.negatives.config",
    "ObjectiveConfig": "training.objectives.registry",
    "OutOfMemoryError": "errors",
    "PolyEncoder": "models.poly_encoder",
    "PolyEncoderConfig": "models.config",
    "PolyrankError": "errors",
    "RetrievalSet": "records",
    "RetrieveRerank": "retrieval.rerank",
    "StorageError": "errors",
    "TrainingConfig": "training.config",
    "TrainingError": "errors",
    "TrainingResult": "training.result",
    "UsageError": "errors",
    "__version__": "_version",
    "compare": "evaluation.compare",
    "distil": "training.teaching.distil",
    "evaluate": "evaluation.evaluate",
    "export": "interop.export",
    "import_checkpoint": "interop.parlai.importing",
    "load_examples": "data.loading",
    "load_model": "models.checkpoint",
    "mine": "training.negatives.mine",
    "train": "training.run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'polyrank' has no attribute {name!r}")
    return getattr(importlib.import_module(f"polyrank.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

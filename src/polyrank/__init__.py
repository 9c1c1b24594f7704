"""polyrank: multi-sentence scoring with bi-, poly- and cross-encoders.

Names are loaded when first used, so that `import polyrank` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyrank._version import __version__
    from polyrank.data.loading import load_examples
    from polyrank.errors import PolyrankError
    from polyrank.evaluation.ranking import evaluate
    from polyrank.models.bi_encoder import BiEncoder
    from polyrank.models.checkpoint import load_model
    from polyrank.models.cross_encoder import CrossEncoder
    from polyrank.models.poly_encoder import PolyEncoder
    from polyrank.records import Candidate, Example, Hit
    from polyrank.retrieval.index import Index
    from polyrank.retrieval.rerank import RetrieveRerank

__all__ = [
    "BiEncoder",
    "Candidate",
    "CrossEncoder",
    "Example",
    "Hit",
    "Index",
    "PolyEncoder",
    "PolyrankError",
    "RetrieveRerank",
    "__version__",
    "evaluate",
    "load_examples",
    "load_model",
]

_HOMES = {
    "BiEncoder": "models.bi_encoder",
    "Candidate": "records",
    "CrossEncoder": "models.cross_encoder",
    "Example": "records",
    "Hit": "records",
    "Index": "retrieval.index",
    "PolyEncoder": "models.poly_encoder",
    "PolyrankError": "errors",
    "RetrieveRerank": "retrieval.rerank",
    "__version__": "_version",
    "evaluate": "evaluation.ranking",
    "load_examples": "data.loading",
    "load_model": "models.checkpoint",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'polyrank' has no attribute {name!r}")
    return getattr(importlib.import_module(f"polyrank.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__

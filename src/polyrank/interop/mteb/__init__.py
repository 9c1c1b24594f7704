"""MTEB: models of polyrank in its protocols, and its tasks on models of polyrank (extra `mteb`).

`model` and `evaluate` are what users call. Importing this imports nothing of MTEB.
"""

from polyrank.interop.mteb.evaluation import as_json, evaluate, model

__all__ = ["as_json", "evaluate", "model"]

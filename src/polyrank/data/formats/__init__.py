"""File formats to records: one module a format, found by name in `registry`."""

from polyrank.data.formats.beir import RetrievalSet
from polyrank.data.formats.registry import (
    FORMATS,
    detect,
    load_ranking,
    load_records,
    load_training,
)

__all__ = ["FORMATS", "RetrievalSet", "detect", "load_ranking", "load_records", "load_training"]

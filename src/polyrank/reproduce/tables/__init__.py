"""The declarations, one module per paper, and all of them by name."""

from __future__ import annotations

from collections.abc import Mapping

from polyrank.reproduce.table import Table
from polyrank.reproduce.tables import poly_encoder, sentence_bert, two_tower

TABLES: Mapping[str, Table] = {
    table.name: table
    for module in (poly_encoder, two_tower, sentence_bert)
    for table in module.TABLES
}

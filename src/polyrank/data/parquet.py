"""Reads Parquet files in batches; one that is made to fill the memory is refused before it does.

Knows nothing of what the columns mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank.data.files import Allowance

if TYPE_CHECKING:
    import pyarrow as pa

ROWS = 4096
"""Rows of a batch."""
ROW = 32
"""Bytes that a row counts, whatever it holds."""
TEXT = "BYTE_ARRAY"


def read_batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in record batches.

    A value that occurs often is stored once, so a small file may hold a text a million times. Its
    texts are therefore decoded only once they are counted. Raises DataError for a file that expands
    beyond its `Allowance`; OSError and ArrowException if it is damaged.
    """
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        require_size(path, metadata)
        columns = [metadata.schema.column(number) for number in range(metadata.num_columns)]
        texts = [column.path for column in columns if column.physical_type == TEXT]
    allowance = Allowance(path)
    with pyarrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
        for batch in file.iter_batches(batch_size=ROWS):
            allowance.use(ROW * batch.num_rows + sum(map(expanded_size, batch.columns)))
            yield batch.cast(schema)


def require_size(path: Path, metadata: Any) -> None:
    """Raise DataError if the pages of a file expand beyond its `Allowance`."""
    Allowance(path).use(sum(group.total_byte_size for group in row_groups(metadata)))


def stores_once(metadata: Any) -> bool:
    """Whether a file stores values that occur often only once, so that its pages tell no size."""
    return any(
        "DICTIONARY" in encoding
        for group in row_groups(metadata)
        for number in range(group.num_columns)
        for encoding in group.column(number).encodings
    )


def row_groups(metadata: Any) -> Iterator[Any]:
    """What the metadata say of each row group."""
    return map(metadata.row_group, range(metadata.num_row_groups))


def expanded_size(array: Any) -> int:
    """The bytes that an array takes once each of its values is stored where it occurs."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        is_text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)
        if not any(asked(kind.value_type) for asked in is_text):
            return int(array.nbytes)
        lengths = pc.binary_length(array.dictionary).take(array.indices)
        return int(pc.sum(lengths.cast(pa.int64())).as_py() or 0)
    if pa.types.is_struct(kind):
        return sum(map(expanded_size, array.flatten()))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return expanded_size(array.flatten())
    return int(array.nbytes)

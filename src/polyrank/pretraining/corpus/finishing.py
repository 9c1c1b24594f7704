"""The last pass over a corpus: links lead to what redirects lead to, and all goes into place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from polyrank.pretraining.corpus.manifest import Part
from polyrank.pretraining.corpus.parts import described, open_writer, write_row_group
from polyrank.pretraining.corpus.schema import require_pyarrow
from polyrank.storage import storage_errors, synchronise

NESTING = ("sections", "paragraphs", "links")
Resolve = Callable[[str], str]


def linked(part: Part, work: Path, fresh: Path) -> Part:
    """Put a part into the new folder as it is."""
    with storage_errors(fresh):
        try:
            os.link(work / part.file, fresh / part.file)
        except OSError:  # a disk without links
            shutil.copyfile(work / part.file, fresh / part.file)
    return part


def resolved(part: Part, work: Path, fresh: Path, resolve: Resolve) -> tuple[Part, int]:
    """Write a part with its links' targets resolved; and how many of the links have changed."""
    pa = require_pyarrow()
    path = fresh / part.file
    changed = 0
    with storage_errors(path), pa.parquet.ParquetFile(work / part.file) as file:
        with open_writer(path, "articles") as writer:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, use_threads=False).combine_chunks()
                for batch in table.to_batches():
                    batch, count = with_targets(batch, resolve)
                    write_row_group(writer, batch)
                    changed += count
        synchronise(path)
        return described(path, part.rows), changed


def with_targets(batch: Any, resolve: Resolve) -> tuple[Any, int]:
    """A record batch of articles with the targets resolved, and how many have changed."""
    pa = require_pyarrow()
    place = batch.schema.get_field_index(NESTING[0])
    column, count = replaced(batch.column(place), NESTING[1:], resolve)
    columns = [
        column if number == place else batch.column(number) for number in range(batch.num_columns)
    ]
    return pa.record_batch(columns, batch.schema), count


def replaced(lists: Any, names: tuple[str, ...], resolve: Resolve) -> tuple[Any, int]:
    """A list array of structs with the targets in the field `names` leads to resolved."""
    pa = require_pyarrow()
    kind = lists.type.value_type
    values = lists.values
    name = names[0] if names else "target"
    place = kind.get_field_index(name)
    fields = [values.field(number) for number in range(kind.num_fields)]
    if names:
        fields[place], count = replaced(fields[place], names[1:], resolve)
    else:
        fields[place], count = resolved_titles(fields[place], resolve)
    structs = pa.StructArray.from_arrays(fields, fields=list(kind))
    return pa.ListArray.from_arrays(lists.offsets, structs, type=lists.type), count


def resolved_titles(titles: Any, resolve: Resolve) -> tuple[Any, int]:
    """A string array with each title resolved, and how many have changed."""
    pa = require_pyarrow()
    encoded = titles.dictionary_encode()
    before = encoded.dictionary.to_pylist()
    after = [resolve(title) for title in before]
    if after == before:
        return titles, 0
    is_changed = [old != new for old, new in zip(before, after, strict=True)]
    count = sum(map(is_changed.__getitem__, encoded.indices.to_pylist()))
    return pa.array(after, pa.string()).take(encoded.indices), count

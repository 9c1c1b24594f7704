"""Files that expand: what is compressed a thousandfold is refused before it fills the memory."""

import bz2
import gzip
import lzma
import resource

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from polyrank.config import load_yaml
from polyrank.data import files
from polyrank.data.candidates import read_candidates
from polyrank.data.loading import load_records
from polyrank.errors import DataError, UsageError
from polyrank.pretraining.corpus.convert import convert

OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": zstandard.open}
BEGINNINGS = {
    "one line": b'{"context": "a", "response": "',
    "blank lines": b'{"context": "a", "response": "b"}\n',
}
ALLOWED = 1 << 20
"""Bytes that any file may expand to, in place of 64 MB."""
FILLINGS = {"one line": b" ", "blank lines": b"\n"}


@pytest.mark.parametrize("suffix", OPENERS)
@pytest.mark.parametrize("kind", BEGINNINGS)
def test_a_bomb_is_refused(kind, suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "EXPANSION_ALLOWED", ALLOWED)
    path = tmp_path / f"a.jsonl{suffix}"
    with OPENERS[suffix](path, "wb") as file:
        file.write(BEGINNINGS[kind])
        for _ in range(2):
            file.write(FILLINGS[kind] * ALLOWED)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match="expands to more than 250 times"):
        load_records(path)
    with pytest.raises(DataError, match="expands to more than 250 times"):
        convert(path, tmp_path / "corpus")
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (after - before) << 10 < 16 * ALLOWED


@pytest.mark.parametrize("suffix", OPENERS)
def test_a_small_file_may_expand_as_it_likes(suffix, tmp_path):
    path = tmp_path / f"a.jsonl{suffix}"
    with OPENERS[suffix](path, "wb") as file:
        file.write(b'{"context": "a", "response": "b"}\n' * 20_000)
    assert len(load_records(path)) == 20_000


def often(text, count):
    """A column of a text that is stored once."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))


LARGE = "x" * (ALLOWED // 4)
COLUMNS = {
    "a text in each row": often(LARGE, 50),
    "a list of a text": pa.ListArray.from_arrays([0, 50], often(LARGE, 50)),
    "no text in each row": pa.nulls(200_000, pa.string()),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_parquet_bomb_is_refused(kind, tmp_path, monkeypatch):
    """What occurs often is stored once."""
    monkeypatch.setattr(files, "EXPANSION_ALLOWED", ALLOWED)
    column = COLUMNS[kind]
    names = ("context", "response", "text")
    table = pa.table({**dict.fromkeys(names, often("a", len(column))), "context": column})
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression="zstd")
    assert path.stat().st_size < ALLOWED // 250
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for read in (load_records, lambda path: list(read_candidates(path))):
        with pytest.raises(DataError, match="expands to more than 250 times"):
            read(path)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (after - before) << 10 < 16 * ALLOWED


def test_parquet_files_with_many_equal_texts_are_read(tmp_path):
    path = tmp_path / "a.parquet"
    rows = [{"context": ["hi", f"who are {n}?"], "response": f"me {n % 3}"} for n in range(5_000)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    found = load_records(path)
    assert [(list(each.context), each.response) for each in found] == [
        (row["context"], row["response"]) for row in rows
    ]


ALIASES = "".join(f"- &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10))
MERGED = "".join(f"- &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}\n" for n in range(1, 20))


@pytest.mark.parametrize("settings", [f"- &a0 [x]\n{ALIASES}", f"- &a0 {{k: v}}\n{MERGED}"])
def test_aliases_that_stand_for_a_billion_values_are_refused(settings, tmp_path):
    path = tmp_path / "train.yaml"
    path.write_text(f"epochs:\n{settings}")
    with pytest.raises(UsageError, match="more than 10,000 values"):
        load_yaml(path)

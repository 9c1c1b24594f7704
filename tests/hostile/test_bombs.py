"""Files that expand: what is compressed a thousandfold is refused before it fills the memory."""

import bz2
import gzip
import lzma
import resource

import pytest
import zstandard

from polyrank.data import files
from polyrank.data.loading import load_records
from polyrank.errors import DataError
from polyrank.pretraining.corpus.convert import convert

OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": zstandard.open}
BEGINNINGS = {
    "one line": b'{"context": "a", "response": "',
    "blank lines": b'{"context": "a", "response": "b"}\n',
}
ALLOWED = 1 << 21
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
    assert (after - before) << 10 < 8 * ALLOWED


@pytest.mark.parametrize("suffix", OPENERS)
def test_a_small_file_may_expand_as_it_likes(suffix, tmp_path):
    path = tmp_path / f"a.jsonl{suffix}"
    with OPENERS[suffix](path, "wb") as file:
        file.write(b'{"context": "a", "response": "b"}\n' * 20_000)
    assert len(load_records(path)) == 20_000

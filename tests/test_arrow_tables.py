import random

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrank import tables
from polyrank.errors import IndexFolderError, StorageError
from polyrank.tables import Table, TableWriter

TEXTS = ["", "a", "größer", "two\nlines", "日本", "x" * 500, "", "\0"]
COLUMNS = {"text": "text", "small": "uint32", "large": "uint64"}


def damaged(path, problem):
    return IndexFolderError(f"{path} is damaged: {problem}.", "Build it again.")


def opened(path):
    return Table(path, damaged)


def write(path, rows, seed=0):
    """A table of random texts and numbers, by appending and extending; and its columns."""
    draw = random.Random(seed)
    texts = [draw.choice(TEXTS) for _ in range(rows)]
    small = [draw.randrange(2**32) for _ in range(rows)]
    large = [draw.randrange(2**64) for _ in range(rows)]
    with TableWriter(path, COLUMNS) as writer:
        for row in range(rows // 2):
            writer.append("text", texts[row].encode())
            writer.append("small", small[row])
            writer.append("large", large[row])
        for start in range(rows // 2, rows, 7):
            places = slice(start, start + 7)
            writer.extend("large", large[places])
            writer.extend("text", (text.encode() for text in texts[places]))
            writer.extend("small", small[places])
    return texts, small, large


@pytest.fixture(params=[1, 300, 1 << 23])
def block_bytes(request, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", request.param)
    return request.param


@pytest.mark.parametrize("rows", [0, 1, 2, 100])
def test_what_was_written_is_read_however_it_is_cut(tmp_path, block_bytes, rows):
    path = tmp_path / "table.arrow"
    texts, small, large = write(path, rows)
    table = opened(path)
    assert len(table) == len(table.texts("text")) == len(table.numbers("large")) == rows
    assert list(table.texts("text")) == texts
    for name, numbers in (("small", small), ("large", large)):
        column = table.numbers(name)
        assert list(column) == column.between(0, rows) == column.numpy().tolist() == numbers
    for start in range(0, rows, 9):
        for stop in range(start, rows + 1, 5):
            assert table.texts("text").between(start, stop) == texts[start:stop]
            assert table.numbers("small").between(start, stop) == small[start:stop]


@given(st.lists(st.text(), min_size=1, max_size=30), st.integers(1, 10), st.integers(1, 200))
@settings(max_examples=50, deadline=None)
def test_any_texts_come_back(tmp_path_factory, texts, rows, block_bytes):
    path = tmp_path_factory.mktemp("table") / "table.arrow"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "BLOCK_BYTES", block_bytes)
        with TableWriter(path, {"text": "text"}) as writer:
            for start in range(0, len(texts), rows):
                writer.extend("text", [text.encode() for text in texts[start : start + rows]])
    column = opened(path).texts("text")
    assert len(column) == len(texts)
    assert [column[row] for row in range(len(texts))] == texts
    assert column.between(0, len(texts)) == texts
    assert column.digest(0, 1) != column.digest(0, len(texts)) or len(texts) == 1


def test_blocks_are_written_as_they_fill_up(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 1000)
    path = tmp_path / "table.arrow"
    with TableWriter(path, {"id": "text", "number": "uint64"}) as writer:
        for number in range(1000):
            writer.append("id", str(number).encode())
            writer.append("number", number)
        assert path.stat().st_size > 15_000
    with pyarrow.OSFile(str(path)) as file:
        assert pyarrow.ipc.open_file(file).num_record_batches > 10


def test_others_read_it(tmp_path, block_bytes):
    path = tmp_path / "table.arrow"
    texts, small, large = write(path, 50)
    with pyarrow.OSFile(str(path)) as file:
        found = pyarrow.ipc.open_file(file).read_all()
    found.validate(full=True)
    assert found.to_pydict() == {"text": texts, "small": small, "large": large}


def test_arrays_are_views_of_the_file(tmp_path):
    path = tmp_path / "table.arrow"
    write(path, 100)
    array = opened(path).numbers("large").numpy()
    assert array.dtype == np.uint64
    assert not array.flags.owndata
    assert not array.flags.writeable


@pytest.mark.parametrize("row", [-1, 100])
def test_rows_outside_are_an_index_error(tmp_path, row, block_bytes):
    path = tmp_path / "table.arrow"
    write(path, 100)
    for column in (opened(path).texts("text"), opened(path).numbers("small")):
        with pytest.raises(IndexError):
            column[row]


def test_a_digest_is_of_the_texts_and_not_of_the_blocks(tmp_path, monkeypatch):
    digests = set()
    for size in (1, 300, 1 << 23):
        monkeypatch.setattr(tables, "BLOCK_BYTES", size)
        write(tmp_path / "table.arrow", 100)
        digests.add(opened(tmp_path / "table.arrow").texts("text").digest(3, 90))
    assert len(digests) == 1
    for pieces in ([b"ab", b"c"], [b"a", b"bc"], [b"abc", b""]):
        with TableWriter(tmp_path / "other.arrow", {"text": "text"}) as writer:
            writer.extend("text", pieces)
        digests.add(opened(tmp_path / "other.arrow").texts("text").digest(0, 2))
    assert len(digests) == 4


def test_a_column_that_is_missing_or_of_another_type_is_damage(tmp_path):
    path = tmp_path / "table.arrow"
    write(path, 3)
    with pytest.raises(IndexFolderError, match="'other' is None, not large_string"):
        opened(path).texts("other")
    with pytest.raises(IndexFolderError, match="'text' is large_string, not uint32 or uint64"):
        opened(path).numbers("text")


def test_a_file_that_is_cut_off_or_missing_is_damage(tmp_path):
    path = tmp_path / "table.arrow"
    write(path, 100)
    data = path.read_bytes()
    for size in (0, 1, 7, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(IndexFolderError, match="is not a whole Arrow file"):
            opened(path)
    path.unlink()
    with pytest.raises(IndexFolderError, match="No such file"):
        opened(path)


def test_a_table_that_was_not_finished_cannot_be_read(tmp_path):
    path = tmp_path / "table.arrow"
    with pytest.raises(TypeError), TableWriter(path, {"text": "text"}) as writer:
        writer.extend("text", [b"a", "not UTF-8"])
    with pytest.raises(IndexFolderError):
        opened(path)


def test_flipped_bits_give_an_error_or_another_text_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 500)
    path = tmp_path / "table.arrow"
    write(path, 40)
    data = path.read_bytes()
    draw = random.Random(1)
    for bit in draw.sample(range(8 * len(data)), 1500):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            table = opened(path)
            texts = table.texts("text")
            texts.between(0, len(texts))
            list(texts)
            list(table.numbers("large"))
        except IndexFolderError:
            pass


def test_a_full_disk_is_a_storage_error(tmp_path, monkeypatch):
    def write_all(handle, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "write_all", write_all)
    with (
        pytest.raises(StorageError, match="No space left on device"),
        TableWriter(tmp_path / "table.arrow", {"text": "text"}) as writer,
    ):
        writer.append("text", b"a")

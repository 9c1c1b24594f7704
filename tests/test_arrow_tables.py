import random

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrank import tables
from polyrank.errors import IndexFolderError, StorageError
from polyrank.tables import Table, TableWriter, write_block

TEXTS = ["", "a", "größer", "two\nlines", "日本", "x" * 500, "", "\0"]


def damaged(path, problem):
    return IndexFolderError(f"{path} is damaged: {problem}.", "Build it again.")


def opened(path):
    return Table(path, damaged)


def write(path, texts, at_once=7):
    """A table of texts and their places."""
    writer = TableWriter(path, ["id", "text"])
    for start in range(0, len(texts), at_once):
        some = [text.encode() for text in texts[start : start + at_once]]
        ids = [str(place).encode() for place in range(start, start + len(some))]
        writer.extend({"id": ids, "text": some})
    writer.finish()


def drawn(rows, seed=0):
    draw = random.Random(seed)
    return [draw.choice(TEXTS) for _ in range(rows)]


@pytest.fixture(params=[1, 300, 1 << 23])
def block_bytes(request, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", request.param)
    return request.param


@pytest.fixture
def path(tmp_path):
    return tmp_path / "table.arrow"


@pytest.mark.parametrize("rows", [0, 1, 2, 100])
def test_what_was_written_is_read_however_it_is_cut(path, block_bytes, rows):
    texts = drawn(rows)
    write(path, texts)
    table = opened(path)
    column = table.texts("text")
    assert len(table) == len(column) == rows
    assert list(column) == texts
    assert list(table.texts("id")) == [str(place) for place in range(rows)]
    for start in range(0, rows, 9):
        for stop in range(start, rows + 1, 5):
            assert column.between(start, stop) == texts[start:stop]


@given(st.lists(st.text(), min_size=1, max_size=30), st.integers(1, 10), st.integers(1, 200))
@settings(max_examples=50, deadline=None)
def test_any_texts_come_back(tmp_path_factory, texts, rows, block_bytes):
    path = tmp_path_factory.mktemp("table") / "table.arrow"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "BLOCK_BYTES", block_bytes)
        write(path, texts, rows)
    column = opened(path).texts("text")
    assert len(column) == len(texts)
    assert [column[row] for row in range(len(texts))] == texts
    assert column.between(0, len(texts)) == texts
    assert column.digest(0, 1) != column.digest(0, len(texts)) or len(texts) == 1


def test_blocks_are_written_as_they_fill_up(path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 1000)
    writer = TableWriter(path, ["text"])
    for number in range(1000):
        writer.extend({"text": [str(number).encode()]})
    assert path.stat().st_size > 9_000
    writer.finish()
    with pyarrow.OSFile(str(path)) as file:
        assert pyarrow.ipc.open_file(file).num_record_batches > 10


def test_others_read_it(path, block_bytes):
    texts = drawn(50)
    write(path, texts)
    with pyarrow.OSFile(str(path)) as file:
        found = pyarrow.ipc.open_file(file).read_all()
    found.validate(full=True)
    assert found.to_pydict() == {"id": [str(place) for place in range(50)], "text": texts}


@pytest.mark.parametrize("row", [-1, 100])
def test_rows_outside_are_an_index_error(path, row, block_bytes):
    write(path, drawn(100))
    with pytest.raises(IndexError):
        opened(path).texts("text")[row]


def test_a_digest_is_of_the_texts_and_not_of_the_blocks(path, monkeypatch):
    digests = set()
    for size in (1, 300, 1 << 23):
        monkeypatch.setattr(tables, "BLOCK_BYTES", size)
        write(path, drawn(100))
        digests.add(opened(path).texts("text").digest(3, 90))
    assert len(digests) == 1
    for texts in (["ab", "c"], ["a", "bc"], ["abc", ""]):
        write(path, texts)
        digests.add(opened(path).texts("text").digest(0, 2))
    assert len(digests) == 4


def test_a_column_that_is_missing_or_of_another_type_is_damage(path):
    write_block(path, pyarrow.record_batch({"text": ["a"]}))
    with pytest.raises(IndexFolderError, match="'other' is None, not large_string"):
        opened(path).texts("other")
    with pytest.raises(IndexFolderError, match="'text' is string, not large_string"):
        opened(path).texts("text")


def test_a_file_that_is_cut_off_or_missing_is_damage(path):
    write(path, drawn(100))
    data = path.read_bytes()
    for size in (0, 1, 7, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        with pytest.raises(IndexFolderError, match="is not a whole Arrow file"):
            opened(path)
    path.unlink()
    with pytest.raises(IndexFolderError, match="No such file"):
        opened(path)


def test_a_table_that_was_not_finished_cannot_be_read(path):
    writer = TableWriter(path, ["text"])
    writer.extend({"text": [b"a"]})
    writer.close()
    with pytest.raises(IndexFolderError):
        opened(path)


def test_flipped_bits_give_an_error_or_another_text_and_nothing_else(path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 500)
    write(path, drawn(40))
    data = path.read_bytes()
    draw = random.Random(1)
    for bit in draw.sample(range(8 * len(data)), 1000):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        try:
            table = opened(path)
            for name in ("id", "text"):
                texts = table.texts(name)
                texts.between(0, len(texts))
                list(texts)
        except IndexFolderError:
            pass


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
def test_a_compressed_table_is_refused_since_it_may_fill_the_memory(path, compression):
    table = pyarrow.table({"id": ["a" * 1000] * 1000, "text": ["b"] * 1000})
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    with pyarrow.ipc.new_file(path, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=300)
    before = pyarrow.total_allocated_bytes()
    if compression is None:
        assert len(opened(path)) == 1000
        return
    with pytest.raises(IndexFolderError, match="a block is compressed"):
        opened(path)
    assert pyarrow.total_allocated_bytes() - before < 10_000


def test_a_full_disk_is_a_storage_error(path, monkeypatch):
    def write_all(handle, data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tables, "write_all", write_all)
    writer = TableWriter(path, ["text"])
    writer.extend({"text": [b"a"]})
    with pytest.raises(StorageError, match="No space left on device"):
        writer.finish()

import bz2
import gzip
import lzma

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from polyrank.data.candidates import lines_with_id, read_candidates
from polyrank.data.examples import write_examples
from polyrank.data.files import read_lines
from polyrank.data.loading import load_examples
from polyrank.errors import DataError, MissingExtraError
from polyrank.records import Candidate, Example

TEXT = "first\n\nzweite Zeile: ü\r\n한국어\nlast without end"
LINES = ["first", "", "zweite Zeile: ü", "한국어", "last without end"]
COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.compress(data[:20]) + zstandard.compress(data[20:]),
}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_lines_are_the_same_in_every_compression(suffix, tmp_path):
    path = tmp_path / f"text.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](TEXT.encode()))
    assert list(read_lines(path)) == list(enumerate(LINES, start=1))


def test_a_byte_order_mark_is_no_text(tmp_path):
    path = tmp_path / "bom.txt"
    path.write_bytes(b"\xef\xbb\xbfone\ntwo")
    assert [line for _, line in read_lines(path)] == ["one", "two"]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_damaged_compression_is_named(suffix, tmp_path):
    path = tmp_path / f"text.txt{suffix}"
    path.write_bytes(b"this is not compressed at all")
    with pytest.raises(DataError, match="compressed data cannot be read") as caught:
        list(read_lines(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_file_cut_off_at_a_line_is_noticed(tmp_path, suffix):
    path = tmp_path / f"text.txt{suffix}"
    whole = COMPRESS[suffix]("".join(f"line {n * 7919 % 10007}\n" for n in range(20_000)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"text\.txt.*line \d+: The compressed data cannot be read"):
        list(read_lines(path))


def test_zstandard_with_a_large_window(tmp_path):
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=28)
    path = tmp_path / "text.txt.zst"
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    path.write_bytes(compressor.compress(b"a\nb\n") + compressor.flush())
    assert [line for _, line in read_lines(path)] == ["a", "b"]


def test_zstandard_missing_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    path = tmp_path / "text.txt.zst"
    path.write_bytes(b"")
    with pytest.raises(MissingExtraError, match=r'pip install "polyrank\[zstd\]"'):
        list(read_lines(path))


def test_candidates_of_a_text_file_are_named_by_their_line(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("one\n\n  \nfour\n")
    assert list(read_candidates(path)) == [Candidate("1", "one"), Candidate("4", "four")]


def test_candidates_of_jsonl_keep_their_ids(tmp_path):
    path = tmp_path / "texts.jsonl.xz"
    rows = b'{"id": "a", "text": "one"}\n{"id": 7, "text": "two"}\n{"text": "three"}\n'
    path.write_bytes(lzma.compress(rows))
    assert [candidate.id for candidate in read_candidates(path)] == ["a", "7", "3"]


def test_candidates_of_a_table_are_its_column_of_texts_and_the_other_columns_are_metadata(tmp_path):
    path = tmp_path / "faq.csv"
    path.write_text(
        'question,Answer,year,Asked by\nhow,"so\nand so",2020,me\nwhy,,,\nwhere,here,,\n'
    )
    assert list(read_candidates(path)) == [
        Candidate("2", "so\nand so", {"question": "how", "year": "2020"}),
        Candidate("5", "here", {"question": "where"}),
    ]
    assert list(read_candidates(path, 1)) == [Candidate("5", "here", {"question": "where"})]
    assert lines_with_id(path, "5") == [5]


def test_equal_responses_of_a_table_without_ids_are_one_candidate(tmp_path):
    texts = "Where?,Here\nWhere is it?,Here\nWho?,Me\n"
    (tmp_path / "faq.csv").write_text(f"question,answer\n{texts}")
    (tmp_path / "texts.csv").write_text(f"title,text\n{texts}")
    assert [one.text for one in read_candidates(tmp_path / "faq.csv")] == ["Here", "Me"]
    assert [one.text for one in read_candidates(tmp_path / "texts.csv")] == ["Here", "Here", "Me"]


def test_candidates_of_a_parquet_file_keep_ids_and_numbers(tmp_path):
    rows = {"id": [7, 8], "text": ["one", "two"], "year": [2020, None], "tags": [["a"], []]}
    pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / "texts.parquet")
    assert list(read_candidates(tmp_path / "texts.parquet")) == [
        Candidate("7", "one", {"year": 2020}),
        Candidate("8", "two"),
    ]


def test_a_table_without_a_column_of_texts_says_which_columns_it_has(tmp_path):
    (tmp_path / "a.csv").write_text("topic,n\nx,1\n")
    with pytest.raises(DataError, match=r"line 2: No column holds .* 'topic', 'n'\. Rename"):
        list(read_candidates(tmp_path / "a.csv"))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('{"id": "a"}', "'text' is missing"),
        ('{"text": 5}', "'text' is a int"),
        ('{"text": "a", "id": [1]}', "'id' must be"),
    ],
)
def test_bad_candidates_name_file_and_line(row, message, tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text(f'{{"text": "fine"}}\n{row}\n')
    with pytest.raises(DataError, match=f"line 2: The field {message}"):
        list(read_candidates(path))


def test_examples_come_back_as_they_were_written(tmp_path):
    examples = [
        Example(context="a", response="b"),
        Example(context=("a", "ü"), response="b", id="x", candidates=("c", "b"), gold=1),
        Example(context="a", response="b", negatives=("n", "m")),
    ]
    write_examples(tmp_path / "examples.jsonl", examples)
    assert load_examples(tmp_path / "examples.jsonl") == examples
    assert load_examples(tmp_path / "examples.jsonl", limit=2) == examples[:2]


def test_a_misspelt_field_is_pointed_out(tmp_path):
    path = tmp_path / "examples.jsonl"
    path.write_text('{"context": "a", "responce": "b"}\n')
    with pytest.raises(DataError, match="--columns context=context,response=responce"):
        load_examples(path)

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hash_model import HashModel, contents
from polyrank.errors import DataError
from polyrank.records import Candidate
from polyrank.retrieval.index import Index
from polyrank.retrieval.store.manifest import ShardLayout
from polyrank.retrieval.store.metadata import METADATA, MOST_FIELDS, Metadata, MetadataWriter

SMALL = ShardLayout(block_rows=4, shard_rows=8)
VALUES = {
    "text": st.text(st.characters(codec="utf-8"), max_size=5),
    "whole": st.integers(-(2**53) + 1, 2**53 - 1),
    "fraction": st.one_of(
        st.integers(-(2**53) + 1, 2**53 - 1), st.floats(allow_nan=False, allow_infinity=False)
    ),
    "truth": st.booleans(),
}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.fixed_dictionaries({}, optional=VALUES), min_size=1, max_size=20), st.data())
def test_metadata_comes_back_as_it_was_given(tmp_path_factory, rows, data):
    folder = tmp_path_factory.mktemp("metadata")
    writer = MetadataWriter(folder / METADATA)
    cut = data.draw(st.integers(0, len(rows)))
    for part in (rows[:cut], rows[cut:]):
        writer.extend([Candidate("", "", each) for each in part])
    metadata = Metadata(folder, len(rows), writer.finish())
    assert metadata.between(0, len(rows)) == rows
    assert metadata.between(cut, len(rows)) == rows[cut:]
    for row, found in zip(rows, metadata.between(0, len(rows)), strict=True):
        assert {name: type(row[name]) for name in row if name != "fraction"} == {
            name: type(found[name]) for name in found if name != "fraction"
        }


def test_files_lists_and_streams_give_the_same_metadata(tmp_path):
    metadata = [{"lang": "en", "year": 2020}, {}, {"lang": "de", "open": True, "year": 1.5}]
    triples = [(f"id{i}", f"text {i}", each) for i, each in enumerate(metadata)]
    file = tmp_path / "candidates.jsonl"
    with open(file, "w") as handle:
        for identifier, text, each in triples:
            line = {"id": identifier, "text": text, "metadata": {**each, "none": None}}
            handle.write(json.dumps(line) + "\n")
    sources = [file, triples, [Candidate(*triple) for triple in triples]]
    made = [Index.build(HashModel(), s, tmp_path / str(i)) for i, s in enumerate(sources)]
    for index in made:
        assert list(index) == [Candidate(*triple) for triple in triples]
        assert contents(index.path) == contents(made[0].path)
        assert index.engine.manifest.fields == {
            "lang": "string",
            "open": "boolean",
            "year": "number",
        }


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ('{"lang": ["en"]}', r"field 'lang' is \['en'\], not a text, a number or a truth value"),
        ('{"a b": 1}', "field 'a b' has a name that filters cannot use"),
        ('{"": 1}', "field '' has a name that filters cannot use"),
        ('{"class": 1}', "field 'class' has a name"),
        ('{"true": 1}', "field 'true' has a name"),
        ('{"ﬁeld": 1}', "field 'ﬁeld' has a name"),
        ('{"year": NaN}', "field 'year' is nan, which is not a number"),
        ('{"year": 1e999}', "field 'year' is inf, which is not a number"),
        ('{"year": 9007199254740992}', "field 'year' is 9007199254740992, which is not a number"),
        ('{"lang": "\\ud83d"}', "half of a surrogate pair"),
        ("[1]", r"The metadata is \[1\], not an object"),
        ('"x"', "The metadata is 'x', not an object"),
    ],
)
def test_bad_metadata_names_file_and_line(tmp_path, metadata, message):
    file = tmp_path / "candidates.jsonl"
    file.write_text(f'{{"text": "a"}}\n{{"text": "b", "metadata": {metadata}}}\n')
    with pytest.raises(DataError, match=f"candidates.jsonl, line 2: .*{message}"):
        Index.build(HashModel(), file, tmp_path / "index")
    plain = json.loads(metadata)
    with pytest.raises(DataError, match=f"At place 1: .*{message}"):
        Index.build(HashModel(), ["a", ("b", "b", plain)], tmp_path / "index")
    assert not (tmp_path / "index").exists()


def test_a_field_has_one_kind_over_the_whole_index(tmp_path):
    file = tmp_path / "candidates.jsonl"
    lines = [{"text": "x", "metadata": {"year": i}} for i in range(20)]
    lines[17]["metadata"] = {"year": "2020"}
    file.write_text("\n".join(map(json.dumps, lines)))
    with pytest.raises(
        DataError, match=r"jsonl, line 18: .*'year' is '2020', of the kind string, .* int"
    ):
        Index.build(HashModel(), file, tmp_path / "index", layout=SMALL)

    first = [("a", "x", {"year": 1, "open": True})]
    index = Index.build(HashModel(), first, tmp_path / "index")
    before = contents(index.path)
    for bad in ({"year": "x"}, {"year": True}, {"open": 1}, {"open": "true"}):
        with pytest.raises(DataError, match=r"The candidate 'b': .*before it was of the kind"):
            index.add([("b", "y", bad)])
        assert contents(index.path) == before
    index.add([("b", "y", {"year": 1.5})])
    assert index.engine.manifest.fields == {"open": "boolean", "year": "number"}
    assert [hit.id for hit in index.search(["x"], 2, filter="year > 1.2")[0]] == ["b"]
    assert [hit.id for hit in index.search(["x"], 2, filter="year == 1")[0]] == ["a"]
    index.delete(["b"])
    index.compact()
    assert index.engine.manifest.fields == {"open": "boolean", "year": "integer"}


def test_too_many_fields_are_refused(tmp_path):
    metadata = {f"field{i}": i for i in range(MOST_FIELDS)}
    index = Index.build(HashModel(), [("a", "x", metadata)], tmp_path / "index")
    assert index.get("a").metadata == metadata
    with pytest.raises(DataError, match="more than 256 different fields"):
        index.add([("b", "x", {"one_more": 1})])

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hash_model import HashModel, contents, numbered, pairs, unflushed
from polyrank.errors import DataError, IndexFolderError, UsageError
from polyrank.records import Candidate
from polyrank.retrieval.index import Index
from polyrank.retrieval.store.changes import compact, restructure
from polyrank.retrieval.store.commit import changing
from polyrank.retrieval.store.manifest import ShardLayout

SMALL = ShardLayout(block_rows=10, shard_rows=30)
CONTEXTS = ["what is it", "another"]

METADATA = st.fixed_dictionaries(
    {},
    optional={
        "lang": st.sampled_from(["en", "de", "ü", ""]),
        "year": st.integers(-3, 3),
        "weight": st.one_of(st.integers(-2, 2), st.sampled_from([0.5, -1e300])),
        "open": st.booleans(),
    },
)
CANDIDATES = st.lists(
    st.builds(
        Candidate, st.integers(0, 40).map(str), st.integers(0, 50).map("text {}".format), METADATA
    ),
    min_size=1,
    max_size=30,
    unique_by=lambda candidate: candidate.id,
)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("add"), CANDIDATES),
        st.tuples(st.just("replace"), CANDIDATES),
        st.tuples(st.just("delete"), st.sets(st.integers(0, 40).map(str), max_size=25)),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("reopen"), st.none()),
    ),
    max_size=6,
)


def apply(index, expected, change, given):
    """Make a change, to the index and to a dict; the index, opened again if it must be."""
    if change == "add":
        given = [candidate for candidate in given if candidate.id not in expected]
        assert index.add(given) == len(given)
    elif change == "replace":
        assert index.add(given, replace=True) == len(given)
    elif change == "delete":
        gone = [identifier for identifier in given if identifier in expected]
        assert index.delete(gone) == len(gone)
        for identifier in gone:
            del expected[identifier]
    elif change == "compact":
        index.compact()
        assert index.engine.cache.num_rows == len(index)
    else:
        index.close()
        index = Index.open(index.path, HashModel(4))
    if change in ("add", "replace"):
        for candidate in given:
            expected.pop(candidate.id, None)
            expected[candidate.id] = candidate
    return index


@settings(max_examples=40, deadline=None)
@given(
    first=CANDIDATES,
    changes=CHANGES,
    storage=st.sampled_from(["float32", "bfloat16", "float16", "int8"]),
)
def test_any_changes_make_what_a_fresh_build_makes(first, changes, storage):
    with tempfile.TemporaryDirectory() as folder, unflushed():
        layout = ShardLayout(block_rows=4, shard_rows=8)
        options = {"layout": layout, "storage": storage}
        index = Index.build(HashModel(4), first, Path(folder, "index"), **options)
        expected = {candidate.id: candidate for candidate in first}
        for change, given_to_it in changes:
            index = apply(index, expected, change, given_to_it)
            assert list(index) == list(expected.values())
            assert len(index) == len(expected)
        index.verify()
        for identifier in map(str, range(41)):
            assert index.get(identifier) == expected.get(identifier)
        if not expected:
            assert all(not hits for hits in index.search(CONTEXTS, 1))
            return
        fresh = Index.build(HashModel(4), expected.values(), Path(folder, "fresh"), **options)
        found = index.search(CONTEXTS, len(expected))
        wanted = fresh.search(CONTEXTS, len(expected))
        for row, other in zip(found, wanted, strict=True):
            assert pairs(row) == pairs(other)
            np.testing.assert_allclose([h.score for h in row], [h.score for h in other], rtol=1e-5)


@pytest.fixture
def index(tmp_path):
    return Index.build(HashModel(), numbered(75), tmp_path / "index", layout=SMALL)


def test_adding_writes_beside_and_removes_what_is_gone(index):
    before = contents(index.path)
    index.add([("new", "text"), ("id3", "changed")], replace=True)
    after = contents(index.path)
    changed = {name for name in before if after.get(name) != before[name]}
    assert changed == {"manifest.json"}
    assert {name for name in after if name not in before} == {
        "shards/00000/deleted-2.npy",
        *(
            f"shards/00003/{name}"
            for name in (
                *("candidates.arrow", "id-hashes.npy", "id-rows.npy"),
                *("sketch.npy", "vectors.npy"),
                *("scales.npy", "norms.npy", "errors.npy"),
            )
        ),
    }
    index.delete(["id4"])
    assert sorted(p.name for p in index.path.glob("shards/*/deleted-*")) == ["deleted-3.npy"]
    index.compact()
    assert sorted(p.name for p in index.path.glob("shards/*")) == ["00004", "00005", "00006"]
    index.verify()
    before = contents(index.path)
    index.compact()
    assert contents(index.path) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index.add([("new", "x"), ("id7", "x")]),
        lambda index: index.add([("new", "x"), ("b", "x"), ("new", "y")], replace=True),
        lambda index: index.add([("new", "x"), 5]),
        lambda index: index.delete(["id1", "nobody"]),
        lambda index: index.delete(["id1", "id1"]),
    ],
    ids=["there already", "twice", "bad", "unknown", "deleted twice"],
)
def test_a_change_that_fails_leaves_no_trace(index, change):
    before = contents(index.path)
    with pytest.raises(DataError):
        change(index)
    assert contents(index.path) == before
    assert pairs(index) == numbered(75)


def test_an_interrupted_addition_leaves_no_trace(index):
    before = contents(index.path)

    def interrupt():
        if index.model.encoded == 95:
            raise KeyboardInterrupt

    index.model.before_block = interrupt
    with pytest.raises(KeyboardInterrupt):
        index.add([(f"new{i}", "x") for i in range(75)])
    assert contents(index.path) == before
    assert pairs(index) == numbered(75)


def test_files_name_their_lines(index, tmp_path):
    file = tmp_path / "more.jsonl"
    file.write_text('{"id": "a", "text": "x"}\n\n{"id": "id9", "text": "x"}\n')
    with pytest.raises(DataError, match=r"more.jsonl, line 3: The id 'id9' is in the index al"):
        index.add(file)
    assert index.add(file, replace=True) == 2
    assert index.get("id9").text == "x"
    file.write_text('{"id": "a", "text": "x"}\n{"id": "a", "text": "y"}\n')
    with pytest.raises(DataError, match=r"line 2: The id 'a' is given twice, first in line 1"):
        index.add(file, replace=True)
    ids = tmp_path / "ids.txt"
    ids.write_text("id1\nid2\nnobody\n")
    with pytest.raises(DataError, match=r"ids.txt, line 3: There is no candidate .*'nobody'"):
        index.delete(ids)
    ids.write_text("id1\nid2\nid1\n")
    with pytest.raises(DataError, match=r"ids.txt, line 3: The id 'id1' is given twice.* line 1"):
        index.delete(ids)
    ids.write_text("id1\n\nid2\n")
    assert index.delete(ids) == 2
    assert len(index) == 74
    assert index.delete("id3") == 1  # a text is an id, a Path is a file
    assert index.get("id3") is None


def test_lines_without_ids_collide_with_those_of_the_first_file(tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text("a\nb\n")
    index = Index.build(HashModel(), file, tmp_path / "index")
    with pytest.raises(DataError, match=r"lines\.txt, line 1: The id '1' is in the index already"):
        index.add(file)


def test_nothing_to_do_makes_no_state(index):
    before = contents(index.path)
    assert index.add([]) == 0
    assert index.delete([]) == 0
    index.compact()
    assert contents(index.path) == before


def test_many_small_additions_are_merged(index):
    expected = numbered(75)
    for number in range(60):
        expected.append((f"new{number}", "text"))
        index.add(expected[-1:])
        assert pairs(index) == expected
        assert len(index.engine.cache.shards) <= 3 + 8 + 6
    index.delete([f"new{number}" for number in range(60)])
    assert index.engine.cache.num_rows >= 75
    index.verify()


def write_structure(folder):
    (folder / "graph.bin").write_bytes(b"links")
    return {"kind": "graph", "rows": 75, "target": 0.99}


def test_a_search_structure_is_kept_by_changes_and_dropped_by_compacting(index):
    engine = index.engine
    with changing(index.path, index.model.fingerprint()) as change:
        restructure(change, write_structure)
    assert index.refresh()
    first = engine.manifest.search
    assert first == {"kind": "graph", "rows": 75, "target": 0.99, "folder": "search/00002"}
    assert "search/00002/graph.bin" in engine.manifest.files
    for number in range(20):
        index.add([(f"new{number}", "x")])
    index.delete(["id3", "new3"])
    assert [shard.rows for shard in engine.cache.shards[:3]] == [30, 30, 15]
    assert engine.manifest.search == first
    index.verify()
    with changing(index.path, index.model.fingerprint()) as change:
        restructure(change, write_structure)
    assert len(list(index.path.glob("search/*/*"))) == 1
    index.refresh()
    index.verify()
    with changing(index.path, index.model.fingerprint()) as change:
        compact(change)
    index.refresh()
    assert engine.manifest.search == {"kind": "graph", "target": 0.99, "rows": 0}
    assert not list(index.path.glob("search/*"))


def test_all_can_be_deleted_and_added_again(index):
    index.delete([identifier for identifier, _ in numbered(75)])
    index.compact()
    assert len(index) == len(list(index)) == 0
    assert not list(index.path.glob("shards/*"))
    index.add(["again"])
    assert pairs(Index.open(index.path, HashModel())) == [("0", "again")]


def test_another_opened_index_sees_changes_when_refreshed(index):
    other = Index.open(index.path, HashModel())
    index.delete(["id0"])
    index.compact()
    assert len(other) == 75
    assert other.search(["a"], 75) != index.search(["a"], 74)
    assert other.refresh()
    assert not other.refresh()
    assert other.search(["a"], 74) == index.search(["a"], 74)
    other.add([("more", "x")])
    assert len(other) == 75
    assert len(index) == 74


def test_an_index_of_another_model_in_its_place_is_not_mixed_in(index):
    Index.build(HashModel(salt="other"), ["new"], index.path)
    assert len(index.search(["a"], 75)[0]) == 75
    for change in (index.refresh, lambda: index.add(["x"]), lambda: index.delete(["0"])):
        with pytest.raises(IndexFolderError, match="built again by another model"):
            change()
    Index.build(HashModel(), ["new"], index.path)
    assert index.refresh()
    assert pairs(index) == [("0", "new")]


def test_one_writer_at_a_time(index):
    def change_too():
        for change in (
            lambda: Index.open(index.path, HashModel()).add(["x"]),
            lambda: Index.build(HashModel(), ["x"], index.path),
        ):
            with pytest.raises(UsageError, match="is being changed by another process"):
                change()

    index.model.before_block = change_too
    index.add(["new"])
    index.model.before_block = lambda: None
    assert len(index) == 76
    assert len(Index.build(HashModel(), ["x"], index.path)) == 1


def test_a_closed_index_says_so(index):
    with index:
        assert len(index) == 75
    with pytest.raises(UsageError, match="is closed"):
        index.search(["a"], 1)

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hash_model import HashModel, contents, numbered, pairs
from polyrank.errors import DataError, ModelError, StorageError, UsageError
from polyrank.records import Candidate
from polyrank.retrieval.index import Index
from polyrank.retrieval.source import Candidates
from polyrank.retrieval.store import shard as ids_module
from polyrank.retrieval.store import writing as writing_module
from polyrank.retrieval.store.manifest import ShardLayout
from polyrank.retrieval.store.shard import ShardWriter

SMALL = ShardLayout(block_rows=10, shard_rows=30)


class StopError(Exception):
    pass


def stop_at(block, error=StopError):
    """A `before_block` that raises at the block of this number, from 1."""
    calls = []

    def before_block():
        calls.append(1)
        if len(calls) == block:
            raise error

    return before_block


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def test_files_lists_and_streams_make_the_same_index(tmp_path):
    candidates = numbered(75)
    file = tmp_path / "candidates.jsonl"
    with open(file, "w", encoding="utf-8") as handle:
        handle.writelines(json.dumps({"id": i, "text": t}) + "\n" for i, t in candidates)
    sources = [file, str(file), candidates, iter([Candidate(*pair) for pair in candidates])]
    made = []
    for number, source in enumerate(sources):
        index = Index.build(HashModel(), source, tmp_path / str(number), layout=SMALL)
        assert len(index) == index.engine.manifest.count == 75
        assert pairs(index) == candidates
        index.verify()
        made.append(contents(index.path))
    assert all(each == made[0] for each in made)
    assert set(made[0]) >= {"manifest.json", "model/polyrank.json", "shards/00002/vectors.npy"}
    assert names(tmp_path) == ["0", "1", "2", "3", "candidates.jsonl"]


def test_bare_texts_are_named_by_their_place(tmp_path):
    index = Index.build(HashModel(), ["a", "", "ü"], tmp_path / "index")
    assert pairs(index) == [("0", "a"), ("1", ""), ("2", "ü")]
    file = tmp_path / "lines.txt"
    file.write_text("a\n\nb\n")
    index = Index.build(HashModel(), file, tmp_path / "index")
    assert pairs(index) == [("1", "a"), ("3", "b")]


def test_candidates_are_found_by_id(tmp_path):
    index = Index.build(HashModel(), numbered(75), tmp_path / "index", layout=SMALL)
    for identifier, text in numbered(75):
        assert index.get(identifier) == Candidate(identifier, text)
    assert index.get("nobody") is None
    assert index.get("\ud800") is None
    assert (
        index.engine.cache.gather(np.array([70]))[0].tolist()
        == HashModel().vector("text number 70").tolist()
    )


@pytest.mark.parametrize("error", [StopError, KeyboardInterrupt])
def test_an_interrupted_build_goes_on_and_the_old_index_stands(tmp_path, error):
    path = tmp_path / "index"
    Index.build(HashModel(), ["old"], path)
    old = contents(path)
    uninterrupted = Index.build(HashModel(), numbered(75), tmp_path / "other", layout=SMALL)

    model = HashModel()
    model.before_block = stop_at(5, error)
    with pytest.raises(error):
        Index.build(model, numbered(75), path, layout=SMALL)
    assert model.encoded == 40
    assert contents(path) == old
    assert len(Index.open(path, HashModel())) == 1

    model = HashModel()
    index = Index.build(model, numbered(75), path, layout=SMALL)
    assert model.encoded == 35
    assert contents(index.path) == contents(uninterrupted.path)
    assert names(tmp_path) == ["index", "other"]


def test_a_killed_build_goes_on(tmp_path):
    script = f"""
import os, signal, sys
sys.path[:0] = {[str(Path(__file__).parent.parent)]!r}
from hash_model import HashModel, numbered
from polyrank.retrieval.store.manifest import ShardLayout
from polyrank.retrieval.index import Index
model = HashModel()
def before_block():
    if model.encoded == 50:
        os.kill(os.getpid(), signal.SIGKILL)
model.before_block = before_block
Index.build(model, numbered(75), "index", layout=ShardLayout(block_rows=10, shard_rows=30))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert names(tmp_path) == [".index.building"]

    journal = tmp_path / ".index.building" / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])  # a line cut off by a power cut
    model = HashModel()
    Index.build(model, numbered(75), tmp_path / "index", layout=SMALL).verify()
    assert model.encoded == 35
    assert names(tmp_path) == ["index"]


def interrupt(path, candidates, block=6):
    model = HashModel()
    model.before_block = stop_at(block)
    with pytest.raises(StopError):
        Index.build(model, candidates, path, layout=SMALL)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda c: [*c, ("new", "more")], 75 - 50 + 1),
        (lambda c: [*c[:15], ("id15", "changed"), *c[16:]], 75 - 50 + 10),
        (lambda c: [(f"renamed {i}", t) for i, t in c], 75 - 50),
        (lambda c: c[1:], 74),
        (lambda c: c[:20], 0),
        (lambda c: c[:25], 5),
    ],
    ids=["longer", "one changed", "renamed", "shifted", "shorter", "shorter, in a block"],
)
def test_going_on_with_another_input_keeps_what_fits(tmp_path, change, expected):
    interrupt(tmp_path / "index", numbered(75))
    candidates = change(numbered(75))
    model = HashModel()
    index = Index.build(model, candidates, tmp_path / "index", layout=SMALL)
    assert model.encoded == expected
    fresh = Index.build(HashModel(), candidates, tmp_path / "fresh", layout=SMALL)
    assert contents(index.path) == contents(fresh.path)


@pytest.mark.parametrize("model", [HashModel(salt="other"), HashModel(dimension=4)])
def test_going_on_with_another_model_starts_again(tmp_path, model):
    interrupt(tmp_path / "index", numbered(75))
    model.encoded = 0
    index = Index.build(model, numbered(75), tmp_path / "index", layout=SMALL)
    assert model.encoded == 75
    fresh = Index.build(model, numbered(75), tmp_path / "fresh", layout=SMALL)
    assert contents(index.path) == contents(fresh.path)


def test_vectors_damaged_between_two_runs_are_made_again(tmp_path):
    interrupt(tmp_path / "index", numbered(75))
    file = tmp_path / ".index.building/index/shards/00000/vectors.npy"
    file.write_bytes(file.read_bytes()[:500])
    model = HashModel()
    Index.build(model, numbered(75), tmp_path / "index", layout=SMALL).verify()
    assert model.encoded == 75 - 50 + 20


def test_an_id_given_twice_names_both_lines_before_anything_is_encoded(tmp_path):
    file = tmp_path / "candidates.jsonl"
    lines = [{"id": f"id{i}", "text": "x"} for i in range(50)]
    lines[40]["id"] = "id3"
    file.write_text("\n" + "\n".join(map(json.dumps, lines)))
    model = HashModel()
    with pytest.raises(DataError, match=r"jsonl, line 42: The id 'id3' .* first in line 5\."):
        Index.build(model, file, tmp_path / "index", layout=SMALL)
    assert model.encoded == 0
    with pytest.raises(DataError, match="'a' is given twice, at the places 0 and 2"):
        Index.build(model, [("a", "x"), ("b", "x"), ("a", "y")], tmp_path / "index")
    assert names(tmp_path) == ["candidates.jsonl"]


@settings(max_examples=50, deadline=None)
@given(ids=st.lists(st.text("ab", max_size=3), min_size=1, max_size=40), at_once=st.integers(1, 9))
def test_duplicates_are_found_however_the_hashes_are_cut(tmp_path_factory, ids, at_once):
    folder = tmp_path_factory.mktemp("shards")
    shards = []
    for start in range(0, len(ids), 7):
        writer = ShardWriter(folder / str(start))
        writer.extend([Candidate(identifier, "") for identifier in ids[start : start + 7]])
        shards.append(writer.finish())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids_module, "HASHES_AT_ONCE", at_once)
        if len(set(ids)) == len(ids):
            ids_module.require_unique_ids(shards, Candidates(ids))
        else:
            with pytest.raises(DataError, match="given twice"):
                ids_module.require_unique_ids(shards, Candidates(ids))


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([], "no candidates"),
        ([("a", "x"), 5], "place 1 is 5"),
        ([("a", 5)], "place 0"),
        ([("a", "half \ud83d")], "surrogate pair, at character 6"),
        (Path("/no/such/file"), "no such file"),
    ],
)
def test_bad_candidates_leave_nothing_and_keep_the_old(tmp_path, candidates, message):
    path = tmp_path / "index"
    with pytest.raises(DataError, match=message):
        Index.build(HashModel(), candidates, path)
    assert names(tmp_path) == []
    Index.build(HashModel(), ["old"], path)
    old = contents(path)
    with pytest.raises(DataError, match=message):
        Index.build(HashModel(), candidates, path)
    assert contents(path) == old
    assert names(tmp_path) == ["index"]


def test_vectors_that_are_not_finite_name_the_candidate(tmp_path):
    model = HashModel()
    model.vector = lambda text: torch.full((8,), float("nan" if "17" in text else "1")).numpy()
    with pytest.raises(ModelError, match="'id17' is not finite"):
        Index.build(model, numbered(20), tmp_path / "index")


@pytest.mark.parametrize("limit", [500, 15_000])
def test_a_full_disk_keeps_the_old_index(tmp_path, limit):
    path = tmp_path / "index"
    Index.build(HashModel(), ["old"], path)
    old = contents(path)
    model = HashModel(dimension=64)
    layout = ShardLayout(block_rows=20, shard_rows=1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        with pytest.raises(StorageError, match=r"failed: File too large.* Nothing .* changed"):
            Index.build(model, numbered(200), path, layout=layout)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert contents(path) == old
    before = model.encoded
    index = Index.build(model, numbered(200), path, layout=layout)
    assert model.encoded - before <= 200 - 20 * (before > 20)
    index.verify()


def test_too_little_space_is_known_before_the_first_text_is_encoded(tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(writing_module.shutil, "disk_usage", lambda path: usage(75 * 8 * 4 - 1))
    model = HashModel()
    with pytest.raises(StorageError, match="vectors need 4 kB, and 2 kB are free"):
        Index.build(model, numbered(75), tmp_path / "index", layout=SMALL)
    assert model.encoded == 0
    assert names(tmp_path) == []


def test_only_an_index_is_replaced(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "manifest.json").write_text('{"name": "web app"}')
    (tmp_path / "file").write_text("text")
    for path in ("precious", "file"):
        with pytest.raises(UsageError, match="already exists and is not an index"):
            Index.build(HashModel(), ["x"], tmp_path / path)
    (tmp_path / "empty").mkdir()
    assert len(Index.build(HashModel(), ["x"], tmp_path / "empty")) == 1
    assert names(tmp_path) == ["empty", "file", "precious"]


def test_two_builds_of_one_index_do_not_mix(tmp_path):
    model = HashModel()

    def build_again():
        with pytest.raises(UsageError, match="Another process is building"):
            Index.build(HashModel(), ["b"], tmp_path / "index")

    model.before_block = build_again
    index = Index.build(model, ["a"], tmp_path / "index")
    assert pairs(index) == [("0", "a")]


def test_what_a_swap_killed_halfway_left_is_removed(tmp_path):
    shutil.copytree(
        Index.build(HashModel(), ["old"], tmp_path / "index").path,
        tmp_path / ".index.old-abc/index",
    )
    Index.build(HashModel(), ["new"], tmp_path / "index")
    assert names(tmp_path) == ["index"]


def test_a_link_to_an_index_stays_a_link(tmp_path):
    Index.build(HashModel(), ["old"], tmp_path / "real")
    os.symlink(tmp_path / "real", tmp_path / "link")
    Index.build(HashModel(), ["new"], tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert pairs(Index.open(tmp_path / "real", HashModel())) == [("0", "new")]


def test_models_without_vectors_are_refused(tmp_path):
    cross = SimpleNamespace(config=SimpleNamespace(architecture="cross"))
    with pytest.raises(UsageError, match=r"cross-encoder .* rerank"):
        Index.build(cross, ["x"], tmp_path / "index")
    with pytest.raises(UsageError, match="bi- or poly-encoder, got int"):
        Index.build(5, ["x"], tmp_path / "index")
    assert names(tmp_path) == []


def test_layout_is_checked():
    with pytest.raises(UsageError, match="multiple of block_rows, got 30 and 20"):
        ShardLayout(block_rows=20, shard_rows=30)

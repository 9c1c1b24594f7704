import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hash_model import HashModel, contents, numbered, unflushed
from polyrank import jobs
from polyrank.errors import DataError, IndexFolderError, UsageError
from polyrank.retrieval.bulk import assemble as assemble_module
from polyrank.retrieval.bulk import survey as survey_module
from polyrank.retrieval.bulk.encode import BulkEncoder, encode_part
from polyrank.retrieval.bulk.parts import BulkJob, SourceRecord
from polyrank.retrieval.index import Index
from polyrank.retrieval.store import shard as ids_module
from polyrank.retrieval.store.manifest import ShardLayout

SMALL = ShardLayout(block_rows=10, shard_rows=30)


def write(path, count=75):
    with open(path, "w", encoding="utf-8") as handle:
        for number, (identifier, text) in enumerate(numbered(count)):
            metadata = {"year": number if number % 2 else number / 2, "lang": f"l{number % 3}"}
            line = {"id": identifier, "text": text, "metadata": metadata if number % 5 else None}
            handle.write(json.dumps(line) + "\n\n")
    return path


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "candidates.jsonl")


@pytest.fixture
def parts(tmp_path):
    return tmp_path / "parts"


def encode_all(source, parts, num_parts, model=None, **settings):
    encoder = BulkEncoder(model or HashModel(), source, parts, num_parts, layout=SMALL, **settings)
    return list(encoder.encode_all())


def names(folder):
    return sorted(path.name for path in Path(folder).iterdir())


def rows(index):
    cache = index.engine.cache
    stored = cache.stored(np.arange(cache.num_rows))
    scales = None if stored.scales is None else stored.scales.tolist()
    return list(index), stored.vectors.tolist(), scales


@pytest.mark.parametrize(
    ("num_parts", "storage"),
    [(1, "float32"), (3, "float32"), (100, "float32"), (8, "bfloat16"), (3, "int8")],
)
def test_parts_make_the_index_that_one_process_makes(source, parts, tmp_path, num_parts, storage):
    model = HashModel(4)
    with unflushed():
        made = [
            encode_part(model, source, parts, num_parts, part, storage=storage, layout=SMALL)
            for part in reversed(range(num_parts))
        ]
    assert {part.state for part in made} == {"encoded"}
    assert sum(part.num_candidates for part in made) == model.encoded == 75
    assert names(parts) == [*(f"part-{part:05d}" for part in range(num_parts)), "source.json"]

    index = Index.assemble(HashModel(4), parts, tmp_path / "index")
    single = Index.build(HashModel(4), source, tmp_path / "single", layout=SMALL, storage=storage)
    index.verify()
    assert rows(index) == rows(single)
    contexts = ["a", "b", "c d"]
    assert index.search(contexts, 20) == single.search(contexts, 20)
    filter = 'year >= 20 and lang == "l1"'
    assert index.search(contexts, 5, filter=filter) == single.search(contexts, 5, filter=filter)
    assert index.engine.manifest.fields == single.engine.manifest.fields
    if num_parts == 1:
        assert contents(index.path) == contents(single.path)


def test_blocks_are_not_cut_where_there_are_enough(source, parts):
    model = HashModel()
    lengths = []
    encode = model.encode_candidates_for_scoring
    model.encode_candidates_for_scoring = lambda texts: lengths.append(len(texts)) or encode(texts)
    encode_all(source, parts, 3, model)
    assert lengths == [10] * 7 + [5]


@given(rows=st.integers(1, 200), parts=st.integers(1, 60), block=st.integers(1, 30))
def test_every_candidate_is_in_one_part(rows, parts, block):
    source = SourceRecord(path="", bytes=0, sha256="", rows=rows, fields={})
    job = BulkJob(
        fingerprint="",
        architecture="bi",
        num_vectors=1,
        attention="basic",
        dimension=8,
        storage="float32",
        layout=ShardLayout(block_rows=block, shard_rows=block),
        num_parts=parts,
        source=source,
    )
    edges = [job.rows_of(part) for part in range(parts)]
    assert [start for start, _ in edges] == [0, *(stop for _, stop in edges[:-1])]
    assert edges[-1][1] == rows
    unit = block if rows >= parts * block else 1
    sizes = [stop - start for start, stop in edges]
    assert max(sizes) - min(sizes) < 2 * unit
    assert all(start % unit == 0 for start, _ in edges)


def test_texts_without_ids_keep_their_line_numbers(tmp_path, parts):
    source = tmp_path / "lines.txt"
    source.write_text("a\n\nb\nc\n\n\nd\n")
    made = encode_all(source, parts, 3)
    assert [part.num_candidates for part in made] == [1, 1, 2]
    index = Index.assemble(HashModel(), parts, tmp_path / "index")
    assert [(each.id, each.text) for each in index] == [
        ("1", "a"),
        ("3", "b"),
        ("4", "c"),
        ("7", "d"),
    ]


def test_finished_parts_are_skipped(source, parts, monkeypatch):
    encode_part(HashModel(), source, parts, 4, 1, layout=SMALL)
    before = contents(parts)
    monkeypatch.setattr(survey_module, "look_through", None)  # nor is the file parsed again
    model = HashModel()
    assert encode_part(model, source, parts, 4, 1, layout=SMALL).state == "there"
    assert model.encoded == 0
    assert contents(parts) == before
    states = [part.state for part in encode_all(source, parts, 4, model)]
    assert states == ["encoded", "there", "encoded", "encoded"]
    assert model.encoded == 75 - 20


def test_a_copy_of_the_source_elsewhere_is_the_same_source(source, parts, tmp_path):
    encode_part(HashModel(), source, parts, 2, 0, layout=SMALL)
    copied = shutil.copy(source, tmp_path / "copy.jsonl")
    source.unlink()
    assert encode_part(HashModel(), copied, parts, 2, 0, layout=SMALL).state == "there"
    assert encode_part(HashModel(), copied, parts, 2, 1, layout=SMALL).state == "encoded"
    assert len(Index.assemble(HashModel(), parts, tmp_path / "index")) == 75


def test_a_killed_part_goes_on(source, parts, tmp_path):
    script = f"""
import os, signal, sys
sys.path[:0] = {[str(Path(__file__).parent.parent)]!r}
from hash_model import HashModel
from polyrank.retrieval.bulk.encode import encode_part
from polyrank.retrieval.store.manifest import ShardLayout
model = HashModel()
layout = ShardLayout(block_rows=10, shard_rows=30)
def before_block():
    if model.encoded == 30:
        os.kill(os.getpid(), signal.SIGKILL)
model.before_block = before_block
encode_part(model, "candidates.jsonl", "parts", 2, 1, layout=layout)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert names(parts) == [".part-00001.encoding", "source.json"]
    with pytest.raises(UsageError, match="no encoded parts"):
        Index.assemble(HashModel(), parts, tmp_path / "index")

    model = HashModel()
    encode_all(source, parts, 2, model)
    assert model.encoded == 75 - 30
    assert names(parts) == ["part-00000", "part-00001", "source.json"]
    uninterrupted = tmp_path / "other"
    encode_all(source, uninterrupted, 2)
    assert contents(parts) == contents(uninterrupted)


@pytest.mark.parametrize("moved_aside", [False, True])
def test_what_a_kill_after_the_last_byte_leaves_is_removed(
    source, parts, tmp_path, monkeypatch, moved_aside
):
    discard = jobs.discard

    def killed(work, folder):
        if moved_aside:
            old = parts / ".part-00000.old-abc"
            old.mkdir()
            work.rename(old / work.name)
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "discard", killed)
    with pytest.raises(KeyboardInterrupt):
        encode_part(HashModel(), source, parts, 2, 0, layout=SMALL)
    monkeypatch.setattr(jobs, "discard", discard)
    left = ".part-00000.old-abc" if moved_aside else ".part-00000.encoding"
    assert names(parts) == [left, "part-00000", "source.json"]
    assert encode_part(HashModel(), source, parts, 2, 0, layout=SMALL).state == "there"
    assert names(parts) == ["part-00000", "source.json"]


def test_two_processes_do_not_encode_one_part(source, parts):
    model = HashModel()
    states = []

    def meanwhile():
        if states:
            return
        with pytest.raises(UsageError, match="part-00000 is being encoded by another process"):
            encode_part(HashModel(), source, parts, 3, 0, layout=SMALL)
        states.extend(part.state for part in encode_all(source, parts, 3))

    model.before_block = meanwhile
    assert [part.state for part in encode_all(source, parts, 3, model)] == [
        "encoded",
        "there",
        "there",
    ]
    assert states == ["busy", "encoded", "encoded"]
    assert model.encoded == 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": HashModel(salt="other")}, "by the model .* with m = 1, not by .* with m = 1"),
        ({"model": HashModel(4)}, "with m = 1, not by .* with m = 4"),
        ({"num_parts": 5}, "as one of 3 parts, not of 5"),
        ({"storage": "int8"}, "as float32, not as int8"),
        ({"layout": ShardLayout(block_rows=5, shard_rows=30)}, "with the layout"),
        ({"count": 74}, "with 75 candidates and the SHA-256 .*, not from .* with 74"),
    ],
)
@pytest.mark.parametrize("part", [0, 1])
def test_parts_of_another_job_are_refused(source, parts, change, message, part):
    encode_part(HashModel(), source, parts, 3, 0, layout=SMALL)
    before = contents(parts / "part-00000")
    given = {"model": HashModel(), "num_parts": 3, "layout": SMALL, **change}
    if "count" in given:
        write(source, given.pop("count"))
    with pytest.raises(UsageError, match=f"part-00000 was encoded .*{message}"):
        encode_part(source=source, output=parts, part_index=part, **given)
    assert contents(parts / "part-00000") == before
    assert not (parts / "part-00001").exists()


def test_missing_parts_are_named_with_the_command(source, parts, tmp_path):
    for part in (1, 3):
        encode_part(HashModel(), source, parts, 5, part, storage="int8", layout=SMALL)
    with pytest.raises(UsageError, match=r"Of the 5 parts in .*, 3 are missing: 0, 2, 4") as caught:
        Index.assemble(HashModel(), parts, tmp_path / "index")
    command = f"--candidates {source} --output {parts} --storage int8 --num-parts 5 --part-index"
    assert caught.value.remedy == f"Encode them: polyrank encode MODEL {command} 0."
    assert names(tmp_path) == ["candidates.jsonl", "parts"]


def test_parts_of_two_jobs_make_no_index(source, parts, tmp_path):
    encode_all(source, parts, 2)
    encode_all(source, tmp_path / "others", 2, HashModel(salt="other"))
    with pytest.raises(IndexFolderError, match=r"encoded by the bi-encoder .* not by"):
        Index.assemble(HashModel(salt="other"), parts, tmp_path / "index")
    shutil.rmtree(parts / "part-00001")
    shutil.copytree(tmp_path / "others/part-00001", parts / "part-00001")
    with pytest.raises(UsageError, match="part-00001 was encoded by the model"):
        Index.assemble(HashModel(), parts, tmp_path / "index")
    shutil.rmtree(parts / "part-00001")
    shutil.copytree(parts / "part-00000", parts / "part-00001")
    with pytest.raises(IndexFolderError, match="manifest of the part in part-00001: it is of the"):
        Index.assemble(HashModel(), parts, tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("part.json", r"part\.json .*(not JSON|not a manifest|checksum differs)"),
        ("shards/00000/vectors.npy", "vectors.npy of an encoded part is damaged"),
        ("shards/00000/candidates.arrow", "candidates.arrow of an encoded part is damaged"),
    ],
)
def test_a_flipped_bit_in_a_part_keeps_the_old_index(source, parts, tmp_path, name, message):
    path = tmp_path / "index"
    Index.build(HashModel(), ["old"], path)
    old = contents(path)
    encode_all(source, parts, 2)
    file = parts / "part-00001" / name
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(IndexFolderError, match=message):
        Index.assemble(HashModel(), parts, path)
    file.unlink()
    with pytest.raises(IndexFolderError, match=r"is missing|cannot be read"):
        Index.assemble(HashModel(), parts, path)
    assert contents(path) == old
    assert names(tmp_path) == ["candidates.jsonl", "index", "parts"]


def test_an_id_given_twice_is_found_before_anything_is_encoded(source, parts, monkeypatch):
    with open(source, "a", encoding="utf-8") as handle:
        handle.write('{"id": "id3", "text": "x"}\n')
    for at_once in (1 << 22, 7):
        monkeypatch.setattr(survey_module, "HASHES_AT_ONCE", at_once)
        monkeypatch.setattr(ids_module, "HASHES_AT_ONCE", at_once)
        model = HashModel()
        with pytest.raises(DataError, match=r"line 151: The id 'id3' .* first in line 7\."):
            encode_part(model, source, parts, 4, 0, layout=SMALL)
        assert model.encoded == 0
        assert names(parts) == []


@pytest.mark.parametrize("kept", [True, False])
def test_an_id_in_two_parts_makes_no_index(source, parts, tmp_path, monkeypatch, kept):
    with open(source, "a", encoding="utf-8") as handle:
        handle.write('{"id": "id3", "text": "x"}\n')
    with monkeypatch.context() as patch:
        patch.setattr(survey_module, "require_different", lambda *_: None)
        encode_all(source, parts, 4)
    if not kept:
        source.unlink()
    message = "151: .*'id3' .* first in line 7" if kept else "'id3' .* at the places 3 and 75"
    with pytest.raises(DataError, match=message):
        Index.assemble(HashModel(), parts, tmp_path / "index")
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "There are no candidates"),
        (['{"text": "a"}', "nonsense"], "line 2: The line is not JSON"),
        (
            ['{"text": "a", "metadata": {"x": 1}}', '{"text": "b", "metadata": {"x": "y"}}'],
            "line 2",
        ),
        (['{"text": "a"}', r'{"text": "\ud800"}'], "half of a surrogate pair"),
    ],
)
def test_bad_candidates_of_any_part_show_at_once(tmp_path, parts, lines, message):
    source = tmp_path / "bad.jsonl"
    source.write_text("\n".join(lines))
    with pytest.raises(DataError, match=message):
        encode_part(HashModel(), source, parts, 2, 0)
    with pytest.raises(DataError, match="no such file"):
        encode_part(HashModel(), tmp_path / "none", parts, 2, 0)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="not an ordinary file"):
        encode_part(HashModel(), tmp_path / "pipe", parts, 2, 0)
    assert names(parts) == []


def test_a_source_that_changes_meanwhile_is_an_error(source, parts):
    encoder = BulkEncoder(HashModel(), source, parts, 2, layout=SMALL)
    write(source, 80)
    with pytest.raises(DataError, match="file changed while it was being read"):
        encoder.encode(0)
    assert names(parts) == ["source.json"]


@pytest.mark.parametrize(
    ("num_parts", "part", "message"),
    [
        (0, 0, "at least one part, got 0"),
        (3, 3, "no part 3 of 3. Parts are counted from 0: give one from 0 to 2"),
        (3, -1, "no part -1"),
    ],
)
def test_numbers_of_parts_are_checked(source, parts, num_parts, part, message):
    with pytest.raises(UsageError, match=message):
        encode_part(HashModel(), source, parts, num_parts, part)


def test_places_that_are_no_folders_of_parts_are_refused(source, parts, tmp_path):
    with pytest.raises(UsageError, match="is a file, not a folder for parts"):
        encode_part(HashModel(), source, source, 2, 0)
    Index.build(HashModel(), ["x"], parts)
    with pytest.raises(UsageError, match="is an index, not a folder for parts"):
        encode_part(HashModel(), source, parts, 2, 0)
    with pytest.raises(UsageError, match="no encoded parts"):
        Index.assemble(HashModel(), tmp_path / "nowhere", tmp_path / "index")
    with pytest.raises(UsageError, match=r"no storage 'int9'\. Did you mean 'int8'"):
        encode_part(HashModel(), source, tmp_path / "new", 2, 0, storage="int9")


@pytest.mark.parametrize("can_link", [True, False])
def test_the_index_and_its_parts_do_not_disturb_each_other(
    source, parts, tmp_path, monkeypatch, can_link
):
    if not can_link:

        def refuse(*_):
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(assemble_module.os, "link", refuse)
    encode_all(source, parts, 3)
    before = contents(parts)
    index = Index.assemble(HashModel(), parts, tmp_path / "index")
    file = tmp_path / "index/shards/00000/vectors.npy"
    assert (file.stat().st_nlink > 1) == can_link
    index.delete(["id0", "id70"])
    index.add([("new", "x")])
    index.compact()
    assert contents(parts) == before
    shutil.rmtree(parts)
    index = Index.open(tmp_path / "index", HashModel())
    index.verify()
    assert len(index) == 74

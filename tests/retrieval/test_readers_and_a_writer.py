import os
import subprocess
import sys

from hash_model import HashModel, unflushed
from polyrank.records import Candidate
from polyrank.retrieval.index import Index
from polyrank.retrieval.store import cache as cache_module
from polyrank.retrieval.store.cache import CandidateCache
from polyrank.retrieval.store.manifest import ShardLayout, read_manifest

LAYOUT = ShardLayout(block_rows=4, shard_rows=8)
ROUNDS = int(os.environ.get("POLYRANK_HOSTILE_ROUNDS", "16"))
READERS = int(os.environ.get("POLYRANK_HOSTILE_READERS", "2"))

READER = """
import sys
from pathlib import Path
from hash_model import HashModel
from polyrank.retrieval.index import Index

def look(index):
    found = {each.id: (each.text, each.metadata["version"]) for each in index}
    versions = {version for _, version in found.values()}
    assert len(versions) == 1, found
    assert {text for text, _ in found.values()} == {f"version {min(versions)}"}, found
    sides = {side: {i[1:] for i in found if i[0] == side} for side in "lr"}
    assert sides["l"] == sides["r"] and len(found) == len(index), found
    hits = index.search(["a"], len(index), filter=f"version == {min(versions)}")[0]
    assert {hit.id for hit in hits} == set(found), (hits, found)
    assert {hit.text for hit in hits} == {f"version {min(versions)}"}, hits
    return min(versions)

path = Path("index")
index = Index.open(path, HashModel())
seen = set()
print("ready", flush=True)
while not Path("stop").exists():
    seen.add(look(index))
    seen.add(look(Index.open(path, HashModel())))
    index.refresh()
index.verify()
print(len(seen))
"""


def both(numbers, version):
    made = []
    for number in numbers:
        for side in "lr":
            name, text = f"{side}{number}", f"version {version}"
            made.append(Candidate(name, text, {"version": version}))
    return made


def write(path, index, version):
    index.add(both(range(10), version), replace=True)
    index.add(both(range(10, 13), version))
    index.delete([each.id for each in both(range(10, 13), version)])
    if version % 3 == 0:
        index.compact()
    if version % 5 == 0:
        Index.build(HashModel(), both(range(10), version), path, layout=LAYOUT)
        index.refresh()


def test_processes_read_committed_states_while_one_writes(tmp_path, record_property):
    path = tmp_path / "index"
    index = Index.build(HashModel(), both(range(10), 0), path, layout=LAYOUT)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OMP_NUM_THREADS": "1",
    }
    readers = [
        subprocess.Popen(
            [sys.executable, "-c", READER],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(READERS)
    ]
    try:
        assert [reader.stdout.readline() for reader in readers] == ["ready\n"] * READERS
        with unflushed():
            for version in range(1, ROUNDS):
                write(path, index, version)
        (tmp_path / "stop").touch()
        states = []
        for reader in readers:
            out, errors = reader.communicate(timeout=60)
            assert reader.returncode == 0, errors
            states.append(int(out))
        assert min(states) > 1
        record_property("cases", sum(states))
    finally:
        for reader in readers:
            reader.kill()
            reader.communicate()


def test_a_commit_between_manifest_and_files_is_noticed(tmp_path, monkeypatch):
    path = tmp_path / "index"
    index = Index.build(HashModel(), both(range(10), 0), path, layout=LAYOUT)
    changes = [
        lambda: write(path, index, 1),
        lambda: index.compact(),
        lambda: Index.build(HashModel(), both(range(10), 2), path, layout=LAYOUT),
    ]

    def read(folder):
        manifest = read_manifest(folder)
        if changes:
            changes.pop(0)()
        return manifest

    monkeypatch.setattr(cache_module, "read_manifest", read)
    cache = CandidateCache.open(path)
    assert not changes
    assert list(cache) == both(range(10), 2)

import shutil

import pytest

from hash_model import HashModel, contents, numbered
from polyrank.errors import IndexFolderError
from polyrank.retrieval.index import Index
from polyrank.retrieval.store.manifest import ShardLayout

SMALL = ShardLayout(block_rows=4, shard_rows=8)
METADATA = {"lang": "en", "year": 2020, "weight": 0.5, "open": True}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An index with a file of every kind."""
    path = tmp_path_factory.mktemp("damage") / "index"
    candidates = [(identifier, text, METADATA) for identifier, text in numbered(12)]
    index = Index.build(HashModel(), candidates, path, layout=SMALL, storage="int8")
    index.delete(["id3"])
    assert {name for name in contents(path) if name.startswith("shards/00000/")} == {
        f"shards/00000/{name}"
        for name in (
            *("vectors.npy", "scales.npy", "norms.npy", "candidates.arrow", "metadata.arrow"),
            *("id-hashes.npy", "id-rows.npy", "deleted-2.npy"),
        )
    }
    return path


def names(folder):
    return [name for name, data in contents(folder).items() if data]


def test_every_flipped_bit_is_found(folder, tmp_path):
    for name in names(folder):
        data = (folder / name).read_bytes()
        for bit in {0, 8 * len(data) // 2, 8 * len(data) - 1}:
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            copy = shutil.copytree(folder, tmp_path / "copy")
            (copy / name).write_bytes(flipped)
            with pytest.raises(IndexFolderError):
                Index.open(copy, HashModel()).verify()
            shutil.rmtree(copy)


def test_every_bit_of_the_manifest_counts(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    data = (copy / "manifest.json").read_bytes()
    for bit in range(0, 8 * len(data), 31):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        (copy / "manifest.json").write_bytes(flipped)
        with pytest.raises(IndexFolderError):
            Index.open(copy, HashModel())


def test_every_file_cut_off_or_missing_is_found_when_opened(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    for name in names(folder):
        data = (copy / name).read_bytes()
        if name.startswith("model/"):
            continue
        (copy / name).write_bytes(data[:-2])
        with pytest.raises(IndexFolderError):
            Index.open(copy, HashModel())
        (copy / name).unlink()
        with pytest.raises(IndexFolderError):
            Index.open(copy, HashModel())
        (copy / name).write_bytes(data)
    Index.open(copy, HashModel()).verify()


def test_compacting_does_not_sign_damaged_data(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    file = copy / "shards/00001/candidates.arrow"
    file.write_bytes(file.read_bytes().replace(b"text", b"Text", 1))
    before = contents(copy)
    with pytest.raises(IndexFolderError, match="its checksum differs"):
        Index.open(copy, HashModel()).compact()
    assert contents(copy) == before


def test_what_cannot_be_read_is_not_changed(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    index = Index.open(copy, HashModel())
    file = copy / "shards/00001/candidates.arrow"
    file.write_bytes(file.read_bytes()[:-1])
    before = contents(copy)
    for change in (
        lambda: index.add(["new"]),
        lambda: index.delete(["id1"]),
        lambda: index.compact(),
    ):
        with pytest.raises(IndexFolderError, match=r"candidates\.arrow .* bytes instead of"):
            change()
    assert contents(copy) == before

"""Folders made to do harm: names that lead elsewhere, pickles, code, arrays of objects."""

import json
import pickle

import numpy as np
import pytest
from safetensors.torch import load_file

from polyrank.errors import IndexFolderError, ModelError
from polyrank.interop.export import export
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.retrieval.index import Index
from polyrank.retrieval.store.manifest import checksum_of
from tiny_encoders import load_variant

AWAY = ["../other", "/etc", "a/../../other", ".."]


class Harm:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


@pytest.fixture
def saved(bert, tmp_path):
    load_variant("bi", bert).save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


def change(path, edit):
    described = json.loads(path.read_text())
    edit(described)
    path.write_text(json.dumps(described))


@pytest.mark.parametrize("name", AWAY)
def test_adapters_elsewhere(name, saved):
    adapter = {"context_tower": {"folder": name, "base_sha256": "0", "dtype": "float32"}}
    change(saved / "polyrank.json", lambda described: described.update(adapters=adapter))
    with pytest.raises(ModelError, match="outside of the folder"):
        load_model(saved)


@pytest.mark.parametrize("name", AWAY)
def test_files_of_an_index_elsewhere(name, saved, tmp_path):
    index = tmp_path / "index"
    Index.build(BiEncoder.from_pretrained(saved), [("a", "b")], index).close()

    def lead_away(manifest):
        moved = next(each for each in manifest["files"] if each.endswith("vectors.npy"))
        manifest["files"][f"{name}/{moved}"] = manifest["files"].pop(moved)
        manifest["checksum"] = checksum_of(manifest)

    def lead_shards_away(manifest):
        manifest["shards"][0]["folder"] = name
        manifest["checksum"] = checksum_of(manifest)

    def lead_structure_away(manifest):
        manifest["search"] = {"kind": "hnsw", "rows": 1, "folder": name, "effort": {}}
        manifest["checksum"] = checksum_of(manifest)

    for edit in (lead_away, lead_shards_away, lead_structure_away):
        change(index / "manifest.json", edit)
        with pytest.raises(IndexFolderError, match="lies outside"):
            Index.open(index)


@pytest.mark.parametrize("name", [*AWAY, "C:\\other", "a\\..\\..\\other", 5])
def test_weights_elsewhere(name, own_bert):
    weights = own_bert / "model.safetensors"
    names = list(load_file(weights))
    weights.rename(own_bert.parent / "other")
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, name)}
    (own_bert / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"model\.safetensors\.index\.json is damaged"):
        BiEncoder.from_pretrained(own_bert)


@pytest.mark.parametrize("setting", ["vocab", "merges", "vocab_file", "tokenizer_file"])
@pytest.mark.parametrize("has_own", [True, False])
def test_a_tokeniser_reads_no_file_elsewhere(setting, has_own, own_bert, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsecret\n")
    config = own_bert / "tokenizer_config.json"
    change(config, lambda settings: settings.update({setting: str(secret)}))
    (own_bert / "tokenizer.json").unlink()
    if has_own:
        (own_bert / "vocab.txt").write_text(secret.read_text().replace("secret", "file"))
    try:
        model = BiEncoder.from_pretrained(own_bert)
    except ModelError:
        return
    assert "secret" not in model.tokenizer.pretrained.get_vocab()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors", "training_args.bin"])
def test_pickles_are_never_opened(name, bert, own_bert, tmp_path):
    mark = tmp_path / "mark"
    (own_bert / name).write_bytes(pickle.dumps(Harm(mark)))
    if name != "training_args.bin":
        (own_bert / "model.safetensors").unlink() if name == "pytorch_model.bin" else None
        with pytest.raises(ModelError):
            BiEncoder.from_pretrained(own_bert)
    else:
        BiEncoder.from_pretrained(own_bert)
    assert not mark.exists()


def test_arrays_of_objects_are_never_unpickled(saved, tmp_path):
    index, mark = tmp_path / "index", tmp_path / "mark"
    Index.build(BiEncoder.from_pretrained(saved), [("a", "b")], index).close()
    for path in index.rglob("*.npy"):
        kept = path.read_bytes()
        with open(path, "wb") as file:
            np.save(file, np.array([Harm(mark)], dtype=object), allow_pickle=True)
        with pytest.raises(IndexFolderError), Index.open(index) as found:
            found.verify()
        path.write_bytes(kept)
    assert not mark.exists()


def test_code_of_a_model_is_never_run(own_bert, tmp_path):
    mark = tmp_path / "mark"
    (own_bert / "modeling.py").write_text(f"open({str(mark)!r}, 'w')")
    code = {"AutoModel": "modeling.Model", "AutoConfig": "modeling.Config"}
    change(own_bert / "config.json", lambda config: config.update(auto_map=code))
    change(own_bert / "tokenizer_config.json", lambda config: config.update(auto_map=code))
    with pytest.raises(ModelError):
        BiEncoder.from_pretrained(own_bert)
    assert not mark.exists()


@pytest.mark.parametrize("place", ["turn_separator", "sep_token", "folder"])
def test_a_card_runs_nothing_that_a_model_says(place, saved, tmp_path):
    """Cards are templates of Jinja, which runs what stands in them."""
    mark = tmp_path / "mark"
    call = f"{{{{ cycler.__init__.__globals__.open({str(mark)!r}, 'w') }}}}"
    output = tmp_path / "exported"
    if place == "turn_separator":
        change(saved / "polyrank.json", lambda found: found["settings"].update({place: call}))
    elif place == "sep_token":
        settings = saved / "backbone" / "tokenizer_config.json"
        change(settings, lambda settings: settings.update({place: call}))
    else:
        output = tmp_path / call.replace("/", "-")
    try:
        export(load_model(saved), output, "sentence-transformers")
    except ModelError:  # a token that the tokeniser does not have
        return
    assert not mark.exists()
    assert "cycler" in (output / "README.md").read_text()


@pytest.mark.parametrize(
    "header",
    [
        b"\xff" * 8,
        (10**12).to_bytes(8, "little") + b"{}",
        b"\x02" + bytes(7) + b"{}",
        {"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}},
        {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 2**63]}},
        {"a": {"dtype": "X9", "shape": [2], "data_offsets": [0, 8]}},
        {"a": [1]},
        [],
    ],
)
def test_headers_of_absurd_shapes(header, saved):
    if not isinstance(header, bytes):
        text = json.dumps(header).encode()
        header = len(text).to_bytes(8, "little") + text + bytes(8)
    (saved / "model.safetensors").write_bytes(header)
    for trainable in (True, False):
        with pytest.raises(ModelError):
            load_model(saved, trainable=trainable)

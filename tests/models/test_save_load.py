"""A saved model comes back bit by bit, wherever and by whomever it is opened."""

import json
import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from polyrank.errors import StorageError, UsageError
from polyrank.models import folder as folder_module
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import ARCHITECTURES, load_model
from polyrank.models.config import CONFIGS
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder
from tiny_encoders import FAMILIES, TEXTS, VARIANTS, load_variant, scores_of

CONTEXTS = ["how do i read a file", ["hello", "no sound"], ""]
ANOTHER_PROCESS = """
import json, sys
import torch
from polyrank import load_model

torch.set_num_threads(int(sys.argv[1]))
found = {}
for folder in sys.argv[2:]:
    model = load_model(folder, device="cpu", dtype="float32")
    ranked = [model.rank(context, ["yes", "", "read a file"]) for context in ("a", "b c")]
    scores = [[hit.score for hit in hits] for hits in ranked]
    found[folder] = [type(model).__name__, model.fingerprint(), scores]
print(json.dumps(found))
"""


def reload(model_class, path, **settings):
    return model_class.from_pretrained(path, device="cpu", dtype="float32", **settings)


@pytest.mark.parametrize("variant", VARIANTS)
def test_scores_are_bit_equal_after_a_round_trip(variant, bert, tmp_path, monkeypatch):
    settings = {} if variant.startswith("cross") else {"projection": 7}
    model = load_variant(variant, bert, **settings)
    expected = scores_of(model, CONTEXTS, TEXTS)
    fingerprint = model.fingerprint()
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for loaded in (
        reload(type(model), "../model"),
        load_model("../model", device="cpu", dtype="float32"),
    ):
        assert type(loaded) is type(model)
        assert loaded.config == model.config
        assert torch.equal(scores_of(loaded, CONTEXTS, TEXTS), expected)
        assert loaded.fingerprint() == fingerprint
        assert loaded.path == tmp_path / "elsewhere" / ".." / "model"


@pytest.mark.parametrize("family", FAMILIES[1:])
def test_every_family_comes_back(family, encoder_folder, tmp_path):
    model = load_variant("poly-learnt", encoder_folder(family))
    model.save_pretrained(tmp_path / "model")
    loaded = load_model(tmp_path / "model", device="cpu", dtype="float32")
    assert torch.equal(scores_of(loaded, CONTEXTS, TEXTS), scores_of(model, CONTEXTS, TEXTS))
    assert loaded.fingerprint() == model.fingerprint()


def test_another_process_gets_the_same_scores(bert, tmp_path):
    expected = {}
    for variant in ("bi", "poly-learnt", "cross"):
        model = load_variant(variant, bert)
        model.save_pretrained(tmp_path / variant)
        scores = [
            [hit.score for hit in model.rank(context, ["yes", "", "read a file"])]
            for context in ("a", "b c")
        ]
        expected[variant] = [type(model).__name__, model.fingerprint(), scores]
    (tmp_path / "elsewhere").mkdir()
    command = [sys.executable, "-W", "error", "-c", ANOTHER_PROCESS, str(torch.get_num_threads())]
    run = subprocess.run(
        [*command, *(f"../{variant}" for variant in expected)],
        cwd=tmp_path / "elsewhere",
        env=os.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout) == {f"../{name}": found for name, found in expected.items()}


def test_what_a_folder_holds(bert, tmp_path):
    model = load_variant("poly-learnt", bert)
    model.save_pretrained(tmp_path / "model")
    files = {path.relative_to(tmp_path / "model").as_posix() for path in tmp_path.rglob("*.*")}
    assert {"polyrank.json", "model.safetensors", "backbone/config.json"} <= files
    assert "backbone/tokenizer.json" in files
    assert not [name for name in files if name.endswith((".bin", ".pt", ".pkl"))]
    described = json.loads((tmp_path / "model" / "polyrank.json").read_text())
    assert described["architecture"] == "poly"
    assert described["settings"]["num_codes"] == 5
    weights = load_file(tmp_path / "model" / "model.safetensors")
    assert weights.keys() == model.state_dict().keys()
    assert not any("pooler" in name for name in weights)


def test_a_model_is_saved_over_the_folder_it_came_from(bert, tmp_path):
    load_variant("bi", bert).save_pretrained(tmp_path / "model")
    model = reload(BiEncoder, tmp_path / "model")
    with torch.no_grad():
        model.context_tower.encoder.embeddings.word_embeddings.weight.mul_(2)
    expected = scores_of(model, CONTEXTS, TEXTS)
    model.save_pretrained(tmp_path / "model")
    assert torch.equal(scores_of(reload(BiEncoder, tmp_path / "model"), CONTEXTS, TEXTS), expected)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_failed_save_leaves_the_old_folder(bert, tmp_path, monkeypatch):
    load_variant("bi", bert).save_pretrained(tmp_path / "model")
    before = reload(BiEncoder, tmp_path / "model").fingerprint()

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(folder_module, "save_file", full)
    with pytest.raises(StorageError, match="No space left on device"):
        load_variant("poly-learnt", bert).save_pretrained(tmp_path / "model")
    assert load_model(tmp_path / "model", device="cpu").fingerprint() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_fingerprints_tell_weights_and_settings_apart(bert):
    models = [
        load_variant("bi", bert),
        load_variant("bi", bert, max_context_length=20),
        load_variant("bi", bert, temperature=0.5),
        load_variant("poly-learnt", bert),
        load_variant("poly-learnt", bert, attention="sqrt"),
        load_variant("cross", bert),
    ]
    fingerprints = [model.fingerprint() for model in models]
    assert len(set(fingerprints)) == len(models)
    assert [model.fingerprint() for model in models] == fingerprints
    with torch.no_grad():
        next(models[0].candidate_tower.parameters())[0, 0] += 1e-3
    assert models[0].fingerprint() != fingerprints[0]


def test_the_weights_stay_float32_whatever_the_precision_of_inference(bert, tmp_path):
    model = load_variant("poly-learnt", bert, projection=7)
    model.save_pretrained(tmp_path / "model")
    low = PolyEncoder.from_pretrained(tmp_path / "model", device="cpu", dtype="bfloat16")
    low.encode_candidates(TEXTS)
    low.save_pretrained(tmp_path / "again")
    first, second = (
        load_file(tmp_path / name / "model.safetensors") for name in ("model", "again")
    )
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert tensor.dtype == torch.float32
        assert torch.equal(second[name], tensor)
    assert low.fingerprint() == model.fingerprint()


def test_settings_that_do_not_shape_the_weights_may_change(bert, tmp_path):
    load_variant("poly-learnt", bert).save_pretrained(tmp_path / "model")
    loaded = load_model(tmp_path / "model", device="cpu", max_context_length=9, attention="sqrt")
    assert (loaded.config.max_context_length, loaded.attention) == (9, "sqrt")
    assert loaded.config.num_codes == 5


@pytest.mark.parametrize(
    ("variant", "settings", "message"),
    [
        ("poly-learnt", {"num_codes": 6}, r"made with num_codes = 5, not 6"),
        ("poly-learnt", {"context_vectors": "first"}, r"made with context_vectors = learnt"),
        ("poly-learnt", {"code_recency": 0.0}, r"made with code_recency = 0.1, not 0.0"),
        ("bi", {"projection": 7}, r"made with projection = None, not 7"),
        ("bi", {"shared_towers": True}, r"made with shared_towers = False, not True"),
        ("cross", {"task": "classify"}, r"made with task = rank, not classify"),
        ("cross", {"head": "pooler"}, r"made with head = linear, not pooler"),
        ("poly-learnt", {"num_code": 5}, r"no setting 'num_code'. Did you mean 'num_codes'"),
        ("bi", {"num_codes": 5}, r"The bi model: there is no setting 'num_codes'"),
    ],
)
def test_settings_that_contradict_the_saved_model_are_refused(
    variant, settings, message, bert, tmp_path
):
    load_variant(variant, bert).save_pretrained(tmp_path / "model")
    with pytest.raises(UsageError, match=message):
        load_model(tmp_path / "model", device="cpu", **settings)


def test_the_architectures_are_those_of_the_settings():
    assert {"bi": BiEncoder, "poly": PolyEncoder, "cross": CrossEncoder} == ARCHITECTURES
    assert ARCHITECTURES.keys() == CONFIGS.keys()
    for name, model_class in ARCHITECTURES.items():
        assert model_class.architecture == CONFIGS[name].architecture == name

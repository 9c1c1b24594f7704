"""The hub of the pages, made once a session."""

import pytest


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory):
    from hub_stand_ins import write_hub

    cache = tmp_path_factory.mktemp("hub")
    write_hub(cache)
    return cache


@pytest.fixture
def hub_with_stand_ins(stand_ins, monkeypatch):
    """The hub's cache has the models that the pages name."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(stand_ins))

"""Folders of tiny encoders, made once a session and never written to."""

import gc
import os
import shutil
import signal

if "PYTEST_XDIST_WORKER" in os.environ:  # processes side by side take a core each
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.pop("PYTHONUNBUFFERED", None)  # what the tests start buffers its output, as for users
os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported: before all else
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job in the background of a shell
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # what the tests start must hear Ctrl-C

import pytest


@pytest.fixture(scope="module", autouse=True)
def imported_once():
    """Python's collector leaves out what earlier modules of tests have imported.

    The libraries of all extras make 800,000 objects. Looking through them again and again took half
    of the time of the tests.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def encoder_folder(tmp_path_factory):
    """The folder of the tiny encoder of a family."""
    from tiny_encoders import build_encoder_folder

    made = {}

    def folder(family):
        if family not in made:
            made[family] = build_encoder_folder(family, tmp_path_factory.mktemp("encoder") / family)
        return made[family]

    return folder


@pytest.fixture(scope="session")
def bert(encoder_folder):
    return encoder_folder("bert")


@pytest.fixture(scope="session")
def wide(tmp_path_factory):
    """A RoBERTa of another width with half the positions: it shares nothing with the BERT."""
    from tiny_encoders import POSITIONS, build_encoder_folder

    folder = tmp_path_factory.mktemp("wide") / "roberta"
    sizes = {"hidden_size": 48, "max_position_embeddings": POSITIONS // 2 + 2}
    return build_encoder_folder("roberta", folder, seed=5, **sizes)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A stand-in of the hub, which huggingface_hub talks to, and an empty cache."""
    import hub_server

    with hub_server.running() as running:
        hub_server.connect(running, tmp_path / "hub-cache", monkeypatch)
        yield running


@pytest.fixture
def own_bert(bert, tmp_path):
    """A copy of the BERT folder that a test may damage."""
    return shutil.copytree(bert, tmp_path / "own_bert")

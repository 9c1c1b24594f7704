"""`polyrank doctor`."""

from __future__ import annotations

import json
from importlib import metadata

import pytest
import torch

from polyrank.cli import doctor
from polyrank.cli.main import commands, run
from polyrank.runtime import has_bfloat16

DECLARED = [
    "numpy>=1.26",
    "torch>=2.6",
    "missing-one>=3; extra == 'first'",
    "numpy>=1.26; extra == 'second'",
    "numpy<0.1; extra == 'third'",
]


@pytest.fixture
def declared(monkeypatch):
    """What polyrank says that it needs."""
    lines = list(DECLARED)
    monkeypatch.setattr(metadata, "requires", lambda name: lines)
    found = metadata.metadata("numpy")
    monkeypatch.setattr(found.__class__, "get_all", lambda self, key: ["first", "second", "third"])
    monkeypatch.setattr(metadata, "metadata", lambda name: found)
    return lines


def test_it_tells_what_is_there(capsys):
    code = run(["doctor", "--json"], commands())
    found = json.loads(capsys.readouterr().out)
    assert code == bool(found["warnings"])
    assert found["versions"]["torch"] == metadata.version("torch")
    yes = has_bfloat16(torch.device(found["devices"]["chosen by auto"]))
    assert found["devices"]["bf16"].startswith("yes: " if yes else "no, float32: ")
    assert found["machine"]["threads"] == torch.get_num_threads()
    assert set(found["extras"]) >= {"bm25", "faiss", "hub", "metrics", "plot", "ray"}


def test_a_missing_extra_has_its_pip_line_and_is_no_fault(declared, capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "machine", lambda found: ())
    monkeypatch.setattr(doctor, "cache", lambda found: ())
    assert run(["doctor"], commands()) == 0
    out = capsys.readouterr().out
    assert 'missing missing-one: pip install "polyrank[first]"' in out
    assert "second           installed" in out
    assert 'missing numpy: pip install "polyrank[third]"' in out
    assert out.endswith("All is well.\n")


def test_a_requirement_of_another_version_is_a_warning(declared, capsys, monkeypatch):
    monkeypatch.setattr(doctor, "machine", lambda found: ())
    declared[:] = ["numpy<0.1", "not-there>=1"]
    assert run(["doctor", "--json"], commands()) == 1
    out, err = capsys.readouterr()
    warnings = json.loads(out)["warnings"]
    assert warnings[0].startswith("numpy is ")
    assert warnings[0].endswith('Run: pip install "numpy<0.1".')
    assert warnings[1].startswith("not-there is missing, and polyrank needs not-there>=1.")
    assert err.count("Warning: ") == 2


def test_a_cache_that_cannot_be_written_and_too_many_threads_are_warnings(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    found: dict[str, dict[str, object]] = {}
    warnings = list(doctor.cache(found))
    assert len(warnings) == 2
    assert "Set HF_HOME" in warnings[0]
    monkeypatch.setattr(doctor, "cores_of", lambda: torch.get_num_threads() - 1)
    monkeypatch.setattr(doctor, "memory_of", lambda: 10**9)
    warnings = list(doctor.machine(found))
    assert len(warnings) == 2
    assert warnings[0].endswith(f"Set OMP_NUM_THREADS={torch.get_num_threads() - 1}.")
    assert "1.0 GB of memory" in warnings[1]

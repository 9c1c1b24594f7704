import importlib
import subprocess
import sys

import pytest

import polyrank


@pytest.mark.parametrize("name", polyrank.__all__)
def test_every_exported_name_can_be_imported(name):
    home = importlib.import_module(f"polyrank.{polyrank._HOMES[name]}")
    assert getattr(polyrank, name) is getattr(home, name)


def test_the_exported_names_are_all_there_are():
    assert dir(polyrank) == sorted(polyrank.__all__)
    assert polyrank._HOMES.keys() == set(polyrank.__all__)
    assert len(set(polyrank.__all__)) == len(polyrank.__all__)


def test_other_names_are_refused():
    with pytest.raises(AttributeError, match="'polyrank' has no attribute 'TriEncoder'"):
        _ = polyrank.TriEncoder


def test_importing_the_package_loads_nothing_heavy():
    heavy = ["torch", "transformers", "numpy", "tokenizers", "safetensors", "rich", "typer", "yaml"]
    program = f"import sys, polyrank; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"

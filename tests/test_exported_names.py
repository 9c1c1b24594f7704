import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

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


def test_type_checkers_are_told_of_the_same_names_and_homes():
    tree = ast.parse(Path(polyrank.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {
        name.name: node.module.removeprefix("polyrank.")
        for node in block.body
        for name in node.names
    }
    assert told == polyrank._HOMES


def test_every_error_is_exported():
    errors = importlib.import_module("polyrank.errors")
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.PolyrankError)
    }
    assert classes <= set(polyrank.__all__)


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

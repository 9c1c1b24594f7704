import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import polyrank
import polyrank.serving

PACKAGES = [polyrank, polyrank.serving]


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package in PACKAGES for name in package.__all__]
)
def test_every_exported_name_can_be_imported(package, name):
    home = importlib.import_module(f"{package.__name__}.{package._HOMES[name]}")
    assert getattr(package, name) is getattr(home, name)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_exported_names_are_all_there_are(package):
    assert dir(package) == sorted(package.__all__)
    assert package._HOMES.keys() == set(package.__all__)
    assert len(set(package.__all__)) == len(package.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_are_told_of_the_same_names_and_homes(package):
    tree = ast.parse(Path(package.__file__).read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    told = {
        name.name: node.module.removeprefix(f"{package.__name__}.")
        for node in block.body
        for name in node.names
    }
    assert told == package._HOMES


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
    with pytest.raises(AttributeError, match=r"'polyrank\.serving' has no attribute 'App'"):
        _ = polyrank.serving.App


def test_importing_the_package_loads_nothing_heavy():
    heavy = ["torch", "transformers", "numpy", "tokenizers", "safetensors", "rich", "typer", "yaml"]
    program = f"import sys, polyrank; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"

"""Nothing in the package is there for its tests alone."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOUND_BY_REGISTRIES = ("training/objectives", "pretraining/tasks")
"""Folders whose classes are found by what they derive from, not by their names."""
REGISTERING = ("router.", "field_validator", "model_validator")
"""The decorators of functions that are found by what they are registered for."""
TREES = {path: ast.parse(path.read_text("utf-8")) for path in ROOT.glob("src/**/*.py")}
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def words_of(node):
    """The names that a node uses; an import alone is no use."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.keyword):
        return node.arg
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value  # such as what polyrank/__init__.py hands out
    return None


def used_names():
    """How often each name is used in the package, and those that the documents write as code."""
    found = Counter(words_of(node) for tree in TREES.values() for node in ast.walk(tree))
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        for code in re.findall(r"```.*?```|`[^`]+`", page.read_text("utf-8"), re.DOTALL):
            found.update(re.findall(r"\w+", code))
    return found


def defined():
    """Every function and class of a module, and every method that no library calls."""
    classes = {node.name for tree in TREES.values() for node in tree.body if is_class(node)}
    for path, tree in TREES.items():
        found = any(folder in path.as_posix() for folder in FOUND_BY_REGISTRIES)
        for node in tree.body:
            if is_registered(node):
                continue
            if isinstance(node, FUNCTIONS) or (is_class(node) and not found):
                yield path, node.name
            if is_class(node) and {ast.unparse(base) for base in node.bases} <= classes:
                yield from (
                    (path, one.name)
                    for one in node.body
                    if isinstance(one, FUNCTIONS) and not is_registered(one)
                )


def is_registered(node):
    """Whether a library calls a function: a request by its path, or pydantic for a value."""
    decorators = map(ast.unparse, getattr(node, "decorator_list", []))
    return any(decorator.startswith(REGISTERING) for decorator in decorators)


def is_class(node):
    return isinstance(node, ast.ClassDef)


def test_everything_is_used_or_documented():
    used = used_names()
    unused = [
        f"{path.relative_to(ROOT)}: {name}"
        for path, name in defined()
        if not name.startswith("__") and not used[name]
    ]
    assert unused == []


def test_benchmarks_run_commands_in_one_way():
    importing = [
        path.name
        for path in ROOT.glob("benchmarks/**/*.py")
        if "polyrank.cli" in path.read_text("utf-8") and path.name != "command.py"
    ]
    assert importing == []


@pytest.fixture(scope="module")
def extras():
    tomllib = pytest.importorskip("tomllib")  # from Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return project["optional-dependencies"]


def test_no_two_extras_are_the_same(extras):
    assert len({tuple(sorted(packages)) for packages in extras.values()}) == len(extras)


def test_errors_name_extras_that_bring_the_package(extras):
    named = [
        [ast.literal_eval(part) for part in node.args[:2]]
        for tree in TREES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "MissingExtraError"
    ]
    assert len(named) > 5
    for package, extra in named:
        assert any(one.startswith(package) for one in extras[extra]), (package, extra)
    assert {extra for _, extra in named} | {"demo"} >= extras.keys()

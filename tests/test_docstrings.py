"""What a user can call is documented: every argument, its type, the result and the errors.

A signature with more than three parameters has `Args`, `Returns` and `Raises` as Google writes
them; where a shorter one has such sections, they are checked as well. Settings are documented by
the text below each field.
"""

import builtins
from pathlib import Path

import griffe
import pytest

import polyrank
from polyrank import errors, serving

MOST = 3
"""Parameters that a docstring may leave to its prose."""
FIRST = ("self", "cls")
KINDS = griffe.DocstringSectionKind


@pytest.fixture(scope="module")
def package():
    return griffe.load("polyrank", search_paths=[Path(polyrank.__file__).parents[1]])


def homes():
    own = [
        (name, f"{home}.{name}") for name, home in polyrank._HOMES.items() if name != "__version__"
    ]
    return own + [(name, f"serving.{home}.{name}") for name, home in serving._HOMES.items()]


def callables(package, name, path):
    """Yield what can be called by a public name: the function, or the methods of the class."""
    found = package[path]
    if found.is_function:
        yield name, found
        return
    is_made = "dataclass" in found.labels  # and so is its __init__
    for member, value in sorted(found.all_members.items()):
        is_public = not member.startswith("_") or (member == "__init__" and not is_made)
        target = value.final_target if value.is_alias else value
        if is_public and target.is_function and "property" not in target.labels:
            yield f"{name}.{member}", target


def sections_of(function):
    if function.docstring is None:
        return {}
    return {each.kind: each.value for each in function.docstring.parse("google", warnings=False)}


def faults(name, function):
    """What is wrong with the signature and the docstring of one function."""
    given = {one.name: one for one in function.parameters if one.name not in FIRST}
    stars = {
        griffe.ParameterKind.var_positional: "*",
        griffe.ParameterKind.var_keyword: "**",
    }
    shown = {stars.get(one.kind, "") + one.name for one in given.values()}
    for one in given.values():
        if one.annotation is None:
            yield f"{name}: {one.name} has no type"
    if function.name != "__init__" and function.returns is None:
        yield f"{name}: the result has no type"
    if function.docstring is None:
        if function.name != "__init__" or len(given) > MOST:
            yield f"{name}: no docstring"
        return
    sections = sections_of(function)
    documented = {one.name for one in sections.get(KINDS.parameters, ())}
    needed = len(given) > MOST
    if needed or documented:
        for one in sorted(shown - documented):
            yield f"{name}: {one} is not in Args"
        for one in sorted(documented - shown):
            yield f"{name}: Args has {one}, which is no parameter"
    gives = str(function.returns) != "None" and function.name != "__init__"
    if needed and gives and not sections.keys() & {KINDS.returns, KINDS.yields}:
        yield f"{name}: no Returns"
    for one in sections.get(KINDS.raises, ()):
        if not is_error(str(one.annotation)):
            yield f"{name}: Raises has {one.annotation}, which is no error"


def is_error(name):
    found = getattr(errors, name, None) or getattr(builtins, name, None)
    return isinstance(found, type) and issubclass(found, Exception)


@pytest.mark.parametrize(("name", "path"), homes())
def test_what_a_user_calls_is_documented(package, name, path):
    found = [
        fault for one, function in callables(package, name, path) for fault in faults(one, function)
    ]
    assert found == []


@pytest.mark.parametrize("name", [name for name in polyrank.__all__ if name.endswith("Config")])
def test_every_setting_is_documented_below_its_field(package, name):
    cls = getattr(polyrank, name)
    homes_of_fields = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("polyrank."):
            node = package[base.__module__.removeprefix("polyrank.") + "." + base.__qualname__]
            homes_of_fields |= node.members
    bare = [
        field
        for field in cls.__dataclass_fields__
        if field != "architecture" and not homes_of_fields[field].docstring
    ]
    assert bare == []


def test_faults_are_found():
    code = '''
def f(a, b: int, c: int, d: int, *, e: int = 1, **more: int) -> int:
    """Do it.

    Args:
        a: A.
        b: B.
        x: X.

    Raises:
        OddError: Never.
    """
'''
    with griffe.temporary_visited_module(code) as module:
        found = list(faults("f", module["f"]))
    assert found == [
        "f: a has no type",
        "f: **more is not in Args",
        "f: c is not in Args",
        "f: d is not in Args",
        "f: e is not in Args",
        "f: Args has x, which is no parameter",
        "f: no Returns",
        "f: Raises has OddError, which is no error",
    ]

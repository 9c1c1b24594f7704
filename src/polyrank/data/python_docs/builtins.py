"""The docstrings of modules written in C, to sections by the name users know the module by.

These have no Python file to parse, so they are imported: see BUILT_IN. Knows nothing of files.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from polyrank.data.python_docs.markup import SIGNATURE
from polyrank.data.python_docs.modules import text_sections
from polyrank.records import Section

# Importing one of these runs no Python code: each is compiled into the interpreter or is an
# extension that imports nothing (array and _sqlite3: nothing but `collections` and `functools`,
# which every program has loaded). That was checked by comparing sys.modules before and after, in
# `python -I -S`, on CPython 3.10 to 3.13. A module that an installation lacks is passed over.
BUILT_IN = {
    "builtins": "builtins",
    "_bisect": "bisect",
    "_bz2": "bz2",
    "_codecs": "codecs",
    "_collections": "collections",
    "_contextvars": "contextvars",
    "_csv": "csv",
    "_datetime": "datetime",
    "_functools": "functools",
    "_heapq": "heapq",
    "_imp": "imp",
    "_io": "io",
    "_locale": "locale",
    "_lzma": "lzma",
    "_operator": "operator",
    "_queue": "queue",
    "_random": "random",
    "_signal": "signal",
    "_socket": "socket",
    "_sqlite3": "sqlite3",
    "_sre": "re",
    "_stat": "stat",
    "_statistics": "statistics",
    "_struct": "struct",
    "_symtable": "symtable",
    "_tracemalloc": "tracemalloc",
    "_warnings": "warnings",
    "_weakref": "weakref",
    "array": "array",
    "atexit": "atexit",
    "binascii": "binascii",
    "cmath": "cmath",
    "errno": "errno",
    "faulthandler": "faulthandler",
    "fcntl": "fcntl",
    "gc": "gc",
    "grp": "grp",
    "itertools": "itertools",
    "marshal": "marshal",
    "math": "math",
    "mmap": "mmap",
    "posix": "os",
    "nt": "os",
    "pwd": "pwd",
    "resource": "resource",
    "select": "select",
    "sys": "sys",
    "termios": "termios",
    "time": "time",
    "unicodedata": "unicodedata",
    "zlib": "zlib",
}
"""The modules that are imported, and the names users know them by."""


def read_builtins() -> dict[str, list[Section]]:
    """The sections of the C modules, by the public name of the module."""
    sections: dict[str, list[Section]] = {}
    for name, public in BUILT_IN.items():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        sections.setdefault(public, []).extend(module_sections(public, module))
    return {name: found for name, found in sections.items() if found}


def module_sections(public: str, module: ModuleType) -> Iterator[Section]:
    """The text of a C module and of its public functions, classes and methods, by name."""
    if public != "builtins":
        yield from text_sections("", module.__doc__)
    prefix = "" if public == "builtins" else public + "."
    for name, member in sorted(vars(module).items()):
        # What a module only passes on (collections.abc in array) has another module's name.
        home = (getattr(member, "__module__", None) or module.__name__).split(".")[0]
        foreign = public != "builtins" and home not in (module.__name__, public)
        if name.startswith("_") or foreign:
            continue
        if inspect.isclass(member):
            yield from member_sections(prefix + name, member)
            for inner, method in sorted(vars(member).items()):
                has_text = inspect.isroutine(method) or inspect.isdatadescriptor(method)
                if has_text and not inner.startswith("_"):
                    yield from member_sections(f"{prefix}{name}.{inner}", method)
        elif inspect.isroutine(member):
            yield from member_sections(prefix + name, member)


def member_sections(name: str, member: Any) -> Iterator[Section]:
    """The docstring of one function, class, method or attribute."""
    docstring = getattr(member, "__doc__", None)
    if not isinstance(docstring, str):
        return
    arguments = getattr(member, "__text_signature__", None)
    first, _, rest = inspect.cleandoc(docstring).partition("\n")
    if SIGNATURE.fullmatch(first.strip()) and rest.strip():
        # The signature of a function that has no machine-readable one stands in its text.
        arguments = arguments or re.sub(r"^[\w.]+|\s*--?>.*$", "", first.strip())
        docstring = rest.lstrip(" -\n")
    shown = re.sub(r"\(\$?(?:self|module|type|cls)(?:, /)?(?:, )?", "(", arguments or "")
    yield from text_sections(name + shown.replace("(/, ", "("), docstring)

"""What the modules of a package declare, so that a module that is added there is found."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any


def modules_in(package: ModuleType) -> Iterator[ModuleType]:
    """Yield every module of a package, in the order of their names."""
    for module in iter_modules(package.__path__, f"{package.__name__}."):
        yield import_module(module.name)


def subclasses_in(package: ModuleType, base: type) -> Iterator[Any]:
    """Yield every concrete class below `base` that a module of the package defines."""
    for module in modules_in(package):
        for value in list(vars(module).values()):
            is_class = issubclass(type(value), type)  # Python 3.10 calls list[int] a class, too
            is_ours = is_class and issubclass(value, base) and value.__module__ == module.__name__
            if is_ours and not inspect.isabstract(value):
                yield value

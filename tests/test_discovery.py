import sys
from abc import ABC, abstractmethod
from types import ModuleType

import pytest

from polyrank.discovery import subclasses_in


class Base(ABC):
    @abstractmethod
    def run(self) -> None: ...


MODULE = """
from test_discovery import Base

Alias = list[int]

class Abstract(Base):
    pass

class One(Base):
    def run(self): pass
"""


def test_only_concrete_classes_of_the_modules_themselves_are_found(
    tmp_path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "first.py").write_text(MODULE)
    (tmp_path / "second.py").write_text(
        f"from found.first import One{MODULE.replace('One', 'Two')}"
    )
    package = ModuleType("found")
    package.__path__ = [str(tmp_path)]
    monkeypatch.setitem(sys.modules, "found", package)
    monkeypatch.setitem(sys.modules, "test_discovery", sys.modules[__name__])
    found = [each.__name__ for each in subclasses_in(package, Base)]
    for name in ("found.first", "found.second"):
        monkeypatch.delitem(sys.modules, name)
    assert found == ["One", "Two"]

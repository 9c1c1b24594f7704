"""The documentation of an installed Python as a corpus: modules, classes, functions, topics.

A module, each of its classes with its methods as sections, and each of its functions is an
article; so is each language topic. Links lead from the names of these, where they stand in prose,
to their articles. Code is left out: it has no sentences.
"""

from __future__ import annotations

import platform
import re
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyrank.data.python_docs import documents as documentation
from polyrank.data.python_docs.links import Linker
from polyrank.data.python_docs.markup import is_code_paragraph
from polyrank.data.python_docs.modules import qualified_name
from polyrank.data.python_docs.passages import is_readable
from polyrank.data.python_docs.topics import PREFIX, read_help_tables
from polyrank.pretraining.corpus.sentences import Splitter, splitter
from polyrank.pretraining.corpus.source import Documents, Dropped, Glimpse, Source
from polyrank.records import Article, Link, Paragraph, Section

BUILT_IN = "builtins"
NO_TEXT = "no text"
CODE = "paragraph of code"
UNREADABLE = "paragraph that says nothing"
CALL = re.compile(r"\b([A-Za-z_]\w*(?:\.\w+)*)\(\)")
CAPITALS = re.compile(r"\b([A-Z]\w*[a-z]\w*[A-Z]\w*|[A-Z]\w+(?:Error|Warning|Exception))\b")
"""`OrderedDict`, `OSError`: names that prose has no other use for."""


@dataclass(frozen=True, kw_only=True)
class PythonDocs(Source):
    """The documentation of the running Python, or of the library in a folder."""

    name = "python-docs"
    usual_language = "en"

    path: Path = Path(name)

    @classmethod
    def recognises(cls, glimpse: Glimpse) -> bool:
        """Whether it is a folder, or nothing but the name of this kind."""
        path = glimpse.path
        return path.is_dir() or (path.name == cls.name and not path.exists())

    def describe(self) -> dict[str, Any]:
        """The folder and the version of Python."""
        name = str(self.path) if self.path.is_dir() else self.name
        return {"name": name, "python": platform.python_version()}

    def read(self, scratch: Path) -> Documents:
        """Yield the articles, and what was dropped from them."""
        return read_documentation(self.path)


def read_documentation(path: Path | None = None) -> Documents:
    """Yield the articles of a Python's documentation, and what was dropped from it.

    `path` is the folder of its library; by default, or if it is no folder, that of the running
    Python, whose modules written in C are read too. Raises DataError if a folder holds none.
    """
    given = path is not None and path.is_dir()
    folder = path if path is not None and given else Path(sysconfig.get_paths()["stdlib"])
    documents = documentation.python_documents(folder, builtins=not given)
    parts = [part for document in documents for part in parted(document)]
    modules = {document.id for document in documents}
    links = Links(parts, modules, Linker(parts, read_help_tables(folder)))
    split = splitter("en")
    for document in parts:
        dropped: list[Dropped] = []
        sections = list(sections_of(document, links, split, dropped))
        yield from dropped
        if not any(section.paragraphs for section in sections):
            yield Dropped(NO_TEXT, document.id)
            continue
        yield Article(document.id, links.titles[document.id], tuple(sections))


def parted(document: Article) -> Iterator[Article]:
    """A topic as it is; a module as itself, its classes with their methods, and its functions."""
    if document.id.startswith(PREFIX):
        yield document
        return
    names = {name_of(document, section) for section in document.sections}
    classes = {name.rpartition(".")[0] for name in names} & names - {""}
    parts: dict[str, list[Section]] = {document.id: []}
    for section in document.sections:
        name = name_of(document, section)
        scope = name.rpartition(".")[0]
        owner = name if name in classes else scope if scope in classes else name
        parts.setdefault(owner or document.id, []).append(section)
    for name, sections in parts.items():
        if sections:
            yield Article(id=name, title=name, sections=tuple(sections))


def name_of(document: Article, section: Section) -> str:
    """The qualified name that a section explains, or an empty text."""
    defined = document.id == BUILT_IN or section.heading.startswith(document.id + ".")
    name = qualified_name(section.heading).partition(":")[0] if defined else ""
    return name if re.fullmatch(r"[\w.]+", name) else ""


class Links:
    """Finds links to the articles of a documentation: what `linker` finds, and names alone."""

    def __init__(
        self, documents: Iterable[Article], modules: Collection[str], linker: Linker
    ) -> None:
        self.modules = modules
        self.linker = linker
        self.titles: dict[str, str] = {}
        self.owners: dict[str, str] = {}
        taken: set[str] = set()
        for document in documents:
            title = document.title
            if title in taken:
                title = f"{title} ({document.id.removeprefix(PREFIX)})"
            taken.add(title)
            self.titles[document.id] = title
            if not document.id.startswith(PREFIX):
                self.owners.setdefault(document.id, document.id)
                for section in document.sections:
                    name = qualified_name(section.heading).partition(":")[0]
                    self.owners.setdefault(name, document.id)
        self.full_names: dict[str, set[str]] = {}
        for name in self.owners:
            self.full_names.setdefault(name.rpartition(".")[2], set()).add(name)

    def of(self, text: str, own: str) -> tuple[Link, ...]:
        """The links of a paragraph in the article `own`, in order, none over another."""
        found = list(self.linker.links(text, own))
        places = [(link.start, link.stop, link.target) for link in found]
        for pattern in (CALL, CAPITALS):
            for match in pattern.finditer(text):
                start, stop = match.span(1)
                target = self.resolve(match[1], own)
                free = all(stop <= other[0] or other[1] <= start for other in places)
                if target and target != own and free:
                    places.append((start, stop, target))
        return tuple(Link(start, stop, self.titles[to]) for start, stop, to in sorted(places))

    def resolve(self, name: str, own: str) -> str | None:
        """The article of a name: the nearest around `own`, a built-in, or the only one of all."""
        scope = "" if own.startswith(PREFIX) else own
        while scope:
            if f"{scope}.{name}" in self.owners:
                return self.owners[f"{scope}.{name}"]
            scope = scope.rpartition(".")[0]
        if name in self.owners and name not in self.modules:
            return self.owners[name]
        known = self.full_names.get(name, set())
        return self.owners[next(iter(known))] if len(known) == 1 else None


def sections_of(
    document: Article, links: Links, split: Splitter, dropped: list[Dropped]
) -> Iterator[Section]:
    """The sections of an article; the first has no heading, and no other is empty."""
    for number, section in enumerate(document.sections):
        paragraphs = []
        for paragraph in section.paragraphs:
            text = paragraph.text
            if is_code_paragraph(text) or not is_readable(text):
                reason = CODE if is_code_paragraph(text) else UNREADABLE
                dropped.append(Dropped(reason, f"{document.id}: {text.strip()[:40]}"))
                continue
            paragraphs.append(Paragraph(text, split(text), links.of(text, document.id)))
        explains = name_and_heading(document, section)
        if number == 0:
            yield Section("", 1, tuple(paragraphs) if not explains else ())
        if paragraphs and (number or explains):
            yield Section(explains or section.heading, 2, tuple(paragraphs))


def name_and_heading(document: Article, section: Section) -> str:
    """The heading of a section below its article's own text; empty for the first of an article."""
    title = section.heading
    return "" if qualified_name(title) == document.id and ": " not in title else title

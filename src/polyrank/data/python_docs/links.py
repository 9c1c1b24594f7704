"""Links between documents: finds in a paragraph the words that name another document.

Knows names and titles; knows nothing of where documents come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from polyrank.data.python_docs.markup import is_code_paragraph
from polyrank.data.python_docs.modules import qualified_name
from polyrank.data.python_docs.topics import PREFIX, HelpTables
from polyrank.records import Article, Link, Paragraph, Section

NOT_TITLES = frozenset({"See also", "Command Line", "Basic Usage", "Public API"})
DOTTED = re.compile(r"\b[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\b")
MODULES = (
    re.compile(r"\b[Mm]odule \"?([a-z_]\w*)\b"),
    re.compile(r"\b([a-z_]\w*)\"? module\b"),
)
"""Apart, since "see module json" has both forms, and only one of them names a module."""
STATEMENT = re.compile(r"[\"“]([a-z]+)[\"”] (?:statement|clause|keyword|expression|loop)s?")


class Linker:
    """Finds links to the documents it was made with."""

    def __init__(self, documents: Sequence[Article], tables: HelpTables) -> None:
        self.tables = tables
        self.ids = {document.id for document in documents}
        self.names = {id: id for id in self.ids if not id.startswith(PREFIX)}
        self.titles: dict[str, str] = {}
        topics = [document for document in documents if document.id.startswith(PREFIX)]
        self.shown = {topic.id: topic.title for topic in topics}
        for document in topics:
            self.titles.setdefault(document.title, document.id)
        for document in sorted(topics, key=lambda topic: (len(topic.sections), topic.id)):
            for section in document.sections:
                self.titles.setdefault(section.heading, document.id)
        self.titles = {
            title: target
            for title, target in self.titles.items()
            if " " in title and "(" not in title and title not in NOT_TITLES
        }
        alternatives = sorted(self.titles, key=lambda title: (-len(title), title))
        pattern = "|".join(re.escape(title) for title in alternatives)
        self.title_pattern = re.compile(rf"\b(?:{pattern})\b") if pattern else None
        for document in documents:
            if not document.id.startswith(PREFIX):
                for section in document.sections:
                    self.names.setdefault(qualified_name(section.heading), document.id)

    def resolve(self, name: str) -> str | None:
        """The document that a name asks for: a keyword, a topic, a module or what is in one."""
        label = self.tables.labels.get(name, name)
        if PREFIX + label in self.ids:
            return PREFIX + label
        return self.names.get(name)

    def dotted(self, name: str) -> str | None:
        """The document of the longest known beginning, with a dot in it, of a dotted name."""
        parts = name.split(".")
        for end in range(len(parts), 1, -1):
            if target := self.names.get(".".join(parts[:end])):
                return target
        return self.names.get(parts[0]) if parts[0] in self.ids else None

    def links(self, text: str, own: str) -> tuple[Link, ...]:
        """The links of a text in the document `own`: in order, none over another."""
        found: list[Link] = []
        for link in self.mentions(text):
            free = all(link.stop <= other.start or other.stop <= link.start for other in found)
            if link.target != own and free:
                found.append(link)
        return tuple(sorted(found))

    def mentions(self, text: str) -> Iterator[Link]:
        """Every mention of a document, the surest kinds first."""
        if self.title_pattern is not None:
            for match in self.title_pattern.finditer(text):
                yield Link(match.start(), match.end(), self.titles[match[0]])
        for match in STATEMENT.finditer(text):
            label = self.tables.labels.get(match[1], match[1])
            if PREFIX + label in self.ids:
                yield Link(match.start(1), match.end(1), PREFIX + label)
        for match in DOTTED.finditer(text):
            if target := self.dotted(match[0]):
                yield Link(match.start(), match.end(), target)
        for pattern in MODULES:
            for match in pattern.finditer(text):
                if match[1] in self.ids:
                    yield Link(match.start(1), match.end(1), match[1])

    def related(self, document: Article) -> Section | None:
        """The help system's cross-references of a topic, as a section of their titles."""
        names = self.tables.related.get(document.id.removeprefix(PREFIX), ())
        found = ((name, self.resolve(name)) for name in names)
        targets = {
            self.shown.get(target, name): target
            for name, target in found
            if target and target != document.id
        }
        if not targets:
            return None
        text = "See also: "
        links: list[Link] = []
        for name, target in targets.items():
            text += ", " if links else ""
            links.append(Link(len(text), len(text) + len(name), target))
            text += name
        return Section("See also", 2, (Paragraph(text, links=tuple(links)),))


def with_links(documents: Iterable[Article], tables: HelpTables) -> list[Article]:
    """The documents with links in their paragraphs and, for topics, a section of related ones."""
    documents = list(documents)
    linker = Linker(documents, tables)
    linked = []
    for document in documents:
        sections = [
            section._replace(
                paragraphs=tuple(
                    paragraph
                    if is_code_paragraph(paragraph.text)
                    else paragraph._replace(links=linker.links(paragraph.text, document.id))
                    for paragraph in section.paragraphs
                ),
            )
            for section in document.sections
        ]
        is_topic = document.id.startswith(PREFIX)
        related = linker.related(document) if is_topic else None
        linked.append(document._replace(sections=tuple(sections + ([related] if related else []))))
    return linked

"""The documentation of an installed Python as a source of a pre-training corpus.

Links lead from names that stand in prose (`json.dumps`, `sweep()`, `OSError`) to their articles.
"""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyrank.demo.documentation import TOPIC, read_documentation
from polyrank.pretraining.corpus.sentences import splitter
from polyrank.pretraining.corpus.source import Documents, Glimpse, Source
from polyrank.records import Article, Link, Paragraph

NAME = re.compile(
    r"\b[A-Za-z_]\w*(?:\.\w+)+|\b[A-Za-z_]\w*(?=\(\))|\b[a-z_]\w*(?= module\b)|(?<=module )\w+|"
    r"\b(?:[A-Z]\w*[a-z]\w*[A-Z]\w*|[A-Z]\w+(?:Error|Warning|Exception))\b"
)


@dataclass(frozen=True, kw_only=True)
class PythonDocs(Source):
    """The documentation of the running Python, or of the library in a folder."""

    name = "python-docs"
    usual_language = "en"

    path: Path = Path(name)

    @classmethod
    def recognises(cls, glimpse: Glimpse) -> bool:
        """Whether it is a folder with Python code, or nothing but the name of this kind."""
        path = glimpse.path
        if path.is_dir():
            return any(path.glob("*.py"))
        return path.name == cls.name and not path.exists()

    def describe(self) -> dict[str, Any]:
        """The folder and the version of Python."""
        name = str(self.path) if self.path.is_dir() else self.name
        return {"name": name, "python": platform.python_version()}

    def read(self, scratch: Path) -> Documents:
        """Yield the articles with their sentences and links."""
        articles = read_documentation(self.path if self.path.is_dir() else None)
        titles = unique_titles(articles)
        names = names_of(titles)
        split = splitter(self.language or self.usual_language)
        for article in articles:
            sections = []
            for section in article.sections:
                paragraphs = tuple(
                    Paragraph(text, split(text), links_of(text, article.id, names, titles))
                    for text, *_ in section.paragraphs
                )
                sections.append(section._replace(paragraphs=paragraphs))
            yield Article(article.id, titles[article.id], tuple(sections))


def unique_titles(articles: Iterable[Article]) -> dict[str, str]:
    """The title of each article by its id: a qualified name, or the title of a topic."""
    titles: dict[str, str] = {}
    for article in articles:
        label = article.id.removeprefix(TOPIC)
        title = label if label == article.id else article.title
        titles[article.id] = f"{title} ({label})" if title in titles.values() else title
    return titles


def names_of(ids: Collection[str]) -> dict[str, str]:
    """The article of each name: of its id, and of what follows the last dot if no other has it."""
    short = {name: name.rpartition(".")[2] for name in ids}
    counts = Counter(short.values())
    names = {short[name]: name for name in ids if counts[short[name]] == 1}
    return (
        names
        | {short[name]: name for name in ids if name.startswith("builtins.")}
        | {name: name for name in ids}
    )


def links_of(
    text: str, own: str, names: Mapping[str, str], titles: Mapping[str, str]
) -> tuple[Link, ...]:
    """The links of a paragraph in the article `own`, in order; the nearest article of a name."""
    scopes = [own[: dot.start()] for dot in re.finditer(r"\.|$", own)]
    links = []
    for match in NAME.finditer(text):
        tried = [f"{scope}.{match[0]}" for scope in reversed(scopes)]
        tried += [match[0], match[0].rpartition(".")[0]]
        target = next((names[name] for name in tried if name in names), own)
        if target != own:
            links.append(Link(*match.span(), titles[target]))
    return tuple(links)

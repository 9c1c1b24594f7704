"""Python's language topics, the texts of `help("with")`, to documents without links.

Reads `pydoc_data/topics.py` and the tables of `pydoc.py` as text: neither is imported. Knows
nothing of docstrings.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyrank.data.python_docs.markup import parse_text, simplify, underlines
from polyrank.records import Article, Paragraph, Section

PREFIX = "topic:"


@dataclass(frozen=True, kw_only=True, slots=True)
class HelpTables:
    """What `pydoc.Help` knows of topics.

    `labels` maps a name that a user may ask for (`with`, `CONTEXTMANAGERS`) to a topic's label;
    `related` maps a label to the names it should be read with.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    related: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def read_topics(stdlib: Path) -> list[Article]:
    """The topics as documents with ids such as `topic:with`, in the order of their names.

    Empty where the installation has none.
    """
    tree = parse_file(stdlib / "pydoc_data" / "topics.py")
    texts = assigned_value(tree, "topics") if tree else None
    if not isinstance(texts, dict):
        return []
    return [topic_document(str(label), str(texts[label])) for label in sorted(texts)]


def topic_document(label: str, text: str) -> Article:
    """One topic; its first heading is the title of the document."""
    parsed = parse_text(text, definitions=True)
    lines = text.strip().splitlines()
    titled = len(lines) > 1 and lines[0] and underlines(lines[0], lines[1].rstrip())
    title = simplify(lines[0]) if titled else label
    sections = [
        Section(heading, 2 if heading else 1, tuple(map(Paragraph, paragraphs)))
        for heading, paragraphs in (("" if h == title else h, found) for h, found in parsed)
        if paragraphs
    ]
    return Article(id=PREFIX + label, title=title, sections=tuple(sections))


def read_help_tables(stdlib: Path) -> HelpTables:
    """The cross-references of the topics; empty where `pydoc.py` is missing or differs."""
    tree = parse_file(stdlib / "pydoc.py")
    helper = next(
        (
            node
            for node in (tree.body if tree else [])
            if isinstance(node, ast.ClassDef) and node.name == "Helper"
        ),
        None,
    )
    if helper is None:
        return HelpTables()
    entries: dict[str, Any] = {}
    for table in ("topics", "keywords"):
        value = assigned_value(helper, table)
        entries.update(value if isinstance(value, dict) else {})
    labels: dict[str, str] = {}
    related: dict[str, tuple[str, ...]] = {}
    for name, entry in entries.items():
        seen = set()
        while isinstance(entry, str) and entry not in seen:
            seen.add(entry)
            entry = entries.get(entry)
        if isinstance(entry, tuple) and len(entry) == 2:
            label, names = entry
            labels[name] = label
            related[label] = tuple(dict.fromkeys([*related.get(label, ()), *names.split()]))
    return HelpTables(labels=labels, related=related)


def parse_file(path: Path) -> ast.Module | None:
    """The syntax tree of a Python file, or None where it cannot be read or parsed."""
    import warnings

    try:
        source = path.read_bytes()
        with warnings.catch_warnings():
            # Old files hold escapes such as "\d", of which the parser warns.
            warnings.simplefilter("ignore")
            return ast.parse(source)
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def assigned_value(scope: ast.Module | ast.ClassDef, name: str) -> Any:
    """The literal that a scope assigns to `name`, or None."""
    for node in scope.body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            try:
                return ast.literal_eval(node.value)  # type: ignore[attr-defined]
            except (ValueError, TypeError):
                return None
    return None

"""The docstrings of a standard library, to documents without links: one a module.

Python files are parsed, never imported. Knows which parts are public; knows nothing of topics.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from polyrank.data.python_docs.markup import parse_text
from polyrank.data.python_docs.topics import assigned_value, parse_file
from polyrank.records import Article, Paragraph, Section

SKIPPED_FOLDERS = frozenset(
    [
        "site-packages",
        "dist-packages",
        "test",
        "tests",
        "idlelib",
        "lib2to3",
        "turtledemo",
        "ensurepip",
        "__pycache__",
        "lib-dynload",
        "pydoc_data",
        "idle_test",
        "distutils",
        "encodings",
        "macholib",
        "__phello__",
    ]
)
SKIPPED_MODULES = frozenset(
    ["this", "antigravity", "ntpath", "nturl2path", "sre_compile", "sre_parse"]
)

PUBLIC_NAMES = {
    "_collections_abc": "collections.abc",
    "_pydatetime": "datetime",
    "_pydecimal": "decimal",
    "_pyio": "io",
    "posixpath": "os.path",
    "genericpath": "os.path",
}
"""Modules that users know by another name."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def read_modules(stdlib: Path) -> list[Article]:
    """The documents of every public module below the folder `stdlib`, in the order of their names.

    A file that cannot be parsed is passed over. What a package takes from a private module of its
    own appears under the package's name.
    """
    trees: dict[str, ast.Module] = {}
    for path in sorted(stdlib.rglob("*.py")):
        parts = path.relative_to(stdlib).with_suffix("").parts
        if SKIPPED_FOLDERS.intersection(parts) or parts[0].startswith("config-"):
            continue
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name and name not in SKIPPED_MODULES and (tree := parse_file(path)):
            trees[name] = tree
    sections: dict[str, list[Section]] = {}
    for name in sorted(trees, key=lambda name: (PUBLIC_NAMES.get(name, name), name)):
        public = public_name(name)
        if public is not None:
            sections.setdefault(public, []).extend(module_sections(public, trees[name], None))
            continue
        package, _, private = name.rpartition(".")
        if package in trees and public_name(package) is not None:
            names = reexported(trees[package], private)
            found = module_sections(package, trees[name], names)
            sections.setdefault(package, []).extend(s for s in found if s.heading)
    documents = (module_document(name, sections[name]) for name in sorted(sections))
    return [document for document in documents if document.sections]


def public_name(module: str) -> str | None:
    """The name under which users know a module, or None for a private one."""
    if module in PUBLIC_NAMES:
        return PUBLIC_NAMES[module]
    return None if any(part.startswith("_") for part in module.split(".")) else module


def reexported(package: ast.Module, private: str) -> set[str] | None:
    """The names a package imports from its private module; None for all of them (`*`)."""
    names: set[str] = set()
    for node in ast.walk(package):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[-1] == private:
            names.update(alias.name for alias in node.names)
    return None if "*" in names else names


def module_document(name: str, sections: list[Section]) -> Article:
    """A document from sections; of two sections with one qualified name the first stays."""
    kept: dict[str, Section] = {}
    for section in sections:
        key = qualified_name(section.heading) if "(" in section.heading else section.heading
        kept.setdefault(key, section)
    return Article(id=name, title=name, sections=tuple(kept.values()))


def qualified_name(title: str) -> str:
    """`json.dumps` of `json.dumps(obj, *, indent=None)`."""
    return title.partition("(")[0]


def module_sections(name: str, tree: ast.Module, only: set[str] | None) -> Iterator[Section]:
    """The sections of a module: its own text, then each public definition in order.

    With `only`, definitions of other names are left out.
    """
    yield from text_sections("", ast.get_docstring(tree))
    exported = assigned_value(tree, "__all__")
    for node in definitions(tree.body):
        if (only is None or node.name in only) and is_public(node.name, exported):
            yield from definition_sections(name, node, inside_class=False)


def is_public(name: str, exported: object) -> bool:
    """Whether a name has no underscore and is in `__all__`, where that is a plain list."""
    listed = not isinstance(exported, (list, tuple)) or not exported or name in exported
    return not name.startswith("_") and listed


def definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    """The classes and functions of a body, those under `if` and `try` too."""
    for node in body:
        if isinstance(node, Definition):
            yield node
        elif isinstance(node, ast.If):
            yield from definitions([*node.body, *node.orelse])
        elif isinstance(node, ast.Try):
            handlers = [statement for handler in node.handlers for statement in handler.body]
            yield from definitions([*node.body, *node.orelse, *handlers])


def definition_sections(scope: str, node: Definition, *, inside_class: bool) -> Iterator[Section]:
    """The sections of a class and its public methods, or of a function."""
    name = f"{scope}.{node.name}"
    docstring = ast.get_docstring(node)
    if isinstance(node, ast.ClassDef):
        methods = list(definitions(node.body))
        initialiser = next((method for method in methods if method.name == "__init__"), None)
        if initialiser is not None and not docstring:
            docstring = ast.get_docstring(initialiser)
        title = name
        if isinstance(initialiser, (ast.FunctionDef, ast.AsyncFunctionDef)):
            title += signature(initialiser, bound=True)
        yield from text_sections(title, docstring)
        for method in methods:
            if not method.name.startswith("_"):
                yield from definition_sections(name, method, inside_class=True)
        return
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    if any(text.endswith((".setter", ".deleter")) for text in decorators):
        return
    if not any(text.endswith("property") for text in decorators):
        name += signature(node, bound=inside_class and "staticmethod" not in decorators)
    yield from text_sections(name, docstring)


def signature(node: ast.FunctionDef | ast.AsyncFunctionDef, *, bound: bool) -> str:
    """The arguments of a function in brackets; `bound` leaves out the first, self or cls."""
    arguments = node.args
    if bound:
        positional = arguments.posonlyargs or arguments.args
        if positional:
            positional.pop(0)
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        argument.annotation = None
    return f"({ast.unparse(arguments)})".replace("(/, ", "(")


def text_sections(title: str, docstring: str | None) -> Iterator[Section]:
    """A docstring as sections: the text under `title`, headings in it as sections of their own."""
    if not docstring or not docstring.strip():
        return
    for section in parse_text(docstring):
        if not section.paragraphs:
            continue
        paragraphs = tuple(Paragraph(paragraph) for paragraph in section.paragraphs)
        heading = section.heading
        if title:
            heading = f"{title}: {section.heading}" if section.heading else title
        yield Section(heading, 2 if heading else 1, paragraphs)

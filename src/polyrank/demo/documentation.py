"""The documentation of an installed Python as articles: modules, classes, functions, topics.

Python files are parsed, never imported. Knows nothing of questions or splits.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sysconfig
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyrank.demo.markup import Texts, parse_text
from polyrank.errors import DataError
from polyrank.records import Article, Paragraph, Section

TOPIC = "topic:"
MOST_ARGUMENTS = 60

SKIPPED = frozenset(
    """
    site-packages dist-packages test tests idlelib lib2to3 turtledemo ensurepip __pycache__
    lib-dynload pydoc_data idle_test distutils encodings macholib __phello__ _pyrepl this
    antigravity ntpath nturl2path sre_compile sre_parse
    """.split()  # noqa: SIM905
)
"""Folders and modules that users do not read about."""

PUBLIC_NAMES = {
    "_collections_abc": "collections.abc",
    "_pydecimal": "decimal",
    "genericpath": "os.path",
    "nt": "os",
    "posix": "os",
    "posixpath": "os.path",
}
"""Modules that users know by another name."""

BUILT_IN = """
    builtins _bisect _bz2 _codecs _collections _contextvars _csv _datetime _functools _heapq _imp
    _io _locale _lzma _operator _queue _random _signal _socket _sqlite3 _stat _statistics _struct
    _symtable _tracemalloc _warnings _weakref array atexit binascii cmath errno faulthandler fcntl
    gc grp itertools marshal math mmap nt posix pwd resource select sys termios time unicodedata
    zlib
""".split()  # noqa: SIM905
"""Modules written in C, which are imported to be read. That runs no Python code: each is compiled
into the interpreter or is an extension that imports nothing that is not loaded already. It was
checked by comparing sys.modules before and after in `python -I -S`, on CPython 3.10 to 3.13."""

SIGNATURE = re.compile(r"[A-Za-z_][\w.]*(\(.*\))(?: --?> .{1,60})?")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def read_documentation(library: str | Path | None = None) -> list[Article]:
    """The articles of the Python library in a folder, in the same order in every run.

    By default that of the running Python, whose modules in C are read too. Topics have ids such as
    `topic:with`, definitions their qualified names. Raises DataError if there is no documentation.
    """
    folder = Path(sysconfig.get_paths()["stdlib"] if library is None else library)
    articles: dict[str, Article] = {}
    for article in read_all(folder, built_in=library is None):
        if any(section.paragraphs for section in article.sections):
            articles.setdefault(article.id, article)
    if not articles:
        raise DataError(
            "No documentation was found: expected the Python files of a standard library.",
            "Give the folder of another Python's library, or a corpus of your own.",
            path=folder,
        )
    return list(articles.values())


def read_all(folder: Path, *, built_in: bool) -> Iterator[Article]:
    """Every article; of those with one id, the first counts."""
    topics = literal(parse_file(folder / "pydoc_data" / "topics.py"), "topics")
    for label, text in topics.items() if isinstance(topics, dict) else ():
        lead, *others = parse_text(text)
        if others and not lead[1]:  # the first heading is the title
            lead, *others = others
        yield article_of(TOPIC + label, lead[0] or label, [("", lead[1]), *others])
    for entry in sorted(folder.iterdir()):
        skipped = entry.name in SKIPPED or entry.name.startswith("config-")
        for path in sorted(entry.rglob("*.py")) if entry.is_dir() and not skipped else [entry]:
            parts = path.relative_to(folder).with_suffix("").parts
            if path.suffix == ".py" and not SKIPPED.intersection(parts):
                yield from module_articles(public_name(parts), parse_file(path))
    for name in BUILT_IN if built_in else ():
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue  # not every platform has every module
        yield from built_in_articles(PUBLIC_NAMES.get(name, name.lstrip("_")), module)


def public_name(parts: tuple[str, ...]) -> str:
    """The name under which users know a module; what is private belongs to its package."""
    public = ".".join(part for part in parts if not part.startswith("_"))
    return PUBLIC_NAMES.get(parts[0], public)


def article_of(name: str, title: str, texts: Texts) -> Article:
    """An article from headings and paragraphs; the first section has no heading."""
    sections = tuple(
        Section(heading, 2 if number else 1, tuple(map(Paragraph, paragraphs)))
        for number, (heading, paragraphs) in enumerate(texts)
        if paragraphs or not number
    )
    return Article(name, title, sections)


def module_articles(name: str, tree: ast.Module | None) -> Iterator[Article]:
    """The articles of a Python module: itself, its public classes with their methods, functions."""
    if not name or tree is None:
        return
    yield article_of(name, f"The {name} module", parse_text(ast.get_docstring(tree)))
    exported = literal(tree, "__all__") or ()
    for node in definitions(tree.body):
        if node.name.startswith("_") or (exported and node.name not in exported):
            continue
        own, texts = f"{name}.{node.name}", parse_text(ast.get_docstring(node))
        if not isinstance(node, ast.ClassDef):
            yield article_of(own, own + signature(node, method=False), texts)
            continue
        methods = {method.name: method for method in reversed(list(definitions(node.body)))}
        initialiser = methods.get("__init__")
        if initialiser is not None and not texts[0][1]:
            texts = parse_text(ast.get_docstring(initialiser))
        for method in reversed(methods.values()):
            if not method.name.startswith("_"):
                heading = f"{own}.{method.name}{signature(method)}"
                texts += under(heading, ast.get_docstring(method))
        yield article_of(own, own + (signature(initialiser) if initialiser else ""), texts)


def definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    """The classes and functions of a body, including those under `if` and `try`."""
    for node in body:
        if isinstance(node, Definition):
            yield node
        elif isinstance(node, (ast.If, ast.Try)):
            yield from definitions([*node.body, *node.orelse])


def under(name: str, docstring: str | None) -> Texts:
    """The texts of a docstring as sections below the name of what it explains."""
    texts = parse_text(docstring)
    return [(f"{name}: {heading}" if heading else name, found) for heading, found in texts]


def signature(node: Definition, *, method: bool = True) -> str:
    """The arguments of a function in brackets; `self` and what is not called are left out."""
    decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
    if isinstance(node, ast.ClassDef) or any(name.endswith("property") for name in decorators):
        return ""
    arguments = node.args
    positional = arguments.posonlyargs or arguments.args
    if method and positional and "staticmethod" not in decorators:
        positional.pop(0)
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        argument.annotation = None
    return shortened(f"({ast.unparse(arguments)})")


def shortened(arguments: str) -> str:
    """Arguments in brackets, of which the last are left out where there are many."""
    listed = arguments.replace("(/, ", "(")[1:-1]
    return f"({textwrap.shorten(listed, MOST_ARGUMENTS, placeholder=' …')})" if arguments else ""


def built_in_articles(public: str, module: Any) -> Iterator[Article]:
    """The articles of a module in C: itself, its public classes with their methods, functions."""
    prefix = "" if public == "builtins" else f"{public}."
    if prefix:
        yield article_of(public, f"The {public} module", parse_text(module.__doc__))
    for name, member in sorted(vars(module).items()):
        # What a module only passes on (collections.abc in array) has another module's name.
        home = (getattr(member, "__module__", None) or module.__name__).partition(".")[0]
        if name.startswith("_") or (prefix and home not in (module.__name__, public)):
            continue
        if inspect.isclass(member) or inspect.isroutine(member):
            arguments, docstring = described(member)
            texts = parse_text(docstring)
            for inner, method in sorted(vars(member).items()) if inspect.isclass(member) else ():
                is_method = inspect.isroutine(method) or inspect.isdatadescriptor(method)
                if is_method and not inner.startswith("_"):
                    own, docstring = described(method)
                    texts += under(f"{prefix}{name}.{inner}{own}", docstring)
            yield article_of(f"{public}.{name}", f"{prefix}{name}{arguments}", texts)


def described(member: Any) -> tuple[str, str]:
    """The arguments in brackets, as far as they are known, and the docstring of something in C."""
    docstring, arguments = member.__doc__, getattr(member, "__text_signature__", None) or ""
    docstring = inspect.cleandoc(docstring) if isinstance(docstring, str) else ""
    first, _, rest = docstring.partition("\n")
    if rest.strip() and (stated := SIGNATURE.fullmatch(first.strip())):
        arguments, docstring = arguments or stated[1], rest.lstrip(" -\n")
    arguments = re.sub(r"\(\$?(?:self|module|type|cls)(?:, /)?(?:, )?", "(", arguments)
    return shortened(arguments), docstring


def parse_file(path: Path) -> ast.Module | None:
    """The syntax tree of a Python file, or None where it cannot be read or parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old files hold escapes such as "\d"
            return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def literal(tree: ast.Module | None, name: str) -> Any:
    """The literal that a module assigns to a name, or None."""
    for node in tree.body if tree is not None else ():
        if isinstance(node, ast.Assign) and name in map(ast.unparse, node.targets):
            try:
                return ast.literal_eval(node.value)
            except (ValueError, TypeError):
                return None
    return None

"""The documentation of an installed Python, as documents with titles, sections and links.

Brings the language topics, the docstrings of the standard library and those of the C modules
together; how each is read is known below.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

from polyrank.data.python_docs.builtins import read_builtins
from polyrank.data.python_docs.links import with_links
from polyrank.data.python_docs.modules import module_document, read_modules
from polyrank.data.python_docs.topics import read_help_tables, read_topics
from polyrank.errors import DataError
from polyrank.records import Article, Section


def python_documents(stdlib: str | Path | None = None, *, builtins: bool = True) -> list[Article]:
    """The documents of the Python library in the folder `stdlib`, by default the running one's.

    Topics have ids such as `topic:with`, modules their names. With `builtins`, the C modules of
    the running interpreter are read too. The order is the same in every run. No module of the
    folder is imported. Raises DataError if there is no documentation.
    """
    folder = Path(sysconfig.get_paths()["stdlib"] if stdlib is None else stdlib)
    documents = read_topics(folder)
    modules = {document.id: document for document in read_modules(folder)}
    if builtins:
        for name, sections in read_builtins().items():
            present = modules.get(name)
            modules[name] = module_document(name, merged(present, sections))
    documents += [modules[name] for name in sorted(modules)]
    if not documents:
        raise DataError(
            "No documentation was found: expected the Python files of a standard library.",
            "Give the folder of another Python's library, or a corpus of your own.",
            path=folder,
        )
    return with_links(documents, read_help_tables(folder))


def merged(present: Article | None, sections: list[Section]) -> list[Section]:
    """The sections of a Python module, then what its C part adds.

    The longer of the two texts about a module itself leads.
    """
    if present is None:
        return sections
    leads = [s for s in (*present.sections, *sections) if not s.heading]
    longest = max(
        leads, key=lambda section: sum(len(p.text) for p in section.paragraphs), default=None
    )
    named = [section for section in (*present.sections, *sections) if section.heading]
    return ([longest] if longest is not None else []) + named

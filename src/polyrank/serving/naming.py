"""The names of what is served, from the command line. Loads nothing."""

from __future__ import annotations

from pathlib import Path

from polyrank.errors import UsageError
from polyrank.serving.config import PipelineConfig

LONGEST = 200
EXAMPLE = "For example: polyrank serve --model my-model, or polyrank serve --index my-index."


def require_served(config: PipelineConfig) -> None:
    """Raise UsageError where there is nothing to serve, or names cannot be used."""
    if not (config.models or config.index or config.reranker):
        raise UsageError("There is nothing to serve.", f"Give a model or an index. {EXAMPLE}")
    sources(config)


def sources(config: PipelineConfig) -> dict[str, Path]:
    """The folder of each model by its name. Raises UsageError for names that cannot be used."""
    found: dict[str, Path] = {}
    for given in config.models:
        add(found, *named(given))
    if config.reranker is not None and config.reranker not in found:
        add(found, *named(config.reranker))
    return found


def reranker_name(config: PipelineConfig) -> str | None:
    """The name of the reranker: that of a model, or that of its own folder."""
    if config.reranker is None or config.reranker in map(name_of, config.models):
        return config.reranker
    return name_of(config.reranker)


def name_of(source: str) -> str:
    """The name in `[NAME=]FOLDER`."""
    return named(source)[0]


def named(source: str) -> tuple[str, Path]:
    """The name and the folder of `[NAME=]FOLDER`; the folder's name by default.

    A folder that exists keeps an = in its path. Raises UsageError.
    """
    name, is_named, folder = source.partition("=")
    if not is_named or Path(source).exists():
        name, folder = Path(source).resolve().name, source
    if not folder.strip():
        raise UsageError(
            f"{source!r} names no folder.", f"Write NAME=FOLDER, or FOLDER alone. {EXAMPLE}"
        )
    require_name(name)
    return name, Path(folder)


def require_name(name: str) -> None:
    """Raise UsageError for a name that requests and addresses could not carry."""
    if not name.strip() or name != name.strip() or len(name) > LONGEST:
        raise UsageError(
            f"{name[:LONGEST]!r} cannot be the name of a model: it is blank, has blanks around it "
            f"or is longer than {LONGEST} characters.",
            "Write NAME=FOLDER with another name.",
        )
    if not name.isprintable() or "/" in name:
        raise UsageError(
            f"{name!r} cannot be the name of a model: it has a slash or a control character.",
            "Write NAME=FOLDER with another name.",
        )


def add(found: dict[str, Path], name: str, folder: Path) -> None:
    """Add a model. Raises UsageError where its name is taken."""
    if name in found:
        raise UsageError(
            f"Two models are called {name!r}: {found[name]} and {folder}.",
            "Name them apart, as NAME=FOLDER.",
        )
    found[name] = folder

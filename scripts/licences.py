"""Write docs/licences.md: the licence of every package that polyrank or one of its extras installs.

Run in an environment with all extras, such as that of `make setup`; `make audit` does. Reads what
the installed packages state of themselves.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = Path(__file__).resolve().parent.parent / "docs" / "licences.md"
HEAD = """# Licences

polyrank is under the Apache License 2.0. These are the packages that it installs on Linux with
Python 3.11, and what they state of their licences. `pip install polyrank` brings those without a
mark; an extra brings those that are marked with it, too. `make audit` writes this page.

| package | licence | extras |
|---|---|---|
"""
LONGEST = 60


def main() -> None:
    """Write the page."""
    lines = [f"| {name} | {licence} | {', '.join(extras)} |" for name, licence, extras in rows()]
    PAGE.write_text(HEAD + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} packages: {PAGE}")


def rows() -> list[tuple[str, str, list[str]]]:
    """Each package with its licence, and the extras that bring it unless the core does."""
    polyrank = distribution("polyrank")
    extras = polyrank.metadata.get_all("Provides-Extra") or []
    core = closure("")
    brought: dict[str, list[str]] = {name: [] for name in core}
    for extra in sorted(extras):
        for name in closure(extra) - core:
            brought.setdefault(name, []).append(extra)
    return [(name, licence_of(distribution(name)), brought[name]) for name in sorted(brought)]


def closure(extra: str) -> set[str]:
    """The packages that polyrank installs with an extra, by their canonical names."""
    found: set[str] = set()
    waiting = deque([("polyrank", frozenset({extra}))])
    seen = set(waiting)
    while waiting:
        name, extras = waiting.popleft()
        for requirement in requirements(name, extras):
            needed = canonicalize_name(requirement.name)
            entry = (needed, frozenset(requirement.extras) or frozenset({""}))
            if entry not in seen and is_installed(needed):
                seen.add(entry)
                waiting.append(entry)
                found.add(needed)
    return found - {"polyrank"}


def requirements(name: str, extras: frozenset[str]) -> Iterator[Requirement]:
    """What a package requires here, with some of its extras."""
    for text in distribution(name).requires or []:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in {*extras, ""}):
            yield requirement


def is_installed(name: str) -> bool:
    """Whether a package is here: some are for other systems, or come with torch's CUDA."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True


def licence_of(package: Distribution) -> str:
    """What a package states: an SPDX expression, its classifiers, or the first line of a text."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = metadata.get_all("Classifier") or []
    named = [each.rpartition(" :: ")[2] for each in classifiers if each.startswith("License ::")]
    stated = (metadata.get("License") or "").strip().split("\n")[0]
    short = stated if len(stated) <= LONGEST else ""
    words = ", ".join(each for each in named if each != "OSI Approved") or short
    return re.sub(r"\s+", " ", words) or "not stated"


if __name__ == "__main__":
    sys.exit(main())

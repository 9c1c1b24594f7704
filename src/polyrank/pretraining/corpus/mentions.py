"""Where the words of a title stand in a paragraph. Knows texts only, no format."""

from __future__ import annotations

import re
from collections.abc import Iterable

from polyrank.records import Link


def placed(text: str, titles: Iterable[str], taken: Iterable[Link] = ()) -> list[Link]:
    """A link for each title whose words stand in the text: at their first free place.

    Longer titles choose first, so that `New York` leaves `York` none of its own; no link lies over
    another one or over one of `taken`. Words must be whole and may differ from the title in case,
    where none are exactly as it. Titles that find no place are left out; links come in order.
    """
    occupied = list(taken)
    links: list[Link] = []
    for title in sorted(dict.fromkeys(titles), key=lambda title: (-len(title), title)):
        link = first_free(text, title, occupied)
        if link is not None:
            occupied.append(link)
            links.append(link)
    return sorted(links)


def first_free(text: str, title: str, occupied: list[Link]) -> Link | None:
    """The first place of a title's words that lies over no other link."""
    if not title.strip():
        return None
    pattern = rf"(?<!\w){re.escape(title)}(?!\w)"
    for flags in (re.RegexFlag(0), re.IGNORECASE):
        for found in re.finditer(pattern, text, flags):
            start, stop = found.span()
            if all(stop <= other.start or other.stop <= start for other in occupied):
                return Link(start, stop, title)
    return None

"""The wiki that a dump is of: its language, its namespaces, and what a link's target means there.

Knows titles and prefixes; knows nothing of pages.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from polyrank.pretraining.corpus.wikipedia.names import FILE_ALIASES, LANGUAGES, SISTERS

FILE, CATEGORY, MEDIA = 6, 14, -2
HIDDEN = (FILE, CATEGORY, MEDIA)

CANONICAL = {
    "media": -2,
    "special": -1,
    "talk": 1,
    "user": 2,
    "user talk": 3,
    "project": 4,
    "project talk": 5,
    "file": 6,
    "file talk": 7,
    "mediawiki": 8,
    "mediawiki talk": 9,
    "template": 10,
    "template talk": 11,
    "help": 12,
    "help talk": 13,
    "category": 14,
    "category talk": 15,
    "portal": 100,
    "wikipedia": 4,
    "wp": 4,
}
"""English names, which every wiki understands."""

SPACE = re.compile(r"[\s_\u200e\u200f]+")
DOTTED_I = ("tr", "az", "crh", "tt")
Meaning = Literal["article", "hidden", "words"]


@dataclass(frozen=True, kw_only=True)
class Site:
    """A wiki. `namespaces` maps names, case-folded, to the numbers that the dump gives them."""

    language: str = "en"
    case: str = "first-letter"
    namespaces: Mapping[str, int] = field(default_factory=dict)

    def namespace(self, prefix: str) -> int | None:
        """The number of a namespace by any of its names, or None."""
        name = " ".join(prefix.replace("_", " ").split()).casefold()
        number = self.namespaces.get(name, CANONICAL.get(name))
        if number is None and name.replace(" ", "_") in FILE_ALIASES:
            return FILE
        return number

    def title(self, text: str) -> str:
        """A title in the form that pages have: spaces, no fragment, the first letter's case."""
        if "&" in text:
            text = html.unescape(text)
        if "%" in text:
            text = unquote(text)
        title = SPACE.sub(" ", text.partition("#")[0]).strip()
        if not title.isascii():
            title = unicodedata.normalize("NFC", title)
        if self.case == "first-letter" and title[:1].islower():
            title = self.capital(title[0]) + title[1:]
        return title

    def capital(self, letter: str) -> str:
        """The capital of a first letter, where it has one of its own."""
        if letter == "i" and self.language in DOTTED_I:
            return "İ"
        upper = letter.upper()
        georgian = "\u10d0" <= letter <= "\u10ff"
        return letter if georgian or len(upper) != 1 else upper

    def meaning(self, target: str) -> tuple[Meaning, str]:
        """What a link to `target` is, and the title it leads to if that is an article.

        `hidden`: a file, a category or the article in another language, whose words are not part
        of the text. `words`: a link to elsewhere, whose words are.
        """
        target = target.strip()
        if ":" not in target:
            title = self.title(target)
            return ("article", title) if title else ("words", "")
        shown = target.startswith(":")
        target = target.removeprefix(":").lstrip()
        prefix, colon, rest = target.partition(":")
        number = self.namespace(prefix) if colon else 0
        if number is not None and number != 0:
            return ("hidden" if number in HIDDEN and not shown else "words"), ""
        code = prefix.strip().casefold()
        if colon and code in LANGUAGES and code != self.language:
            return ("words" if shown else "hidden"), ""
        if colon and code in SISTERS:
            return "words", ""
        if colon and code == self.language:
            target = rest
        title = self.title(target)
        return ("article", title) if title else ("words", "")

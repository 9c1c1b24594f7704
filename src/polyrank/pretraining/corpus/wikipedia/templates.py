"""The few templates that only format words of a sentence, and the words. All others are dropped.

Without them a sentence has holes: `{{convert|10|km|mi}}` is its number, `{{lang|fr|mot}}` a word.
Many wikis have them by these names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

NUMBER = re.compile(r"[-−+]?[\d.,/+⁄ ]*\d[\d.,]*|[-–—]|to|and|or|by|x|×|to\(-\)|and\(-\)")
RANGE = {"-": "–", "–": "–", "to(-)": "–", "and(-)": "and"}
Arguments = Sequence[str]
Words = Callable[[Arguments], str]
LONGEST = 400


def first(arguments: Arguments) -> str:
    """The first argument."""
    return arguments[0] if arguments else ""


def second(arguments: Arguments) -> str:
    """The second argument."""
    return arguments[1] if len(arguments) > 1 else ""


def last(arguments: Arguments) -> str:
    """The last argument."""
    return arguments[-1] if arguments else ""


def joined(arguments: Arguments) -> str:
    """All arguments as one word."""
    return "".join(arguments)


def measure(arguments: Arguments) -> str:
    """Numbers and the unit they are given in: `10–20 km`."""
    words = []
    for argument in arguments:
        words.append(RANGE.get(argument, argument))
        if not NUMBER.fullmatch(argument):
            return " ".join(words).replace(" – ", "–") if len(words) > 1 else ""
    return ""


def fraction(arguments: Arguments) -> str:
    """`1/2` or `3 1/2`."""
    whole = f"{arguments[0]} " if len(arguments) > 2 else ""
    return whole + "/".join(arguments[-2:])


def constant(words: str) -> Words:
    """The same words whatever the arguments."""
    return lambda _: words


KNOWN: dict[str, Words] = {
    **dict.fromkeys(("convert", "cvt"), measure),
    **dict.fromkeys(("lang", "rtl-lang", "script"), second),
    **dict.fromkeys(("transl", "transliteration"), last),
    **dict.fromkeys(
        (
            "nowrap", "nobr", "nihongo", "val", "sc", "smallcaps", "small", "big", "em", "strong",
            "abbr", "tooltip", "linktext", "angbr", "sup", "sub", "var", "mvar", "math", "smaller",
            "formatnum", "not a typo", "sic", "as written", "korean", "visible anchor", "vanchor",
        ),
        first,
    ),
    **dict.fromkeys(("chem", "chem2"), joined),
    **dict.fromkeys(("frac", "sfrac", "fraction"), fraction),
    **dict.fromkeys(("nbsp", "spaces", "space"), constant(" ")),
    **dict.fromkeys(("snd", "spnd", "spaced ndash", "ndash", "–"), constant(" – ")),
    **dict.fromkeys(("dot", "middot", "·"), constant(" · ")),
    **dict.fromkeys(("mdash", "mdashb", "—"), constant("—")),
    **dict.fromkeys(("circa", "c."), lambda arguments: f"c. {first(arguments)}"),
    "as of": lambda arguments: f"As of {first(arguments)}",
    "'": constant("'"),
    "'s": constant("'s"),
    "=": constant("="),
    "!": constant("|"),
}  # fmt: skip


def words_function(name: str) -> Words | None:
    """What makes the words of a template that only formats them, by its name; None of others."""
    name = name.strip().replace("_", " ").lower()
    return KNOWN.get(name) or (first if name.startswith("lang-") else None)

"""A paragraph without markup, and where its links are.

Two characters without a meaning of their own stand around the words of a link, and others for the
markup that <nowiki> protects; they become offsets and markup again in the end. Knows one paragraph;
knows nothing of articles.
"""

from __future__ import annotations

import html
import re

from polyrank.records import Link

START, STOP = "\ue000", "\ue001"
"""`START number STOP words STOP`: the words of a link to the title with this number."""
BREAK = "\ue003"
"""A break in a line, which is not set in from the margin where the line begins with it."""
STAND_INS = re.compile("[\ue000-\ue1ff]")
PROTECTED = {ord(char): chr(0xE100 + number) for number, char in enumerate("[]{}<>'|=*#:;_&")}
RESTORED = {ord(stand_in): chr(char) for char, stand_in in PROTECTED.items()}
PROTECTED_MARKUP = re.compile("[\ue100-\ue1ff]")
MARKUP = re.compile("[][{}<&_\ue000-\ue1ff]|''|-\\{")
TAG = re.compile(r"</?[A-Za-z][^<>]*>")
QUOTES = re.compile(r"'{2,}")
VARIANTS = re.compile(r"-\{([^{}]*)\}-")
LEFTOVER = re.compile(r"\{\{+[^\n]*|\}\}+|\[\[+|\]\]+|__[A-Z]{3,}__")
LEFT_ALONE = re.compile(r"[\[\]{}]")
SPACES = re.compile(r"\s+")
INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff\x00-\x08\x0e-\x1f\x7f]+")
MARKS = re.compile(f"({START}[0-9]+{STOP}|{STOP})")
NO_WORDS = re.compile(f"{START}(\\d+){STOP} ?{STOP}")
OUTSIDE_START = re.compile(f"({START}\\d+{STOP}) ")
OUTSIDE_STOP = re.compile(f" ({STOP})")
PAUSES = "[ ,;:،、，；]{0,8}"
NOTHING_IN_BRACKETS = re.compile(rf"\({PAUSES}[/–-]?{PAUSES}\)|（{PAUSES}）|\[ ?\]")
AFTER_BRACKET = re.compile(r"([(（])[ ,;:、，；]{1,8}")
BEFORE_BRACKET = re.compile(r"[ ,;:、，；]{1,8}([)）])")
BEFORE_POINT = re.compile(r" ([,;.!?](?![.\w]))")
DOUBLE_COMMA = re.compile(r"([,;])[ ,;]*[,;]")


def protected(text: str) -> str:
    """The text with stand-ins for its markup, which `read_marked` gives back."""
    return text.translate(PROTECTED)


def read_marked(marked: str, targets: list[str]) -> tuple[str, tuple[Link, ...]]:
    """The text of a paragraph, with single spaces, and its links; they lead to `targets`."""
    if not MARKUP.search(marked):
        return tidied(marked), ()
    text = without_markup(marked)
    text = html.unescape(text) if "&" in text else text
    text = tidied(text)
    return offsets(text.translate(RESTORED) if PROTECTED_MARKUP.search(text) else text, targets)


def without_markup(text: str) -> str:
    """The text without tags that are never closed, bold, italics and what is left of brackets."""
    text = text.replace(BREAK, " ")
    if "<" in text:
        text = TAG.sub("", text)
    if "''" in text:
        text = QUOTES.sub(lambda quotes: "'" if len(quotes[0]) == 4 else "", text)
    if "-{" in text:
        text = VARIANTS.sub(variant, text)
    if "{{" in text or "}}" in text or "[[" in text or "]]" in text or "__" in text:
        text = LEFTOVER.sub("", text)
    return text


def variant(found: re.Match[str]) -> str:
    """The first wording of `-{zh-hans:…;zh-hant:…}-`."""
    first = found[1].rpartition("|")[2].partition(";")[0]
    return first.rpartition(":")[2]


def tidied(text: str) -> str:
    """Single spaces, none inside a link's marks, and no brackets that markup left empty."""
    text = SPACES.sub(" ", INVISIBLE.sub("", text))
    if START in text:
        text = NO_WORDS.sub("", text)
        text = OUTSIDE_STOP.sub(r"\1 ", OUTSIDE_START.sub(r" \1", text))
        text = SPACES.sub(" ", text)
    if "(" in text or "（" in text or "[" in text:
        text = NOTHING_IN_BRACKETS.sub("", text)
        text = BEFORE_BRACKET.sub(r"\1", AFTER_BRACKET.sub(r"\1", text))
        text = SPACES.sub(" ", text)
    if "[[" in text or "{{" in text:  # what stood apart in broken markup
        text = SPACES.sub(" ", LEFT_ALONE.sub("", text))
    text = BEFORE_POINT.sub(r"\1", text)
    return DOUBLE_COMMA.sub(r"\1", text).lstrip(" ,;:").rstrip()


def offsets(marked: str, targets: list[str]) -> tuple[str, tuple[Link, ...]]:
    """The text without marks, and the links where they stood."""
    pieces: list[str] = []
    links: list[Link] = []
    position = start = 0
    target: str | None = None
    for piece in MARKS.split(marked):
        if piece == STOP:
            if target is not None and position > start:
                links.append(Link(start, position, target))
            target = None
        elif piece[:1] == START:
            start, target = position, targets[int(piece[1:-1])]
        else:
            pieces.append(piece)
            position += len(piece)
    return "".join(pieces), tuple(links)

"""The words of a piece of wikitext without templates, and where its links are.

While markup goes, two characters without a meaning of their own stand around the words of a link;
they become offsets in the end. Knows one paragraph; knows nothing of articles.
"""

from __future__ import annotations

import html
import re

from polyrank.pretraining.corpus.wikipedia.cutting import RESTORED
from polyrank.pretraining.corpus.wikipedia.site import Site
from polyrank.records import Link

START, STOP = "\ue000", "\ue001"
STAND_INS = re.compile("[\ue000-\ue1ff]")
MARKUP = re.compile("[][{}<&_\ue100-\ue1ff]|''|-\\{")
PROTECTED_MARKUP = re.compile("[\ue100-\ue1ff]")
EXTERNAL = re.compile(
    r"\[(?:(?:https?|ftps?|sftp|irc|news|gopher|nntp|svn|git|ssh|telnet)?:?//|mailto:|news:|tel:)"
    r"[^\s\[\]<>\"]+([^\[\]\n]*(?:\[\[[^\[\]]*\]\][^\[\]\n]*)*)\]",
    re.IGNORECASE,
)
LINK = re.compile(r"\[\[([^\[\]|]*)(?:\|([^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*))?\]\](\w*)")
SUPERSCRIPT = re.compile(r"(?<=\w)<sup>\s*(?=[-−+]?\d+\s*</sup>)", re.IGNORECASE)
BREAK = re.compile(r"<(?:br|hr)\b[^<>]*>|</br>", re.IGNORECASE)
TAG = re.compile(r"</?[A-Za-z][^<>]*>")
QUOTES = re.compile(r"'{2,}")
VARIANTS = re.compile(r"-\{([^{}]*)\}-")
LEFTOVER = re.compile(r"\{\{+[^\n]*|\}\}+|\[\[+|\]\]+|__[A-Z]{3,}__")
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


def words_and_links(wikitext: str, site: Site) -> tuple[str, tuple[Link, ...]]:
    """The text of a paragraph, with single spaces, and the links in it to articles."""
    if not MARKUP.search(wikitext):
        return tidied(wikitext), ()
    targets: list[str] = []
    text = without_links(wikitext, site, targets) if "[" in wikitext else wikitext
    text = without_markup(text)
    text = html.unescape(text) if "&" in text else text
    text = tidied(text.translate(RESTORED) if PROTECTED_MARKUP.search(text) else text)
    return offsets(text, targets) if targets else (text, ())


def without_links(text: str, site: Site, targets: list[str]) -> str:
    """Put marks and a number around the words of links to articles; their targets go to `targets`.

    Other links leave their words, or nothing.
    """

    def words_of(link: re.Match[str]) -> str:
        meaning, title = site.meaning(link[1])
        trail = link[3]
        if meaning == "hidden":
            return trail
        words = link[1].strip().removeprefix(":") if link[2] is None else link[2]
        joined, rest = split_trail(trail)
        if meaning == "words" or START in words:
            return words + trail
        targets.append(title)
        return f"{START}{len(targets) - 1}{STOP}{words}{joined}{STOP}{rest}"

    text = EXTERNAL.sub(r"\1", text) if ":" in text or "//" in text else text
    text = LINK.sub(words_of, text)
    if "[[" in text and "]]" in text:
        text = LINK.sub(words_of, text)
    return text


def split_trail(trail: str) -> tuple[str, str]:
    """The small letters behind a link, which belong to its words, and what comes after them.

    Scripts without small letters join words otherwise, and MediaWiki takes none of them.
    """
    length = 0
    while length < len(trail) and trail[length].islower():
        length += 1
    return trail[:length], trail[length:]


def without_markup(text: str) -> str:
    """The text without tags, bold, italics, language variants and what is left of brackets."""
    if "<" in text:
        text = SUPERSCRIPT.sub("^", text)
        text = BREAK.sub(" ", text)
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

"""A line of a Reddit dump to a comment, or the reason why it is dropped.

The rules follow Roller et al. (2021), who write down what training on Reddit began with in Mazaré
et al. (2018) and Humeau et al. (2020): no bots, nothing deleted, too short, too long or deeper than
7, and with a comment goes all below it. Other than there, words are counted instead of tokens, a
link may stand beside words (settable), and no language is left out. Knows one comment at a time.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from polyrank.pretraining.corpus.source import encodable

BROKEN = "broken line"
DELETED = "deleted or removed"
BOT = "by a bot"
ELSEWHERE = "in another subreddit"
LINKS = "only links"
WITH_LINK = "with a link"
QUOTE = "only a quotation"
SHORT = "too short"
LONG = "too long"

KNOWN_BOTS = frozenset(
    (
        "automoderator",
        "autotldr",
        "bitcointip",
        "changetip",
        "imagesofnetwork",
        "mentioned_videos",
        "tabledresser",
        "thelinkfixer",
        "totesmessenger",
        "transcribersofreddit",
    )
)
"""Authors, in small letters, that are bots although their names may not end in `bot`."""

DELETED_BODIES = re.compile(r"\s*\[\s*(?:deleted|removed)(?: by \w+)?\s*\]\s*", re.IGNORECASE)
BOT_NAME = re.compile(r"bot[\W\d_]*", re.IGNORECASE)
MARKDOWN_LINK = re.compile(
    r"!?\[(?P<words>[^\[\]\n]*)\]\((?P<url>[^()\s]+(?:\([^()\s]*\)[^()\s]*)?)[^()\n]*\)"
)
URL = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
INVISIBLE = re.compile("[\u200b-\u200d\u2060\ufeff]")
SPOILER = re.compile(r">!(.*?)!<")
LINE_MARKS = re.compile(r"^(?:#{1,6}\s+|[*+-]\s+)")
HEAVY = re.compile(r"(\*\*\*|\*\*|__|~~)(?=\S)(.+?)(?<=\S)\1", re.DOTALL)
RULE_LINE = re.compile(r"[-*_=\s]{3,}")


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Which comments are kept, and which paths of replies become conversations."""

    fewest_characters: int = 5
    most_characters: int = 2048
    most_words: int = 128
    """Counted at spaces; about what the papers' 128 tokens hold."""
    links: bool = True
    """Whether a comment may hold a link beside words; one of links only is never kept."""
    bots: frozenset[str] = KNOWN_BOTS
    """Names in small letters; a name that ends in `bot` is one of them without being here."""
    subreddits: frozenset[str] = frozenset()
    """Names in small letters of the only ones to keep; empty for all."""
    fewest_turns: int = 2
    most_turns: int = 7
    """Comments deeper in a thread are left out."""
    every_comment: bool = False
    """Whether each comment with its chain of parents is a conversation, not each leaf alone."""


class Comment(NamedTuple):
    """A comment as a tree needs it; `text` is None for one that was dropped."""

    link: str
    id: str
    parent: str
    author: str
    text: str | None


def read_comment(line: bytes, rules: Rules) -> tuple[Comment | None, str]:
    """A comment, and why it was dropped, empty if it is kept.

    None instead of the comment where the line is broken. Without its text, a dropped comment still
    tells which replies stand below it.
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None, BROKEN
    fields = fields_of(record)
    if fields is None:
        return None, BROKEN
    link, identifier, parent, author, body = fields
    reason = reason_against(author, body, str(record.get("subreddit") or ""), rules)
    text = None
    if not reason:
        text = clean(body)
        reason = reason_against_text(text, rules)
    name = "" if DELETED_BODIES.fullmatch(author) else author
    return Comment(link, identifier, parent, name, None if reason else text), reason


def fields_of(record: Any) -> tuple[str, str, str, str, str] | None:
    """Link, id, parent, author and body of a line's record, or None if one is missing."""
    if not isinstance(record, dict):
        return None
    link, identifier, parent = (record.get(name) for name in ("link_id", "id", "parent_id"))
    author, body = record.get("author") or "", record.get("body", 0)
    texts = (link, identifier, parent, author, "" if body is None else body)
    plain = [encodable(text) for text in texts if isinstance(text, str)]
    if len(plain) < len(texts) or not all(plain[:3]):
        return None
    return plain[0], plain[1].removeprefix("t1_"), plain[2], plain[3], plain[4]


def reason_against(author: str, body: str, subreddit: str, rules: Rules) -> str:
    """Why a comment is dropped before its text is cleaned, or an empty text."""
    if rules.subreddits and subreddit.lower() not in rules.subreddits:
        return ELSEWHERE
    if not body.strip() or DELETED_BODIES.fullmatch(body):
        return DELETED
    return BOT if is_bot(author, rules) else ""


def is_bot(author: str, rules: Rules) -> bool:
    """Whether an author is known as a bot or is called one."""
    name = author.lower()
    end = name.rfind("bot")
    return name in rules.bots or (end >= 0 and bool(BOT_NAME.fullmatch(name, end)))


def reason_against_text(text: str, rules: Rules) -> str:
    """Why a cleaned text is dropped, or an empty text."""
    if not text:
        return QUOTE
    if URL.search(text):
        if not re.search(r"\w", URL.sub("", text)):
            return LINKS
        if not rules.links:
            return WITH_LINK
    if len(text) < rules.fewest_characters:
        return SHORT
    if len(text) > rules.most_characters or len(text.split()) > rules.most_words:
        return LONG
    return ""


def clean(body: str) -> str:
    """The words of a body: entities resolved, quotations and marks out, a line for each line.

    A link with words leaves its words; one without leaves its address.
    """
    text = INVISIBLE.sub("", html.unescape(body))
    text = SPOILER.sub(r"\1", text)
    lines = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(">") or not stripped or RULE_LINE.fullmatch(stripped):
            continue
        stripped = MARKDOWN_LINK.sub(words_of_link, LINE_MARKS.sub("", stripped))
        lines.append(" ".join(HEAVY.sub(r"\2", stripped).split()))
    return encodable("\n".join(line for line in lines if line))


def words_of_link(found: re.Match[str]) -> str:
    """The words of a link, or its address where it has no words."""
    return found["words"] if re.search(r"\w", found["words"]) else found["url"]

"""A line of a Reddit dump to a comment or a post, or the reason why it is dropped.

The rules follow Roller et al. (2021), who write down what training on Reddit began with in Mazaré
et al. (2018) and Humeau et al. (2020): no bots, nothing deleted, too short, too long or deeper than
7, and with a comment goes all below it. Other than there, words are counted instead of tokens, a
link may stand beside words (settable), and no language is left out. A post is judged as a comment
is, by its title and text; where these are too long together, by its title alone. Knows one line at
a time.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

from polyrank.json_text import parse_json
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
"""Bots, in lower case, whose names need not end in `bot`."""

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
    """The maximum words of a comment, counted at spaces; about the papers' 128 tokens."""
    links: bool = True
    """Whether a comment may have a link beside words; comments of links only are never kept."""
    bots: frozenset[str] = KNOWN_BOTS
    """Names in lower case; names that end in `bot` always count."""
    subreddits: frozenset[str] = frozenset()
    """Names of the only subreddits to keep, in lower case; empty for all."""
    fewest_turns: int = 2
    most_turns: int = 7
    """The maximum depth of a comment in its thread; the post does not count."""
    every_comment: bool = False
    """Whether each comment with its parents is a conversation, instead of each leaf only."""


class Comment(NamedTuple):
    """A comment, or a post, as a tree needs it; `text` is None for one that was dropped."""

    link: str
    id: str
    """That of a post is the link itself."""
    parent: str
    author: str
    text: str | None

    @property
    def is_post(self) -> bool:
        """Whether it is what the thread's comments answer."""
        return self.id == self.link

    @property
    def place(self) -> str:
        """How a report names it."""
        return self.link if self.is_post else f"{self.link}/{self.id}"


def read_item(line: bytes, rules: Rules) -> tuple[Comment | None, str]:
    """A comment or a post, and why it was dropped, empty if it is kept.

    None instead of it where the line is broken. Without its text, what was dropped still tells
    which replies stand below it.
    """
    try:
        record = parse_json(line)
    except ValueError:
        return None, BROKEN
    is_post = isinstance(record, dict) and "title" in record and "parent_id" not in record
    fields = post_fields(record) if is_post else fields_of(record)
    if fields is None:
        return None, BROKEN
    link, identifier, parent, author, body = fields
    reason = reason_against(author, body, str(record.get("subreddit") or ""), rules)
    text = None
    if not reason:
        text = text_of_post(body, record.get("selftext"), rules) if is_post else clean(body)
        reason = reason_against_text(text, rules)
    name = "" if DELETED_BODIES.fullmatch(author) else author
    return Comment(link, identifier, parent, name, None if reason else text), reason


def post_fields(record: dict[str, Any]) -> tuple[str, str, str, str, str] | None:
    """Link, id, parent (none), author and title of a post's record, or None if one is missing."""
    identifier, title = record.get("id"), record["title"]
    author = record.get("author") or ""
    texts = (identifier, author, "" if title is None else title)
    plain = [encodable(text) for text in texts if isinstance(text, str)]
    if len(plain) < len(texts) or not plain[0]:
        return None
    link = f"t3_{plain[0].removeprefix('t3_')}"
    return link, link, "", plain[1], plain[2]


def text_of_post(title: str, selftext: Any, rules: Rules) -> str:
    """The title and, below it, the text of a post; the title alone if that would be dropped."""
    alone = " ".join(encodable(INVISIBLE.sub("", html.unescape(title))).split())
    if not isinstance(selftext, str) or DELETED_BODIES.fullmatch(selftext):
        return alone
    whole = f"{alone}\n{clean(selftext)}".strip()
    return alone if reason_against_text(whole, rules) else whole


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
    """Why a comment is dropped before its text is cleaned, or an empty string."""
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
    """Why a cleaned text is dropped, or an empty string."""
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

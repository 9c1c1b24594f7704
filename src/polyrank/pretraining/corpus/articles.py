r"""Articles as JSON lines, in one of three forms, to `Article`s.

    {"id"?, "title", "text"}                   paragraphs are set apart by blank lines
    {"id"?, "title", "sections": [{"heading"?, "level"?, "paragraphs": [paragraph, …]}, …]}
        a paragraph is a text or {"text", "links"?: [link, …]}
        a link is {"start", "stop", "target"}, [start, stop, target] or only the target
    …, "sections": [{"heading", "paragraphs", "mentions": [[target, …], …]}], "links_in_set"?: […]
        as the Wikispeedia selection of Wikipedia is written: `mentions` has a list of targets for
        each paragraph, `links_in_set` all targets of the page

A target is the title or the id of an article. One that comes without offsets is a link at the
words of its title; where these are not in the text, it is dropped and counted, since a link
has words. The first section is everything before the first heading; its own heading is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyrank.data.files import Blame, at_line
from polyrank.data.json_files import read_json_lines
from polyrank.pretraining.corpus.article_text import (
    links_at,
    on_one_line,
    sections_of_text,
    without_caption,
)
from polyrank.pretraining.corpus.sentences import Splitter, splitter
from polyrank.pretraining.corpus.source import (
    Documents,
    Dropped,
    Glimpse,
    Source,
    encodable,
    identifier_of,
)
from polyrank.records import Article, Link, Paragraph, Section

NO_TITLE = "no title"
NO_TEXT = "no text"
NO_WORDS = "link whose words are not in the text"
CAPTION = "caption of a picture"
FORM = 'Write {"title": "…", "text": "…"} or {"title": "…", "sections": [{"paragraphs": ["…"]}]}.'
LINK_FORM = 'Write a link as {"start": 0, "stop": 4, "target": "Title"}, or as its target alone.'


FIELDS = ("sections", "text", "paragraphs", "title")


@dataclass(frozen=True, kw_only=True)
class Articles(Source):
    """A file of articles as JSON lines."""

    name = "articles"

    @classmethod
    def recognises(cls, glimpse: Glimpse) -> bool:
        """Whether the first object has a field of an article."""
        return bool(glimpse.fields(FIELDS))

    def read(self, scratch: Path) -> Documents:
        """Yield the articles, and what was dropped from them."""
        return read_articles(self.path, language=self.language)


class Titles:
    """The titles of the articles of a file, by title and by id.

    The file is read for them when a link asks first; memory holds the ids and titles alone.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, str] | None = None

    def title(self, target: str) -> str:
        """The title that a target means; the target itself if no article of the file has it."""
        if self.known is None:
            self.known = self.read()
        return self.known.get(target, target)

    def spaced(self, target: str) -> str:
        """The title that a target means, by its words if no article of the file has it.

        So links out of a part of a selection stay: `New_York` is `New York`.
        """
        title = self.title(target)
        return title.replace("_", " ") if title == target else title

    def read(self) -> dict[str, str]:
        """Every id and every title of the file, with the title; a title wins over an id."""
        by_id: dict[str, str] = {}
        by_title: dict[str, str] = {}
        for _, record in read_json_lines(self.path):
            title, identifier = record.get("title"), record.get("id")
            if isinstance(title, str) and (title := on_one_line(encodable(title))):
                by_title[title] = title
                if isinstance(identifier, (str, int)):
                    by_id.setdefault(str(identifier), title)
        return by_id | by_title


@dataclass(kw_only=True)
class Page:
    """One line: its place, and what was dropped from it so far."""

    title: str
    blame: Blame
    titles: Titles
    split: Splitter
    dropped: list[Dropped] = field(default_factory=list)
    linked: set[str] = field(default_factory=set)
    """Titles that a paragraph links to."""
    named: dict[str, None] = field(default_factory=dict)
    """Titles that the page links to, wherever, in order."""

    def paragraph(self, text: str, links: list[Link]) -> Paragraph:
        """A paragraph with its sentences."""
        self.linked.update(link.target for link in links)
        return Paragraph(text, self.split(text), tuple(sorted(links)))

    def drop_link(self, target: str) -> None:
        """Count a link that has no words."""
        self.dropped.append(Dropped(NO_WORDS, f"{self.title} → {target}"))


def read_articles(path: Path, *, language: str | None = None) -> Documents:
    """Yield the articles of a file, plain or compressed, and what was dropped from them.

    If links name articles, the file is read twice. Raises DataError, with file and line, for
    anything in none of these forms.
    """
    titles = Titles(path)
    split = splitter(language or "")
    for number, record in read_json_lines(path):
        blame = at_line(path, number)
        title = record.get("title")
        if not isinstance(title, str) or not (given(record, "text") or given(record, "sections")):
            raise blame(
                "The article has no 'title' with a 'text' or 'sections'; the line has "
                f"{', '.join(map(repr, record)) or 'no field'}.",
                FORM,
            )
        title = on_one_line(encodable(title))
        page = Page(title=title, blame=blame, titles=titles, split=split)
        sections = tuple(sections_of(page, record))
        yield from page.dropped
        if not title:
            yield Dropped(NO_TITLE, f"line {number}")
        elif not any(section.paragraphs for section in sections):
            yield Dropped(NO_TEXT, title)
        else:
            yield Article(identifier_of(record, number, blame, "article"), title, sections)


def given(record: dict[str, Any], name: str) -> bool:
    """Whether a record has a field that is not null."""
    return record.get(name) is not None


def sections_of(page: Page, record: dict[str, Any]) -> Iterator[Section]:
    """The sections of a record: the first, and all others that have paragraphs."""
    if given(record, "text") and not record.get("sections"):
        text = typed(record["text"], str, "text", page.blame)
        for heading, level, texts in sections_of_text(encodable(text), page.title):
            yield Section(heading, level, tuple(page.paragraph(text, []) for text in texts))
        return
    for place, item in enumerate(typed(record["sections"], list, "sections", page.blame)):
        section = typed(item, dict, f"sections[{place}]", page.blame)
        paragraphs = tuple(paragraphs_of(page, section))
        heading = on_one_line(
            encodable(typed(section.get("heading") or "", str, "heading", page.blame))
        )
        level = typed(section.get("level") or 2, int, "level", page.blame)
        if place == 0:
            yield Section("", 1, paragraphs)
        elif paragraphs:
            yield Section(heading, max(level, 2), paragraphs)
    for target in typed(record.get("links_in_set") or [], list, "links_in_set", page.blame):
        name = typed(target, str, "links_in_set", page.blame)
        page.named[page.titles.spaced(encodable(name))] = None
    for title in page.named:
        if title not in page.linked and title != page.title:
            page.drop_link(title)


def paragraphs_of(page: Page, section: dict[str, Any]) -> Iterator[Paragraph]:
    """The paragraphs of a section that have a text."""
    if "mentions" in section:
        yield from paragraphs_with_mentions(page, section)
        return
    for item in typed(section.get("paragraphs") or [], list, "paragraphs", page.blame):
        paragraph = paragraph_of(page, item)
        if paragraph is not None:
            yield paragraph


def paragraph_of(page: Page, item: Any) -> Paragraph | None:
    """A paragraph, with its links in the order of their places; None if it has no text."""
    if isinstance(item, str):
        text = encodable(item).strip()
        return page.paragraph(text, []) if text else None
    record = typed(item, dict, "paragraphs", page.blame)
    full = encodable(typed(record.get("text"), str, "text", page.blame))
    text = full.strip()
    before = len(full) - len(full.lstrip())
    links: list[Link] = []
    bare: list[str] = []
    for link in typed(record.get("links") or [], list, "links", page.blame):
        if isinstance(link, str):
            bare.append(page.titles.title(encodable(link)))
        else:
            start, stop, target = link_fields(link, full, page.blame)
            start, stop = trimmed(full, start, stop)
            links.append(Link(start - before, stop - before, page.titles.title(encodable(target))))
    if not text:
        return None
    found = links_at(text, bare, taken=links)
    for title in dict.fromkeys(bare):
        if title not in {link.target for link in (*found, *links)}:
            page.drop_link(title)
    return page.paragraph(text, links + found)


def link_fields(item: Any, text: str, blame: Blame) -> tuple[int, int, str]:
    """Start, stop and target of a link with offsets. Raises if its words are not in the text."""
    if isinstance(item, dict):
        item = [item.get(name) for name in ("start", "stop", "target")]
    if not isinstance(item, list) or len(item) != 3:
        raise blame(f"{str(item)[:60]!r} is not a link.", LINK_FORM)
    start, stop, target = item
    whole_numbers = all(type(place) is int for place in (start, stop))
    if not whole_numbers or not isinstance(target, str):
        raise blame(f"{str(item)[:60]!r} is not a start, a stop and a target.", LINK_FORM)
    if not 0 <= start < stop <= len(text) or not text[start:stop].strip():
        raise blame(
            f"The link to {target!r} covers no words: it goes from {start} to {stop} in a "
            f"paragraph of {len(text)} characters.",
            "Count characters of the paragraph from 0; the stop is exclusive.",
        )
    return start, stop, target


def trimmed(text: str, start: int, stop: int) -> tuple[int, int]:
    """A place without the space at its ends."""
    words = text[start:stop]
    start += len(words) - len(words.lstrip())
    return start, start + len(words.strip())


def paragraphs_with_mentions(page: Page, section: dict[str, Any]) -> Iterator[Paragraph]:
    """The paragraphs of a section that lists the targets mentioned in each."""
    texts = typed(section.get("paragraphs"), list, "paragraphs", page.blame)
    mentions = typed(section["mentions"], list, "mentions", page.blame)
    if len(texts) != len(mentions):
        raise page.blame(
            f"A section has {len(texts)} 'paragraphs' and {len(mentions)} 'mentions'.",
            "Give a list of targets, which may be empty, for each paragraph.",
        )
    for item, targets in zip(texts, mentions, strict=True):
        full = encodable(typed(item, str, "paragraphs", page.blame)).strip()
        text = without_caption(full)
        if len(text) < len(full):
            page.dropped.append(Dropped(CAPTION, f"{page.title}: {full[:60]}"))
        if not text:
            continue
        given_targets = typed(targets, list, "mentions", page.blame)
        names = [typed(target, str, "mentions", page.blame) for target in given_targets]
        titles = {page.titles.spaced(encodable(name)) for name in names} - {page.title}
        page.named.update(dict.fromkeys(sorted(titles)))
        yield page.paragraph(text, links_at(text, titles))


def typed(value: Any, kind: type, name: str, blame: Blame) -> Any:
    """A value, checked to be of the kind that its field holds."""
    if not isinstance(value, kind) or isinstance(value, bool):
        words = {str: "a text", int: "a whole number", list: "a list", dict: "an object"}
        got = "nothing" if value is None else f"a {type(value).__name__}"
        raise blame(f"The field {name!r} must hold {words[kind]}, got {got}.", FORM)
    return value

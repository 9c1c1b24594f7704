"""Wikitext to sections: headings, paragraphs with their links, sentences.

mwparserfromhell says what is a template, a link or a tag; here is what becomes of each. A page that
is broken gives what can be read of it, unless reading it would take too long.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

from polyrank.errors import MissingExtraError
from polyrank.pretraining.corpus.sentences import Splitter
from polyrank.pretraining.corpus.wikipedia.plain_text import (
    BREAK,
    STAND_INS,
    START,
    STOP,
    protected,
    read_marked,
)
from polyrank.pretraining.corpus.wikipedia.site import Site, words
from polyrank.pretraining.corpus.wikipedia.templates import LONGEST, words_function
from polyrank.records import Paragraph, Section

RAW_TAGS = words(
    "ref references math chem ce gallery timeline syntaxhighlight source score hiero imagemap pre "
    "includeonly graph mapframe maplink templatestyles indicator inputbox categorytree poem"
)
DROPPED_TAGS = RAW_TAGS | words("table ul ol dl")
BLOCK_TAGS = words("p div blockquote center h1 h2 h3 h4 h5 h6 hr noinclude onlyinclude")
NEVER_CLOSED = re.compile(
    rf"<(?:{'|'.join(sorted(RAW_TAGS))})\b[^<>]*>[^\n]*|<!--[^\n]*", re.IGNORECASE
)
BLOCK_TAG = re.compile(rf"</?(?:{'|'.join(sorted(BLOCK_TAGS))})\b[^<>]*>[ \t]*", re.IGNORECASE)
COMMENT = re.compile(r"^<!--.*?-->\n|<!--.*?-->", re.MULTILINE | re.DOTALL)
"""A comment; one that fills its line goes with the line, and does not end a paragraph."""
INDENTED_TABLE = re.compile(r"^[ \t:]+(?=\{\|)", re.MULTILINE)
EXPONENT = re.compile(r"\s*[-−+]?\d+\s*")
BRACKET = re.compile(
    r"\{\{|\}\}|\[\[|\]\]|\{\||\|\}(?!\})|<!--|-->|\[(?=[\w+.-]*:?//|mailto:)|\]|^[*#:;]"
    r"|<(?P<slash>/?)(?P<tag>[a-z]\w*)[^<>]*(?P<end>>)?",
    re.IGNORECASE | re.MULTILINE,
)
CLOSING = {"}}": "{{", "]]": "[[", "|}": "{|", "-->": "<!--", "]": "["}
SINGLE_TAGS = words("br wbr hr meta link img li dt dd th td tr")
MOST_READ_AGAIN = 20_000_000
"""Characters that may be read again for what is never closed; they take up to 6 s."""
MOST_MARKS = 150_000
"""These take up to 10 s and 300 MB; a list of 2 MB has two thirds of them."""
LONG_HEADING = re.compile(r"^=(?:[^=\n]*=){1000}", re.MULTILINE)
HEADING = "\ue002"
LIST = "*#:;"
NO_TEXT = "|! "
Block = tuple[int, str]


def sections_of(
    wikitext: str, site: Site, split: Splitter, *, lists: bool = False
) -> tuple[Section, ...]:
    """The sections of a page that have a paragraph; with `lists`, items of lists are paragraphs.

    Raises MarkupError for a page that would take too long, MissingExtraError.
    """
    reader = Reader(site)
    marked = reader.read(wikitext)
    sections: list[Section] = []
    paragraphs: list[Paragraph] = []
    heading, level = "", 1
    for rank, block in blocks(marked, lists=lists):
        text, links = read_marked(block, reader.targets)
        if rank:
            add_section(sections, heading, level, paragraphs)
            heading, level, paragraphs = text, rank, []
        elif any(char.isalpha() for char in text):
            paragraphs.append(Paragraph(text, split(text), links))
    add_section(sections, heading, level, paragraphs)
    return tuple(sections)


def add_section(
    sections: list[Section], heading: str, level: int, paragraphs: list[Paragraph]
) -> None:
    """Add a section, unless it is empty."""
    if paragraphs:
        sections.append(Section(heading, level, tuple(paragraphs)))


def blocks(marked: str, *, lists: bool = False) -> Iterator[Block]:
    """Yield (level, words) of a heading and (0, words) of a paragraph, in order.

    Left out: lines set in from the margin, lines of a table that is never closed and, unless
    `lists`, the items of lists.
    """
    lines: list[str] = []
    for line in marked.split("\n"):
        first = line[:1]
        is_text = line.strip() and first not in NO_TEXT and not line.startswith("{|")
        if is_text and first != HEADING and first not in LIST:
            lines.append(line)
            continue
        if lines:
            yield 0, " ".join(lines)
            lines = []
        if first == HEADING:
            yield int(line[1]), line[2:]
        elif lists and first and first in LIST and (item := line.lstrip(LIST)):
            yield 0, item
    if lines:
        yield 0, " ".join(lines)


class Reader:
    """Reads one page: text with marks around the words of links, a line for each line.

    A heading fills a line, marked with its level. `targets` has the titles that the links
    lead to.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self.targets: list[str] = []
        self.pieces: list[str] = []
        self.last = ""
        """The last character, none at the beginning."""
        self.is_cut = False
        """Whether something was left out since the last character."""

    def read(self, wikitext: str) -> str:
        """The text of a page with marks."""
        require_moderate(wikitext)
        wikitext = COMMENT.sub("", STAND_INS.sub("", wikitext))
        if LONG_HEADING.search(wikitext):
            raise MarkupError("a heading with a thousand equals signs")
        self.walk(parse(INDENTED_TABLE.sub("", wikitext)).nodes)
        return "".join(self.pieces)

    def walk(self, nodes: list[Any]) -> None:
        """Read nodes, one after the other."""
        done = 0
        for node, following in zip_longest(nodes, nodes[1:]):
            kind = type(node).__name__
            after = following.value if type(following).__name__ == "Text" else ""
            if kind == "Text":
                self.add_text(node.value[done:] if done else node.value)
                done = 0
            elif kind == "Wikilink":
                done = self.add_link(node, after)
            else:
                READ[kind](self, node)

    def add(self, text: str) -> None:
        """Add characters as they are."""
        if text:
            self.pieces.append(text)
            self.last = text[-1]
            self.is_cut = False

    def cut(self, _: Any = None) -> None:
        """Leave something out: if it began a line, what follows is not set in by its spaces."""
        self.is_cut = True

    def add_text(self, text: str) -> None:
        """Add running text, without tags that are never closed."""
        if "<" in text:
            text = BLOCK_TAG.sub("\n\n", NEVER_CLOSED.sub("", text))
        if self.is_cut and self.last in ("", "\n"):
            text = text.lstrip(" \t")
        self.add(text)

    def add_block(self, nodes: list[Any]) -> None:
        """Add what begins and ends a paragraph."""
        self.end_paragraph()
        self.walk(nodes)
        self.end_paragraph()

    def end_paragraph(self) -> None:
        """Let what follows begin a paragraph."""
        self.add("\n\n")
        self.cut()

    def add_link(self, link: Any, after: str) -> int:
        """Add the words of a link, and how many characters of the text `after` it belong to them.

        A link to an article gets marks; one in whose words there is another leaves it these.
        """
        title = "".join(str(node) for node in link.title.nodes if is_plain(node))
        meaning, target = self.site.meaning(title)
        if meaning == "hidden":
            self.cut()
            return 0
        place, number = len(self.pieces), len(self.targets)
        self.targets.append(target)
        self.add(f"{START}{number}{STOP}")
        if link.text is None:
            self.add(title.strip().removeprefix(":"))
        else:
            self.walk(link.text.nodes)
        if meaning == "words" or len(self.targets) > number + 1:
            self.pieces[place] = ""
            return 0
        length = length_of_trail(after)
        self.add(after[:length] + STOP)
        return length

    def add_external_link(self, link: Any) -> None:
        """Add the words of a link to another site, or its address if it is in the text."""
        if link.title is not None:
            self.walk(link.title.nodes)
        elif link.brackets:
            self.cut()
        else:
            self.add(str(link.url))

    def add_heading(self, heading: Any) -> None:
        """Add a heading as one line."""
        title = self.flattened(heading.title.nodes).replace("\n", " ")
        self.add(f"\n{HEADING}{heading.level}{title}")

    def flattened(self, nodes: list[Any]) -> str:
        """The text of nodes, which is not added."""
        place, last, is_cut = len(self.pieces), self.last, self.is_cut
        self.walk(nodes)
        text = "".join(self.pieces[place:])
        del self.pieces[place:]
        self.last, self.is_cut = last, is_cut
        return text.strip()

    def add_entity(self, entity: Any) -> None:
        """Add the character that an entity stands for."""
        self.add(protected(html.unescape(str(entity))))

    def add_template(self, template: Any) -> None:
        """Add the words of a template that only formats them; others are left out."""
        name = str(template.name)
        format_words = words_function(name)
        if format_words is None or len(raw := str(template)) > LONGEST or "{{" in raw[2:]:
            self.cut()
            return
        arguments = []
        for parameter in template.params:
            if not parameter.showkey or str(parameter.name).strip() == "1":
                arguments.append(self.flattened(parameter.value.nodes))
        self.add(format_words(arguments))

    def add_tag(self, tag: Any) -> None:
        """Add what a tag is around, or the sign of a list."""
        name = str(tag.tag).strip().lower()
        nodes = [] if tag.contents is None else tag.contents.nodes
        if tag.wiki_markup and tag.wiki_markup[0] in LIST:
            self.add(tag.wiki_markup)
        elif name in DROPPED_TAGS:
            self.cut()
        elif name in BLOCK_TAGS:
            self.add_block(nodes)
        elif name == "br":
            self.add(BREAK)
        elif name == "nowiki":
            self.add(protected(str(tag.contents or "")))
        else:
            if name == "sup" and self.last.isalnum() and EXPONENT.fullmatch(str(tag.contents)):
                self.add("^")
            self.walk(nodes)


READ: dict[str, Callable[[Reader, Any], None]] = {
    "Argument": Reader.cut,
    "Comment": Reader.cut,
    "ExternalLink": Reader.add_external_link,
    "Heading": Reader.add_heading,
    "HTMLEntity": Reader.add_entity,
    "Tag": Reader.add_tag,
    "Template": Reader.add_template,
}
"""What reads a node, by the name of its class in mwparserfromhell."""


def parse(wikitext: str) -> Any:
    """The nodes of wikitext."""
    return require_mwparserfromhell().parse(wikitext, skip_style_tags=True)


def require_mwparserfromhell() -> Any:
    """The package mwparserfromhell, loaded when it is first needed. Raises MissingExtraError."""
    try:
        import mwparserfromhell
    except ImportError:
        raise MissingExtraError("mwparserfromhell", "wiki", "Reading wikitext") from None
    return mwparserfromhell


def is_plain(node: Any) -> bool:
    """Whether a node of a title is text; templates and comments in it are left out."""
    return type(node).__name__ in ("Text", "HTMLEntity")


def length_of_trail(after: str) -> int:
    """How many lower-case letters follow a link and belong to its words.

    Scripts without small letters join words otherwise, and MediaWiki takes none of them.
    """
    length = 0
    while length < len(after) and after[length].islower():
        length += 1
    return length


class MarkupError(Exception):
    """A page that would take the parser too long, too much memory or too much of the stack."""


def require_moderate(wikitext: str) -> None:
    """Raise MarkupError for a page that mwparserfromhell would not read in a few seconds.

    For what is never closed, it reads to the end of the page and then begins again behind it: its
    time grows with the number of these times the length. Each `=` of a heading takes it a level of
    the stack.
    """
    num_marks = num_open = 0
    open_ones: list[str] = []
    count: Counter[str] = Counter()
    for found in BRACKET.finditer(wikitext):
        num_marks += 1
        tag = (found["tag"] or "").lower()
        mark = tag or found[0]
        if mark in LIST or mark in SINGLE_TAGS or found[0].endswith("/>"):
            continue
        kind = CLOSING.get(mark, mark)
        if tag and not found["end"]:
            num_open += 1
        elif kind == mark and not found["slash"]:
            open_ones.append(kind)
            count[kind] += 1
        elif count[kind]:
            while (last := open_ones.pop()) != kind:
                count[last] -= 1
                num_open += 1
            count[kind] -= 1
    num_open += len(open_ones)
    if num_open * len(wikitext) > MOST_READ_AGAIN:
        raise MarkupError(
            f"{num_open:,} unclosed brackets and tags in {len(wikitext):,} characters"
        )
    if num_marks > MOST_MARKS:
        raise MarkupError(f"{num_marks:,} markup tokens")

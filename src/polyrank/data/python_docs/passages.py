"""Documents to passages: pieces of 20 to 120 words, each readable alone under its title.

Knows what is worth reading; knows nothing of questions or splits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from polyrank.data.python_docs.markup import is_code_paragraph
from polyrank.data.python_docs.modules import qualified_name
from polyrank.data.python_docs.topics import PREFIX
from polyrank.records import Article, Candidate, Paragraph, Section

GOOD_WORDS = 80
MOST_WORDS = 120
MOST_CODE_LINES = 12
MOST_SIGNATURE = 60
MANY = 1_000_000
SHARED_WORDS = 12

JUNK = re.compile(
    r"copyright|all rights reserved|permission (?:is hereby|to use)|without warranty|\$Id|"
    r"\$Revision|redistribution and use|^(?:changed|new|added|deprecated) (?:in|since) version|"
    r"^source code:|^subwidgets?\b|^raises an auditing event|^see also|"
    r"^\W*(?:author|written by|contributed by|version \d)|"
    r"^\W*(?:internal|undocumented|todo|xxx|private|obsolete|deprecated|not implemented)\b|"
    r"^(?:-\[ )?footnotes|^\[\d+\] |^pep \d+ - |^notes?:$|for internal use|do not use|"
    r"should not be called directly|unit tests? for|^see \S+ for|"
    r"^(?:\[\d+\]|vars?|args|raises|returns?|usage|example|examples):?$|"
    r"^(?:see|cf\.?) [\w.]+(?: [\w.]+)?$",
    re.IGNORECASE,
)
NO_CODE = re.compile(r"-\[.*|[\w.]+|[A-Za-z ]+")
SENTENCE_END = re.compile(r"(?<=[a-z0-9)\]\"”’'][.!?])\s+(?=[\"“'(\[]?[A-Z\d])|\n")
DOCUMENTED_MODULE = re.compile(r"[\"“]?(\w+)[\"”]? — ")


@dataclass(frozen=True, kw_only=True, slots=True)
class Passage:
    """A piece of a section.

    `group` is the top-level module or the topic, `section` tells apart the sections of the corpus,
    `name` is the qualified name a section of a module explains, or empty. `body` is without title.
    """

    id: str
    document: str
    group: str
    section: str
    name: str
    title: str
    body: str
    is_first: bool

    @property
    def text(self) -> str:
        """The passage as it is read alone."""
        return titled(self.title, self.body)


def titled(title: str, body: str) -> str:
    """A body after its title; code starts on a line of its own."""
    return f"{title}:\n{body}" if is_code_paragraph(body) else f"{title}: {body}"


def passages(documents: Iterable[Article]) -> Iterator[Candidate]:
    """Yield every readable passage, ids such as `json.dumps#0` and `topic:with#2`.

    A text that several documents share is given once.
    """
    for passage in read_passages(documents):
        yield Candidate(passage.id, passage.text)


def read_passages(documents: Iterable[Article]) -> Iterator[Passage]:
    """Yield every readable passage with what is known of its origin."""
    counts: dict[str, int] = {}
    seen: set[str] = set()
    documents = list(documents)
    groups = groups_of(documents)
    # Of a text in several topics, the most specific topic gives the title.
    documents.sort(key=lambda d: len(d.sections) if d.id.startswith(PREFIX) else MANY)
    for document in documents:
        for section in document.sections:
            name = section_name(document, section)
            base = name or document.id
            title = passage_title(document, section)
            for number, body in enumerate(chunks(section.paragraphs)):
                key = f"{title}: {body}" if name else body
                if key in seen or not is_readable(body):
                    continue
                seen.add(key)
                count = counts.get(base, 0)
                counts[base] = count + 1
                yield Passage(
                    id=f"{base}#{count}",
                    document=document.id,
                    group=groups[document.id],
                    section=f"{document.id}/{section.heading}",
                    name=name,
                    title=title,
                    body=body,
                    is_first=number == 0,
                )


def groups_of(documents: Iterable[Article]) -> dict[str, str]:
    """The unit of a split for each document: its top-level module, or its topic.

    A topic on a module counts to that, and one that repeats a larger one's paragraphs to the
    larger.
    """
    groups: dict[str, str] = {}
    owners: dict[str, str] = {}
    for document in sorted(documents, key=lambda d: (-len(d.sections), d.id)):
        if not document.id.startswith(PREFIX):
            groups[document.id] = document.id.partition(".")[0].lstrip("_")
            continue
        texts = [p.text for section in document.sections for p in section.paragraphs]
        texts = [text for text in texts if len(text.split()) >= SHARED_WORDS]
        module = DOCUMENTED_MODULE.match(document.title)
        group = next((owners[text] for text in texts if text in owners), document.id)
        groups[document.id] = module[1] if module else group
        for text in texts:
            owners.setdefault(text, groups[document.id])
    return groups


def section_name(document: Article, section: Section) -> str:
    """The qualified name that a section of a module explains, or an empty text."""
    if document.id.startswith(PREFIX) or not section.heading or ": " in section.heading:
        return ""
    name = qualified_name(section.heading)
    known = document.id == "builtins" or name.startswith(document.id + ".")
    return name if known and re.fullmatch(r"[\w.]+", name) else ""


def passage_title(document: Article, section: Section) -> str:
    """The words a passage of this section starts with."""
    if section_name(document, section):
        return short_signature(section.heading)
    is_topic = document.id.startswith(PREFIX)
    title = document.title if is_topic else f"The {document.title} module"
    if not section.heading:
        return title
    if is_topic and re.match(r"(?:class )?\w+\.\w+.*\(", section.heading):
        return short_signature(section.heading)
    if not is_topic and section.heading.startswith(document.id + "."):
        signature, _, heading = section.heading.partition("): ")
        return f"{qualified_name(signature)}: {heading}" if heading else section.heading
    return f"{title}: {section.heading}"


def short_signature(title: str) -> str:
    """A signature of at most about 60 characters; what is left out is shown as an ellipsis."""
    name, bracket, arguments = title.partition("(")
    if len(arguments) <= MOST_SIGNATURE:
        return title
    kept = arguments[: MOST_SIGNATURE - 10].rpartition(", ")[0]
    return f"{name}{bracket}{kept}, …)" if kept else f"{name}(…)"


def chunks(paragraphs: Iterable[Paragraph]) -> Iterator[str]:
    """Put paragraphs together to pieces of about 80 words and at most about 120."""
    piece: list[str] = []
    words = 0
    started = False
    for text in readable_parts(paragraphs):
        length = len(text.split())
        if piece and (
            words + length > MOST_WORDS or (words >= GOOD_WORDS and not is_code_paragraph(text))
        ):
            yield "\n".join(piece)
            piece, words, started = [], 0, True
        # Code that begins a later piece would stand without the sentence that explains it.
        if piece or not started or not is_code_paragraph(text):
            piece.append(text)
            words += length
    if piece:
        yield "\n".join(piece)


def readable_parts(paragraphs: Iterable[Paragraph]) -> Iterator[str]:
    """The paragraphs without junk and long code; long ones cut between sentences."""
    for paragraph in paragraphs:
        text = paragraph.text
        if is_code_paragraph(text):
            is_short = text.count("\n") < MOST_CODE_LINES
            if is_short and "::=" not in text and not NO_CODE.fullmatch(text.strip()):
                yield text
        elif not JUNK.search(text) or (len(text) > 200 and not JUNK.match(text)):
            yield from cut(text)


def cut(text: str) -> Iterator[str]:
    """A long paragraph in parts of whole sentences."""
    if len(text.split()) <= MOST_WORDS:
        yield text
        return
    part = ""
    for line in text.split("\n"):
        separator = "\n"
        for sentence in sentences(line):
            words = sentence.split()
            if part and len(part.split()) + len(words) > GOOD_WORDS:
                yield part
                part = ""
            short = " ".join(words[:MOST_WORDS])
            part = f"{part}{separator}{short}" if part else short
            separator = " "
    if part:
        yield part


def sentences(text: str) -> list[str]:
    """The sentences of a prose, list items being some of them."""
    return [sentence.strip() for sentence in SENTENCE_END.split(text) if sentence.strip()]


def is_readable(body: str) -> bool:
    """Whether a body says something: three words at least, and mostly words."""
    prose = " ".join(line for line in body.split("\n") if not is_code_paragraph(line))
    words = re.findall(r"[A-Za-z]{2,}", prose)
    letters = sum(character.isalpha() or character.isspace() for character in prose)
    return len(words) >= 3 and letters > 0.7 * len(prose) and not JUNK.match(prose)

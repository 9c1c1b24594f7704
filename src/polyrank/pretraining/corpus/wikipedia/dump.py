"""The pages of a MediaWiki XML dump, one at a time, plain or compressed.

The bytes are cut at `<page>` and `</page>`, which cannot stand in a text unescaped, and each page
is parsed alone. So a page that is not XML costs that page alone, an error names its
byte, and pages that are not wanted cost next to nothing. Knows nothing of wikitext.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple, cast
from xml.etree import ElementTree

from polyrank.data.files import is_damage, open_bytes
from polyrank.errors import DataError
from polyrank.pretraining.corpus.source import Dropped
from polyrank.pretraining.corpus.wikipedia.site import Site

BLOCK = 1 << 20
LONGEST_PAGE = 64 << 20
"""MediaWiki takes no text above 2 MiB; what is longer is not a page of articles."""
LONGEST_HEAD = 4 << 20
LONGEST_START = 4096
"""Bytes of a page that contain its title."""
OPEN, CLOSE, END = b"<page>", b"</page>", b"</mediawiki>"
ROOT = re.compile(rb"<mediawiki\b[^>]*>")
LANGUAGE = re.compile(rb"xml:lang\s*=\s*[\"']([^\"']+)")
NO_TITLE = "without a title"
NUMBER = re.compile("-?[0-9]{1,9}")
TITLE = re.compile(rb"<title>([^<]*)")


class Page(NamedTuple):
    """A page as the dump has it; `redirect` is the title it leads to, if any."""

    id: str
    title: str
    namespace: int
    redirect: str | None
    model: str
    text: str


class Dump:
    """A dump that is being read. Raises DataError, with the byte, if reading must end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.handle = cast("BufferedIOBase", open_bytes(path))
        self.buffer = b""
        self.offset = 0
        """Of the buffer's first byte in the XML, decompressed."""
        self.last = ""
        """The title of the last page that was whole."""
        self.ended = False
        self.in_long_page = False
        try:
            self.site = self.read_site()
        except BaseException:
            self.handle.close()
            raise

    def __enter__(self) -> Dump:
        return self

    def __exit__(self, *_: object) -> None:
        self.handle.close()

    def more(self) -> bool:
        """Read another block into the buffer; False at the end."""
        try:
            # read1 gives what could be decompressed before the damage, where read gives nothing
            block = self.handle.read1(BLOCK)
        except Exception as error:
            if not is_damage(error):
                raise
            raise self.error(f"The compressed data cannot be read: {error}") from error
        self.buffer += block
        return bool(block)

    def drop(self, count: int) -> None:
        """Drop the buffer's first bytes."""
        self.buffer = self.buffer[count:]
        self.offset += count

    def error(self, problem: str) -> DataError:
        """An error with the place where reading stopped."""
        after = f", after the page {self.last!r}" if self.last else ", before the first page"
        place = f" at byte {self.offset + len(self.buffer):,} of the XML{after}"
        remedy = "The file is damaged or truncated; download it again."
        return DataError(f"{problem.rstrip('.')}{place}.", remedy, path=self.path)

    def read_site(self) -> Site:
        """What comes before the first page. Raises DataError if this is not a dump."""
        no_dump = "This is not a MediaWiki dump: it has no <mediawiki> with a <siteinfo>"
        while (stop := self.buffer.find(b"</siteinfo>")) < 0:
            ended = not self.more()
            is_other = len(self.buffer) > 4096 and not ROOT.search(self.buffer)
            if ended or is_other or len(self.buffer) > LONGEST_HEAD:
                raise DataError(
                    no_dump + " at its start.",
                    "Give a file such as enwiki-latest-pages-articles.xml.bz2, or name its kind "
                    "with --format.",
                    path=self.path,
                )
        head = self.buffer[:stop]
        begin = head.find(b"<siteinfo")
        try:
            information = ElementTree.fromstring(head[begin:] + b"</siteinfo>")
        except ElementTree.ParseError as error:
            raise self.error(f"The <siteinfo> is not XML, {error}") from error
        root = ROOT.search(head)
        language = None if root is None else LANGUAGE.search(root[0])
        self.drop(stop)
        return Site(
            language="en" if language is None else language[1].decode("utf-8", "replace"),
            case=information.findtext("case") or "first-letter",
            namespaces={
                (element.text or "").casefold(): int(element.get("key", ""))
                for element in information.iter("namespace")
                if element.text and NUMBER.fullmatch(element.get("key", ""))
            },
        )

    def pages(self) -> Iterator[Page | Dropped]:
        """The pages, and those that are not XML. Raises DataError if the file ends too early."""
        while True:
            is_there, lost = self.find_page()
            if lost is not None:
                yield lost
            if not is_there:
                return
            stop = self.find_close()
            if stop < 0:
                yield self.broken(-stop)
                continue
            page = self.parse(self.buffer[:stop])
            self.drop(stop)
            yield page

    def find_page(self) -> tuple[bool, Dropped | None]:
        """Bring the next `<page>` to the buffer's start; False at the end of the dump.

        Also gives what was skipped, if it has the end of a page whose start is broken.
        """
        begin, head, has_close = self.offset, b"", False
        while (start := self.buffer.find(OPEN)) < 0:
            has_close = has_close or CLOSE in self.buffer
            self.ended = self.ended or END in self.buffer
            keep = max(len(self.buffer) - len(END), 0)
            head += self.buffer[: min(keep, max(LONGEST_START - len(head), 0))]
            self.drop(keep)
            if not self.more():
                if not (self.ended or END in self.buffer):
                    raise self.error("The file ends without </mediawiki>")
                return False, self.lost(begin, head + self.buffer) if has_close else None
        passed = self.buffer[:start]
        lost = self.lost(begin, head + passed) if has_close or CLOSE in passed else None
        self.ended = False
        self.drop(start)
        return True, lost

    def lost(self, begin: int, passed: bytes) -> Dropped | None:
        """A page whose start is broken; None if it is the rest of one that was too long."""
        if self.in_long_page:
            self.in_long_page = False
            return None
        where = f"{title_of(passed) or NO_TITLE} at byte {begin:,}"
        return Dropped("broken XML", f"{where}: it has no <page>")

    def find_close(self) -> int:
        """Where the page at the buffer's start ends; minus the bytes to skip if it is broken.

        Raises DataError if the file ends first.
        """
        searched = len(OPEN)
        while (close := self.buffer.find(CLOSE, searched)) < 0:
            again = self.buffer.find(OPEN, searched)
            if again > 0:
                return -again
            if len(self.buffer) > LONGEST_PAGE:
                self.in_long_page = True
                return -(len(self.buffer) - len(CLOSE))
            searched = max(len(self.buffer) - len(CLOSE), len(OPEN))
            if not self.more():
                raise self.error(f"The file ends in the middle of the page {title_of(self.buffer)}")
        again = self.buffer.find(OPEN, len(OPEN), close)
        return close + len(CLOSE) if again < 0 else -again

    def broken(self, count: int) -> Dropped:
        """Skip a page that is not complete."""
        where = f"{title_of(self.buffer) or NO_TITLE} at byte {self.offset:,}"
        self.drop(count)
        return Dropped("broken XML", where)

    def parse(self, chunk: bytes) -> Page | Dropped:
        """One page; of its revisions, the last."""
        try:
            element = ElementTree.fromstring(chunk)
        except ElementTree.ParseError as error:
            place = f"{title_of(chunk) or NO_TITLE} at byte {self.offset:,}"
            return Dropped("broken XML", f"{place}: {error}")
        title = element.findtext("title") or ""
        revisions = element.findall("revision")
        redirect = element.find("redirect")
        number = element.findtext("ns")
        prefix, colon, _ = title.partition(":")
        guessed = (self.site.namespace(prefix) or 0) if colon else 0
        self.last = title
        return Page(
            id=element.findtext("id") or "",
            title=title,
            namespace=int(number) if number and NUMBER.fullmatch(number) else guessed,
            redirect=None if redirect is None else redirect.get("title"),
            model=(revisions[-1].findtext("model") if revisions else None) or "wikitext",
            text=(revisions[-1].findtext("text") if revisions else None) or "",
        )


def title_of(chunk: bytes) -> str:
    """The title in the XML of a page that may be broken, for messages; empty if it has none."""
    found = TITLE.search(chunk, 0, LONGEST_START)
    return repr(found[1].decode("utf-8", "replace")) if found else ""

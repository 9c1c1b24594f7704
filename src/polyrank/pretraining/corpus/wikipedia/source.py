"""MediaWiki dumps as a source: pages and redirects, and what makes articles of pages."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from polyrank.pretraining.corpus.sentences import Splitter, splitter
from polyrank.pretraining.corpus.source import (
    Documents,
    Dropped,
    Glimpse,
    Redirect,
    Source,
    Stream,
)
from polyrank.pretraining.corpus.wikipedia.dump import Dump, Page
from polyrank.pretraining.corpus.wikipedia.pages import article_of, redirect_of
from polyrank.pretraining.corpus.wikipedia.site import Site
from polyrank.pretraining.corpus.wikipedia.wikitext import MarkupError, require_mwparserfromhell
from polyrank.records import Article

BROKEN = "broken markup"


@dataclass(frozen=True)
class ArticleMaker:
    """Pages to articles; can be sent to another process."""

    site: Site
    lists: bool = False
    """Whether items of lists are paragraphs."""

    def __call__(self, pages: Sequence[Page]) -> list[Article | Dropped]:
        """The article of each page, or why it is none; no page stops the others."""
        split = splitter_of(self.site.language)
        return [self.one(page, split) for page in pages]

    def one(self, page: Page, split: Splitter) -> Article | Dropped:
        """One page."""
        try:
            return article_of(page, self.site, split, lists=self.lists)
        except MarkupError as error:
            return Dropped(BROKEN, f"{page.title}: {error}")
        except Exception as error:  # whatever a page holds, it costs that page alone
            return Dropped(BROKEN, f"{page.title}: {type(error).__name__} {error}")


splitter_of = cache(splitter)


@dataclass(frozen=True, kw_only=True)
class Wikipedia(Source):
    """A MediaWiki dump, of any language and any wiki."""

    name = "wikipedia"
    has_pages = True

    lists: bool = True
    """Whether items of lists are paragraphs."""

    @classmethod
    def recognises(cls, glimpse: Glimpse) -> bool:
        """Whether it is XML by its name, or begins as a dump does."""
        return glimpse.suffix == ".xml" or b"<mediawiki" in glimpse.start[:4096]

    @contextlib.contextmanager
    def open(self, scratch: Path) -> Iterator[Stream]:
        """The pages and redirects, and what makes articles of pages."""
        require_mwparserfromhell()
        with Dump(self.path) as dump:
            site = dump.site
            if self.language is not None:
                site = dataclasses.replace(site, language=self.language)
            yield Stream(
                items=feed(dump, site),
                language=site.language,
                convert=ArticleMaker(site, self.lists),
            )

    def read(self, scratch: Path) -> Documents:
        """Yield the articles and what was dropped; links keep the titles that they name."""
        with self.open(scratch) as stream:
            assert stream.convert is not None
            for item in stream.items:
                if isinstance(item, Page):
                    yield from stream.convert([item])
                else:
                    yield Dropped("redirect", item.title) if isinstance(item, Redirect) else item


def feed(dump: Dump, site: Site) -> Iterator[Page | Redirect | Dropped]:
    """What a dump holds: pages that may be articles, redirects between titles, and the rest."""
    for page in dump.pages():
        if isinstance(page, Dropped):
            yield page
        elif page.namespace != 0:
            yield Dropped("other namespace", page.title)
        elif (target := redirect_of(page, site)) is None:
            yield page
        elif site.meaning(target)[0] == "article":
            yield Redirect(page.title, target)
        else:
            yield Dropped("redirect to no article", page.title)

"""A dump as a stream of pages and redirects, and what makes articles of pages, in any process."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from polyrank.pretraining.corpus.reading import Dropped, Reading
from polyrank.pretraining.corpus.sentences import Splitter, splitter
from polyrank.pretraining.corpus.wikipedia.dump import Dump, Page
from polyrank.pretraining.corpus.wikipedia.pages import article_of, redirect_of
from polyrank.pretraining.corpus.wikipedia.site import Site
from polyrank.records import Article


class Redirect(NamedTuple):
    """A title that leads to another."""

    title: str
    target: str


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
        except Exception as error:  # whatever a page holds, it costs that page alone
            return Dropped("broken markup", f"{page.title}: {type(error).__name__} {error}")


splitter_of = cache(splitter)


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


def site_of(dump: Dump, language: str | None) -> Site:
    """The wiki of a dump, in another language than it says if one is given."""
    return dump.site if language is None else dataclasses.replace(dump.site, language=language)


def read(path: Path) -> Reading:
    """Yield the articles of a dump and what was dropped; links keep the titles that they name."""
    with Dump(path) as dump:
        make = ArticleMaker(dump.site)
        for item in feed(dump, dump.site):
            if isinstance(item, Page):
                yield from make([item])
            else:
                yield Dropped("redirect", item.title) if isinstance(item, Redirect) else item

"""MediaWiki dumps as a source: pages and redirects, and what makes articles of pages.

Knows which pages are articles, but not their content.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
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
from polyrank.pretraining.corpus.wikipedia.site import Site
from polyrank.pretraining.corpus.wikipedia.wikitext import (
    MarkupError,
    require_mwparserfromhell,
    sections_of,
)
from polyrank.records import Article

BROKEN = "broken markup"
REDIRECT = re.compile(
    r"\s*#\s*(?:redirect|redirection|redirección|redireccion|redirecionamento|weiterleitung|rinvia|"
    r"rinvio|doorverwijzing|omdirigering|omdiriger|перенаправление|перенапр|перенаправлення|patrz|"
    r"przekieruj|tam|přesměruj|ohjaus|uudelleenohjaus|alih|転送|リダイレクト|넘겨주기|重定向|重新導向|"
    r"تحويل|yönlendirme|הפניה|átirányítás|redirectare|đổi|ανακατευθυνση|ανακατεύθυνση|presmeruj|"
    r"redirecció|birzuzendu|преусмери|пренасочване|تغییر_مسیر|تغییرمسیر)\s*:?\s*"
    r"\[\[([^\]|\n]+)",
    re.IGNORECASE,
)
TEMPLATE = re.compile(r"\{\{([^{}|<>\[\]\n]{1,80})")
DISAMBIGUATION = re.compile(
    r"(?:.*\b)?(?:disambig|disambiguation|dab|hndis|hndisambig|geodis|numberdis|schooldis|roaddis|"
    r"mathdab|mathdisambig|hospitaldis|callsigndis|shipdis|"
    r"begriffsklärung|homonymie|internationalisation|patronymie|toponymie|paronymie|"
    r"desambiguación|desambiguacion|desambig|des|desambiguação|desambiguació|disambigua|"
    r"doorverwijspagina|dp|неоднозначность|многозначность|багатозначність|многозначна|"
    r"ujednoznacznienie|rozcestník|rozlišovacia stránka|täsmennyssivu|täsmennys|förgrening|"
    r"gren|grensida|flertydig|peker|egyért|dezambiguizare|αποσαφήνιση|anlam ayrımı|anlamayrımı|"
    r"동음이의|동음이의어|동명이인|曖昧さ回避|aimai|人名の曖昧さ回避|地名の曖昧さ回避|消歧义|消歧義|"
    r"توضيح|ابهام‌زدایی|ابهام زدایی|פירושונים|trang định hướng|định hướng|argipen|"
    r"višeznačna odrednica|višeznačnost|вишезначна одредница|razločitev)(?:\b.*)?",
    re.IGNORECASE,
)
IN_TITLE = re.compile(r"[(（]([^()（）]+)[)）]\Z")
LIST_TITLE = re.compile(
    r"(?:lists? of|index of .* articles|liste? (?:der|des|de|du|von|d[’']|la|les|over|of|over)\b|"
    r"listes de|lista (?:de|di|dei|delle|degli|över|das|dos)\b|listă |lijst van|elenco |liste |"
    r"список|списък|списак|перечень|перелік|daftar|senarai|danh sách|seznam|zoznam|luettelo|"
    r"lista |llista |zerrenda:|λίστα|κατάλογος|قائمة|فهرست|רשימת).*|"
    r".*(?:목록|一覧|列表|一览|一覽|listesi|listája)",
    re.IGNORECASE,
)
MAGIC_WORD = "__DISAMBIG__"


@dataclass(frozen=True)
class ArticleMaker:
    """Pages to articles; can be sent to another process."""

    site: Site
    lists: bool = False
    """Whether items of lists are paragraphs."""

    def __call__(self, pages: Sequence[Page]) -> list[Article | Dropped]:
        """The article of each page, or why it is dropped; no page stops the others."""
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
                items=pages_and_redirects(dump, site),
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


def pages_and_redirects(dump: Dump, site: Site) -> Iterator[Page | Redirect | Dropped]:
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


def redirect_of(page: Page, site: Site) -> str | None:
    """The title that a page leads to, or None; also of dumps so old that they do not say."""
    target = page.redirect
    if (
        target is None
        and page.text[:1] in ("#", " ", "\n")
        and (found := REDIRECT.match(page.text))
    ):
        target = found[1]
    return None if target is None else site.title(target.strip().removeprefix(":"))


def article_of(
    page: Page, site: Site, split: Splitter, *, lists: bool = False
) -> Article | Dropped:
    """The article on a page of namespace 0 that is not a redirect.

    With `lists`, the items of its lists are paragraphs; pages that are lists are dropped always.
    """
    if page.model != "wikitext":
        return Dropped("not wikitext", page.title)
    if LIST_TITLE.fullmatch(page.title):
        return Dropped("list", page.title)
    if is_disambiguation(page):
        return Dropped("disambiguation", page.title)
    sections = sections_of(page.text, site, split, lists=lists)
    if not sections:
        return Dropped("no text", page.title)
    return Article(page.id, page.title, sections)


def is_disambiguation(page: Page) -> bool:
    """Whether a page only tells meanings of a word apart, by its title or a template."""
    found = IN_TITLE.search(page.title)
    if found is not None and DISAMBIGUATION.fullmatch(found[1]):
        return True
    names = (name[1].replace("_", " ").strip() for name in TEMPLATE.finditer(page.text))
    return MAGIC_WORD in page.text or any(map(DISAMBIGUATION.fullmatch, names))

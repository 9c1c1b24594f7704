"""A page to an article, or the reason why it is none. Knows which pages are no articles."""

from __future__ import annotations

import re

from polyrank.pretraining.corpus.sentences import Splitter
from polyrank.pretraining.corpus.source import Dropped
from polyrank.pretraining.corpus.wikipedia.dump import Page
from polyrank.pretraining.corpus.wikipedia.site import Site
from polyrank.pretraining.corpus.wikipedia.wikitext import sections_of
from polyrank.records import Article

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
    """The article on a page of namespace 0 that is no redirect.

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

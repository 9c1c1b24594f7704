"""Small MediaWiki dumps, page by page."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from polyrank.pretraining.corpus.wikipedia.site import Site

NAMESPACES = {-2: "Media", 1: "Talk", 4: "Wikipedia", 6: "File", 10: "Template", 14: "Category"}
SITE = Site(namespaces={name.casefold(): key for key, name in NAMESPACES.items()})


def page(title, text="Some words.", *, ns=0, redirect=None, number=1, model="wikitext"):
    led = "" if redirect is None else f"    <redirect title={quoteattr(redirect)} />\n"
    return (
        f"  <page>\n    <title>{escape(title)}</title>\n    <ns>{ns}</ns>\n    <id>{number}</id>\n"
        f"{led}    <revision>\n      <id>9{number}</id>\n      <model>{model}</model>\n"
        f'      <text xml:space="preserve">{escape(text)}</text>\n    </revision>\n  </page>\n'
    )


def dump(*pages, language="en", namespaces=None, case="first-letter"):
    named = {**NAMESPACES, **(namespaces or {})}
    listed = "".join(
        f'      <namespace key="{key}" case="first-letter">{name}</namespace>\n'
        for key, name in sorted(named.items())
    )
    return (
        f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" xml:lang="{language}">\n'
        f"  <siteinfo>\n    <case>{case}</case>\n    <namespaces>\n{listed}"
        '      <namespace key="0" case="first-letter" />\n    </namespaces>\n  </siteinfo>\n'
        f"{''.join(pages)}</mediawiki>\n"
    )


def prose(number):
    """The wikitext of an article that has something of everything."""
    return (
        f"{{{{Infobox|name = Thing {number}}}}}\n'''Thing {number}''' is a [[kind]] of "
        f"[[thing {number + 1}|other thing]]s. It follows Thing {number - 1}.<ref>A book.</ref>\n\n"
        f"== History ==\nIt began in [[1900 + {number}]]. Then [[Old {number}]] came.\n"
        "* a list\n\n=== Later ===\n{| class=x\n| cell\n|}\n== Empty ==\n"
    )

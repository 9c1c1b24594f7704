"""What the built documentation has to keep, checked after every build.

A hook of mkdocs: each finding is a warning, and a strict build fails on warnings. mkdocs checks the
links of the Markdown; this checks the pages as a browser gets them, those made from docstrings too.
Before that, it reads the escaped bars in tables as other readers of Markdown do.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

log = logging.getLogger("mkdocs.hooks.site_checks")

LOADS = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src"}
"""The elements that a browser loads at once, and the attribute that says from where."""
LINKED_FILES = {"stylesheet", "preconnect", "dns-prefetch", "preload", "icon", "manifest"}
"""What a <link> is loaded as; `canonical`, `next` and others are not loaded."""
CODE = re.compile(r"`[^`]+`")
CSS_LOAD = re.compile(r"""(?:url\(|@import)\s*["']?((?:https?:)?//[^"')\s]+)""")


class Page(HTMLParser):
    """What one page loads, links to and can be linked to."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.images_without_words: list[str] = []
        self.feed(html)
        self.loads += CSS_LOAD.findall(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Called by the parser with each element that begins."""
        values = {name: value or "" for name, value in attributes}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag in LOADS and values.get(LOADS[tag]):
            self.loads.append(values[LOADS[tag]])
        if tag == "link" and LINKED_FILES & set(values.get("rel", "").split()):
            self.loads.append(values.get("href", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "img" and not values.get("alt"):
            self.images_without_words.append(values.get("src", ""))


def is_elsewhere(address: str) -> bool:
    """Whether an address leads away from the site."""
    return bool(urlsplit(address).scheme or urlsplit(address).netloc)


def findings(site: Path) -> Iterator[str]:
    """Each thing that is wrong with the site in this folder, in words."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for address in page.loads:
            if is_elsewhere(address) and not address.startswith("data:"):
                yield f"{name} loads {address} from elsewhere"
        for image in page.images_without_words:
            yield f"{name} has no alternative text for the image {image}"
        for link in page.links:
            if path.name != "404.html" and not is_elsewhere(link):
                yield from broken(link, path, pages, site)
    for path in sorted(site.rglob("*.css")):
        for address in CSS_LOAD.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)} loads {address} from elsewhere"


def broken(link: str, path: Path, pages: dict[Path, Page], site: Path) -> Iterator[str]:
    """What is wrong with a link within the site, if anything."""
    address, anchor = urldefrag(link)
    target = (path.parent / unquote(address)).resolve() if address else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file() or not target.is_relative_to(site):
        yield f"{path.relative_to(site)} links to {link}, which is not there"
    elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
        yield f"{path.relative_to(site)} links to {link}, but the page has no such anchor"


def on_page_markdown(markdown: str, **given: object) -> str:
    r"""Called by mkdocs with each page: `a\|b` in a table is `a|b`, as it is everywhere else."""
    return "\n".join(
        CODE.sub(lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in markdown.split("\n")
    )


def on_post_build(config: Mapping[str, str]) -> None:
    """Called by mkdocs when the site is written."""
    for finding in findings(Path(config["site_dir"]).resolve()):
        log.warning(finding)

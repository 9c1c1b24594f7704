"""What `polyrank corpus` keeps of a MediaWiki dump, how fast, and in how much memory.

    python -m benchmarks.corpus DUMP [--no-lists] [--sentences] [--grow BYTES]

Links are counted apart from the converter: by regular expressions over the raw XML, which cut
templates and tables from the inside out until none is left. With --sentences, sentences are
compared with those of syntok. With --grow, the pages are repeated to a dump of so many bytes, which
is converted by one process whose memory is watched.
"""

from __future__ import annotations

import argparse
import html
import json
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from polyrank.data.files import open_bytes
from polyrank.pretraining.corpus.convert import convert
from polyrank.pretraining.corpus.detection import source_at
from polyrank.pretraining.corpus.store import Corpus

PAGE = re.compile(r"<page>.*?</page>", re.DOTALL)
TITLE = re.compile(r"<title>(.*?)</title>")
REDIRECT = re.compile(r'<redirect title="([^"]*)"')
TEXT = re.compile(r"<text[^>]*>(.*?)</text>", re.DOTALL)
OUT = [
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"<ref[^<>]*/>", re.IGNORECASE),
    re.compile(r"<ref\b[^<>]*>(?:(?!<ref\b).)*?</ref\s*>", re.DOTALL | re.IGNORECASE),
    re.compile(
        r"<(math|gallery|timeline|source|syntaxhighlight|score|pre|imagemap)\b[^<>]*>.*?</\1>",
        re.DOTALL | re.IGNORECASE,
    ),
]
INNERMOST = [
    re.compile(r"\{\{(?:(?!\{\{|\}\}).)*\}\}", re.DOTALL),
    re.compile(r"^[ :]*\{\|(?:(?!^[ :]*\{\|).)*?^[ ]*\|\}", re.DOTALL | re.MULTILINE),
    re.compile(r"<table\b(?:(?!<table\b).)*?</table>", re.DOTALL | re.IGNORECASE),
]
FILE = re.compile(
    r"\[\[\s*(?:File|Image|Media)\s*:(?:(?!\[\[|\]\]).)*(?:\[\[(?:(?!\[\[|\]\]).)*\]\]"
    r"(?:(?!\[\[|\]\]).)*)*\]\]",
    re.DOTALL | re.IGNORECASE,
)
LINK = re.compile(r"\[\[([^\[\]|{}<>\n]+)(?:\|([^\[\]|]*))?\]\]([a-z]*)")
NO_ARTICLE = re.compile(
    r"\s*(?::|#|(?:file|image|media|category|wikipedia|wp|help|portal|template|user|talk|special|"
    r"draft|wikt|wiktionary|commons|meta|[bcdmnqsvw]|voy|species|[a-z]{2,3}|simple|doi)\s*:)",
    re.IGNORECASE,
)
LIST_LINE = re.compile(r"^[ *#:;].*$", re.MULTILINE)
MARKUP = re.compile(r"'{2,}|</?[a-zA-Z][^<>]*>")


def pages_of(xml: str) -> Iterator[tuple[str, str, str | None]]:
    """Yield title, wikitext and redirect of the pages of namespace 0."""
    for page in PAGE.findall(xml):
        if "<ns>0</ns>" in page:
            redirect = REDIRECT.search(page)
            title, text = TITLE.search(page), TEXT.search(page)
            assert title is not None
            yield (
                html.unescape(title[1]),
                html.unescape(text[1]) if text else "",
                html.unescape(redirect[1]) if redirect else None,
            )


def without(text: str) -> str:
    """Wikitext without comments, references, templates, tables and files."""
    for pattern in OUT:
        text = pattern.sub("", text)
    for pattern in (*INNERMOST, FILE):
        while (shorter := pattern.sub("", text)) != text:
            text = shorter
    return text


def links_of(text: str, redirects: dict[str, str]) -> Counter[tuple[str, str]]:
    """The links to articles in wikitext: their words as they read, and the titles they lead to."""
    found: Counter[tuple[str, str]] = Counter()
    for target, words, trail in LINK.findall(text):
        if NO_ARTICLE.match(target):
            continue
        title = " ".join(html.unescape(target).replace("_", " ").partition("#")[0].split())
        title = title[:1].upper() + title[1:]
        for _ in range(10):
            title = redirects.get(title, title)
        shown = MARKUP.sub("", html.unescape((words or target) + trail))
        if title and shown.strip():
            found[" ".join(shown.replace("_", " ").split()), title] += 1
    return found


def count_links(xml: str, corpus: Corpus) -> dict[str, Any]:
    """How many of the links of the dump the corpus has, with the same words and title."""
    pages = list(pages_of(xml))
    redirects = {title: led.partition("#")[0] for title, _, led in pages if led is not None}
    kept = {
        article.title: Counter(
            (" ".join(p.text[link.start : link.stop].replace("_", " ").split()), link.target)
            for section in article.sections
            for p in section.paragraphs
            for link in p.links
        )
        for article in corpus
    }
    figures: Counter[str] = Counter()
    missing: list[tuple[str, tuple[str, str]]] = []
    for title, text, led in pages:
        if led is not None:
            figures["redirects"] += 1
            continue
        figures["articles"] += 1
        if title not in kept:
            figures["articles dropped by design"] += 1
            continue
        everywhere = links_of(text, redirects)
        outside = without(text)
        with_lists = links_of(outside, redirects)
        running = links_of(LIST_LINE.sub("", outside), redirects)
        figures["links anywhere in a page"] += everywhere.total()
        figures["links in running text and lists"] += with_lists.total()
        figures["links in running text"] += running.total()
        figures["links in running text, kept"] += (running & kept[title]).total()
        figures["links in running text and lists, kept"] += (with_lists & kept[title]).total()
        figures["links in the corpus"] += kept[title].total()
        missing += [(title, link) for link in (running - kept[title]).elements()]
    shares = {
        f"share of {name}": round(figures[f"{name}, kept"] / figures[name], 4)
        for name in ("links in running text", "links in running text and lists")
    }
    return {**figures, **shares, "first missing": missing[:20]}


def compare_sentences(corpus: Corpus) -> dict[str, Any]:
    """Boundaries between sentences, of ours and of syntok; agreement as an F1 of them."""
    import syntok.segmenter

    ours = theirs = both = paragraphs = same = 0
    seconds = 0.0
    for article in corpus:
        for section in article.sections:
            for p in section.paragraphs:
                mine = {stop for _, stop in p.sentences[:-1]}
                started = time.process_time()
                cut = [list(s) for part in syntok.segmenter.analyze(p.text) for s in part]
                seconds += time.process_time() - started
                other = {s[-1].offset + len(s[-1].value) for s in cut[:-1] if s}
                ours, theirs = ours + len(mine), theirs + len(other)
                both += len(mine & other)
                paragraphs, same = paragraphs + 1, same + (mine == other)
    return {
        "boundaries": ours,
        "syntok's": theirs,
        "both": both,
        "F1": round(2 * both / (ours + theirs), 4),
        "paragraphs cut alike": round(same / paragraphs, 4),
        "syntok's seconds": round(seconds, 1),
    }


def grown(xml: bytes, size: int, path: Path) -> None:
    """Write a dump of about `size` bytes: the pages of one, again and again."""
    start, stop = xml.index(b"  <page>"), xml.rindex(b"</mediawiki>")
    with open(path, "wb") as handle:
        handle.write(xml[:start])
        while handle.tell() < size:
            handle.write(xml[start:stop])
        handle.write(xml[stop:])


def measured(dump: Path, output: Path, lists: bool) -> dict[str, Any]:
    """Convert in a process of its own; seconds of it and the most memory it had."""
    command = [sys.executable, "-m", "benchmarks.corpus", str(dump), "--convert-to", str(output)]
    command += [] if lists else ["--no-lists"]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def convert_here(dump: Path, output: Path, lists: bool) -> dict[str, Any]:
    """Convert with one process: this one."""
    started, used = time.perf_counter(), time.process_time()
    corpus = convert(source_at(dump, lists=lists), output)
    seconds, used = time.perf_counter() - started, time.process_time() - used
    with open_bytes(dump) as handle:
        size = sum(len(block) for block in iter(lambda: handle.read(1 << 20), b""))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "MB of XML": round(size / 1e6, 1),
        "seconds": round(seconds, 1),
        "seconds of a core": round(used, 1),
        "MB/s": round(size / 1e6 / seconds, 2),
        "MB/s of a core": round(size / 1e6 / used, 2),
        "peak MiB": round(peak / 2**20),
        "counts": dict(corpus.counts),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("dump", type=Path)
    parser.add_argument("--no-lists", dest="lists", action="store_false")
    parser.add_argument("--sentences", action="store_true")
    parser.add_argument("--grow", type=int, default=0)
    parser.add_argument("--convert-to", type=Path)
    given = parser.parse_args()
    if given.convert_to:
        print(json.dumps(convert_here(given.dump, given.convert_to, given.lists)))
        return
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}")
    with open_bytes(given.dump) as handle:
        xml = handle.read()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if given.grow:
            large = work / "large.xml"
            grown(xml, given.grow, large)
            show("one process", measured(large, work / "large", given.lists))
            return
        show("one process", measured(given.dump, work / "corpus", given.lists))
        corpus = Corpus.open(work / "corpus")
        show("links", count_links(xml.decode(), corpus))
        if given.sentences:
            show("sentences", compare_sentences(corpus))


def show(name: str, figures: dict[str, Any]) -> None:
    print(f"\n{name}")
    for label, value in figures.items():
        print(f"  {label:<52} {value}")


if __name__ == "__main__":
    main()

from __future__ import annotations

import bz2
import gzip
import lzma

import pytest
from dump_files import dump, page

from polyrank.errors import DataError
from polyrank.pretraining.corpus.redirects import Redirects
from polyrank.pretraining.corpus.source import Dropped
from polyrank.pretraining.corpus.wikipedia import dump as reading
from polyrank.pretraining.corpus.wikipedia.dump import Dump, Page
from polyrank.pretraining.corpus.wikipedia.site import Site
from polyrank.pretraining.corpus.wikipedia.source import (
    ArticleMaker,
    Wikipedia,
    article_of,
    redirect_of,
)


def pages_of(path):
    with Dump(path) as opened:
        return list(opened.pages())


@pytest.fixture
def written(tmp_path):
    def write(content, name="dump.xml"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture(params=[7, 1 << 20])
def block(request, monkeypatch):
    """How much is read at once must not matter."""
    monkeypatch.setattr(reading, "BLOCK", request.param)


def zstandard(data):
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


def multistream(data):
    return bz2.compress(data[:700]) + bz2.compress(data[700:900]) + bz2.compress(data[900:])


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [("", bytes), (".bz2", bz2.compress), (".bz2", multistream), (".gz", gzip.compress),
     (".xz", lzma.compress), (".zst", zstandard)],
)  # fmt: skip
def test_every_compression_gives_the_same_pages(written, suffix, compress):
    content = dump(page("A & B", "x < y [[ü]] &nbsp;", number=7), page("C")).encode()
    first, second = pages_of(written(compress(content), "dump.xml" + suffix))
    assert first == Page("7", "A & B", 0, None, "wikitext", "x < y [[ü]] &nbsp;")
    assert second.title == "C"


def test_the_site_is_read(written):
    path = written(dump(page("A"), language="de", namespaces={6: "Datei"}, case="case-sensitive"))
    with Dump(path) as opened:
        site = opened.site
    assert (site.language, site.case) == ("de", "case-sensitive")
    assert site.namespace("datei") == site.namespace("File") == site.namespace("Bild") == 6


def test_the_last_revision_counts_and_a_missing_namespace_is_told_by_the_title(written):
    first = "<revision><text>old</text></revision>"
    body = (
        f"<page><title>Talk:A</title><id>1</id>{first}<revision><text>new</text></revision></page>"
    )
    (only,) = pages_of(written(dump(body)))
    assert (only.text, only.namespace) == ("new", 1)


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize(
    "broken",
    [
        page("Bad").replace("<ns>", "<ns"),
        page("Bad", "a \x0b b"),
        page("Bad").replace("  </page>\n", ""),
        page("Bad").replace("Some words.", "a & b"),
    ],
)
def test_a_page_that_is_no_xml_is_dropped_alone(written, broken):
    found = pages_of(written(dump(page("A"), broken, page("Z"))))
    assert [each.title for each in found if isinstance(each, Page)] == ["A", "Z"]
    (dropped,) = [each for each in found if isinstance(each, Dropped)]
    assert dropped.reason == "broken XML"
    offset = dump(page("A"), broken).index("<page>\n    <title>Bad")
    assert dropped.where.startswith(f"'Bad' at byte {offset:,}")


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("after", [(), (page("Z"),)])
def test_a_page_whose_start_is_broken_is_counted(written, after):
    content = dump(page("A"), page("Bad").replace("<page>", "<pxge>"), *after)
    found = pages_of(written(content))
    (dropped,) = [each for each in found if isinstance(each, Dropped)]
    assert dropped.reason == "broken XML"
    assert dropped.where.startswith("'Bad' at byte")
    assert len(found) == 2 + len(after)


def test_bytes_that_are_no_text_cost_their_page(written):
    content = dump(page("A"), page("Bad", "here"), page("Z")).encode().replace(b"here", b"\xff\xfe")
    titles = [each.title for each in pages_of(written(content)) if isinstance(each, Page)]
    assert titles == ["A", "Z"]


def test_a_page_without_an_end_takes_no_memory(written, monkeypatch):
    monkeypatch.setattr(reading, "LONGEST_PAGE", 10_000)
    monkeypatch.setattr(reading, "BLOCK", 1_000)
    path = written(dump(page("Long", "x" * 50_000), page("Z")))
    with Dump(path) as opened:
        longest = 0
        found = []
        for each in opened.pages():
            longest = max(longest, len(opened.buffer))
            found.append(each)
    assert [getattr(each, "title", "dropped") for each in found] == ["dropped", "Z"]
    assert longest < 20_000


@pytest.mark.usefixtures("block")
def test_a_file_that_is_cut_off_says_where(written):
    content = dump(page("A"), page("B", "x" * 100))
    read_on = []
    with Dump(written(content[: content.index("xxxx") + 10])) as opened:
        pages = opened.pages()
        read_on.append(next(pages).title)
        with pytest.raises(DataError, match=r"dump\.xml: .*in the middle of the page 'B' at byte "):
            next(pages)
    assert read_on == ["A"]
    with pytest.raises(DataError, match=r"without </mediawiki> at byte .*after the page 'A'"):
        pages_of(written(dump(page("A"))[: -len("</mediawiki>\n")]))


@pytest.mark.parametrize("compress", [bz2.compress, gzip.compress, lzma.compress])
def test_a_damaged_compression_keeps_the_pages_before_it(written, compress):
    import random

    noise = random.Random(0)
    texts = [noise.randbytes(200_000).hex() for _ in range(3)]
    content = compress(dump(*(page(f"P{n}", text) for n, text in enumerate(texts))).encode())
    suffix = {bz2.compress: ".bz2", gzip.compress: ".gz", lzma.compress: ".xz"}[compress]
    path = written(content[: len(content) * 4 // 5], f"dump.xml{suffix}")
    titles = []
    with pytest.raises(DataError, match=r"at byte [\d,]+ of the XML, after the page 'P1'"):  # noqa: PT012, SIM117
        with Dump(path) as opened:
            for each in opened.pages():
                titles.append(each.title)
    assert titles == ["P0", "P1"]


@pytest.mark.parametrize("content", ["", "<html></html>", "x" * 10_000, "<mediawiki>", '{"a": 1}'])
def test_what_is_no_dump_is_refused(written, content):
    with pytest.raises(DataError, match="not a MediaWiki dump"):
        Dump(written(content))


def of(title, text="Some words.", **named):
    values = {"namespace": 0, "redirect": None, "model": "wikitext", **named}
    return Page(id="1", title=title, text=text, **values)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (of("List of cars"), "list"),
        (of("Liste der Autos"), "list"),
        (of("나라 목록"), "list"),
        (of("Car (disambiguation)"), "disambiguation"),
        (of("Car", "'''Car''' is:\n* x\n{{disambiguation|geo}}"), "disambiguation"),
        (of("Car", "{{Human name disambiguation}}"), "disambiguation"),
        (of("Auto", "'''Auto''' ist:\n{{Begriffsklärung}}"), "disambiguation"),
        (of("말", "말은:\n{{동음이의}}"), "disambiguation"),
        (of("Car", "__DISAMBIG__ x"), "disambiguation"),
        (of("Car", ""), "no text"),
        (of("Car", "{{Infobox}}\n* only\n* lists"), "no text"),
        (of("Car", "== A ==\n\n== B =="), "no text"),
        (of("Car.css", "a {}", model="css"), "not wikitext"),
    ],
)
def test_pages_that_are_no_articles_are_dropped(given, reason):
    assert article_of(given, Site(), lambda text: ((0, len(text)),)) == Dropped(reason, given.title)


@pytest.mark.parametrize("title", ["Listening", "Disambiguation", "Elenco", "Lista", "Car (list)"])
def test_pages_that_only_look_so_are_articles(title):
    assert article_of(of(title), Site(), lambda text: ((0, len(text)),)).title == title


def test_redirects_of_old_dumps_are_told_by_their_text():
    site = Site()
    assert redirect_of(of("A", redirect="b#c"), site) == "B"
    assert redirect_of(of("A", "#REDIRECT [[b_x#c|d]] {{e}}"), site) == "B x"
    assert redirect_of(of("A", "#Weiterleitung: [[:b]]"), site) == "B"
    assert redirect_of(of("A", "#넘겨주기 [[b]]"), site) == "B"
    assert redirect_of(of("A", "# [[b]]\n# [[c]]"), site) is None


def test_a_page_that_breaks_the_converter_costs_itself(monkeypatch):
    from polyrank.pretraining.corpus.wikipedia import source as reader

    def fail(page, *_, **__):
        if page.title == "Bad":
            raise RecursionError("too deep")
        return page.title

    monkeypatch.setattr(reader, "article_of", fail)
    made = ArticleMaker(Site())([of("A"), of("Bad"), of("Z")])
    assert made == ["A", Dropped("broken markup", "Bad: RecursionError too deep"), "Z"]


def test_the_reader_streams_articles_and_what_was_dropped(written):
    path = written(dump(page("A"), page("B", redirect="A"), page("Talk:A", ns=1), page("C", "")))
    first, *others = Wikipedia(path=path).read(path.parent)
    assert first.title == "A"
    assert [each.reason for each in others] == ["redirect", "other namespace", "no text"]


def test_chains_of_redirects_are_followed_and_loops_left(tmp_path):
    redirects = Redirects(tmp_path / "redirects.sqlite")
    chain = {f"R{n}": f"R{n + 1}" for n in range(10)}
    for title, target in {**chain, "X": "Y", "Y": "Z", "Z": "Y", "S": "S"}.items():
        redirects.add(title, target)
    redirects.flush()
    assert redirects.resolve("R0") == redirects.resolve("R9") == redirects.resolve("R10") == "R10"
    assert [redirects.resolve(title) for title in "XYZS"] == ["X", "Y", "Z", "S"]
    assert list(redirects.loops()) == ["S", "X", "Y", "Z"]
    redirects.close()

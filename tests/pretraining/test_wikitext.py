from __future__ import annotations

import contextlib
import re
import time

import pytest
from dump_files import SITE, prose
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrank.pretraining.corpus.sentences import splitter
from polyrank.pretraining.corpus.wikipedia.site import Site
from polyrank.pretraining.corpus.wikipedia.wikitext import MarkupError, sections_of

SPLIT = splitter("en")


def sections(wikitext, site=SITE):
    return sections_of(wikitext, site, SPLIT)


def text(wikitext, site=SITE):
    return "\n".join(p.text for s in sections(wikitext, site) for p in s.paragraphs)


def links(wikitext, site=SITE):
    return [
        (paragraph.text[link.start : link.stop], link.target)
        for section in sections(wikitext, site)
        for paragraph in section.paragraphs
        for link in paragraph.links
    ]


def test_a_page_becomes_sections_with_paragraphs_sentences_and_links():
    lead, history = sections(prose(5))
    assert (lead.heading, lead.level) == ("", 1)
    assert (history.heading, history.level) == ("History", 2)
    paragraph = lead.paragraphs[0]
    assert paragraph.text == "Thing 5 is a kind of other things. It follows Thing 4."
    assert [paragraph.sentence(n) for n in (0, 1)] == [
        "Thing 5 is a kind of other things.",
        "It follows Thing 4.",
    ]
    assert links(prose(5))[:2] == [("kind", "Kind"), ("other things", "Thing 6")]


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        ("a{{b|{{c}}|d={{e|{{f}}}}}} z", "a z"),
        ("x\n{|\n| a\n{|\n| b\n|}\n|}\ny", "x\ny"),
        ("a {{{1|{{b}}}}} z", "a z"),
        ("{{a\n|b={|\n|c\n|}\n}}z", "z"),
        ("a<!-- b\n\n c --> z", "a z"),
        ("a\n<!-- alone -->\nz", "a z"),
        ("a<ref>b</ref> c<ref name=x /> d<REF group='y'>{{e}}</REF> z", "a c d z"),
        ("a <math>x < [[b]]</math> z", "a z"),
        ("a<!<!-- b -->-- c --> z", "a z"),
        ("a <nowiki>[[b]] ''c''</nowiki> z", "a [[b]] ''c'' z"),
        ("'''bold''' and ''it'' and '''''both''''', don't", "bold and it and both, don't"),
        ("a<br/>b &amp; c&nbsp;d &lt;ref&gt; e<sup>th</sup> 10<sup>6</sup> H<sub>2</sub>O",
         "a b & c d <ref> eth 10^6 H2O"),
        ("see [http://x.org/a_b the page], [http://y.org] or http://z.org.",
         "see the page, or http://z.org."),
        ("one\ntwo\n\nthree\n----\nfour", "one two\nthree\nfour"),
        ("a\n* list\n# list\n: set in\n; term\n code\nb", "a\nb"),
        ("a <ul><li>b<ul><li>c</ul></ul> d <table><tr><td>e</table> z", "a d z"),
        ("__NOTOC__ a __FORCETOC__", "a"),
        ("Berlin ({{IPA|x}}; {{lang-y}}), a ( {{b}} ) city ({{c}}, of 2).",
         "Berlin, a city (of 2)."),
        ("[[File:a.jpg|thumb|x [[y]] [http://z w] {{v}}]]z", "z"),
        ("[[Image:a.jpg|left|over\ntwo lines]]\nz", "z"),
        ("[[Category:A]]\nz [[fr:B]] [[Category:C|D]]", "z"),
        ("{{convert|10|km|mi|abbr=on}} to {{cvt|1|-|2.5|ft}}, {{lang|fr|le ''mot''}}",
         "10 km to 1–2.5 ft, le mot"),
        ("{{As of|2010|lc=y}}, {{nowrap|[[a|b]] c}} {{chem|H|2|O}} {{Unknown|d}}",
         "As of 2010, b c H2O"),
        ("{{frac|1|2}} {{lang}} {{convert}} {{convert|x}} {{nowrap|{{unknown|a}} b}} z", "1/2 z"),
        ("-{zh-hans:甲;zh-hant:乙}- z", "甲 z"),
        ("[[File:a.jpg]] {{b}} c {{d}} e\n {{f}} code\n{{g}}\n code", "c e"),
        ("a <div class=x>b</div> c", "a\nb\nc"),
    ],
)  # fmt: skip
def test_what_is_no_running_text_goes(wikitext, expected):
    assert text(wikitext) == expected


def test_items_of_lists_can_be_kept():
    made = sections_of("a\n* [[b]]\n** c\n:d\n*\n code\n| e\nf", SITE, SPLIT, lists=True)
    assert [paragraph.text for paragraph in made[0].paragraphs] == ["a", "b", "c", "d", "f"]


@pytest.mark.parametrize(
    ("wikitext", "words", "target"),
    [
        ("[[bus]]es", "buses", "Bus"),
        ("[[Bus|a bus]]", "a bus", "Bus"),
        ("[[ bus_stop |''stop'']]", "stop", "Bus stop"),
        ("[[bus#History|then]]", "then", "Bus"),
        ("[[Caf&eacute;]]", "Café", "Café"),
        ("[[Cafe\u0301]]", "Cafe\u0301", "Café"),
        ("[[C%2B%2B|C]]", "C", "C++"),
        ("[[2001: A Space Odyssey]]", "2001: A Space Odyssey", "2001: A Space Odyssey"),
        ("[[en:bus|bus]]", "bus", "Bus"),
        ("'''[[bus]]'''", "bus", "Bus"),
        ("x [[bus| bus ]] y", "bus", "Bus"),
        ("[[a|b [c] d]]", "b [c] d", "A"),
    ],
)
def test_a_link_has_its_words_and_a_title(wikitext, words, target):
    assert links(f"Word {wikitext} word.") == [(words, target)]


@pytest.mark.parametrize(
    ("wikitext", "expected"),
    [
        ("[[:Category:Buses]]", "Category:Buses"),
        ("[[wikt:bus|bus]]", "bus"),
        ("[[:fr:bus|bus]]", "bus"),
        ("[[#History|see above]]", "see above"),
        ("[[Wikipedia:Bus|bus]]", "bus"),
        ("[[bus|{{nothing}}]]", ""),
    ],
)
def test_a_link_to_no_article_leaves_its_words(wikitext, expected):
    wikitext = f"Word {wikitext} word."
    assert text(wikitext) == f"Word {expected} word.".replace("  ", " ")
    assert links(wikitext) == []


def test_namespaces_have_the_names_of_the_wiki():
    german = Site(language="de", namespaces={"datei": 6, "kategorie": 14, "hilfe": 12})
    wikitext = "[[Datei:a.jpg|mini|weg]] [[Bild:b.jpg|weg]]Ein [[haus]]. [[Kategorie:Weg]]"
    assert text(wikitext, german) == "Ein haus."
    assert links(wikitext, german) == [("haus", "Haus")]
    assert text("[[en:House]] Ein Haus", german) == "Ein Haus"


def test_the_first_letter_is_a_capital_where_the_wiki_has_it_so():
    assert Site(case="case-sensitive").title("bus") == "bus"
    assert Site(language="tr").title("istanbul") == "İstanbul"
    assert Site().title("ßx") == "ßx"
    assert Site().title("ელ") == "ელ"


@pytest.mark.parametrize(
    "wikitext",
    [
        "A [[bus and {{no end\n\nNext [[car]] here.",
        "A <ref>bus\n\nNext [[car]] here.",
        "A <!-- bus\n\nNext [[car]] here.",
        "A [[File:x.jpg|thumb|bus\n\nNext [[car]] here.",
        "A }} ]] |} </ref> bus\n\nNext [[car]] here.",
        "{| class=x\n| bus\n\nNext [[car]] here.",
        "{{Infobox\n| bus = [[no|never]]\n\nNext [[car]] here.",
        "A <ref>bus <ref>x</ref>\n\nNext [[car]] here.",
        "A <nowiki>bus\n\nNext [[car]] here.",
    ],
)
def test_brackets_without_an_end_cost_their_line_only(wikitext):
    assert text(wikitext).split("\n")[-1] == "Next car here."
    assert links(wikitext)[-1] == ("car", "Car")
    assert not re.search(r"\{\{|\]\]|\}\}|\[\[|<ref|<!--", text(wikitext))


@pytest.mark.parametrize(
    "piece",
    ["[[", "]]", "{{", "}}", "{|\n", "|}\n", "<ref>", "</ref>", "<!--", "-->", "'''", "<b>",
     "[http://a ", "[[a|", "( ", ",", " ,", "{{a|", "[[a]]", "=", "<nowiki>", "[[File:a|", "\n",
     " ", "-{", "&amp;", "<table>", "[[a|[", "[[a|b", "\n{|", "<ref", "(,", "x. ", "{{{", "[[a:",
     "''[[a]]", "a_", "%5b", "[[[a|b]", "[[a|[b]", "-{a|", "<sup>1", "x<sup> ", "=a"],
)  # fmt: skip
def test_the_time_is_bounded_whatever_stands_in_a_page(piece):
    wikitext = piece * (200_000 // len(piece))
    started = time.process_time()
    with contextlib.suppress(MarkupError):
        sections(wikitext + " end")
    assert time.process_time() - started < 4


@pytest.mark.parametrize(
    ("wikitext", "message"),
    [
        ("{{a|" * 5_000, "5,000 unclosed brackets and tags in 20,000 characters"),
        ("[[a {{b ]]" * 2_000, "2,000 unclosed brackets"),
        ("<span style='" * 2_000, "2,000 unclosed brackets"),
        ("=a" * 2_000, "a heading with a thousand equals signs"),
        ("=a<!--\n-->" * 2_000, "a heading with a thousand equals signs"),
        ("[[a]]" * 100_000, "200,000 markup tokens"),
    ],
)
def test_a_page_that_would_take_the_parser_too_long_is_not_read(wikitext, message):
    with pytest.raises(MarkupError, match=message):
        sections(wikitext)


def test_deep_nesting_and_large_pages_are_read():
    deep = "{{a|" * 20_000 + "}}" * 20_000
    assert text(f"Before.\n\n{deep}\n\nAfter.").split("\n")[-1] == "After."
    paragraph = "A [[bus]] is '''not''' a {{lang|fr|car}}.<ref>{{cite|b}}</ref>\n\n"
    assert len(links(paragraph * 5_000)) == 5_000
    assert text("A {{b|\n" * 20 + "\n\nEnd.").endswith("End.")


MARKUP = [
    "[[",
    "]]",
    "{{",
    "}}",
    "{|",
    "|}",
    "|",
    "<ref>",
    "</ref>",
    "<!--",
    "-->",
    "''",
    "\n",
    "==",
]
WORDS = [
    "word",
    " ",
    "File:a",
    "b c",
    "http://d.e",
    "[",
    "]",
    "&amp;",
    "*",
    "é",
    "\ue000",
    "<i>",
    "(",
    ")",
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(MARKUP + WORDS), max_size=40).map("".join))
def test_anything_gives_clean_text_and_links_that_are_in_it(wikitext):
    for section in sections(wikitext):
        for paragraph in section.paragraphs:
            assert paragraph.text == " ".join(paragraph.text.split())
            assert not re.search("[\ue000-\ue1ff]|\\{\\{|\\[\\[", paragraph.text)
            for link in paragraph.links:
                words = paragraph.text[link.start : link.stop]
                assert words
                assert words == words.strip()
            places = [place for span in paragraph.sentences for place in span]
            assert places == sorted(places)
            assert places[-1] <= len(paragraph.text)

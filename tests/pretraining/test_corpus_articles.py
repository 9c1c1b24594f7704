"""Articles as JSON lines: the forms, where links lie, and what cannot be read."""

from __future__ import annotations

import bz2
import json
import lzma
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrank.errors import DataError
from polyrank.pretraining.corpus.article_text import links_at, sections_of_text, without_caption
from polyrank.pretraining.corpus.articles import CAPTION, NO_TEXT, NO_TITLE, NO_WORDS, read_articles
from polyrank.pretraining.corpus.source import Dropped
from polyrank.records import Article, Link

PICTS = {"id": "Picts", "title": "Picts", "text": "The Picts lived in the north."}


def write(path, *records):
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def parted(path):
    found = list(read_articles(path))
    articles = [document for document in found if isinstance(document, Article)]
    return articles, [item for item in found if isinstance(item, Dropped)]


def only(path):
    (article,), dropped = parted(path)
    return article, dropped


def words(paragraph):
    return [(paragraph.text[link.start : link.stop], link.target) for link in paragraph.links]


def texts(article):
    return [[p.text for p in section.paragraphs] for section in article.sections]


def test_a_plain_text_has_its_first_paragraph_as_first_section(tmp_path):
    text = "Titan\n\nTitan is a moon. It is large.\n\n\nIt has lakes.\n\nThey are cold."
    article, dropped = only(write(tmp_path / "a.jsonl", {"title": "Titan", "text": text}))
    assert (article.id, article.title, dropped) == ("1", "Titan", [])
    assert texts(article) == [
        ["Titan is a moon. It is large."],
        ["It has lakes.", "They are cold."],
    ]
    lead = article.sections[0].paragraphs[0]
    assert [lead.sentence(n) for n in range(2)] == ["Titan is a moon.", "It is large."]


@pytest.mark.parametrize(
    ("heading", "level"), [("== Past ==", 2), ("### Past", 3), ("Past", 2), ("=== Past ===", 3)]
)
def test_headings_of_a_plain_text(heading, level):
    text = f"A first sentence.\n\n{heading}\n\nIt was long ago.\n\nAnd it is over."
    first, second = sections_of_text(text, "Title")
    assert first == ("", 1, ["A first sentence."])
    assert second == ("Past", level, ["It was long ago.", "And it is over."])


def test_a_marked_heading_may_stand_right_above_its_text():
    found = sections_of_text("Lead.\n\n== Past ==\nIt was.\nLong ago.", "Title")
    assert found == [("", 1, ["Lead."]), ("Past", 2, ["It was.\nLong ago."])]


def test_no_text_is_lost_where_short_lines_follow_one_another():
    text = "Fruit.\n\nApples\n\nPears\n\nPlums\n\nThey grow on trees.\n\nNuts"
    found = sections_of_text(text, "Title")
    kept = [paragraph for section in found for paragraph in section.paragraphs]
    assert kept == ["Fruit.", "Apples", "Pears", "They grow on trees.", "Nuts"]
    assert [section.heading for section in found] == ["", "Plums"]


def test_sections_with_links_of_every_form(tmp_path):
    paragraph = {
        "text": "  Æthelfrith of Bernicia fought the Picts and the Scots 😀 in Dál Riata. ",
        "links": [
            {"start": 16, "stop": 24, "target": "Kingdom of Bernicia"},
            [61, 70, "Dal"],
            "Picts",
            "Northumbria",
        ],
    }
    sections = [
        {"heading": "Ignored", "paragraphs": ["The lead.", " "]},
        {"heading": "Empty", "paragraphs": []},
        {"heading": " Wars\n", "level": 3, "paragraphs": [paragraph]},
    ]
    dal = {"id": "Dal", "title": "Dál Riata", "text": "A kingdom."}
    record = {"id": 7, "title": "Wars", "sections": sections}
    articles, dropped = parted(write(tmp_path / "a.jsonl", record, PICTS, dal))
    article = articles[0]
    assert article.id == "7"
    assert [(s.heading, s.level) for s in article.sections] == [("", 1), ("Wars", 3)]
    (found,) = article.sections[1].paragraphs
    assert words(found) == [
        ("Bernicia", "Kingdom of Bernicia"),
        ("Picts", "Picts"),
        ("Dál Riata", "Dál Riata"),
    ]
    assert dropped == [Dropped(NO_WORDS, "Wars → Northumbria")]


def test_an_article_without_lead_keeps_an_empty_first_section(tmp_path):
    sections = [{"paragraphs": []}, {"heading": "Past", "paragraphs": ["It was."]}]
    article, _ = only(write(tmp_path / "a.jsonl", {"title": "A", "sections": sections}))
    assert texts(article) == [[], ["It was."]]


def test_mentions_become_links_at_the_words_of_their_titles(tmp_path):
    shown = "A map of Dál Riata. Enlarge A map of Dál Riata."
    record = {
        "id": "Aedan",
        "title": "Áedán",
        "sections": [
            {
                "heading": "before; Historical figures",
                "paragraphs": [shown, "He was king of Dál Riata, north of New York and YORK."],
                "mentions": [["Dal"], ["Dal", "York", "New_York", "Aedan"]],
            },
            {"heading": "Wars", "paragraphs": ["Of York only."], "mentions": [["York", "Bog"]]},
        ],
        "links_in_set": ["Dal", "York", "Picts"],
    }
    titles = {"Dal": "Dál Riata", "York": "York"}  # New York is in no line
    others = [{"id": key, "title": title, "text": "Text."} for key, title in titles.items()]
    articles, dropped = parted(write(tmp_path / "a.jsonl", record, *others, PICTS))
    first, second = articles[0].sections
    (paragraph,) = first.paragraphs
    assert first.heading == ""
    assert words(paragraph) == [
        ("Dál Riata", "Dál Riata"),
        ("New York", "New York"),
        ("YORK", "York"),
    ]
    assert words(second.paragraphs[0]) == [("York", "York")]
    assert dropped == [
        Dropped(CAPTION, "Áedán: A map of Dál Riata. Enlarge A map of Dál Riata."),
        Dropped(NO_WORDS, "Áedán → Bog"),
        Dropped(NO_WORDS, "Áedán → Picts"),
    ]


def test_a_caption_before_a_text_leaves_the_text():
    assert without_caption("Old London Enlarge Old London * 1200, a bridge.") == "* 1200, a bridge."
    assert without_caption("They Enlarge the map.") == "They Enlarge the map."


def test_articles_without_title_or_text_are_dropped(tmp_path):
    records = [
        {"title": " ", "text": "Words."},
        {"title": "Picts", "text": "They lived.", "sections": []},
        {"title": "Void", "text": "\n \n"},
        {"title": "Hollow", "sections": [{"paragraphs": [""]}]},
        PICTS,
    ]
    articles, dropped = parted(write(tmp_path / "a.jsonl", *records))
    assert [article.title for article in articles] == ["Picts", "Picts"]
    assert dropped == [
        Dropped(NO_TITLE, "line 1"),
        Dropped(NO_TEXT, "Void"),
        Dropped(NO_TEXT, "Hollow"),
    ]


def test_a_title_wins_over_an_id_and_unknown_targets_stay(tmp_path):
    records = [
        {"id": "a", "title": "One", "sections": [{"paragraphs": [{"text": "b c d", "links": []}]}]},
        {"id": "b", "title": "c", "text": "Text."},
        {"id": "c", "title": "d", "text": "Text."},
    ]
    given = [[0, 1, "b"], [2, 3, "c"], [4, 5, "elsewhere"]]
    records[0]["sections"][0]["paragraphs"][0]["links"] = given
    articles, _ = parted(write(tmp_path / "a.jsonl", *records))
    (paragraph,) = articles[0].sections[0].paragraphs
    assert [link.target for link in paragraph.links] == ["c", "c", "elsewhere"]


@pytest.mark.parametrize(("suffix", "opener"), [(".xz", lzma.open), (".bz2", bz2.open)])
def test_compressed_files_are_read_as_they_lie(tmp_path, suffix, opener):
    path = tmp_path / f"a.jsonl{suffix}"
    with opener(path, "wt", encoding="utf-8") as handle:
        handle.write(json.dumps(PICTS) + "\n")
    assert only(path)[0].title == "Picts"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match="The compressed data cannot be read"):
        list(read_articles(path))


def with_link(link):
    return {"title": "A", "sections": [{"paragraphs": [{"text": "A word.", "links": [link]}]}]}


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{", "The line is not JSON"),
        ("[]", "not a JSON object"),
        ({"text": "A"}, "no 'title' with a 'text' or 'sections'; the line has 'text'"),
        ({"title": "A"}, "no 'title' with a 'text' or 'sections'"),
        ({"title": "A", "text": None, "sections": None}, "no 'title' with a 'text'"),
        ({"title": "A", "text": 3}, "'text' must hold a text, got a int"),
        ({"title": "A", "id": [], "text": "B"}, "'id' must be a text or a whole number"),
        ({"title": "A", "sections": {}}, "'sections' must hold a list, got a dict"),
        ({"title": "A", "sections": ["A"]}, r"'sections\[0\]' must hold an object"),
        ({"title": "A", "sections": [{"paragraphs": "A"}]}, "'paragraphs' must hold a list"),
        ({"title": "A", "sections": [{"paragraphs": [{}]}]}, "'text' must hold a text, got noth"),
        ({"title": "A", "sections": [{"level": "2"}]}, "'level' must hold a whole number"),
        (
            {"title": "A", "sections": [{"paragraphs": ["A"], "mentions": []}]},
            "1 'paragraphs' and 0 'mentions'",
        ),
        ({"title": "A", "sections": [], "links_in_set": [1]}, "'links_in_set' must hold a text"),
        (with_link([0, 8, "B"]), "covers no words: it goes from 0 to 8 in a paragraph of 7 char"),
        (with_link([3, 3, "B"]), "covers no words"),
        (with_link([1, 2, "B"]), "covers no words"),
        (with_link([-2, 2, "B"]), "covers no words"),
        (with_link({"start": 0, "end": 2, "target": "B"}), "not a start, a stop and a target"),
        (with_link([0, True, "B"]), "not a start, a stop and a target"),
        (with_link([0, 1]), "is not a link"),
        (with_link(5), "is not a link"),
    ],
)
def test_what_cannot_be_read_names_its_line(tmp_path, record, message):
    path = write(tmp_path / "a.jsonl", PICTS, record)
    with pytest.raises(DataError, match=message) as caught:
        list(read_articles(path))
    assert (caught.value.path, caught.value.line) == (str(path), 2)


def test_half_a_character_is_replaced_and_every_text_can_be_stored(tmp_path):
    links = [[2, 6, "T\ud83d"]]
    sections = [{"paragraphs": [{"text": "\ud83d word \ude00.", "links": links}]}]
    article, _ = only(write(tmp_path / "a.jsonl", {"title": "A\udfff", "sections": sections}))
    (paragraph,) = article.sections[0].paragraphs
    assert words(paragraph) == [("word", "T\ufffd")]
    json.dumps(article, ensure_ascii=False).encode("utf-8")


@given(
    text=st.text(alphabet="ab AB.é"),
    titles=st.lists(st.text(alphabet="ab AB.é", max_size=4)),
)
def test_placed_links_are_their_titles_and_lie_apart(text, titles):
    found = links_at(text, titles)
    assert found == sorted(found)
    for link in found:
        assert text[link.start : link.stop].casefold() == link.target.casefold()
        assert link.target in titles
    assert all(one.stop <= other.start for one, other in pairwise(found))
    assert len({link.target for link in found}) == len(found)


def test_placed_links_leave_what_is_taken():
    assert links_at("York, York", ["York"], taken=[Link(0, 4, "x")]) == [Link(6, 10, "York")]


@given(
    before=st.text(alphabet=" \n\tx", max_size=4),
    word=st.text(alphabet="aé😀", min_size=1, max_size=5),
    after=st.text(alphabet=" \nx.", max_size=4),
)
def test_offsets_are_right_whatever_space_is_around(tmp_path_factory, before, word, after):
    text = before + word + after
    link = [len(before), len(before) + len(word), "Target"]
    record = {"title": "A", "sections": [{"paragraphs": [{"text": text, "links": [link]}]}]}
    article, _ = only(write(tmp_path_factory.mktemp("offsets") / "a.jsonl", record))
    (paragraph,) = article.sections[0].paragraphs
    assert words(paragraph) == [(word, "Target")]
    assert all(0 <= start < stop <= len(paragraph.text) for start, stop in paragraph.sentences)

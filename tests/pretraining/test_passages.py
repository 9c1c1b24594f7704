import pytest
from tiny_corpora import paragraph

from polyrank.pretraining.passages import count_words, passages_of, runs, without
from polyrank.records import Paragraph, Section


def passages(limit, *paragraphs):
    return list(passages_of(Section("", 1, paragraphs), limit))


def words(count, start=0):
    return " ".join(f"w{number}" for number in range(start, start + count)) + "."


def test_paragraphs_are_merged_up_to_the_limit():
    texts = [f"A{number} {words(9)}" for number in range(5)]
    found = passages(25, *map(paragraph, texts))
    assert [one.text for one in found] == [
        f"{texts[0]} {texts[1]}",
        f"{texts[2]} {texts[3]}",
        texts[4],
    ]
    assert [one.words for one in found] == [20, 20, 10]


def test_a_long_paragraph_is_cut_at_sentence_ends_into_like_parts():
    text = " ".join(f"S{number} {words(9)}" for number in range(11))
    found = passages(50, paragraph(text))
    assert [one.words for one in found] == [40, 40, 30]
    assert " ".join(one.text for one in found) == text


def test_a_sentence_longer_than_the_limit_is_a_passage():
    found = passages(10, paragraph(f"Short one. B {words(30)} Then c."))
    assert [one.words for one in found] == [2, 31, 2]


def test_sentences_are_where_they_were():
    first = paragraph("  One two. Three four!  Five?")
    second = paragraph("Six seven.\nEight nine.")
    (found,) = passages(50, first, second)
    assert [found.text[start:stop] for start, stop in found.sentences] == [
        "One two.",
        "Three four!",
        "Five?",
        "Six seven.",
        "Eight nine.",
    ]


def test_links_go_with_their_words():
    text = f"A sees Paris. {words(8)} B sees Rome. {words(8)}"
    found = passages(12, paragraph(text, "Paris", "Rome"))
    assert [one.targets for one in found] == [("Paris",), ("Rome",)]
    (merged,) = passages(50, paragraph("To Rome.", "Rome"), paragraph("From Rome.", "Rome"))
    assert merged.targets == ("Rome",)


def test_nothing_of_a_blank_section():
    assert passages(10) == []
    assert passages(10, Paragraph("  ", ()), Paragraph(" x ", ((0, 1),))) == []


@pytest.mark.parametrize(
    "lengths", [[], [1], [5] * 3, [99, 1, 1], [1, 1, 99], [9] * 50, [3, 17, 2]]
)
def test_runs_cover_all_and_stay_below_the_limit(lengths):
    counts = list(runs(lengths, 20))
    assert sum(counts) == len(lengths)
    place = 0
    for count in counts:
        assert count == 1 or sum(lengths[place : place + count]) <= 20
        place += count


def test_words_of_scripts_without_spaces_count():
    assert count_words("three short words") == 3
    assert count_words("비가 온다.") == 2
    assert count_words("これは猫です。犬はいない。") > 4
    assert count_words("") == 0


@pytest.mark.parametrize(
    ("spans", "left"),
    [
        ([(0, 2)], "B. C."),
        ([(3, 5)], "A. C."),
        ([(6, 8)], "A. B."),
        ([(0, 2), (6, 8)], "B."),
        ([], "A. B. C."),
        ([(0, 8)], ""),
    ],
)
def test_taking_sentences_out_leaves_single_spaces(spans, left):
    assert without("A. B. C.", spans) == left


def test_taking_out_adds_no_space_where_there_was_none():
    assert without("猫。犬。鳥。", [(2, 4)]) == "猫。鳥。"

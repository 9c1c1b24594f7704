import time

import pytest

from polyrank.data.sentences import sentence_spans


def sentences(text):
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    "parts",
    [
        ["One.", "Two!", "Three?", "4 is even."],
        ["Dr. Smith and J. R. Jones met at 3.5 p.m. today.", "They left."],
        ["He said “no.”", "(She did not.)", "Then it ended…", "So."],
        ["It lies in the U.S. and, e.g. in spring, blooms vs. withers.", "Yes."],
        ["Is it I?", "It is I.", "Pi is 3.14, or so."],
        ["비가 온다.", "우산이 없다!"],
    ],
)
def test_sentences_end_where_they_should(parts):
    assert sentences("  ".join(parts)) == parts


def test_some_ends_need_no_space():
    assert sentences("これは猫です。犬は？いいえ") == ["これは猫です。", "犬は？", "いいえ"]
    assert sentences("a title\nThe text") == ["a title", "The text"]
    assert sentences(" \n ") == []


def test_spans_cover_all_but_space():
    text = " A. b c.\n\nD? e! F etc. G "
    covered = "".join(sentences(text))
    assert covered.replace(" ", "") == "".join(text.split())


@pytest.mark.parametrize("text", ["?!" * 100_000, "A? " * 200_000, "?" + ")" * 200_000])
def test_time_is_linear_in_the_text(text):
    """If each sign were tried anew, or the rest copied at each end, this would take minutes."""
    start = time.process_time()
    assert "".join(sentences(text)).replace(" ", "") == text.replace(" ", "")
    assert time.process_time() - start < 10

import json

import pytest

from polyrank.data.json_array import read_json_array
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


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_arrays_are_read_piece_by_piece(chunk, indent, tmp_path, monkeypatch):
    monkeypatch.setattr("polyrank.data.json_array.CHUNK", chunk)
    items = [{"a": [1, 2]}, 12345, "tęxt, ] [", -1.5e3, None, [], {"b": "\n"}]
    path = tmp_path / "array.json"
    path.write_text(json.dumps(items, indent=indent, ensure_ascii=False), encoding="utf-8")
    found = list(read_json_array(path))
    assert [item for _, item in found] == items
    lines = path.read_text(encoding="utf-8").split("\n")
    if indent:
        assert [line for line, _ in found] == [
            number
            for number, text in enumerate(lines, start=1)
            if text[:1] == " " and text[1:2] not in (" ", "}", "]")
        ]
    path.write_text("[ ]")
    assert list(read_json_array(path)) == []

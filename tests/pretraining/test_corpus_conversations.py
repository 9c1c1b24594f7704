"""Conversations as JSON lines: the two forms, what is dropped, and what cannot be read."""

from __future__ import annotations

import json
import lzma

import pytest

from polyrank.errors import DataError
from polyrank.pretraining.corpus.conversations import (
    BEGINNING,
    EMPTY_TURN,
    NO_TURNS,
    read_conversations,
)
from polyrank.pretraining.corpus.source import Dropped
from polyrank.records import Conversation, Turn


def write(path, *records):
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_turns_with_and_without_speakers(tmp_path):
    record = {
        "id": "log#9",
        "turns": [{"speaker": "ann", "text": " Hi \ud83d", "line": 4}, {"text": "Hello."}, "Bye."],
    }
    found = list(read_conversations(write(tmp_path / "c.jsonl", record, "", {"turns": ["Alone."]})))
    assert found == [
        Conversation("log#9", (Turn("ann", "Hi \ufffd"), Turn("", "Hello."), Turn("", "Bye."))),
        Conversation("3", (Turn("", "Alone."),)),
    ]


@pytest.mark.parametrize("name", ["utterances", "messages", "dialog", "dialogue"])
def test_turns_by_other_names(tmp_path, name):
    record = {name: [{"role": "user", "content": "Hi."}, {"speaker": 2, "text": "Hello."}]}
    assert list(read_conversations(write(tmp_path / "c.jsonl", record))) == [
        Conversation("1", (Turn("user", "Hi."), Turn("2", "Hello.")))
    ]


def test_empty_turns_are_dropped_and_counted(tmp_path):
    records = [{"turns": [" ", "Yes?", {"speaker": 3, "text": ""}]}, {"turns": []}, {"turns": [""]}]
    assert list(read_conversations(write(tmp_path / "c.jsonl", *records))) == [
        Dropped(EMPTY_TURN, "line 1, turn 1"),
        Dropped(EMPTY_TURN, "line 1, turn 3"),
        Conversation("1", (Turn("", "Yes?"),)),
        Dropped(NO_TURNS, "line 2"),
        Dropped(EMPTY_TURN, "line 3, turn 1"),
        Dropped(NO_TURNS, "line 3"),
    ]


def test_examples_become_conversations(tmp_path):
    records = [
        {"id": "a", "context": "One?", "response": "Two.", "candidates": ["Two.", "x"], "gold": 0},
        {"id": "b", "context": ["Three?", "Four.", ""], "response": "Five."},
    ]
    assert list(read_conversations(write(tmp_path / "c.jsonl", *records))) == [
        Conversation("a", (Turn("", "One?"), Turn("", "Two."))),
        Dropped(EMPTY_TURN, "line 2, turn 3"),
        Conversation("b", (Turn("", "Three?"), Turn("", "Four."), Turn("", "Five."))),
    ]


def test_an_example_that_the_next_one_continues_is_not_repeated(tmp_path):
    records = [
        {"id": "1", "context": ["a"], "response": "b"},
        {"id": "2", "context": ["a", "b"], "response": "c"},
        {"id": "3", "context": ["a", "b", "c", "d"], "response": "e"},
        {"id": "4", "context": ["a"], "response": "x"},
        {"id": "5", "turns": ["a", "x", "y"]},
    ]
    found = list(read_conversations(write(tmp_path / "c.jsonl", *records)))
    assert [item.id for item in found if isinstance(item, Conversation)] == ["3", "4", "5"]
    assert [item for item in found if isinstance(item, Dropped)] == [
        Dropped(BEGINNING, "line 1"),
        Dropped(BEGINNING, "line 2"),
    ]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ("{'turns': []}", "The line is not JSON"),
        ("3", "not a JSON object"),
        ({}, "neither 'turns' nor 'context' and 'response', but no field"),
        ({"context": "a"}, "neither 'turns' nor 'context' and 'response', but 'context'"),
        ({"context": [], "response": "a"}, "'context' is an empty list"),
        ({"context": "a", "response": None}, "'response' must be a text, got NoneType"),
        ({"turns": "a"}, "'turns' must be a list, got str"),
        ({"turns": ["a", {"speaker": "b"}]}, r"turns\[1\] must be a text or an object"),
        ({"turns": [4]}, r"turns\[0\] must be a text or an object"),
        ({"turns": [{"text": "a", "speaker": []}]}, r"'speaker' of turns\[0\] must be a text"),
        ({"turns": ["a"], "id": 1.5}, "'id' must be a text or a whole number"),
    ],
)
def test_what_cannot_be_read_names_its_line(tmp_path, record, message):
    path = write(tmp_path / "c.jsonl", {"turns": ["a"]}, record)
    reading = read_conversations(path)
    assert isinstance(next(reading), Conversation)
    with pytest.raises(DataError, match=message) as caught:
        next(reading)
    assert (caught.value.path, caught.value.line) == (str(path), 2)


def test_a_file_that_is_cut_off_gives_what_it_holds_and_says_so(tmp_path):
    path = tmp_path / "c.jsonl.xz"
    lines = "".join(
        json.dumps({"turns": [f"{n * 7919 % 10007} is said."]}) + "\n" for n in range(9000)
    )
    path.write_bytes(lzma.compress(lines.encode())[:-2000])
    found = []
    with pytest.raises(DataError, match="damaged or truncated"):
        found.extend(read_conversations(path))
    assert found


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match="There is no such file"):
        list(read_conversations(tmp_path / "none.jsonl"))

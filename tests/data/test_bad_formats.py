"""What is wrong in a file is said once, with the file and the line or the place in it."""

import copy
import gzip
import json

import pytest

from polyrank.data.loading import load_records
from polyrank.errors import DataError, InputError
from true_formats import (
    BEIR,
    DIALOGUES,
    FIXTURES,
    NATURAL_QUESTION,
    SNLI,
    SQUAD,
    T,
    lines,
    write_beir,
)


def changed(record, *path, to):
    """A copy of nested JSON with the value at `path` replaced, or left out for None."""
    record = copy.deepcopy(record)
    inner = record
    for step in path[:-1]:
        inner = inner[step]
    if to is None:
        del inner[path[-1]]
    else:
        inner[path[-1]] = to
    return record


LAST = -1
SECOND_DIALOGUE = 2 + json.dumps(DIALOGUES[:1], indent=1).count("\n") - 1
PARAGRAPH = ("data", 0, "paragraphs", 0)
BAD = {
    # truncated
    "examples cut off": (
        "a.jsonl",
        '{"context": "a", "response": "b"}\n{"context": "a", "resp',
        2,
        "not JSON",
    ),
    "convai2 cut off": ("a.txt", f"1 hi{T}yo{T}{T}a|yo\n2 you{T}me{T}{T}b|c", 2, "not among the 2"),
    "parlai cut off": ("a.txt", f"text:a{T}labels:b\n", 1, "does not end"),
    "ubuntu cut off": ("a.csv", 'Context,Utterance,Label\na,b,1\n"a,b', 3, "not CSV"),
    "dstc7 cut off": ("a.json", json.dumps(DIALOGUES, indent=1)[:-60], LAST, "not JSON"),
    "dstc7 ends early": ("a.json", json.dumps(DIALOGUES, indent=1)[:-2], LAST, "premature EOF"),
    "tab cut off": ("a.tsv", f"1{T}a{T}b{T}c\n0{T}a", 2, "2 columns; at least 3"),
    "wikipedia cut off": (
        "a.jsonl",
        '{"title": "a", "text": "b. C."}\n{"title": "a',
        2,
        "not JSON",
    ),
    "nli cut off": ("a.tsv", f"sentence1{T}sentence2{T}gold_label\na{T}b", 2, "2 columns; 3 are"),
    "sts cut off": ("a.tsv", f"g{T}f{T}y{T}1{T}5.0{T}a{T}b\ng{T}f", 2, "2 columns; at least 7"),
    "squad cut off": ("a.json", json.dumps(SQUAD, indent=1)[:-30], LAST, "not JSON"),
    "natural questions cut off": (
        "a.jsonl",
        lines([NATURAL_QUESTION]) + lines([NATURAL_QUESTION])[:-9],
        2,
        "not JSON",
    ),
    "pairs cut off": ("a.csv", "first,second,label\na,b,1\nc", 3, "1 columns; 3 are"),
    "table cut off": ("a.tsv", f"question{T}answer\na{T}b\nc", 3, "1 columns; 2 are"),
    # wrong columns and fields
    "convai2 columns": ("a.txt", f"1 hi{T}a{T}b{T}a{T}e", 1, "5 columns; 2 to 4"),
    "convai2 no label": ("a.txt", "1 hi", 1, "1 columns; 2 to 4"),
    "convai2 numbers": ("a.txt", f"1 hi{T}a\n3 hi{T}a", 2, "number 3 after 1; 2 or 1"),
    "convai2 no number": ("a.txt", f"1 hi{T}a\nhi{T}a", 2, "not with a number"),
    "parlai no colon": ("a.txt", f"text:a{T}labels", 1, "not a field: it has no colon"),
    "parlai no labels": (
        "a.txt",
        f"text:a{T}label:b",
        1,
        "'labels' is missing; there are text, la",
    ),
    "parlai twice": ("a.txt", f"text:a{T}text:b{T}labels:c", 1, "'text' appears twice"),
    "parlai done": ("a.txt", f"text:a{T}labels:c{T}episode_done:1", 1, "not True or False"),
    "ubuntu columns": ("a.csv", "Context,Utterance,Label\na,b,1\na,b,1,2\n", 3, "4 columns; 3 are"),
    "ubuntu distractors": ("a.csv", "Context,Ground Truth Utterance\na,b\n", 2, "Distractor_0"),
    "csv quotes": ("a.csv", 'question,answer\n"a"b,c\n', 2, "not CSV"),
    "two equal columns": ("a.csv", "question,answer,answer\na,b,c\n", 1, "called 'answer'"),
    "nli columns": ("a.tsv", f"sentence1{T}sentence2{T}gold_label\na{T}b{T}c{T}d", 2, "4 columns"),
    "nli field": ("a.jsonl", lines([SNLI[0], changed(SNLI[0], "sentence2", to=None)]), 2, "second"),
    "sts no score": ("a.tsv", f"score{T}sentence1{T}sentence2\n5{T}a\n", 2, "2 columns; 3"),
    "table number": ("a.jsonl", '{"question": 5, "answer": "a"}\n', 1, "'context' is an|empty|be"),
    "array of texts": ("a.json", '[{"question": "a", "answer": "b"},\n "a"]', 2, "str, not an obj"),
    # labels
    "ubuntu label": ("a.csv", "Context,Utterance,Label\na,b,2\n", 2, "label is '2', not 0 or 1"),
    "tab label": ("a.tsv", f"1{T}a{T}b{T}c\n2{T}a{T}b{T}c", 2, "label is '2', not 0 or 1"),
    "nli label": ("a.jsonl", lines([SNLI[0], SNLI[0] | {"gold_label": "neutrl"}]), 2, "neutral"),
    "nli number": ("a.jsonl", lines([SNLI[0], SNLI[0] | {"gold_label": 1}]), 2, "label is 1, not"),
    "sts label": ("a.tsv", f"score{T}sentence1{T}sentence2\n5.1{T}a{T}b\n", 2, "0 to 5, got '5.1'"),
    "sts no number": ("a.tsv", f"score{T}sentence1{T}sentence2\nx{T}a{T}b\n", 2, "0 to 5, got 'x'"),
    "sts not finite": ("a.tsv", f"score{T}sentence1{T}sentence2\nnan{T}a{T}b\n", 2, "got 'nan'"),
    "pairs score": ("a.csv", "first,second,label\na,b,.5\na,b,3\n", 3, "must be from 0 to 1"),
    "pairs class": ("a.csv", "first,second,label\na,b,1\na,b,-1\n", 3, "class is -1"),
    "pairs label": ("a.csv", "first,second,label\na,b,same\n", 2, "must be a number, got 'same'"),
    "examples scores": (
        "a.jsonl",
        '{"context": "a", "response": "b", "scores": [1, 2]}',
        1,
        "1 numb",
    ),
    "examples no scores": (
        "a.jsonl",
        '{"context": "a", "response": "b", "scores": [NaN]}',
        1,
        "list of 1 numbers",
    ),
    # responses that are no candidates
    "examples response": (
        "a.jsonl",
        '{"context": "a", "response": "b", "candidates": ["c", "d"]}',
        1,
        "not among its 2",
    ),
    "parlai response": ("a.txt", f"text:a{T}labels:b{T}label_candidates:c|d", 1, "not among the 2"),
    "dstc7 response": (
        "a.json",
        json.dumps([changed(DIALOGUES[0], "options-for-next", 1, to={"utterance": "z"})]),
        1,
        "dialogue 17, 'd', is not among its 3",
    ),
    "table response": (
        "a.jsonl",
        '{"question": "a", "answer": "b", "candidates": ["c"]}',
        1,
        "not among its 1",
    ),
    # other places
    "dstc7 utterance": (
        "a.json",
        json.dumps([DIALOGUES[0], changed(DIALOGUES[1], "messages-so-far", 0, to={})], indent=1),
        SECOND_DIALOGUE,
        r"Dialogue 18: messages-so-far\[0\]",
    ),
    "dstc7 no answer": (
        "a.json",
        json.dumps([changed(DIALOGUES[0], "options-for-correct-answers", to=[])]),
        1,
        "no correct answer",
    ),
    "squad answer": (
        "a.json",
        json.dumps(changed(SQUAD, *PARAGRAPH, "qas", 0, "answers", 1, "answer_start", to=3)),
        None,
        r"At \$.data\[0\].paragraphs\[0\].qas\[0\].answers\[1\]: The answer 'in 1950'",
    ),
    "squad context": (
        "a.json",
        json.dumps(changed(SQUAD, *PARAGRAPH, "context", to=None)),
        None,
        r"At \$.data\[0\].paragraphs\[0\]: There is no text 'context'",
    ),
    "natural questions span": (
        "a.jsonl",
        lines([changed(NATURAL_QUESTION, "annotations", 0, "long_answer", "end_token", to=99)]),
        1,
        "tokens 3 to 99 of a document of 22",
    ),
    "natural questions field": (
        "a.jsonl",
        lines([NATURAL_QUESTION, changed(NATURAL_QUESTION, "annotations", to="x")]),
        2,
        "no list 'annotations'",
    ),
    "wikipedia field": (
        "a.jsonl",
        lines([{"title": "a", "text": "B. C."}, {"title": "a"}]),
        2,
        "no 'title' and 'text'",
    ),
    # ids that stand twice
    "examples ids": (
        "a.jsonl",
        2 * '{"id": 1, "context": "a", "response": "b"}\n',
        2,
        "that of line 1",
    ),
    "table ids": ("a.csv", "id,question,answer\n1,a,b\n1,c,d\n", 3, "'1' is also that of line 2"),
    "pairs ids": (
        "a.csv",
        "id,first,second,label\n1,a,b,0\n1,c,d,1\n",
        3,
        "'1' is also that of line 2",
    ),
    "dstc7 ids": (
        "a.json",
        json.dumps(DIALOGUES[:1] * 2),
        1,
        "'17' is also that of the dialogue at",
    ),
    "squad ids": (
        "a.json",
        json.dumps(changed(SQUAD, *PARAGRAPH, "qas", 1, "id", to="q1")),
        None,
        r"qas\[1\]: The id 'q1' is also that of \$.data\[0\].paragraphs\[0\].qas\[0\]",
    ),
    "natural questions ids": (
        "a.jsonl",
        lines([NATURAL_QUESTION] * 2),
        2,
        "'55' is also that of line 1",
    ),
    "wikipedia ids": (
        "a.jsonl",
        lines([{"id": "1", "title": "a", "text": "B. C."}] * 2),
        2,
        "'1' is also that of line 1",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_names_file_and_line(case, tmp_path):
    name, text, line, message = BAD[case]
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message) as caught:
        load_records(path)
    assert caught.value.line == (1 + text.count("\n") if line == LAST else line)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda it: f"{it.format}-{it.name}")
def test_mixed_encodings_name_the_line(fixture, tmp_path):
    path = tmp_path / fixture.name
    whole = fixture.text.rstrip("\n").encode()
    path.write_bytes(whole + " é".encode("latin-1") + b"\n")
    with pytest.raises(DataError, match="not UTF-8") as caught:
        load_records(path, format=fixture.format)
    assert caught.value.line == 1 + whole.count(b"\n")


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda it: f"{it.format}-{it.name}")
def test_cut_off_compression_names_the_file(fixture, tmp_path):
    path = tmp_path / f"{fixture.name}.gz"
    path.write_bytes(gzip.compress(fixture.text.encode())[:-12])
    with pytest.raises(DataError, match="compressed data cannot be read") as caught:
        load_records(path, format=fixture.format)
    assert str(path) in str(caught.value)


def complaint(path, format):
    """The error of reading a file, in words; none where it can be read."""
    try:
        load_records(path, format=format)
    except InputError as error:
        return str(error)
    return str(path)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda it: f"{it.format}-{it.name}")
def test_a_file_that_is_cut_anywhere_gives_no_unmeant_error(fixture, tmp_path):
    path = tmp_path / fixture.name
    for cut in range(0, len(fixture.text), 1 + len(fixture.text) // 60):
        path.write_text(fixture.text[:cut], encoding="utf-8")
        assert str(path) in complaint(path, fixture.format)
        assert str(path) in complaint(path, "auto")


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda it: f"{it.format}-{it.name}")
def test_a_file_of_another_format_gives_no_unmeant_error(fixture, tmp_path):
    for other in FIXTURES:
        path = tmp_path / other.name
        path.write_text(other.text, encoding="utf-8")
        assert str(path) in complaint(path, fixture.format)


def test_an_empty_file_says_so(tmp_path):
    for fixture in FIXTURES:
        path = tmp_path / fixture.name
        path.write_text("")
        with pytest.raises(DataError) as caught:
            load_records(path, format=fixture.format)
        assert str(path) in str(caught.value)


def test_scores_that_are_not_from_0_to_5_are_noticed(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"sentence1": "a", "sentence2": "b", "score": n / 200} for n in range(200)]
    path.write_text(lines(rows))
    with pytest.raises(DataError, match="None of the 200 scores is above 1"):
        load_records(path, format="sts")
    assert load_records(path)[100].label == 0.5


BAD_BEIR = {
    "corpus id": (
        {"corpus.jsonl": [BEIR["corpus.jsonl"][0]] * 2},
        "corpus.jsonl",
        2,
        "that of line 1",
    ),
    "query id": (
        {"queries.jsonl": [BEIR["queries.jsonl"][0]] * 2},
        "queries.jsonl",
        2,
        "that of line 1",
    ),
    "no id": (
        {"corpus.jsonl": [{"id": "d1", "text": "a"}]},
        "corpus.jsonl",
        1,
        "'_id' must be a text",
    ),
    "no text": ({"corpus.jsonl": [{"_id": "d1"}]}, "corpus.jsonl", 1, "no text 'text'"),
    "no query": ({"queries.jsonl": [{"_id": "d1"}]}, "queries.jsonl", 1, "no text 'text'"),
    "columns": ({"qrels/test.tsv": f"h\nq1{T}d1\n"}, "qrels/test.tsv", 2, "2 columns; 3 are"),
    "grade": ({"qrels/test.tsv": f"h\nq1{T}d1{T}x\n"}, "qrels/test.tsv", 2, "'x' is not a whole"),
    "unknown document": (
        {"qrels/test.tsv": f"h\nq1{T}d9{T}1\n"},
        "qrels/test.tsv",
        2,
        "document 'd9' is not in corpus.jsonl",
    ),
    "unknown query": (
        {"qrels/test.tsv": f"h\nq9{T}d1{T}1\n"},
        "qrels/test.tsv",
        2,
        "query 'q9' is not in queries.jsonl",
    ),
    "twice": ({"qrels/test.tsv": f"h\nq1{T}d1{T}1\nq1{T}d1{T}0\n"}, "qrels/test.tsv", 3, "twice"),
    "nothing": ({"qrels/test.tsv": "h\n"}, "qrels/test.tsv", None, "no judgement"),
    "cut off": ({"corpus.jsonl": '{"_id": "a", "te'}, "corpus.jsonl", 1, "not JSON"),
}


@pytest.mark.parametrize("case", BAD_BEIR)
def test_bad_beir_folders_name_file_and_line(case, tmp_path):
    parts, name, line, message = BAD_BEIR[case]
    folder = write_beir(tmp_path, {**BEIR, **parts})
    with pytest.raises(DataError, match=message) as caught:
        load_records(folder)
    assert caught.value.line == line
    assert str(caught.value).startswith(str(folder / name))


@pytest.mark.parametrize("missing", ["corpus.jsonl", "queries.jsonl", "qrels"])
def test_folders_that_are_not_whole(missing, tmp_path):
    folder = write_beir(
        tmp_path, {name: BEIR[name] for name in BEIR if not name.startswith(missing)}
    )
    with pytest.raises(DataError, match=f"no {missing}"):
        load_records(folder, format="beir")
    with pytest.raises(DataError, match="not in BEIR's layout"):
        load_records(folder)


def test_damaged_parquet_is_named(tmp_path):
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    rows = [{"question": "a", "answer": None}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    with pytest.raises(DataError, match="no example; skipped: 1 row with an empty response"):
        load_records(path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="not a complete Parquet file") as caught:
        load_records(path)
    assert str(path) in str(caught.value)


def test_a_file_that_is_missing_says_so(tmp_path):
    for fixture in FIXTURES:
        for format in (fixture.format, "auto"):
            with pytest.raises(DataError, match="no such file"):
                load_records(tmp_path / fixture.name, format=format)

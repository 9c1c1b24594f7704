import json
import lzma
from dataclasses import asdict
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from polyrank.data.format import Beginning
from polyrank.data.formats.labelled_pairs import CLASSES
from polyrank.data.hub import parse_address
from polyrank.data.loading import FORMATS, detect, load_examples, load_records
from polyrank.data.source import Source
from polyrank.errors import DataError, MissingExtraError, UsageError
from polyrank.records import Candidate, Example, LabelledPair, RetrievalSet
from true_formats import BEIR, FIXTURES, lines, write_beir

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
VARIANTS = ("convai2-no-persona", "dstc7-augmented")


def named(fixture):
    return f"{fixture.format}-{fixture.name}"


@pytest.fixture
def written(tmp_path):
    def write(fixture):
        path = tmp_path / fixture.name
        path.write_text(fixture.text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("fixture", FIXTURES, ids=named)
def test_the_true_form_is_read(fixture, written):
    path = written(fixture)
    said = []
    found = load_records(path, format=fixture.format, say=said.append)
    if FORMATS[fixture.format].gives == "retrieval":
        assert isinstance(found, RetrievalSet)
    else:
        assert found == fixture.records
        assert [type(record.label) for record in found if isinstance(record, LabelledPair)] == [
            type(record.label) for record in fixture.records if isinstance(record, LabelledPair)
        ]
    expected = [] if fixture.passed_over is None else [f"{path}: skipped {fixture.passed_over}."]
    assert [words for words in said if ": read as " not in words] == expected


@pytest.mark.parametrize("fixture", FIXTURES, ids=named)
def test_the_format_is_told_from_the_file(fixture, written):
    expected = fixture.format if fixture.format not in VARIANTS else fixture.format.split("-")[0]
    assert detect(written(fixture)) == expected


@pytest.mark.parametrize("fixture", FIXTURES, ids=named)
def test_one_format_alone_fits_best(fixture, written):
    beginning = Beginning(Source(path=written(fixture)))
    marked = [format.name for format in FORMATS.values() if format.has_mark(beginning)]
    fits = {format.name: format.fit(beginning) for format in FORMATS.values()}
    best = [name for name in fits if fits[name] == max(fits.values())]
    assert len(marked or best) == 1
    assert (marked or best)[0] == detect(beginning.path)


@pytest.mark.parametrize("fixture", FIXTURES, ids=named)
def test_what_is_compressed_or_marked_is_the_same(fixture, written):
    path = written(fixture)
    packed = path.with_name(path.name + ".xz")
    packed.write_bytes(lzma.compress(b"\xef\xbb\xbf" + fixture.text.replace("\n", "\r\n").encode()))
    assert detect(packed) == detect(path)
    assert load_records(packed, format=fixture.format) == load_records(path, format=fixture.format)


@pytest.mark.parametrize("fixture", FIXTURES, ids=named)
def test_what_is_trained_on(fixture, written):
    path = written(fixture)
    kind = FORMATS[fixture.format].gives
    trained = load_examples(path, format=fixture.format)
    if kind != "retrieval":
        assert trained == (fixture.records if fixture.training is None else fixture.training)
    assert load_examples(path, format=fixture.format, limit=1) == trained[:1]


def test_every_format_has_a_fixture_and_is_documented():
    assert {fixture.format for fixture in FIXTURES} | {"beir"} == set(FORMATS)
    rows = [
        line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    documented = [row.split("`")[1] for row in rows]
    assert sorted(name for name in documented if name in FORMATS) == sorted(FORMATS)
    for name, format in FORMATS.items():
        row = next(row for row in rows if row.startswith(f"| `{name}` |"))
        assert f"| {format.gives} |" in row, f"docs/data.md gives {name} another kind"
    for kind, number in CLASSES.items():
        assert f"{kind} {number}" in PAGE.read_text(encoding="utf-8")


def test_squad_gives_sentences_with_their_paragraph(written):
    fixture = next(fixture for fixture in FIXTURES if fixture.format == "squad")
    found = load_records(written(fixture))
    assert [candidate.text.partition(". ")[0] for candidate in found.corpus] == [
        "Dr",
        "He was born in 1950",
        "It is known! Dr",
    ]
    assert found.corpus[1].text.endswith("It is known!")
    assert found.queries == {"q1": "When was he born?"}
    assert found.judgements == {"q1": {found.corpus[1].id: 1}}
    assert found.split == "dev-v2"


def test_natural_questions_find_the_sentence_without_tags(written):
    fixture = next(fixture for fixture in FIXTURES if fixture.format == "natural-questions")
    found = load_records(written(fixture))
    paragraph = "Smith lives in Paris . He was born in 1950 ."
    assert found.corpus == [
        Candidate("55-0", f"Smith lives in Paris . {paragraph}"),
        Candidate("55-1", f"He was born in 1950 . {paragraph}"),
    ]
    assert found.judgements == {"55": {"55-1": 1}}


@pytest.mark.parametrize("compressed", [False, True])
def test_beir_folders_and_their_splits(compressed, tmp_path):
    folder = write_beir(tmp_path)
    if compressed:
        for name in BEIR:
            (folder / f"{name}.xz").write_bytes(lzma.compress((folder / name).read_bytes()))
            (folder / name).unlink()
    assert detect(folder) == "beir"
    found = load_records(folder)
    assert found.split == "test"
    assert found.corpus == [Candidate("d1", "Cats sleep."), Candidate("d2", "Dogs bark.")]
    assert found.queries == {"q2": "who barks", "q1": "who sleeps"}
    assert found.judgements == {"q2": {"d2": 2}, "q1": {"d1": 1}}
    assert load_records(folder, limit=1).queries == {"q2": "who barks"}
    assert load_records(folder, split="train").judgements == {"q1": {"d1": 1, "d2": 0}}
    expected = [Example(id="q1/d1", context="who sleeps", response="Cats sleep.")]
    assert load_examples(folder) == expected
    assert len(load_examples(folder, split="test", limit=1)) == 1
    with pytest.raises(UsageError, match=r"no split 'tset'\. Did you mean 'test'"):
        load_records(folder, split="tset")


def test_answers_of_dstc7_that_were_released_apart(tmp_path):
    fixture = next(fixture for fixture in FIXTURES if fixture.format == "dstc7")
    dialogues = json.loads(fixture.text)
    for dialogue in dialogues:
        del dialogue["options-for-correct-answers"]
    path = tmp_path / "ubuntu_test_subtask_1.json"
    path.write_text(json.dumps(dialogues))
    with pytest.raises(DataError, match="'options-for-correct-answers'"):
        load_records(path)
    answers = tmp_path / "ubuntu_responses_subtask_1.tsv"
    answers.write_text("17\tIDd\td\n18\tIDf\tf\n")
    assert load_records(path) == fixture.records


def test_columns_are_mapped_in_every_kind_of_file(tmp_path):
    rows = [{"text": "a", "category": "x"}, {"text": "b", "category": "y"}]
    columns = {"context": "text", "response": "category"}
    (tmp_path / "rows.csv").write_text("text,category\na,x\nb,y\n")
    (tmp_path / "rows.tsv").write_text("text\tcategory\na\tx\nb\ty\n")
    (tmp_path / "rows.jsonl").write_text(lines(rows))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    expected = [Example(context="a", response="x"), Example(context="b", response="y")]
    for name in ("rows.csv", "rows.tsv", "rows.jsonl", "rows.parquet"):
        assert load_records(tmp_path / name, columns=columns) == expected, name


def test_lists_in_parquet(tmp_path):
    rows = [{"context": ["a", "b"], "response": "x", "candidates": ["y", "x"], "id": 3}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "rows.parquet")
    expected = Example(id="3", context=("a", "b"), response="x", candidates=("y", "x"), gold=1)
    assert load_records(tmp_path / "rows.parquet") == [expected]


def test_pairs_by_mapped_columns(tmp_path):
    path = tmp_path / "quora.csv"
    path.write_text("q1,q2,same\na,b,1\nc,d,0\n")
    columns = {"first": "q1", "second": "q2", "label": "same"}
    assert detect(path, columns=columns) == "pairs"
    assert load_examples(path, columns=columns) == [
        LabelledPair(first="a", second="b", label=1),
        LabelledPair(first="c", second="d", label=0),
    ]


def test_columns_that_a_file_of_examples_does_not_have_are_no_hindrance(tmp_path):
    path = tmp_path / "own.jsonl"
    path.write_text(lines([{"context": "a", "response": "b"}]))
    said = []
    columns = {"context": "question"}
    assert load_records(path, columns=columns, say=said.append)[0].response == "b"
    assert said == [f"{path}: --columns has no effect on the format examples."]


def test_pairs_come_back_with_ids_turns_and_the_kind_of_their_labels(tmp_path):
    scores = [
        LabelledPair(first="a", second="b", label=1.0, id="x"),
        LabelledPair(first=("a", "ü"), second="b", label=0.0),
    ]
    classes = [LabelledPair(first="a", second="b", label=1)]
    for pairs in (scores, classes):
        records = [asdict(pair) for pair in pairs]
        (tmp_path / "pairs.jsonl").write_text(lines(records), encoding="utf-8")
        found = load_records(tmp_path / "pairs.jsonl")
        assert found == pairs
        assert [type(pair.label) for pair in found] == [type(pair.label) for pair in pairs]


def test_hub_addresses():
    assert parse_address(Path("hub:squad")) == ("squad", None, None)
    assert parse_address(Path("hub:org/name:validation")) == ("org/name", None, "validation")
    assert parse_address(Path("hub:glue:stsb")) == ("glue", "stsb", None)
    assert parse_address(Path("hub:glue:stsb:train")) == ("glue", "stsb", "train")
    with pytest.raises(UsageError, match="does not name a data set"):
        parse_address(Path("hub::train"))


def test_hub_sets_are_read_by_their_columns(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.csv").write_text("question,answer\na,x\n")
    (folder / "test.csv").write_text("question,answer\nb,y\n")
    assert detect(f"hub:{folder}") == "table"
    assert load_examples(f"hub:{folder}") == [Example(context="a", response="x")]
    assert load_records(Path(f"hub:{folder}")) == [Example(context="b", response="y")]
    assert load_records(f"hub:{folder}:train")[0].context == "a"
    columns = {"context": "answer", "response": "question"}
    assert load_records(f"hub:{folder}", split="train", columns=columns)[0].context == "x"
    with pytest.raises(UsageError, match="no split 'dev'"):
        load_records(f"hub:{folder}:dev")
    with pytest.raises(DataError, match="cannot be loaded"):
        load_records(f"hub:{tmp_path / 'nowhere'}")


def test_hub_classes_go_by_their_names(monkeypatch):
    import datasets

    names = ["entailment", "neutral", "contradiction"]
    features = datasets.Features(
        {
            "premise": datasets.Value("string"),
            "hypothesis": datasets.Value("string"),
            "label": datasets.ClassLabel(names=names),
        }
    )
    rows = {"premise": ["a", "b", "c"], "hypothesis": ["d", "e", "f"], "label": [2, -1, 0]}
    found = datasets.DatasetDict({"train": datasets.Dataset.from_dict(rows, features=features)})
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config: found)
    assert [pair.label for pair in load_records("hub:snli")] == [0, 1]
    columns = {"first": "premise", "second": "hypothesis", "label": "label"}
    with pytest.raises(DataError, match="At row 2: The class is -1"):
        load_records("hub:snli", columns=columns)


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r'pip install "polyrank\[hub\]"'):
        load_records("hub:squad", format="table")


def test_an_unknown_format_names_the_nearest(tmp_path):
    with pytest.raises(UsageError, match=r"no format 'convai'\. Did you mean 'convai2'"):
        load_records(tmp_path / "x", format="convai")


def test_an_unknown_field_names_the_nearest(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match=r"no field 'contxt'\. Did you mean 'context'"):
        load_records(path, columns={"contxt": "a"})


def test_a_pipe_is_not_touched_before_it_is_read(tmp_path):
    import os
    import threading

    path = tmp_path / "pipe"
    os.mkfifo(path)
    text = lines([{"context": "a", "response": "b"}])
    writer = threading.Thread(target=lambda: path.write_text(text))
    writer.start()
    assert load_records(path) == [Example(context="a", response="b")]
    writer.join()


def test_reading_texts_loads_no_heavy_package():
    import subprocess
    import sys

    code = (
        "import sys, polyrank.data.loading, polyrank.cli.data\n"
        "print([n for n in ('torch', 'transformers', 'numpy', 'pyarrow', 'datasets') "
        "if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

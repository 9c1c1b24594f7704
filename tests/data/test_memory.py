"""Rows in memory are read as the same rows of a file: lists, data sets, generators."""

import json

import pytest
import torch

from polyrank.data.loading import load_examples, load_records
from polyrank.errors import DataError, UsageError
from polyrank.records import Candidate, Example, LabelledPair, RetrievalSet

ROWS = [{"question": f"how {row}", "answer": f"so {row}"} for row in range(6)]
EXAMPLES = [Example(context=f"how {row}", response=f"so {row}") for row in range(6)]
PAIRS = [LabelledPair(first=f"a {row}", second=f"b {row}", label=row / 5) for row in range(6)]
CLASSES = ["contradiction", "entailment", "neutral"]


class MapStyle:
    """A data set of torch: places and a length."""

    def __len__(self):
        return len(ROWS)

    def __getitem__(self, place):
        return ROWS[place]


class Streamed(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(ROWS)


def generator():
    yield from ROWS


def sets():
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_list(ROWS)
    return whole, whole.to_iterable_dataset(), datasets.DatasetDict({"train": whole})


@pytest.mark.parametrize("place", range(3))
def test_a_data_set_of_the_library_datasets_is_read(place):
    assert load_examples(sets()[place]) == EXAMPLES
    assert load_examples(sets()[place], limit=2) == EXAMPLES[:2]


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        tuple(ROWS),
        MapStyle(),
        Streamed(),
        generator(),
        [(one.context, one.response) for one in EXAMPLES],
        EXAMPLES,
        iter(EXAMPLES),
    ],
    ids=["dicts", "tuple", "torch", "iterable", "generator", "tuples", "records", "stream"],
)
def test_whatever_can_be_iterated_is_read(data):
    assert load_examples(data) == EXAMPLES


def test_rows_in_memory_are_read_as_the_rows_of_a_file(tmp_path):
    rows = [
        {"query": ["hi", "how"], "positive": "so", "negatives": ["no", "never"], "id": 7},
        {"query": "what", "positive": "this", "negatives": [], "id": 8},
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    as_tuples = [{**row, "query": tuple(row["query"])} for row in rows[:1]] + rows[1:]
    assert load_examples(rows) == load_examples(as_tuples) == load_examples(path)


def test_tuples_say_what_they_are_by_their_length():
    triples = [
        ("how", "so", "no"),
        ("what", "this", "that", "other"),
        (("hi", "how"), "so", ("x",)),
    ]
    assert load_examples(triples) == [
        Example(context="how", response="so", negatives=("no",)),
        Example(context="what", response="this", negatives=("that", "other")),
        Example(context=("hi", "how"), response="so", negatives=("x",)),
    ]
    assert load_examples([(one.first, one.second, one.label) for one in PAIRS]) == PAIRS


def test_labelled_pairs_have_the_usual_columns():
    rows = [{"sentence1": one.first, "sentence2": one.second, "score": one.label} for one in PAIRS]
    assert load_examples(rows) == PAIRS
    for name in ("label", "score"):
        shares = [{"text1": "a", "text2": "b", name: value} for value in (0.0, 0.5)]
        assert [pair.label for pair in load_examples(shares)] == [0.0, 0.5]


def test_classes_of_a_data_set_keep_their_names():
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "premise": datasets.Value("string"),
            "hypothesis": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["entailment", "neutral", "contradiction"]),
        }
    )
    rows = {"premise": ["a", "b"], "hypothesis": ["c", "d"], "label": [0, 2]}
    found = load_examples(datasets.Dataset.from_dict(rows, features=features))
    assert [(pair.label, pair.class_name) for pair in found] == [
        (1, "entailment"),
        (0, "contradiction"),
    ]


def test_columns_can_be_named():
    rows = [{"asked": "how", "said": "so", "question": "no"}]
    columns = {"context": "asked", "response": "said"}
    assert load_examples(rows, columns=columns) == [Example(context="how", response="so")]


def test_no_more_is_read_from_a_generator_than_is_needed():
    taken = []

    def endless():
        row = 0
        while True:
            taken.append(row)
            yield {"context": f"how {row}", "response": f"so {row}"}
            row += 1

    assert load_examples(endless(), limit=250)[-1].context == "how 249"
    assert len(taken) <= 251

    def labelled():
        while True:
            yield ("a", "b", 1)

    assert len(load_examples(labelled(), limit=120)) == 120


def test_a_split_is_chosen():
    datasets = pytest.importorskip("datasets")
    parts = {
        name: datasets.Dataset.from_list([{"context": name, "response": "so"}])
        for name in ("train", "validation", "test")
    }
    both = datasets.DatasetDict(parts)
    assert load_examples(both)[0].context == "train"
    assert load_records(both)[0].context == "test"
    assert load_examples(both, split="validation")[0].context == "validation"
    with pytest.raises(UsageError, match=r"no split 'tets'\. Did you mean 'test'"):
        load_examples(both, split="tets")
    with pytest.raises(UsageError, match="has no splits"):
        load_examples(ROWS, split="test")


def test_a_corpus_stays_one_to_evaluate_on_and_gives_examples_to_train_on():
    data = RetrievalSet(
        corpus=[Candidate("d1", "so"), Candidate("d2", "no")],
        queries={"q": "how"},
        judgements={"q": {"d1": 1, "d2": 0}},
        split="test",
    )
    assert load_records(data) is data
    assert load_examples(data) == [Example(id="q/d1", context="how", response="so")]


def test_turns_of_a_record_may_be_a_list():
    made = [Example(context=["hi", "how"], response="so")]
    assert load_examples(made) == [Example(context=("hi", "how"), response="so")]


BAD = {
    "a record without text": ([*EXAMPLES, Example(context="a", response=None)], "row 7: The field"),
    "a record of numbers": ([Example(context=(1, 2), response="a")], "row 1: The field 'context'"),
    "an empty context": ([Example(context=(), response="a")], "row 1: The field 'context'"),
    "a text": ("how do i read a file", "examples is a text, and there is no file 'how do i"),
    "a long text": ("how " * 3000, "there is no file"),
    "a list of texts": (["how", "so"], "row 1: The row is the single text 'how'"),
    "a text among rows": ([*ROWS, "how"], "row 7: The row is the single text 'how'"),
    "one row": (ROWS[0], "a single mapping"),
    "one record": (EXAMPLES[0], "a single record"),
    "a number": (7, "of the type int, which holds no rows"),
    "numbers": ([1, 2], "row 1: The row is a value of the type int"),
    "nothing": ([], "hold no example"),
    "two kinds": ([*EXAMPLES, PAIRS[0]], "row 7: The record is a value of the type LabelledPair"),
    "an empty answer": ([*ROWS, {"question": "how", "answer": ""}], "row 7: The response in"),
    "no answer": ([*ROWS, {"question": "how"}], "row 7: No column holds the response"),
    "a number as answer": ([{"question": "how", "answer": 7}], "row 1: The field 'response' must"),
    "an unknown label": ([("a", "b", 1), {"first": "a", "second": "b", "label": "x"}], "row 2"),
    "a class below 0": ([("a", "b", 1), ("a", "b", -1)], "row 2: The class is -1"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_named_in_two_sentences(name):
    data, problem = BAD[name]
    with pytest.raises(DataError, match=r"\.") as caught:
        load_examples(data)
    assert problem in caught.value.problem
    assert caught.value.problem.endswith(".")
    assert caught.value.remedy.endswith(".")


def test_columns_that_are_missing_are_named_as_one_types_them_in_python():
    with pytest.raises(DataError) as caught:
        load_examples([{"asked": "how", "said": "so"}])
    assert "columns={'context': 'asked', 'response': 'said'}" in caught.value.remedy

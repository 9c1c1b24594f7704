"""`polyrank.mine` and `polyrank.distil` as people call them."""

import pytest

import polyrank
from polyrank import Candidate, NegativesConfig
from polyrank.data.examples import read_examples
from polyrank.data.loading import load_examples
from polyrank.errors import DataError, UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.training.negatives.methods import random_method
from polyrank.training.negatives.mining import mine_to_file
from polyrank.training.negatives.pool import Pool
from tiny_encoders import WORDS, load_variant

ROWS = [
    {"question": f"what is {WORDS[row]}", "answer": f"{WORDS[row]} is a {WORDS[row + 3]}"}
    for row in range(24)
]
MINED = {"show_progress_bar": False}
QUICK = {"batch_size": 6, "max_steps": 2, "evaluations": 1, "num_negatives": 2}


@pytest.fixture(scope="module")
def cross(bert):
    return load_variant("cross", bert)


@pytest.fixture
def bi(bert):
    return BiEncoder.from_pretrained(bert, device="cpu", dtype="float32")


@pytest.mark.parametrize("method", ["random", "bm25", "model"])
def test_every_example_gets_wrong_responses(method, bi):
    if method == "bm25":
        pytest.importorskip("bm25s")
    given = {"retriever": bi} if method == "model" else {}
    found = polyrank.mine(ROWS, method, num_negatives=3, **given, **MINED)
    right = {one.context: one.response for one in load_examples(ROWS)}
    assert [one.context for one in found] == list(right)
    for one in found:
        assert right[one.context] == one.response
        assert one.response not in one.negatives
        assert set(one.negatives) <= set(right.values())
        assert len(one.negatives) <= 3
    assert sum(len(one.negatives) for one in found) > 40


def test_what_is_found_in_memory_is_what_a_file_gets(tmp_path, capsys):
    in_memory = polyrank.mine(ROWS, "random", num_negatives=2, seed=3, **MINED)
    written = polyrank.mine(
        iter(ROWS), "random", num_negatives=2, seed=3, output=tmp_path / "a.jsonl", **MINED
    )
    config = NegativesConfig(num_negatives=2, seed=3)
    pool = Pool.of_examples(load_examples(ROWS))
    mine_to_file(pool, random_method(), tmp_path / "b.jsonl", config)
    assert in_memory == written == list(read_examples(tmp_path / "b.jsonl"))
    assert {path.name for path in tmp_path.iterdir()} == {"a.jsonl", "b.jsonl"}
    assert capsys.readouterr() == ("", "")


def test_candidates_are_texts_or_a_file_and_a_reranker_scores(cross, tmp_path):
    texts = [f"some {word}" for word in WORDS[:9]]
    (tmp_path / "texts.txt").write_text("\n".join(texts), encoding="utf-8")
    named = [Candidate(str(place), text) for place, text in enumerate(texts, start=1)]
    found = [
        polyrank.mine(ROWS, "random", candidates=given, reranker=cross, **MINED)
        for given in (texts, named, tmp_path / "texts.txt")
    ]
    assert found[0] == found[1] == found[2]
    assert all(set(one.negatives) <= set(texts) for one in found[0])
    assert all(len(one.scores) == 1 + len(one.negatives) for one in found[0])


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"num_negative": 2}, UsageError, "Did you mean 'num_negatives'"),
        ({"model": "my-bi"}, UsageError, "no setting 'model'. Here it is 'retriever'"),
        ({"method": "bm52"}, UsageError, "Did you mean 'bm25'"),
        ({"method": "model"}, UsageError, "needs a bi- or poly-encoder to search with"),
        ({"num_negatives": 0}, UsageError, "num_negatives must be at least 1"),
        ({"examples": [("a", "b", 1)]}, DataError, "hold labelled pairs"),
        ({"examples": "what is a file"}, DataError, "examples is a text"),
        ({"examples": [("a", "b")]}, DataError, "at least 2 different candidates"),
    ],
)
def test_what_cannot_be_mined_is_refused(given, error, words):
    with pytest.raises(error) as caught:
        polyrank.mine(**{"examples": ROWS, "method": "random", **given}, **MINED)
    assert words in str(caught.value)


def test_a_student_learns_scores_in_memory(bi, cross, tmp_path):
    said = []
    result = polyrank.distil(
        bi, cross, ROWS, tmp_path / "student", dev=ROWS, say=said.append, **QUICK
    )
    assert said[0] == "examples: read as table, context=question, response=answer."
    assert said[-1].startswith("step 2/2")
    assert any(words.startswith("The data have no negatives: ") for words in said)
    assert "72 scores of the teacher are in memory" in said
    assert {"loss", "recall@1"} <= result.figures.keys()
    assert [path.name for path in tmp_path.iterdir()] == ["student"]
    record = (tmp_path / "student" / "training.json").read_text("utf-8")
    assert '"objective": "margin_mse"' in record
    assert polyrank.load_model(tmp_path / "student", device="cpu").architecture == "bi"


def test_labels_in_a_file_teach_the_same(bert, cross, tmp_path):
    mined = polyrank.mine(ROWS, "random", num_negatives=2, **MINED)
    students, said = [], []
    for number, labels in enumerate((None, tmp_path / "labels.jsonl", tmp_path / "labels.jsonl")):
        student = load_variant("poly-learnt", bert)
        polyrank.distil(
            student,
            cross,
            mined,
            tmp_path / str(number),
            labels=labels,
            objective="kl",
            say=said.append,
            **QUICK,
        )
        students.append(student.fingerprint())
    assert students[0] == students[1] == students[2]
    assert f"The teacher's scores are read from {tmp_path / 'labels.jsonl'}." in said
    assert len(list(read_examples(tmp_path / "labels.jsonl"))) == len(ROWS)


def test_pairs_are_labelled_and_whole_steps_taught(bert, bi, tmp_path):
    pairs = [(WORDS[row], WORDS[row + 9], row / 20) for row in range(20)]
    teacher = load_variant("cross", bert, task="regress")
    said = []
    polyrank.distil(bi, teacher, pairs, tmp_path / "a", pairs="random", say=said.append, **QUICK)
    assert any(words.startswith("20 gold pairs, and ") for words in said)
    apart = load_variant("cross-interaction", bert)
    settings = {name: value for name, value in QUICK.items() if name != "num_negatives"}
    load_variant("cross", bert).save_pretrained(tmp_path / "linear")
    given = {"in_batch": True, "extra_negatives": 1, "teacher_candidates": 2}
    both = [apart, tmp_path / "linear"]
    polyrank.distil(bi, both, ROWS, tmp_path / "b", **given, **settings, **MINED)
    assert '"in_batch_softmax"' in (tmp_path / "b" / "training.json").read_text("utf-8")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"student": "my-bi"}, "The student must be a bi- or poly-encoder, got a str"),
        ({"objective": "triplet"}, "learns nothing from a teacher's scores"),
        ({"pairs": ["bm52"]}, "Did you mean 'bm25'"),
        ({"epoch": 1}, "Did you mean 'epochs'"),
        ({"num_negatives": 2, "negatives": NegativesConfig(num_negatives=3)}, "given twice"),
        ({"in_batch": True, "objective": "kl"}, "is for examples and the objective"),
        ({"teacher": []}, "There is no teacher"),
        ({"teacher": [3]}, "teacher must be a bi-, poly- or cross-encoder, got a int"),
    ],
)
def test_what_cannot_be_taught_is_refused(given, words, bi, cross, tmp_path):
    arguments = {"student": bi, "teacher": cross, "examples": ROWS, "output": tmp_path / "a"}
    with pytest.raises(UsageError) as caught:
        polyrank.distil(**{**arguments, **given}, **MINED)
    assert words in str(caught.value)
    assert not (tmp_path / "a").exists()

"""A teacher's scores: right, scored once, kept, resumed, refused where they are others'."""

import json
import os

import pytest
import torch

from polyrank.data.loading import load_examples
from polyrank.errors import DataError, ModelError, UsageError
from polyrank.records import Example, LabelledPair
from polyrank.training.config import TrainingConfig
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.negatives.methods import (
    bm25_method,
    dialogue_method,
    model_method,
    random_method,
)
from polyrank.training.negatives.pool import Pool
from polyrank.training.objectives.kl import kl_divergence
from polyrank.training.objectives.margin_mse import margin_mse
from polyrank.training.objectives.registry import ObjectiveConfig, build
from polyrank.training.teaching.labelling import label
from polyrank.training.teaching.lessons import Lesson, labelled_by_all
from polyrank.training.teaching.silver import silver_pairs
from polyrank.training.teaching.teacher import Teacher
from tiny_encoders import load_variant

WORDS = ["disk", "boot", "wifi", "sound", "screen", "kernel"]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture(scope="module")
def cross(bert):
    return load_variant("cross", bert)


def some_examples(count=20, negatives=2):
    return [
        Example(
            id=str(n),
            context=("hello", f"what about {WORDS[n % 6]} {n}"),
            response=f"the {WORDS[n % 6]} answer {n}",
            negatives=tuple(f"no {word} {n}" for word in WORDS[:negatives]),
        )
        for n in range(count)
    ]


def some_pairs(count=24, label=lambda n: n / 30):
    return [
        LabelledPair(first=f"a {WORDS[n % 6]} {n}", second=f"my {WORDS[n % 6]} {n}", label=label(n))
        for n in range(count)
    ]


class Counting:
    """A teacher that counts its pairs and may be interrupted."""

    def __init__(self, model, limit=None):
        self.model = model
        self.config = model.config
        self.limit = limit
        self.calls = []

    def fingerprint(self):
        return self.model.fingerprint()

    def score_pairs(self, pairs, *, show_progress_bar=False):
        self.calls.append(len(pairs))
        if self.limit is not None and len(self.calls) > self.limit:
            raise KeyboardInterrupt
        return self.model.score_pairs(pairs, show_progress_bar=show_progress_bar)


def scores_of(cross, example):
    texts = (example.response, *example.negatives)
    return cross.score_pairs([(example.context, text) for text in texts]).tolist()


@pytest.mark.parametrize("stored", [False, True])
def test_scores_are_the_teachers(stored, cross, tmp_path):
    examples = some_examples()
    store = tmp_path / "labels.jsonl" if stored else None
    labelled = label(cross, examples, store=store, block_size=6)
    assert [example.negatives for example in labelled] == [e.negatives for e in examples]
    for example in labelled:
        assert list(example.scores) == pytest.approx(scores_of(cross, example), abs=1e-5)
    if stored:
        assert load_examples(store) == labelled  # the store is a file of examples
        described = json.loads((tmp_path / "labels.jsonl.teacher.json").read_text())
        assert described["teacher"] == cross.fingerprint()


def test_blocks_and_equal_pairs(cross):
    examples = some_examples()
    teacher = Counting(cross)
    whole = label(teacher, [*examples, *examples])
    assert teacher.calls == [60]  # every different pair once
    parts = label(cross, examples, block_size=3)
    for one, other in zip(whole, parts, strict=False):
        assert list(one.scores) == pytest.approx(list(other.scores), abs=1e-5)


def test_it_is_done_once(cross, tmp_path):
    store = tmp_path / "labels.jsonl"
    first = label(cross, some_examples(), store=store)
    teacher, said = Counting(cross), []
    assert label(teacher, some_examples(), store=store, say=said.append) == first
    assert teacher.calls == []
    assert said == [f"The teacher's scores are read from {store}."]
    label(teacher, some_examples(), store=store, relabel=True)
    assert teacher.calls == [60]


def test_what_a_labelling_left_that_was_killed_at_its_end_is_removed(cross, tmp_path):
    store = tmp_path / "labels.jsonl"
    label(cross, some_examples(), store=store)
    for left in (".labels.jsonl.old-1", ".labels.jsonl.labelling"):
        (tmp_path / left).mkdir()
    label(cross, some_examples(), store=store)
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "labels.jsonl",
        "labels.jsonl.teacher.json",
    ]


def test_an_interrupted_labelling_resumes(cross, tmp_path):
    whole = tmp_path / "whole.jsonl"
    methods = [random_method(), bm25_method()]
    expected = label(cross, some_examples(), store=whole, methods=methods, block_size=4)
    store = tmp_path / "labels.jsonl"
    with pytest.raises(KeyboardInterrupt):
        label(Counting(cross, 3), some_examples(), store=store, methods=methods, block_size=4)
    assert not store.exists()
    with open(tmp_path / ".labels.jsonl.labelling" / "lines.jsonl", "a") as handle:
        handle.write('{"context"')
    teacher, said = Counting(cross), []
    found = label(
        teacher, some_examples(), store=store, methods=methods, block_size=4, say=said.append
    )
    assert len(teacher.calls) == 2
    assert said == ["Resuming after 12 of 20 examples."]
    assert found == expected
    assert store.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob(".*"))


def test_labels_of_others_are_refused(cross, bert, tmp_path):
    store = tmp_path / "labels.jsonl"
    label(cross, some_examples(), store=store)
    other = load_variant("cross", bert, head="pooler")
    with pytest.raises(UsageError, match="holds labels of another teacher") as caught:
        label(other, some_examples(), store=store)
    assert "--relabel" in str(caught.value)
    with pytest.raises(UsageError, match="holds labels of other data"):
        label(cross, some_examples(10), store=store)
    with pytest.raises(UsageError, match="found in another way"):
        label(cross, some_examples(), store=store, methods=[random_method()])
    with pytest.raises(KeyboardInterrupt):
        label(Counting(cross, 1), some_examples(), store=tmp_path / "b.jsonl", block_size=4)
    with pytest.raises(UsageError, match="unfinished labelling with another teacher"):
        label(other, some_examples(), store=tmp_path / "b.jsonl", block_size=4)
    found = label(other, some_examples(), store=tmp_path / "b.jsonl", block_size=4, relabel=True)
    assert list(found[0].scores) == pytest.approx(scores_of(other, found[0]), abs=1e-5)
    alien = tmp_path / "alien.jsonl"
    alien.write_text("{}\n")
    with pytest.raises(UsageError, match="does not say which teacher"):
        label(cross, some_examples(), store=alien)
    assert alien.read_text() == "{}\n"


def test_pairs_that_are_found(cross, bert):
    examples = [*some_examples(15), Example(context="alone", response="xyzzy")]
    methods = [bm25_method(), model_method(load_variant("bi", bert)), dialogue_method()]
    settings = NegativesConfig(num_negatives=2, pick="top")
    found = label(cross, examples, methods=methods, settings=settings)
    assert len(found) == 16
    for example, given in zip(found, examples, strict=True):
        assert example.negatives[: len(given.negatives)] == given.negatives
        more = example.negatives[len(given.negatives) :]
        assert 2 <= len(more) <= 6
        assert len(set(example.negatives)) == len(example.negatives)
        assert given.response not in example.negatives
        assert len(example.scores) == 1 + len(example.negatives)
    without = label(cross, examples, methods=methods, settings=settings, given=False)
    assert all(not text.startswith("no ") for example in without for text in example.negatives)


def test_examples_without_negatives_are_left_out(cross):
    examples = [*some_examples(3), Example(context="a", response="b")]
    assert [example.id for example in label(cross, examples)] == ["0", "1", "2"]
    with pytest.raises(DataError, match="No example has negatives"):
        label(cross, some_examples(negatives=0))
    with pytest.raises(DataError, match="No negatives were found"):
        label(
            cross,
            some_examples(negatives=0),
            methods=[bm25_method()],
            settings=NegativesConfig(max_score=-1.0),
        )


def test_teachers_of_the_wrong_kind(cross, bert):
    classes = load_variant("cross", bert, task="classify", num_labels=3)
    with pytest.raises(UsageError, match="a cross-encoder with 3 classes"):
        label(classes, some_examples())
    with pytest.raises(UsageError, match="labels of the data are scores, but a teacher with the"):
        silver_pairs(classes, some_pairs(), methods=[random_method()])
    with pytest.raises(UsageError, match="labels of the data are classes"):
        silver_pairs(cross, some_pairs(label=lambda n: n % 3), methods=[random_method()])
    with pytest.raises(UsageError, match="a class 3, but the teacher knows only 3"):
        silver_pairs(classes, some_pairs(label=lambda n: n % 4), methods=[random_method()])
    with pytest.raises(UsageError, match="got a bi-encoder"):
        silver_pairs(load_variant("bi", bert), some_pairs(), methods=[random_method()])


def test_scores_that_are_no_numbers(cross):
    class Broken(Counting):
        def score_pairs(self, pairs, *, show_progress_bar=False):
            return torch.full((len(pairs),), float("inf"))

    with pytest.raises(ModelError, match="not all finite"):
        label(Broken(cross), some_examples())
    with pytest.raises(ModelError, match="not all finite"):
        silver_pairs(Broken(cross), some_pairs(), methods=[random_method()])
    assert Teacher(cross).score([]) == []


@pytest.mark.parametrize(("variant", "temperature"), [("bi", 0.05), ("poly-learnt", 0.5)])
def test_the_scores_of_two_towers_are_the_logits_of_their_loss(variant, temperature, bert):
    teacher = load_variant(variant, bert, temperature=temperature)
    examples = some_examples(4)
    setup = build(
        teacher, examples, TrainingConfig(), ObjectiveConfig(objective="in_batch_softmax")
    )
    step = setup.collator([setup.dataset[place] for place in range(4)])
    with torch.no_grad():
        logits = setup.module.eval().score_step(setup.module.encode_step(step), step)
    for place, example in enumerate(label(teacher, examples)):
        own = [place, 4 + 2 * place, 5 + 2 * place]
        assert list(example.scores) == pytest.approx(logits[place, own].tolist(), abs=1e-4)


def lesson_of(teachers, store, objective="kl", **settings):
    given = {"methods": [], "given": True, "settings": NegativesConfig(num_negatives=2)}
    return Lesson(
        teachers=teachers,
        names=[str(number) for number in range(len(teachers))],
        objective=ObjectiveConfig(objective=objective, distillation_temperature=2.0),
        store=store,
        **{**given, **settings},
    )


def labels_of(teachers, store, objective="kl", *, say=lambda _: None, **settings):
    pool = Pool.of_examples(some_examples())
    return lesson_of(teachers, store, objective, **settings).label(pool, say)


def scores_in(examples):
    return [score for example in examples for score in example.scores]


@pytest.mark.parametrize("objective", ["kl", "margin_mse"])
def test_several_teachers_are_one(objective, cross, bert):
    """The student learns the mean of their distributions by kl, of their margins by margin_mse."""
    others = [load_variant("bi", bert, temperature=0.05), load_variant("poly-learnt", bert)]
    found = labels_of([cross, *others], None, objective)
    each = [labels_of([teacher], None, objective) for teacher in (cross, *others)]
    student = torch.randn(len(found), 3, dtype=torch.float64, requires_grad=True)
    given = torch.tensor([[one.scores for one in labelled] for labelled in each]).double()
    joined = torch.tensor([example.scores for example in found]).double()
    present = torch.ones(len(found), 3, dtype=torch.bool)
    if objective == "kl":
        shares = (given / 2).softmax(dim=-1).mean(dim=0)
        assert (shares - (given.mean(dim=0) / 2).softmax(dim=-1)).abs().max() > 0.01
        loss = kl_divergence(student, joined, present, 2.0)
        logs = (student / 2).log_softmax(dim=-1)
        expected = 4 * (shares * (shares.log() - logs)).sum(dim=-1).mean()
    else:
        loss = margin_mse(student, joined, present)
        margins = (given[:, :, :1] - given[:, :, 1:]).mean(dim=0)
        expected = (student[:, :1] - student[:, 1:] - margins).square().mean()
    torch.testing.assert_close(loss, expected)
    (got,) = torch.autograd.grad(loss, student)
    (wanted,) = torch.autograd.grad(expected, student)
    torch.testing.assert_close(got, wanted)
    assert got.abs().max() > 1e-4


def test_one_teacher_of_several_scores_once_and_a_new_one_alone(cross, bert, tmp_path):
    store = tmp_path / "labels.jsonl"
    first, second = Counting(cross), Counting(load_variant("bi", bert))
    alone = labels_of([first], store)
    both = labels_of([first, second], store)
    assert (first.calls, second.calls) == ([60], [60])
    beside = tmp_path / f"labels-{second.fingerprint()[:8]}.jsonl"
    assert {path.name for path in tmp_path.glob("*.jsonl")} == {store.name, beside.name}
    assert scores_in(labels_of([second, first], store)) == pytest.approx(scores_in(both))
    assert labels_of([second], store) == labels_of([second], None)
    assert second.calls == [60, 60]  # the last one was without a store
    assert labels_of([first], store) == alone
    assert first.calls == [60]
    third = Counting(load_variant("cross", bert, head="pooler"))
    with pytest.raises(UsageError, match="holds labels of another teacher"):
        labels_of([third], store)
    labels_of([first, third], store, relabel=True)
    assert (first.calls, second.calls, third.calls) == ([60, 60], [60, 60], [60])


def test_an_interruption_between_teachers(cross, bert, tmp_path, monkeypatch):
    store = tmp_path / "labels.jsonl"
    monkeypatch.setitem(label.__kwdefaults__, "block_size", 6)
    teachers = [Counting(cross), Counting(load_variant("bi", bert), 2)]
    with pytest.raises(KeyboardInterrupt):
        labels_of(teachers, store)
    teachers[1].limit = None
    said = []
    found = labels_of(teachers, store, say=said.append)
    assert teachers[0].calls == [18, 18, 18, 6]
    assert teachers[1].calls == [18, 18, 18, 18, 6]
    assert "Resuming after 12 of 20 examples." in said
    assert scores_in(found) == pytest.approx(scores_in(labels_of(teachers, None)), abs=1e-5)


def test_dev_examples_and_pairs_of_several_teachers(cross, bert, tmp_path):
    store = tmp_path / "labels.jsonl"
    teachers = [cross, load_variant("poly-learnt", bert)]
    found = lesson_of(teachers, store).label_dev(some_examples(6), lambda _: None)
    assert len(list(tmp_path.glob("*.dev-*.jsonl"))) == 2
    assert scores_in(found) == pytest.approx(scores_in(labels_of(teachers, None)[:6]), abs=1e-5)
    ranks = [cross, load_variant("cross", bert, head="pooler")]
    given = {"methods": [random_method()], "given": False}
    gold = some_pairs()
    one, other = (lesson_of([each], None, **given).label(gold, lambda _: None) for each in ranks)
    both = lesson_of(ranks, None, **given).label(gold, lambda _: None)
    assert both[: len(gold)] == gold
    labels = [[pair.label for pair in pairs] for pairs in (one, other, both)]
    assert labels[2] == pytest.approx([(a + b) / 2 for a, b in zip(*labels[:2], strict=True)])
    assert labels[0] != labels[1]


def test_the_class_that_most_teachers_choose():
    pairs = [
        [LabelledPair(first="a", second=str(n), label=label) for n, label in enumerate(labels)]
        for labels in ([0, 1, 2], [1, 1, 0], [1, 0, 1])
    ]
    assert [pair.label for pair in labelled_by_all(pairs)] == [1, 1, 2]
    with pytest.raises(UsageError, match="have labelled different pairs"):
        labelled_by_all([pairs[0], pairs[1][:2]])


@pytest.mark.parametrize("task", ["rank", "regress", "classify"])
def test_silver_pairs(task, bert, tmp_path):
    settings = {"num_labels": 3} if task == "classify" else {}
    teacher = load_variant("cross", bert, task=task, **settings)
    gold = some_pairs(label=(lambda n: n % 3) if task == "classify" else (lambda n: n / 30))
    methods = [bm25_method(), random_method()]
    store = tmp_path / "silver.jsonl"
    silver = silver_pairs(teacher, gold, methods=methods, store=store, block_size=5)
    texts = {text for pair in gold for text in (pair.first, pair.second)}
    met = {(pair.first, pair.second) for pair in gold}
    keys = [(pair.first, pair.second) for pair in silver]
    assert len(set(keys)) == len(keys) > len(gold)
    assert not met & set(keys)
    assert all(first != second and {first, second} <= texts for first, second in keys)
    scores = (teacher.class_logits if task == "classify" else teacher.score_pairs)(keys)
    expected = {
        "rank": lambda: scores.sigmoid(),
        "regress": lambda: scores.clamp(0, 1),
        "classify": lambda: scores.argmax(dim=1),
    }[task]()
    assert [pair.label for pair in silver] == pytest.approx(expected.tolist(), abs=1e-5)
    assert all(isinstance(pair.label, int) == (task == "classify") for pair in silver)
    assert load_examples(store, format="pairs") == silver  # the store is a file of pairs
    assert silver_pairs(teacher, gold, methods=methods, store=store) == silver


def test_silver_pairs_resume(bert, tmp_path):
    teacher = load_variant("cross", bert, task="regress")
    methods = [random_method()]
    expected = silver_pairs(teacher, some_pairs(), methods=methods)
    store = tmp_path / "silver.jsonl"
    with pytest.raises(KeyboardInterrupt):
        silver_pairs(Counting(teacher, 2), some_pairs(), methods=methods, store=store, block_size=5)
    again, said = Counting(teacher), []
    found = silver_pairs(
        again, some_pairs(), methods=methods, store=store, block_size=5, say=said.append
    )
    assert said == ["Resuming after 10 of 24 texts."]
    assert [(p.first, p.second) for p in found] == [(p.first, p.second) for p in expected]
    assert [p.label for p in found] == pytest.approx([p.label for p in expected], abs=1e-5)

"""Teachers of whole steps: what they score, what the student learns of it, and the command."""

import json

import pytest
import torch
from objective_cases import CASES, EXAMPLES, TEACHERS, run_step, setup_of, teachers_of

from polyrank.cli.main import commands, run
from polyrank.data.examples import write_examples
from polyrank.errors import UsageError
from polyrank.jobs import differences
from polyrank.progress import silent
from polyrank.records import Example
from polyrank.training.config import TrainingConfig
from polyrank.training.given import run_of
from polyrank.training.identity import training_job
from polyrank.training.objectives.registry import ObjectiveConfig, build
from polyrank.training.result import UNKNOWN
from polyrank.training.teaching.in_batch import FEW, hardest
from polyrank.training.teaching.teacher import Teacher
from tiny_encoders import load_variant, scores_of

COLUMNS = [example.response for example in EXAMPLES]
COLUMNS += [text for example in EXAMPLES for text in example.negatives]
CONTEXTS = [example.context for example in EXAMPLES]


def allowed(i):
    """The columns that are the response of context i or wrong for it."""
    return [
        j
        for j, text in enumerate(COLUMNS)
        if j == i or not (text == COLUMNS[i] or (j < len(CONTEXTS) and CONTEXTS[j] == CONTEXTS[i]))
    ]


def chosen_by_hand(scores, i, count):
    """The columns of context i that a teacher scores: its own, and the hardest other texts."""
    own = [COLUMNS[i], *EXAMPLES[i].negatives]
    before = len(EXAMPLES) + sum(len(example.negatives) for example in EXAMPLES[:i])
    columns = [i, *range(before, before + len(EXAMPLES[i].negatives))]
    kept = [j for j in columns if j in allowed(i)]
    if count is None:
        return allowed(i)
    others = sorted(allowed(i), key=lambda j: -scores[i, j])
    seen = set(own)
    for j in others:
        if len(seen) == len(set(own)) + count:
            break
        if COLUMNS[j] not in seen:
            seen.add(COLUMNS[j])
            kept.append(COLUMNS.index(COLUMNS[j]))
    return kept


def by_hand(scores, teachers, share, temperature, count):
    """The loss of a step from the scores of student and teachers alone."""
    total = 0.0
    for i in range(len(CONTEXTS)):
        columns = allowed(i)
        right = torch.log_softmax(scores[i, columns], dim=0)[columns.index(i)]
        columns = chosen_by_hand(scores.detach(), i, count)
        student = torch.log_softmax(scores[i, columns] / temperature, dim=0)
        wanted = torch.stack([torch.softmax(one[i, columns] / temperature, 0) for one in teachers])
        wanted = wanted.mean(dim=0)
        divergence = (wanted * (wanted.log() - student)).sum() * temperature**2
        total = total - (1 - share) * right + share * divergence
    return total / len(CONTEXTS)


@pytest.mark.parametrize("case", TEACHERS)
@pytest.mark.parametrize("variant", ["bi", "poly-learnt"])
def test_loss_and_gradients_are_those_written_out(variant, case, bert):
    module, collator, dataset = setup_of(variant, bert, case)
    loss, gradients = run_step(module, collator, dataset)
    teachers = []
    for teacher in teachers_of(case, bert):
        teachers.append(scores_of(teacher, CONTEXTS, COLUMNS).double())
    step = collator([dataset[place] for place in range(len(dataset))])
    encoded = module.encode_step(step)
    scores = module.model.score_all(encoded["contexts"], encoded["candidates"][step["identities"]])
    objective = module.objective
    count = objective.teacher_candidates
    if count is None and "cross" in TEACHERS[case]:
        count = FEW
    temperature, share = (8.0, 1.0) if count is None else (1.0, 0.5)
    expected = by_hand(
        scores,
        teachers,
        objective.teacher_share or share,
        objective.distillation_temperature or temperature,
        count,
    )
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)
    names = [name for name, _ in module.named_parameters() if name in gradients]
    parameters = dict(module.named_parameters())
    got = torch.autograd.grad(expected, [parameters[name] for name in names])
    for name, gradient in zip(names, got, strict=True):
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-3, atol=1e-5, msg=name)
    assert max(gradient.abs().max() for gradient in got) > 1e-3


class Spying(Teacher):
    """A teacher that keeps the pairs that it is asked for."""

    asked = ()

    def score(self, pairs, **options):
        Spying.asked = list(pairs)
        return super().score(pairs, **options)


def test_mined_and_drawn_candidates_are_scored_and_few_others(bert, monkeypatch):
    monkeypatch.setattr("polyrank.training.teaching.in_batch.Teacher", Spying)
    words = ["one", "two", "three", "four", "five", "six"]
    examples = [
        Example(context=f"what is {word}", response=word, negatives=(f"no {word}",) * (place < 3))
        for place, word in enumerate(words)
    ]
    given = {"objective": "in_batch_softmax", "extra_negatives": 1, "teacher_candidates": 2}
    teachers = [load_variant("cross", bert)]
    setup = build(
        load_variant("bi", bert), examples, TrainingConfig(), ObjectiveConfig(**given), teachers
    )
    run_step(setup.module.eval(), setup.collator, setup.dataset)
    items = [setup.dataset[place] for place in range(6)]
    for example, item in zip(examples, items, strict=True):
        asked = [text for context, text in Spying.asked if context == example.context]
        own = {example.response, *setup.collator.negatives(item)}
        assert len(own) == 2 + len(example.negatives)
        assert own <= set(asked)
        assert len(set(asked)) == len(asked)
        assert len(asked) == len(own) + 2


def test_the_hardest_columns():
    scores = torch.tensor([[0.0, 5.0, 4.0, 3.0, 9.0, 2.0, 1.0]])
    texts = torch.tensor([10, 11, 12, 11, 14, 15, 12])
    present = torch.tensor([[True, True, True, True, False, True, True]])
    own = torch.tensor([[0, 6, -1]])
    chosen = hardest(scores, present, texts, own, 2)  # 12 is its own, 11 counts once
    assert chosen.nonzero()[:, 1].tolist() == [0, 1, 5, 6]
    everything = hardest(scores, present, texts, own, 100)
    assert everything.nonzero()[:, 1].tolist() == [0, 1, 5, 6]


def test_fewer_candidates_of_a_teacher_that_reads_texts_apart(bert):
    losses = {}
    own = {"objective": "in_batch_softmax", "teacher_share": 0.5, "distillation_temperature": 1.0}
    for count in (None, 2, 1000):
        objective = ObjectiveConfig(teacher_candidates=count, **own)
        plain = [Example(context=one.context, response=str(n)) for n, one in enumerate(EXAMPLES)]
        teachers = [load_variant("poly-learnt", bert)]
        setup = build(load_variant("bi", bert), plain, TrainingConfig(), objective, teachers)
        losses[count] = run_step(setup.module.eval(), setup.collator, setup.dataset)[0]
    torch.testing.assert_close(losses[None], losses[1000])
    assert abs(losses[None] - losses[2]) > 1e-4


def test_a_teacher_is_not_trained_and_not_saved(bert):
    name, records, own = CASES["taught-by-several"]
    teachers = teachers_of("taught-by-several", bert)
    objective = ObjectiveConfig(objective=name, **own)
    setup = build(load_variant("bi", bert), records, TrainingConfig(), objective, teachers)
    kept = set(setup.module.state_dict())
    assert kept == {f"model.{name}" for name in setup.module.model.state_dict()}
    run_step(setup.module.train(), setup.collator, setup.dataset)
    for teacher in teachers:
        assert not teacher.training
        assert all(parameter.grad is None for parameter in teacher.parameters())


def test_its_own_teacher_teaches_nothing(bert):
    model = load_variant("bi", bert)
    same = load_variant("bi", bert)
    settings = ObjectiveConfig(objective="in_batch_softmax", teacher_share=1.0)
    setup = build(model, EXAMPLES, TrainingConfig(), settings, [same])
    loss, gradients = run_step(setup.module.eval(), setup.collator, setup.dataset)
    assert abs(loss) < 1e-5
    assert max(gradient.abs().max() for gradient in gradients.values()) < 1e-4


def test_what_cannot_teach_is_refused(bert):
    name, records, own = CASES["taught-by-pairs"]
    classes = load_variant("cross", bert, task="classify", num_labels=3)
    with pytest.raises(UsageError, match="one score per pair, got a cross-encoder with 3 classes"):
        build(
            load_variant("bi", bert),
            records,
            TrainingConfig(),
            ObjectiveConfig(objective=name, **own),
            [classes],
        )
    with pytest.raises(UsageError, match="teacher_candidates must be at least 1"):
        ObjectiveConfig(teacher_candidates=0)


def test_a_run_is_another_one_with_other_teachers(bert):
    student = load_variant("bi", bert)
    first, second = load_variant("bi", bert), load_variant("cross", bert)

    def identity(teacher):
        run = run_of(
            student,
            EXAMPLES,
            "out",
            None,
            objective="in_batch_softmax",
            dev=None,
            dev_candidates=None,
            teacher=teacher,
            tensorboard=None,
            provenance=UNKNOWN,
            settings={},
            say=silent,
        )
        return training_job(run)

    assert "teachers" not in identity(None).identity
    assert identity(first).plain == identity([first]).plain
    assert identity([first, second]).plain == identity([second, first]).plain
    other = {"identity": identity([first, second]).plain}
    assert differences(identity(first), other) == "other teachers"


def test_the_command(bert, tmp_path, capsys):
    load_variant("cross-interaction", bert).save_pretrained(tmp_path / "cross")
    load_variant("cross", bert).save_pretrained(tmp_path / "linear")
    write_examples(tmp_path / "train.jsonl", EXAMPLES)
    given = ["distil", "--arch", "poly", "--num-codes", "3", "--base", bert, "--in-batch"]
    given += ["--train", tmp_path / "train.jsonl", "--batch-size", "4", "--max-steps", "2"]
    given += ["--dtype", "float32", "--device", "cpu", "--output", tmp_path / "taught"]

    def call(*more):
        return run([*map(str, given), *map(str, more)], commands())

    assert call("--teacher", tmp_path / "cross", "--teacher-share", "0.8") == 0
    captured = capsys.readouterr()
    assert "no effect" not in captured.err
    record = json.loads((tmp_path / "taught" / "training.json").read_text())
    assert [len(one) for one in record["identity"]["teachers"]] == [64]
    assert record["identity"]["objective"]["teacher_share"] == 0.8
    assert not (tmp_path / "taught.labels.jsonl").exists()
    both = ["--teacher", tmp_path / "linear", "--teacher", tmp_path / "cross"]
    assert call(*both, "--teacher-candidates", "2") == 0
    record = json.loads((tmp_path / "taught" / "training.json").read_text())
    assert len(set(record["identity"]["teachers"])) == 2
    assert "no effect" not in capsys.readouterr().err
    assert call("--teacher", tmp_path / "cross", "--extra-negatives", "1", "--pairs", "bm25") == 0
    assert "Warning: --pairs has no effect with --in-batch." in capsys.readouterr().err
    assert call("--teacher", tmp_path / "cross", "--objective", "kl") == 2
    assert "(in_batch) is for examples and the objective" in capsys.readouterr().err

"""A teacher that scores all candidates of a step."""

import json

import pytest
import torch
from objective_cases import CASES, EXAMPLES, run_step, setup_of, teacher_of

from polyrank.cli.main import commands, run
from polyrank.data.examples import write_examples
from polyrank.errors import UsageError
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig, build
from tiny_encoders import load_variant, scores_of


def by_hand(scores, teacher, columns, contexts, share):
    """The loss of a step: rows of contexts, columns of candidates, from their scores alone."""
    total = 0.0
    for i, context in enumerate(contexts):
        kept = [
            j
            for j, text in enumerate(columns)
            if j == i or not (text == columns[i] or (j < len(contexts) and contexts[j] == context))
        ]
        own = kept.index(i)
        student = torch.log_softmax(scores[i, kept], dim=0)
        wanted = torch.log_softmax(teacher[i, kept], dim=0)
        divergence = (wanted.exp() * (wanted - student)).sum()
        total = total - (1 - share) * student[own] + share * divergence
    return total / len(contexts)


@pytest.mark.parametrize("case", ["taught-by-bi", "taught-by-cross"])
@pytest.mark.parametrize("variant", ["bi", "poly-learnt"])
def test_loss_and_gradients_are_those_written_out(variant, case, bert):
    module, collator, dataset = setup_of(variant, bert, case)
    loss, gradients = run_step(module, collator, dataset)
    columns = [example.response for example in EXAMPLES]
    columns += [text for example in EXAMPLES for text in example.negatives]
    contexts = [example.context for example in EXAMPLES]
    teacher = teacher_of(case, bert)
    with torch.no_grad():
        wanted = scores_of(teacher, contexts, columns).double()
    if case == "taught-by-cross":
        teacher.head.gate.data.fill_(-1e4)
        wanted = scores_of(teacher, contexts, columns).double()
    step = collator([dataset[place] for place in range(len(dataset))])
    encoded = {
        part: torch.cat([module.encode(part, batch) for batch in step[part]])[
            torch.argsort(torch.cat([batch["rows"] for batch in step[part]]))
        ]
        for part in module.parts
    }
    scores = module.model.score_all(encoded["contexts"], encoded["candidates"][step["identities"]])
    expected = by_hand(scores, wanted, columns, contexts, 0.7)
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-4, atol=1e-5)
    names = [name for name, _ in module.named_parameters() if name in gradients]
    parameters = dict(module.named_parameters())
    got = torch.autograd.grad(expected, [parameters[name] for name in names])
    for name, gradient in zip(names, got, strict=True):
        torch.testing.assert_close(gradients[name], gradient, rtol=1e-3, atol=1e-5, msg=name)
    assert max(gradient.abs().max() for gradient in got) > 1e-3


def test_a_teacher_is_not_trained_and_not_saved(bert):
    name, records, own = CASES["taught-by-cross"]
    teacher = teacher_of("taught-by-cross", bert)
    objective = ObjectiveConfig(objective=name, **own)
    setup = build(load_variant("bi", bert), records, TrainingConfig(), objective, teacher)
    kept = set(setup.module.state_dict())
    assert kept == {f"model.{name}" for name in setup.module.model.state_dict()}
    run_step(setup.module.train(), setup.collator, setup.dataset)
    assert not teacher.training
    assert all(parameter.grad is None for parameter in teacher.parameters())


def test_its_own_teacher_teaches_nothing(bert):
    model = load_variant("bi", bert)
    same = load_variant("bi", bert)
    settings = ObjectiveConfig(objective="in_batch_softmax", teacher_share=1.0)
    setup = build(model, EXAMPLES, TrainingConfig(), settings, same)
    loss, gradients = run_step(setup.module.eval(), setup.collator, setup.dataset)
    assert abs(loss) < 1e-5
    assert max(gradient.abs().max() for gradient in gradients.values()) < 1e-4


def test_a_teacher_that_reads_pairs_is_refused(bert):
    name, records, own = CASES["taught-by-cross"]
    settings = ObjectiveConfig(objective=name, **own)
    teacher = load_variant("cross", bert)
    with pytest.raises(UsageError, match=r"must read the two texts separately.* not linear"):
        build(load_variant("bi", bert), records, TrainingConfig(), settings, teacher)


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
    assert len(record["identity"]["teacher"]) == 64
    assert record["identity"]["objective"]["teacher_share"] == 0.8
    assert not (tmp_path / "taught.labels.jsonl").exists()
    assert call("--teacher", tmp_path / "linear") == 2
    assert "must read the two texts separately" in capsys.readouterr().err
    assert call("--teacher", tmp_path / "cross", "--objective", "kl") == 2
    assert "(in_batch) is for examples and the objective" in capsys.readouterr().err

"""The dev loss: each objective's own, the same each time; the plateau and `metric` use it."""

import json
from dataclasses import replace

import pytest
import torch
from corpus_cases import pair_of, records_of
from objective_cases import CASES, EXAMPLES, GRADED, set_dropout, teachers_of
from test_objectives import FITTING

from launching import launch
from polyrank import BiEncoder
from polyrank.cli.main import commands, run
from polyrank.data.examples import write_examples
from polyrank.errors import DataError, UsageError
from polyrank.evaluation.tasks import with_sampled_candidates
from polyrank.records import Example, LabelledPair
from polyrank.runtime import set_seed
from polyrank.training import gather
from polyrank.training.config import TrainingConfig
from polyrank.training.dev_evaluation import evaluation_of, loss_of
from polyrank.training.objectives.objective import in_steps
from polyrank.training.objectives.registry import ObjectiveConfig, build
from polyrank.training.run import train
from tiny_encoders import load_variant

WORDS = ["file", "disk", "kernel", "driver", "wifi", "sound", "screen", "index", "list", "sort"]
RANKED = [replace(one, candidates=(one.response, *one.negatives), gold=0) for one in EXAMPLES]


def set_up(variant, folder, case, dev=None, *, dropout=0.3, batch_size=4, **settings):
    """What is trained and how it is evaluated, with dropout that an evaluation must switch off."""
    name, records, own = CASES[case]
    tasks = {"classification": {"task": "classify"}, "regression": {"task": "regress"}}
    given = tasks.get(name, {}) if variant.startswith("cross") else {}
    model = load_variant(variant, folder, max_context_length=20, **given)
    config = TrainingConfig(batch_size=batch_size, num_negatives=3, **settings)
    objective = ObjectiveConfig(objective=name, **own)
    setup = build(model, records, config, objective, teachers_of(case, folder))
    set_dropout(setup.module, dropout)
    if dev is None:
        dev = RANKED if isinstance(records[0], Example) else records
    return setup, evaluation_of(setup, dev, config)


@pytest.mark.parametrize(("variant", "case"), FITTING)
def test_every_objective_has_a_dev_loss_which_is_its_own(variant, case, bert):
    setup, evaluation = set_up(variant, bert, case)
    module = setup.module.train()
    found = [evaluation.measure(module.model)["loss"] for _ in range(2)]
    assert found[0] == found[1], "nothing is drawn anew"
    assert module.training
    set_dropout(module, 0.0)
    records = CASES[case][1]
    dev = RANKED if isinstance(records[0], Example) else records
    steps = setup.objective.dev_steps(setup.given, dev)
    assert sorted(map(str, dev)) == sorted(str(one) for step in steps for one in step)
    assert [one for step in steps for one in step] != list(dev), "they are shuffled"
    total, items = 0.0, [setup.dataset[place] for place in range(len(dev))]
    for step in steps:
        numbered = [items.pop(0)._replace(example=record) for record in step]
        with torch.no_grad():
            total += float(module(**setup.collator(numbered))) * len(step)
    assert found[0] == pytest.approx(total / len(dev), rel=1e-5)
    assert found[0] > 0


def test_pre_training_has_the_loss_of_held_out_pairs(bert, tmp_path):
    held_out = [pair_of(n) for n in range(1000, 1024)]
    records = records_of(48)
    records.held_out_steps = in_steps(held_out, 12)
    model = load_variant("bi", bert, shared_towers=True, projection=8, max_context_length=20)
    config = TrainingConfig(batch_size=12, max_steps=4, evaluations=2, metric="loss", warmup=0.0)
    config = replace(config, schedule="plateau", learning_rate=1e-3)
    result = train(model, records, tmp_path / "out", config)
    losses = {entry["step"]: entry["eval_loss"] for entry in result.history if "eval_loss" in entry}
    assert list(losses) == [2, 4]
    assert result.best_step == min(losses, key=losses.get)
    assert {"held_out", "mlm_masked"} < result.figures.keys()
    setup = build(model, records, config, ObjectiveConfig())
    assert evaluation_of(setup, [], config).measure(model.eval())["loss"] > 0
    with pytest.raises(UsageError, match=r"metric = mrr is not a figure.*held_out, loss"):
        evaluation_of(setup, [], replace(config, metric="mrr"))


@pytest.mark.parametrize(("count", "sizes"), [(3, [3]), (8, [8]), (10, [5, 5]), (25, [6, 6, 6, 7])])
def test_steps_are_nearly_as_large_as_those_of_the_training(count, sizes):
    steps = in_steps(range(count), 6)
    assert [len(step) for step in steps] == sizes
    assert [place for step in steps for place in step] == list(range(count))


def test_the_loss_is_computed_without_the_other_processes(monkeypatch):
    monkeypatch.setattr(gather.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(gather.distributed, "get_world_size", lambda: 3)
    assert gather.num_processes() == 3
    with gather.alone():
        rows = torch.ones(2, 4)
        assert gather.num_processes() == 1
        assert gather.gather_rows(rows) is rows
        assert gather.sum_over_processes(5, rows.device) == 5
    assert gather.num_processes() == 3


@pytest.mark.parametrize(
    ("variant", "case", "dev", "message"),
    [
        ("bi", "softmax", GRADED, "is trained on examples .*, but the dev data are labelled pairs"),
        ("bi", "triplet", [replace(RANKED[0], negatives=(), candidates=("yes",))], "negatives"),
        ("bi", "kl", [replace(one, scores=None) for one in RANKED], "teacher's score"),
        ("bi", "margin_mse", [replace(one, scores=None) for one in RANKED], "teacher's score"),
        ("cross", "regression", [LabelledPair(first="a", second="b", label=3.0)], "from 0 to 1"),
        ("bi", "cosent", [LabelledPair(first="a", second="b", label=-1.0)], "from 0 to 1"),
        ("bi", "classification", [LabelledPair(first="a", second="b", label=9)], "has 3 classes"),
        ("cross", "binary-pairs", [LabelledPair(first="a", second="b", label=2.0)], "from 0 to 1"),
    ],
)
def test_dev_data_that_have_no_loss(variant, case, dev, message, bert):
    _, evaluation = set_up(variant, bert, case, dev)
    assert evaluation.metric != "loss"
    for settings in ({"metric": "loss"}, {"schedule": "plateau"}):
        with pytest.raises(DataError, match=message):
            set_up(variant, bert, case, dev, **settings)


def test_texts_that_are_not_in_the_training_set_are_rare(bert):
    setup, evaluation = set_up("bi", bert, "symmetric", [replace(RANKED[0], response="new")])
    assert evaluation.measure(setup.module.model)["loss"] > 0
    step = setup.collator([setup.dataset[0]._replace(example=replace(RANKED[0], response="new"))])
    assert float(step["log_frequencies"][0]) == pytest.approx(setup.collator.rarest)


def examples(count=24):
    return [
        Example(context=f"my {WORDS[n % 7]} {n % 4}", response=f"the {WORDS[n * 3 % 10]} {n}")
        for n in range(count)
    ]


def fresh(bert):
    set_seed(0)
    return BiEncoder.from_pretrained(bert, dtype="float32", device="cpu")


def test_the_lowest_loss_chooses_the_checkpoint(bert, tmp_path):
    dev = with_sampled_candidates(examples(), 5)[:8]
    config = TrainingConfig(
        batch_size=8, max_steps=12, evaluations=6, metric="loss", learning_rate=3e-3, warmup=0.0
    )
    said = []
    result = train(fresh(bert), examples(), tmp_path / "out", config, dev=dev, say=said.append)
    losses = {e["step"]: e["eval_loss"] for e in result.history if "eval_loss" in e}
    assert len(set(losses.values())) == 6
    assert result.best_step == min(losses, key=losses.get)
    assert result.figures["loss"] == min(losses.values())
    assert any(f"dev loss {losses[2]:.3f}" in words for words in said)
    lines = (tmp_path / "out" / "log.jsonl").read_text().splitlines()
    logged = [entry["dev_loss"] for entry in map(json.loads, lines) if "dev_loss" in entry]
    assert logged == list(losses.values())
    model = BiEncoder.from_pretrained(tmp_path / "out", device="cpu", dtype="float32")
    setup = build(model, examples(), config, ObjectiveConfig())
    again = loss_of(setup, setup.objective.dev_steps(setup.given, dev))()
    assert again == pytest.approx(min(losses.values()), rel=1e-5), "the model kept has that loss"


def test_the_plateau_watches_the_loss_and_not_the_metric(bert, tmp_path):
    dev = with_sampled_candidates(examples(), 2)[:8]
    settings = {"batch_size": 8, "max_steps": 8, "evaluations": 8, "warmup": 0.0}
    config = TrainingConfig(**settings, schedule="plateau", metric="recall@2", dropout=0.0)
    result = train(fresh(bert), examples(), tmp_path / "out", config, dev=dev)
    figures = [entry for entry in result.history if "eval_loss" in entry]
    assert {entry["eval_recall@2"] for entry in figures} == {1.0}, "the metric never improves"
    rates = {e["step"]: e["learning_rate"] for e in result.history if "learning_rate" in e}
    lowest, expected = float("inf"), 5e-5
    for entry in figures[:-1]:
        if entry["eval_loss"] < lowest * (1 - 1e-4):
            lowest = entry["eval_loss"]
        else:
            expected *= 0.4
        assert rates[entry["step"] + 1] == pytest.approx(expected)
    assert lowest < figures[0]["eval_loss"]


def test_one_process_computes_the_loss_for_two(bert, tmp_path, capsys):
    data = tmp_path / "data.jsonl"
    write_examples(data, examples(32))
    arguments = ["train", "--arch", "poly", "--num-codes", "3", "--base", bert, "--train", data]
    arguments += ["--dev", data, "--batch-size", "8", "--max-steps", "4", "--evaluations", "2"]
    arguments += ["--learning-rate", "1e-3", "--dtype", "float32", "--device", "cpu", "--json"]
    arguments += ["--metric", "loss", "--schedule", "plateau", "--warmup", "0"]
    started = launch("-m", "polyrank", *arguments, "--output", tmp_path / "two")
    assert started.returncode == 0, started.stderr
    assert run([*map(str, arguments), "--output", str(tmp_path / "one")], commands()) == 0
    one, two = (json.loads(text) for text in (capsys.readouterr().out, started.stdout))
    assert two["best_step"] == one["best_step"]
    assert two["dev"]["loss"] == pytest.approx(one["dev"]["loss"], rel=1e-4)

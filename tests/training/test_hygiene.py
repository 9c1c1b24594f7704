"""What a run refuses, what stops it, and what it leaves behind."""

import json
import math

import pytest
import torch
import yaml
from corpus_cases import records_of
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from polyrank import BiEncoder, CrossEncoder, PolyEncoder, load_model
from polyrank._version import __version__
from polyrank.errors import MissingExtraError, ModelError, TrainingError, UsageError
from polyrank.evaluation.tasks import with_sampled_candidates
from polyrank.jobs import LOCK
from polyrank.records import Example, LabelledPair
from polyrank.runtime import set_seed
from polyrank.storage import exclusive
from polyrank.training.config import TrainingConfig
from polyrank.training.logs import log_text
from polyrank.training.model_card import Provenance
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.run import train
from polyrank.training.trainer import RankingTrainer
from tiny_encoders import load_variant

WORDS = ["file", "disk", "kernel", "driver", "wifi", "sound", "screen", "index", "list", "sort"]


def examples(count=24):
    return [
        Example(context=f"my {WORDS[n % 7]} {n % 4}", response=f"the {WORDS[n * 3 % 10]} {n}")
        for n in range(count)
    ]


def dev(candidates=5):
    return with_sampled_candidates(examples(), candidates)[:8]


def pairs(count=16):
    return [
        LabelledPair(first=f"the {WORDS[n % 7]}", second=f"{WORDS[n * 3 % 10]}", label=n / count)
        for n in range(count)
    ]


def fresh(bert, model_class=BiEncoder, **settings):
    set_seed(0)
    return model_class.from_pretrained(bert, dtype="float32", device="cpu", **settings)


def config(**settings):
    return TrainingConfig(**{"batch_size": 8, "max_steps": 4, "evaluations": 2, **settings})


def stop(words):
    raise KeyboardInterrupt


def test_an_output_in_use_is_refused_until_it_is_free(bert, tmp_path):
    output = tmp_path / "out"
    with (
        exclusive(tmp_path / ".out.training" / LOCK, "busy", "wait"),
        pytest.raises(UsageError, match=rf"Another process is training {output}\."),
    ):
        train(fresh(bert), examples(), output, config())
    train(fresh(bert), examples(), output, config())
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_unfinished_run_of_another_architecture_is_named(bert, tmp_path):
    output = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        train(fresh(bert), examples(), output, config(), say=stop)
    with pytest.raises(UsageError, match=r"with another architecture \(bi\)"):
        train(fresh(bert, CrossEncoder), examples(), output, config())
    with pytest.raises(UsageError, match=r"with other settings \(learning_rate = 5e-05\)"):
        train(fresh(bert), examples(), output, config(learning_rate=1e-4))
    with pytest.raises(UsageError, match="with other training data lies"):
        train(fresh(bert), examples(23), output, config())
    with pytest.raises(ModelError, match="is not a saved model"):
        load_model(tmp_path / ".out.training", device="cpu")


def test_a_learning_rate_that_diverges_stops_with_the_last_checkpoint(bert, tmp_path):
    output = tmp_path / "out"
    high = config(learning_rate=1e35, max_steps=40, warmup=20.0, dropout=0.1, max_grad_norm=1e30)
    with pytest.raises(TrainingError, match=r"Lower the learning rate"):
        train(fresh(bert), examples(), output, high, dev=dev())
    assert not output.exists()
    for folder in (tmp_path / ".out.training").glob("checkpoint-*"):
        weights = load_file(folder / "model.safetensors")
        assert all(bool(torch.isfinite(value).all()) for value in weights.values())


def test_a_loss_that_leaves_all_bounds_stops_the_run(bert, tmp_path):
    model = fresh(bert, similarity="dot", temperature=1.0, projection=8)
    rates = {"learning_rate": 1e-9, "new_learning_rate": 0.3, "max_grad_norm": 1e9}
    high = config(**rates, max_steps=110, warmup=100.0, evaluations=9)
    with pytest.raises(TrainingError, match="The loss has diverged: the median of the last 32"):
        train(model, examples(), tmp_path / "out", high)
    assert any((tmp_path / ".out.training").glob("checkpoint-*"))


def test_broken_weights_are_no_checkpoint(bert, tmp_path, monkeypatch):
    step = RankingTrainer.training_step

    def spoil(trainer, *arguments):
        loss = step(trainer, *arguments)
        if trainer.state.global_step == 3:
            next(trainer.model.parameters()).grad.fill_(math.nan)
        return loss

    monkeypatch.setattr(RankingTrainer, "training_step", spoil)
    with pytest.raises(TrainingError, match="Weights are infinite or NaN after step 4"):
        train(fresh(bert), examples(), tmp_path / "out", config(max_grad_norm=1e9))
    work = tmp_path / ".out.training"
    assert [path.name for path in work.glob("checkpoint-*")] == ["checkpoint-2"]


def test_a_batch_of_one_has_no_negatives(bert, tmp_path):
    with pytest.raises(UsageError, match="without negatives"):
        train(fresh(bert), examples(), tmp_path / "out", config(batch_size=1))
    own = [Example(context=e.context, response=e.response, negatives=("no",)) for e in examples()]
    train(fresh(bert), own, tmp_path / "out", config(batch_size=1))


@pytest.mark.parametrize(
    ("settings", "records", "message"),
    [
        ({"metric": "recall@9"}, dev, "only 5 candidates"),
        ({"metric": "spearman"}, dev, "for labelled pairs"),
        ({"metric": "mrr"}, pairs, "cannot give"),
        ({"schedule": "plateau"}, list, "needs dev data"),
        ({"trainable": "top"}, dev, None),
    ],
)
def test_metrics_that_the_dev_data_cannot_give(settings, records, message, bert, tmp_path):
    given, output = config(**settings), tmp_path / "out"
    if message is None:
        train(fresh(bert), examples(), output, given, dev=records())
        return
    with pytest.raises(UsageError, match=message):
        train(fresh(bert), examples(), output, given, dev=records())
    assert not (tmp_path / ".out.training").exists()


def test_dev_examples_without_candidates_get_some(bert, tmp_path):
    drawn = with_sampled_candidates(examples(), 20, seed=0)
    results = [
        train(fresh(bert), examples(), tmp_path / str(number), config(), dev=given)
        for number, given in enumerate((examples(), drawn))
    ]
    assert results[0].figures == results[1].figures


@pytest.mark.parametrize("metric", ["recall@3", "mrr", "recall@2"])
def test_the_best_checkpoint_by_any_metric(metric, bert, tmp_path):
    given = config(metric=metric, max_steps=9, evaluations=3, learning_rate=1e-3)
    result = train(fresh(bert), examples(), tmp_path / "out", given, dev=dev())
    evaluated = [entry for entry in result.history if f"eval_{metric}" in entry]
    assert [entry["step"] for entry in evaluated] == [3, 6, 9]
    best = max(evaluated, key=lambda entry: entry[f"eval_{metric}"])
    assert result.figures[metric] == best[f"eval_{metric}"]
    assert result.best_step == best["step"]


def test_evaluations_follow_the_epochs_and_the_last_step_is_one(bert, tmp_path):
    given = config(evaluations_per_epoch=2.0, max_steps=11, batch_size=4)  # 6 steps an epoch
    result = train(fresh(bert), examples(), tmp_path / "out", given, dev=dev())
    steps = [entry["step"] for entry in result.history if "eval_mrr" in entry]
    assert steps == [3, 6, 9, 11]


def test_the_card_the_log_and_the_record(bert, tmp_path):
    source = Provenance(
        base="some/encoder", train="a.jsonl", recipe="sbert-sts", command="polyrank train --x"
    )
    objective = ObjectiveConfig(objective="regression")
    result = train(
        fresh(bert),
        pairs(),
        tmp_path / "out",
        config(trainable="top"),
        objective=objective,
        dev=pairs(),
        provenance=source,
    )
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    front = ModelCard.load(tmp_path / "out" / "README.md").data
    assert front.to_dict() == {
        "base_model": "some/encoder",
        "library_name": "polyrank",
        "model-index": front.to_dict()["model-index"],
        "pipeline_tag": "sentence-similarity",
        "tags": ["polyrank", "bi-encoder"],
    }
    assert front.model_name == "out"
    found = {one.metric_type: one.metric_value for one in front.eval_results}
    assert found == {name: round(value, 4) for name, value in result.figures.items()}
    assert {one.dataset_name for one in front.eval_results} == {"dev data"}
    settings = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert settings["trainable"] == "top"
    assert settings["objective"] == "regression"
    record = json.loads((tmp_path / "out" / "training.json").read_text(encoding="utf-8"))
    said = ["16 labelled pairs", record["identity"]["examples"], "`a.jsonl`", "polyrank train --x"]
    for words in (*said, "sbert-sts", f"| spearman | {result.figures['spearman']:.4f} |", "cpu:"):
        assert words in card
    log = (tmp_path / "out" / "log.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in log.splitlines()]
    assert lines[0]["step"] == 1
    assert all({"step", "seconds"} < set(line) for line in lines)
    assert any("learning_rate" in line and "loss" in line for line in lines)
    assert lines[-1]["dev_spearman"] == result.history[-2]["eval_spearman"]


@pytest.mark.parametrize(("model_class", "has_codes"), [(PolyEncoder, True), (BiEncoder, False)])
def test_each_group_logs_its_learning_rate_by_its_own_name(model_class, has_codes, bert, tmp_path):
    given = config(learning_rate=2e-5, code_learning_rate=3e-4, warmup=1.0, max_steps=5)
    train(fresh(bert, model_class), examples(), tmp_path / "out", given)
    lines = (tmp_path / "out" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    entries = [entry for entry in map(json.loads, lines) if "learning_rate" in entry]
    rates = [entry["learning_rate"] for entry in entries]
    assert rates == pytest.approx([0.0, 2e-5, 1.5e-5, 1e-5, 0.5e-5])
    if has_codes:
        assert [one["code_learning_rate"] for one in entries] == pytest.approx(
            [rate * 15 for rate in rates]
        )
    assert has_codes == any("code_learning_rate" in entry for entry in entries)


@pytest.mark.parametrize(
    ("model_class", "settings"),
    [(BiEncoder, {}), (BiEncoder, {"shared_towers": True, "projection": 8}), (CrossEncoder, {})],
)
def test_the_counts_of_parameters_agree(model_class, settings, bert, tmp_path):
    model = fresh(bert, model_class, **settings)
    train(model, examples(), tmp_path / "out", config(trainable="top", num_negatives=2))
    record = json.loads((tmp_path / "out" / "training.json").read_text(encoding="utf-8"))
    counts = record["parameters"]
    loaded = load_model(tmp_path / "out", device="cpu")
    found = sum(one.numel() for one in loaded.parameters())  # as polyrank compare counts
    assert counts["total"] == found
    assert counts["trained"] + counts["frozen"] == found
    tower = loaded.towers[0].encoder
    top = sum(one.numel() for one in tower.encoder.layer[-1].parameters())
    outside = found - sum(one.numel() for each in loaded.towers for one in each.parameters())
    assert counts["trained"] == top * len(loaded.towers) + outside
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert (
        f"{found:,} parameters, of which {counts['trained']:,} were trained and "
        f"{counts['frozen']:,} were frozen." in card
    )
    assert "Beside them" not in card


def test_heads_that_are_not_kept_are_counted_apart(bert, tmp_path):
    model = load_variant("bi", bert, shared_towers=True, projection=8)
    train(model, records_of(24), tmp_path / "out", config(batch_size=12, max_steps=2))
    counts = json.loads((tmp_path / "out" / "training.json").read_text())["parameters"]
    assert counts["total"] == counts["trained"] == sum(one.numel() for one in model.parameters())
    assert f"Another {counts['beside']:,} were trained" in (tmp_path / "out/README.md").read_text()


def test_the_card_of_a_run_without_dev_data_from_a_folder(bert, tmp_path):
    source = Provenance(base=str(bert))
    train(fresh(bert), examples(), tmp_path / "out", config(), provenance=source)
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.base_model is None  # the hub does not know a folder
    assert card.data.pipeline_tag == "sentence-similarity"
    for words in (
        f"polyrank {__version__}, from `{bert}`",
        "There were no dev data",
        "(not named)",
    ):
        assert words in card.text
    assert "None" not in card.content


def test_numbers_that_json_lacks_are_null_in_the_log():
    assert json.loads(log_text([{"step": 1, "loss": math.nan}])) == {"step": 1, "loss": None}


def test_tensorboard_gets_what_is_logged(bert, tmp_path):
    board = tmp_path / "board"
    train(fresh(bert), examples(), tmp_path / "out", config(), dev=dev(), tensorboard=board)
    [events] = (board / "out").iterdir()
    content = events.read_bytes()
    assert b"train/loss" in content
    assert b"dev/recall@1" in content


def test_without_tensorboard_the_command_is_named(bert, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch.utils.tensorboard", None)
    with pytest.raises(MissingExtraError, match=r"polyrank\[tensorboard\]"):
        train(fresh(bert), examples(), tmp_path / "out", config(), tensorboard=tmp_path)


def test_everything_can_be_trained_again_after_a_run(bert, tmp_path):
    model = fresh(bert)
    train(model, examples(), tmp_path / "out", config(trainable="top"))
    assert all(parameter.requires_grad for parameter in model.parameters())

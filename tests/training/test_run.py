import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest
import torch

from polyrank import BiEncoder, CrossEncoder, PolyEncoder, load_model
from polyrank.data.examples import write_examples
from polyrank.errors import DataError, TrainingError, UsageError
from polyrank.evaluation.tasks import with_sampled_candidates
from polyrank.records import Example
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.identity import finished
from polyrank.training.run import train

WORDS = [
    "file",
    "disk",
    "kernel",
    "driver",
    "package",
    "network",
    "wifi",
    "sound",
    "screen",
    "index",
    "list",
    "sort",
]
CONFIG = TrainingConfig(batch_size=8, max_steps=6, evaluations=3, num_negatives=3, dropout=0.1)
MAKERS = {
    "bi": (BiEncoder, {}),
    "poly": (PolyEncoder, {"num_codes": 4}),
    "cross": (CrossEncoder, {"head": "linear"}),
}


def examples(count=48):
    """Contexts whose response repeats their last word."""
    made = []
    for number in range(count):
        first, last = WORDS[number % 10], WORDS[(number * 3 + number // 10) % 10]
        made.append(
            Example(context=(f"my {first}", f"what is {last}"), response=f"the {last} {number % 4}")
        )
    return made


def dev():
    return with_sampled_candidates(examples(), 5)[:20]


def fresh(kind, folder, **settings):
    model_class, own = MAKERS[kind]
    set_seed(0)
    return model_class.from_pretrained(folder, dtype="float32", device="cpu", **own, **settings)


def equal_weights(one, other):
    state = other.state_dict()
    return all(torch.equal(value, state[name]) for name, value in one.state_dict().items())


@pytest.mark.parametrize("kind", MAKERS)
def test_training_lowers_the_loss_and_leaves_a_model_folder(kind, bert, tmp_path):
    said = []
    config = TrainingConfig(
        batch_size=8, max_steps=40, learning_rate=5e-4, evaluations=2, num_negatives=3
    )
    model = fresh(kind, bert)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    result = train(model, examples(), tmp_path / "out", config, dev=dev(), say=said.append)
    losses = [entry["loss"] for entry in result.history if "loss" in entry]
    assert sum(losses[-5:]) < sum(losses[1:6])
    unchanged = [n for n, value in model.state_dict().items() if torch.equal(value, before[n])]
    assert not [name for name in unchanged if "position" not in name], "everything is trained"
    assert result.figures["recall@1"] == max(
        entry["eval_recall@1"] for entry in result.history if "eval_recall@1" in entry
    )
    assert any("dev R@1" in words for words in said)
    assert not (tmp_path / ".out.training").exists()
    assert equal_weights(load_model(tmp_path / "out", device="cpu"), model)


@pytest.mark.parametrize("kind", ["bi", "poly"])
def test_towers_diverge_and_shared_towers_do_not_exist_twice(kind, bert, tmp_path):
    model = fresh(kind, bert)
    train(model, examples(), tmp_path / "out", CONFIG)
    pairs = zip(model.context_tower.parameters(), model.candidate_tower.parameters(), strict=True)
    assert any(not torch.equal(one, other) for one, other in pairs)
    assert fresh(kind, bert, shared_towers=True).candidate_tower is None


def test_the_same_seed_gives_the_same_weights_and_another_seed_does_not(bert, tmp_path):
    models = []
    for number, seed in enumerate((0, 0, 1)):
        model = fresh("bi", bert)
        config = TrainingConfig(batch_size=8, max_steps=4, dropout=0.1, seed=seed)
        train(model, examples(), tmp_path / str(number), config)
        models.append(model)
    assert equal_weights(models[0], models[1])
    assert not equal_weights(models[0], models[2])


@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_a_resumed_run_equals_an_uninterrupted_one(kind, bert, tmp_path):
    whole = fresh(kind, bert)
    train(whole, examples(), tmp_path / "whole", CONFIG, dev=dev())

    class StopError(Exception):
        pass

    def stop(words):
        if words.startswith("step 4/"):
            raise StopError

    with pytest.raises(StopError):
        train(fresh(kind, bert), examples(), tmp_path / "cut", CONFIG, dev=dev(), say=stop)
    assert not (tmp_path / "cut").exists()
    said = []
    resumed = fresh(kind, bert)
    result = train(resumed, examples(), tmp_path / "cut", CONFIG, dev=dev(), say=said.append)
    assert said[0].startswith("Resuming after step")
    assert result.steps == 6
    assert equal_weights(whole, resumed)


@pytest.mark.parametrize("file", ["scheduler.pt", "model.safetensors", "trainer_state.json"])
def test_a_damaged_checkpoint_is_passed_over(file, bert, tmp_path):
    whole = fresh("bi", bert)
    train(whole, examples(), tmp_path / "whole", CONFIG)

    def stop(words):
        if words.startswith("step 5/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(fresh("bi", bert), examples(), tmp_path / "cut", CONFIG, say=stop)
    damaged = tmp_path / ".cut.training" / "checkpoint-4" / file
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    said, resumed = [], fresh("bi", bert)
    train(resumed, examples(), tmp_path / "cut", CONFIG, say=said.append)
    assert said[0] == "Resuming after step 2 of 6."
    assert equal_weights(whole, resumed)


def test_a_killed_run_resumes_where_it_was(bert, tmp_path):
    whole = fresh("bi", bert)
    train(whole, examples(), tmp_path / "whole", CONFIG)
    write_examples(tmp_path / "examples.jsonl", examples())
    script = textwrap.dedent("""
        import os, signal, sys
        from polyrank import BiEncoder
        from polyrank.data.loading import load_examples
        from polyrank.runtime import set_seed
        from polyrank.training.config import TrainingConfig
        from polyrank.training.run import train

        def die(words):
            if words.startswith("step 5/"):
                os.kill(os.getpid(), signal.SIGKILL)

        base, data, output = sys.argv[1:]
        set_seed(0)
        model = BiEncoder.from_pretrained(base, dtype="float32", device="cpu")
        config = TrainingConfig(
            batch_size=8, max_steps=6, evaluations=3, num_negatives=3, dropout=0.1
        )
        train(model, load_examples(data), output, config, say=die)
    """)
    arguments = [str(bert), str(tmp_path / "examples.jsonl"), str(tmp_path / "cut")]
    killed = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    said = []
    resumed = fresh("bi", bert)
    train(resumed, examples(), tmp_path / "cut", CONFIG, say=said.append)
    assert said[0] == "Resuming after step 4 of 6."
    assert equal_weights(whole, resumed)


def test_an_unfinished_run_with_other_settings_is_kept_until_restart(bert, tmp_path):
    def stop(words):
        raise KeyboardInterrupt

    output = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        train(fresh("bi", bert), examples(), output, CONFIG, say=stop)
    other = TrainingConfig(batch_size=8, max_steps=2)
    with pytest.raises(UsageError, match="other settings"):
        train(fresh("bi", bert), examples(), output, other)
    assert (tmp_path / ".out.training").exists()
    train(fresh("bi", bert), examples(), output, other, restart=True)
    assert finished(fresh("bi", bert), examples(), output, other)
    assert not finished(fresh("bi", bert), examples(), output, CONFIG)


def test_a_loss_that_is_not_finite_stops_and_keeps_what_was_there(bert, tmp_path):
    output = tmp_path / "out"
    train(fresh("bi", bert), examples(), output, CONFIG)
    kept = (output / "model.safetensors").read_bytes()
    broken = fresh("bi", bert)
    with torch.no_grad():
        next(broken.parameters()).fill_(float("nan"))
    with pytest.raises(TrainingError, match="loss is nan"):
        train(broken, examples(), output, CONFIG)
    assert (output / "model.safetensors").read_bytes() == kept


def test_too_few_examples_are_refused(bert, tmp_path):
    with pytest.raises(DataError, match="at least 2 examples"):
        train(fresh("bi", bert), examples()[:1], tmp_path / "out", CONFIG)


def test_a_classifying_cross_encoder_is_refused(bert, tmp_path):
    model = CrossEncoder.from_pretrained(bert, task="classify", device="cpu")
    with pytest.raises(UsageError, match="task = rank"):
        train(model, examples(), tmp_path / "out", CONFIG)


def test_mixed_precision_keeps_float32_weights(bert, tmp_path):
    model = BiEncoder.from_pretrained(bert, dtype="bfloat16", device="cpu")
    result = train(model, examples(), tmp_path / "out", CONFIG, dev=dev())
    assert all(value.dtype == torch.float32 for value in model.parameters())
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    assert record["best_step"] == result.best_step
    assert record["identity"]["dtype"] == "torch.bfloat16"

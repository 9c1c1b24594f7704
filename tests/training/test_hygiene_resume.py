"""A run that is cut off and started again makes the weights of one that was not."""

import json
import math
import shutil

import pytest
import torch

from polyrank import BiEncoder, CrossEncoder
from polyrank.errors import StorageError
from polyrank.evaluation.tasks import with_sampled_candidates
from polyrank.folder_files import checksums_of
from polyrank.records import Example, LabelledPair
from polyrank.runtime import set_seed
from polyrank.training import trainer as trainer_module
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.run import last_checkpoint, train
from polyrank.training.trainer import CHECKSUMS

WORDS = ["file", "disk", "kernel", "driver", "wifi", "sound", "screen", "index", "list", "sort"]


class CutError(Exception):
    """The run was cut off."""


def examples(count=32):
    return [
        Example(context=f"my {WORDS[n % 7]} {n % 4}", response=f"the {WORDS[n * 3 % 10]} {n % 5}")
        for n in range(count)
    ]


def dev():
    return with_sampled_candidates(examples(), 5)[:12]


def pairs(count=32):
    return [
        LabelledPair(
            first=f"the {WORDS[n % 7]}", second=f"{WORDS[n * 3 % 10]} {n}", label=n / count
        )
        for n in range(count)
    ]


def classes(count=32):
    return [
        LabelledPair(first=f"the {WORDS[n % 7]}", second=f"{WORDS[n * 3 % 10]} {n}", label=n % 3)
        for n in range(count)
    ]


# 32 records in steps of 8 are 4 steps an epoch: the cut comes in the second epoch
SETTINGS = {"batch_size": 8, "max_steps": 10, "dropout": 0.1, "evaluations": 5}
RUNS = {
    "plateau": (BiEncoder, {}, examples, dev, {"schedule": "plateau", "warmup": 2.0}, {}),
    "adamax": (BiEncoder, {}, examples, dev, {"optimiser": "adamax", "trainable": "top"}, {}),
    "negatives": (CrossEncoder, {}, examples, dev, {"num_negatives": 2}, {}),
    "extra": (BiEncoder, {}, examples, list, {}, {"extra_negatives": 2}),
    "scores": (BiEncoder, {}, pairs, pairs, {}, {"objective": "regression"}),
    "classes": (BiEncoder, {}, classes, classes, {}, {"objective": "classification"}),
    "cross": (CrossEncoder, {"task": "regress"}, pairs, pairs, {}, {"objective": "regression"}),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_resumed_run_equals_an_uninterrupted_one(kind, bert, tmp_path):
    model_class, settings, records, dev_records, training, objective = RUNS[kind]

    def go(output, say):
        set_seed(0)
        model = model_class.from_pretrained(bert, dtype="float32", device="cpu", **settings)
        result = train(
            model,
            records(),
            output,
            TrainingConfig(**SETTINGS, **training),
            objective=ObjectiveConfig(**objective),
            dev=dev_records(),
            say=say,
        )
        return model, result

    def cut(words):
        if words.startswith("step 7/"):
            raise CutError

    whole, expected = go(tmp_path / "whole", lambda words: None)
    with pytest.raises(CutError):
        go(tmp_path / "cut", cut)
    said = []
    resumed, found = go(tmp_path / "cut", said.append)
    assert said[0] == "Resuming after step 6 of 10."
    state = resumed.state_dict()
    different = [n for n, value in whole.state_dict().items() if not torch.equal(value, state[n])]
    assert not different
    assert found.figures == expected.figures
    assert [without_time(e) for e in found.history] == [without_time(e) for e in expected.history]
    logs = [(tmp_path / name / "log.jsonl").read_text().splitlines() for name in ("whole", "cut")]
    ours, theirs = ([json.loads(line) for line in lines] for lines in logs)
    assert [list(line) for line in ours] == [list(line) for line in theirs]
    assert [without_time(line) for line in ours] == [without_time(line) for line in theirs]


def without_time(entry):
    return {name: value for name, value in entry.items() if name not in TIMED}


TIMED = ("seconds", "train_runtime", "train_samples_per_second", "train_steps_per_second")
TIMED += ("total_flos", "train_loss")


def test_a_half_written_checkpoint_is_passed_over(tmp_path):
    whole, half, cut = (tmp_path / f"checkpoint-{number}" for number in (2, 4, 6))
    for folder in (whole, half, cut):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"weights")
    for folder in (whole, cut):
        (folder / CHECKSUMS).write_text(json.dumps(checksums_of(folder, without=CHECKSUMS)))
    (cut / CHECKSUMS).write_text('{"model.safe')
    assert last_checkpoint(tmp_path) == whole
    shutil.rmtree(whole)
    assert last_checkpoint(tmp_path) is None


@pytest.mark.parametrize("number", range(3))
def test_a_full_disk_keeps_the_last_checkpoint(number, bert, tmp_path, monkeypatch):
    failures = [
        OSError(28, "No space left on device"),
        RuntimeError("basic_ios::clear: iostream error"),
        OSError(122, "Disk quota exceeded"),
    ]
    config = TrainingConfig(batch_size=8, max_steps=4, evaluations=2)

    def go(output):
        set_seed(0)
        model = BiEncoder.from_pretrained(bert, dtype="float32", device="cpu")
        train(model, examples(), output, config)
        return model

    save, written = torch.save, []

    def fill(value, path, *rest):
        written.append(path)
        if "checkpoint-4" in str(path):
            raise failures[number]
        save(value, path, *rest)

    monkeypatch.setattr(torch, "save", fill)
    monkeypatch.setattr(trainer_module, "refusal", lambda folder: "No space left on device.")
    with pytest.raises(StorageError, match=r"checkpoint-4.*free some space.*resume from"):
        go(tmp_path / "out")
    monkeypatch.setattr(torch, "save", save)
    work = tmp_path / ".out.training"
    assert sorted(path.name for path in work.glob("checkpoint-*")) == ["checkpoint-2"]
    assert not (tmp_path / "out").exists()
    resumed, whole = go(tmp_path / "out"), go(tmp_path / "whole")
    state = resumed.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in whole.state_dict().items())
    assert not work.exists()
    assert all(math.isfinite(float(value.sum())) for value in state.values())

"""Two processes, as torchrun starts them, do what one does with the joined batches."""

import json
import textwrap

import pytest
import torch
from safetensors.torch import load_file

from launching import launch
from polyrank.cli.main import commands, run
from polyrank.data.examples import write_examples
from polyrank.errors import DataError, UsageError
from polyrank.jobs import Job
from polyrank.records import Example
from polyrank.training import processes
from polyrank.training.config import TrainingConfig
from polyrank.training.run import check_batches, resuming

WORDS = ["file", "disk", "kernel", "driver", "wifi", "sound", "screen", "index", "list", "sort"]


def examples(count=32):
    return [
        Example(context=f"my {WORDS[n % 7]} {n % 4}", response=f"the {WORDS[n * 3 % 10]} {n % 9}")
        for n in range(count)
    ]


def test_two_processes_make_the_weights_of_one(bert, tmp_path, capsys):
    data = tmp_path / "data.jsonl"
    write_examples(data, examples())
    arguments = ["train", "--arch", "poly", "--num-codes", "3", "--base", bert, "--train", data]
    arguments += ["--dev", data, "--batch-size", "8", "--max-steps", "6", "--evaluations", "2"]
    arguments += ["--learning-rate", "1e-3", "--dtype", "float32", "--device", "cpu", "--json"]
    arguments += ["--extra-negatives", "2", "--metric", "mrr"]
    started = launch("-m", "polyrank", *arguments, "--output", tmp_path / "two")
    assert started.returncode == 0, started.stderr
    assert run([*map(str, arguments), "--output", str(tmp_path / "one")], commands()) == 0
    one, two = (json.loads(text) for text in (capsys.readouterr().out, started.stdout))
    assert (two["steps"], two["pairs"], two["best_step"]) == (6, 48, one["best_step"])
    assert two["dev"] == pytest.approx(one["dev"])
    assert started.stderr.count("step 6/6  loss") == 1, "one process speaks"
    assert "2 processes on cpu" in started.stderr
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    for name, value in ours.items():
        if name.endswith("key.bias"):  # no score depends on it, and Adam enlarges its rounding
            continue
        torch.testing.assert_close(theirs[name], value, rtol=1e-3, atol=2e-4, msg=name)
    log = (tmp_path / "two" / "log.jsonl").read_text().splitlines()
    expected = (tmp_path / "one" / "log.jsonl").read_text().splitlines()
    entries = [[json.loads(line) for line in lines] for lines in (log, expected)]
    losses = [[entry["loss"] for entry in lines if "loss" in entry] for lines in entries]
    assert len(losses[0]) == 6
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_processes_that_disagree_on_the_data_stop_with_one_message(bert, tmp_path):
    data = tmp_path / "data.jsonl"
    write_examples(data, examples())
    script = tmp_path / "odd.py"
    script.write_text(
        textwrap.dedent("""
            import os, sys
            from polyrank.__main__ import main

            sys.argv += ["--limit", "30" if os.environ["RANK"] == "0" else "31"]
            main()
        """)
    )
    arguments = ["train", "--arch", "bi", "--base", bert, "--train", data, "--batch-size", "4"]
    arguments += ["--output", tmp_path / "out", "--device", "cpu"]
    found = launch(script, *arguments)
    assert found.returncode != 0
    assert found.stderr.count("Error: ") - found.stderr.count("ChildFailedError: ") == 1
    assert "The processes do not agree on the run: process 1 has other training data" in (
        found.stderr
    )
    assert not (tmp_path / "out").exists()


def pretend(monkeypatch, number):
    for name in processes.LAUNCHED:
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", str(number))


def test_steps_that_cannot_be_shared_out_are_refused(monkeypatch):
    check_batches(5, TrainingConfig(batch_size=7))
    pretend(monkeypatch, 4)
    check_batches(100, TrainingConfig(batch_size=12))
    with pytest.raises(UsageError, match="cannot be divided among 4 processes"):
        check_batches(100, TrainingConfig(batch_size=10))
    with pytest.raises(UsageError, match="there are only 11 examples"):
        check_batches(11, TrainingConfig(batch_size=12))


@pytest.mark.parametrize("number", [0, 1])
def test_only_the_first_process_holds_the_folder(number, tmp_path, monkeypatch):
    pretend(monkeypatch, 2)
    monkeypatch.setenv("RANK", str(number))
    job = Job(output=tmp_path / "out", doing="training", noun="run", identity={"seed": 0})
    with resuming(job, restart=False) as checkpoint:
        assert checkpoint is None
        assert job.work.exists() == (number == 0)
    assert list(tmp_path.iterdir()) == []


def test_one_process_needs_nobody(monkeypatch):
    assert processes.gather_objects(3) == [3]
    assert processes.run_on_first(lambda: 4) == 4
    assert processes.own_device("auto") == "auto"
    with pytest.raises(DataError, match="a b") as caught, processes.sharing_errors():
        raise DataError("a", "b")
    assert not caught.value.said_elsewhere
    monkeypatch.setenv("WORLD_SIZE", "8")  # some schedulers set it where nothing was launched
    assert processes.count() == 1

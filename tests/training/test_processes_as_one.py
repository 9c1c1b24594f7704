"""Two processes end a step with the gradients of one that has the joined batch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from objective_cases import TEACHERS, assert_equal_steps, run_step, setup_of
from process_cases import COMBINATIONS
from safetensors.torch import load_file

from polyrank.data.answers import text_identity

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def of_two(bert, tmp_path_factory):
    """What each of two processes has written."""
    meeting = tmp_path_factory.mktemp("meeting")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), *filter(None, sys.path)]),
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-W", "error::UserWarning", HERE / "two_processes.py", bert, meeting]
    running = [
        subprocess.Popen([*map(str, command), str(rank)], env=environment) for rank in range(2)
    ]
    assert [process.wait(timeout=600) for process in running] == [0, 0]
    return [load_file(meeting / f"{rank}.safetensors") for rank in range(2)]


def step_of(tensors, name):
    """Loss and gradients of one combination."""
    found = {
        key.partition("|")[2]: value for key, value in tensors.items() if key.startswith(f"{name}|")
    }
    return found.pop("loss"), found


@pytest.mark.parametrize("name", COMBINATIONS)
def test_gradients_of_two_processes_are_those_of_the_joined_batch(name, of_two, bert):
    variant, case, _, settings = COMBINATIONS[name]
    module, collator, dataset = setup_of(variant, bert, case, **settings)
    joined = run_step(module, collator, dataset)
    reads_pairs = variant.startswith("cross") or "cross" in TEACHERS.get(case, ())
    single = {"rtol": 1e-4, "atol": 1e-5} if reads_pairs else {"rtol": 1e-6, "atol": 1e-8}
    for tensors in of_two:
        assert_equal_steps(step_of(tensors, name), joined, **single)


@pytest.mark.parametrize("name", COMBINATIONS)
def test_both_processes_end_with_the_same(name, of_two):
    (loss, gradients), (other_loss, other) = (step_of(tensors, name) for tensors in of_two)
    assert torch.equal(loss, other_loss)
    assert all(torch.equal(gradient, other[key]) for key, gradient in gradients.items())


def test_a_wrapped_module_adds_to_earlier_gradients(of_two, bert):
    module, collator, dataset = setup_of("bi", bert, "softmax")
    _, once = run_step(module, collator, dataset)
    for tensors in of_two:
        found = {k.partition("|")[2]: v for k, v in tensors.items() if k.startswith("wrapped|")}
        assert found.keys() == once.keys()
        for key, gradient in once.items():
            torch.testing.assert_close(found[key], 2 * gradient, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("name", "counts"), [("uneven", (3, 1)), ("one-sided", (0, 2))])
def test_gathered_rows_and_their_gradients(name, counts, of_two):
    rows = [torch.arange(2.0 * counts[rank]).view(-1, 2) + 100 * rank for rank in range(2)]
    for rank, tensors in enumerate(of_two):
        expected = torch.cat([rows[rank], rows[1 - rank]])
        assert torch.equal(tensors[f"{name}|rows"], expected), "the own rows come first"
        assert torch.equal(tensors[f"{name}|gradient"], 3 * 2 * rows[rank])
    assert of_two[0]["none|rows"].shape == (0, 2)


def test_equal_texts_have_equal_numbers_in_every_process(of_two):
    own = text_identity(("a turn", "another"))
    assert all(tensors["text"].item() == own for tensors in of_two)
    different = [("a turn", "another"), ("a turnanother",), "a turn", "", ("", ""), "\ud800"]
    assert len({text_identity(text) for text in different}) == len(different)
    assert text_identity("a") == text_identity(("a",))

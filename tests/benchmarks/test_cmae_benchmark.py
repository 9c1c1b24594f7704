"""The comparison of what comes before fine-tuning: its data, its figures, and that it resumes."""

import json
import math
import random

import pytest
import torch
from benchmarks.cmae import conversations_of, effective_dimensions, group_of, main
from benchmarks.ledger import Ledger
from benchmarks.parts import share_of
from test_parts import DAYS, reply, sentence, write_lines

from benchmarks import cmae


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Dialogues of 30 services, and conversations of 30 days."""
    folder, draw = tmp_path_factory.mktemp("sets"), random.Random(0)
    dialogues = [
        {
            "id": f"1_{number:05}",
            "services": [f"Service_{number % DAYS}", "Common_1"],
            "turns": [
                {"speaker": "USER" if turn % 2 else "SYSTEM", "text": sentence(draw)}
                for turn in range(12)
            ],
        }
        for number in range(3 * DAYS)
    ]
    write_lines(folder / "sgd/dialogs.train.jsonl.xz", dialogues)
    dev = reply(draw, 31, 0, candidates=["yes", "no"], gold=0)
    write_lines(folder / "sgd/dev.jsonl.xz", [{**dev, "response": "yes"}])
    days = [
        {
            "id": f"2004-01-{number % DAYS:02}.train-a#{number}",
            "turns": [{"speaker": "a", "text": sentence(draw)} for _ in range(3)],
        }
        for number in range(3 * DAYS)
    ]
    write_lines(folder / "ubuntu_irc/conversations.train.jsonl.xz", days)
    return folder


@pytest.mark.parametrize(("name", "length"), [("ubuntu_irc", 18), ("sgd", 10)])
def test_nothing_that_is_chosen_by_is_pre_trained_on(data, tmp_path, name, length):
    file = conversations_of(data, name, tmp_path)
    records = [json.loads(line) for line in file.read_text().splitlines()]
    groups = {group_of(name, record) for record in records}
    assert 0.7 * DAYS < len(groups) < DAYS
    assert 0 not in {share_of(group) for group in groups}
    assert len(records) == 3 * len(groups)
    assert max(map(len, groups)) == length


def test_effective_dimensions():
    """Those of equal shares are all of them; a constant added to all vectors does not count."""
    axes = torch.cat([torch.eye(5), -torch.eye(5)])
    assert effective_dimensions(axes + 7) == pytest.approx(5)
    assert effective_dimensions(torch.arange(8.0)[:, None] * torch.ones(3)) == pytest.approx(1)
    shares = torch.tensor([0.5, 0.25, 0.25])
    spread = torch.cat([each * shares.sqrt().diag() for each in (torch.eye(3), -torch.eye(3))])
    assert effective_dimensions(spread) == pytest.approx(math.exp(1.5 * math.log(2)))


def test_all_have_the_same_steps_and_nothing_is_done_twice(
    bert, data, tmp_path, monkeypatch, capsys
):
    shorter = {"max_context_length": 48, "max_candidate_length": 24}
    monkeypatch.setitem(cmae.LENGTHS, "sgd", shorter)
    given = [str(data), "--work", str(tmp_path), "--ledger", str(tmp_path / "ledger.json")]
    given += ["--output", str(tmp_path / "cmae.json"), "--base", str(bert), "--sets", "sgd"]
    given += ["--before", "cmae,three_classes,none", "--models", "bi", "--steps", "2"]
    given += ["--tuning-steps", "3", "--batch", "4", "--evaluations", "1", "--device", "cpu"]
    main([*given, "--limit", "5"])
    entries = {entry.name: entry for entry in Ledger(tmp_path / "ledger.json").entries()}
    assert {name: entry.steps for name, entry in entries.items()} == {
        "bi after cmae": 3,
        "bi after three_classes": 3,
        "bi after none": 5,
    }
    assert len({entry.recipe.base for entry in entries.values()}) == 3
    said = capsys.readouterr().out
    row = next(line for line in said.splitlines() if line.startswith("| sgd | cmae |"))
    own, other, dimensions = (float(cell) for cell in row.split("|")[3:6])
    assert own > 0
    assert other > 0
    assert 1 < dimensions < 32
    assert "## sgd, choose:5" in said

    def again(*_, **__):
        raise AssertionError("this was done before")

    for name in (
        "benchmarks.cmae.call",
        "benchmarks.cmae.diagnosed",
        "benchmarks.protocol.trained",
    ):
        monkeypatch.setattr(name, again)
    main([*given, "--limit", "5"])
    assert row in capsys.readouterr().out

"""The ladder: cheapest rung first, resumed, never repeated; tables and plots of finished rungs."""

import dataclasses
import json
import math

import pytest
from benchmarks.ladder import Ladder, base_of, count_of, ledger_of, rungs_of, short

from benchmarks import ladder as ladders
from benchmarks import protocol
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.config import NewEncoderConfig

RECIPES = {
    "bi": {"arch": "bi", "training": {"batch_size": 4}},
    "poly": {"arch": "poly", "settings": {"num_codes": 3}, "training": {"batch_size": 4}},
}


@pytest.fixture
def ladder(work, ledger, bert):
    rungs = rungs_of(RECIPES, [8, 16], [0], set="sgd", base=str(bert), device="cpu")
    return Ladder(rungs=rungs, data=work, work=work, ledger=ledger)


def names(ladder):
    return [entry.name for entry in ladder.ledger.entries()]


def test_rungs_have_as_many_steps_as_their_budget(ladder):
    found = [(rung.plan.name, rung.plan.training["max_steps"]) for rung in ladder.rungs]
    assert found == [("bi 8", 2), ("bi 16", 4), ("poly 8", 2), ("poly 16", 4)]
    assert (short(40_000), count_of("40k"), short(8), count_of("8")) == ("40k", 40_000, "8", 8)


def test_recipes_that_cannot_be_trained_are_left_out(bert, capsys):
    recipes = {**RECIPES, "future": {"arch": "bi", "settings": {"futuristic": True}}}
    rungs = rungs_of(recipes, [8], [0], set="sgd", base=str(bert))
    assert [rung.recipe for rung in rungs] == ["bi", "poly"]
    assert "future is left out" in capsys.readouterr().err


def test_the_cheapest_rung_comes_next(ladder, monkeypatch):
    monkeypatch.setattr(Ladder, "seconds_per_context", lambda _: {"bi": 1.0, "poly": 1.5})
    order = []

    def note(plan, *arguments, **options):
        order.append(plan.name)
        monkeypatch.setattr(Ladder, "entry", lambda _, rung: rung.plan.name in order or None)

    monkeypatch.setattr(protocol, "run", note)
    ladder.climb()
    assert order == ["bi 8", "poly 8", "bi 16", "poly 16"]


def test_prices_are_measured_where_they_can_be(ladder):
    assert ladder.seconds_per_context() == {"bi": 1.0, "poly": ladders.DEAREST}
    ladder.rungs = ladder.rungs[:1]
    ladder.climb()
    (entry,) = ladder.ledger.entries()
    assert ladder.seconds_per_context() == {"bi": entry.seconds / 8}


def test_the_ladder_stops_when_the_hours_are_over_and_resumes(ladder, capsys, monkeypatch):
    ladder.rungs = [rung for rung in ladder.rungs if rung.plan.name == "bi 16"]

    def over(words):
        if words.startswith("step 3/4"):
            raise ladders.TimeOverError
        protocol.say(words)

    monkeypatch.setattr(ladder, "say", over)
    ladder.climb()
    assert names(ladder) == []
    assert "The hours are over" in capsys.readouterr().err
    monkeypatch.undo()
    ladder.climb()
    assert names(ladder) == ["bi 16"]
    assert "Resuming after step 2 of 4" in capsys.readouterr().err
    ladder.climb()
    assert "step" not in capsys.readouterr().err


def test_no_hours_train_nothing(ladder):
    ladder.deadline = -math.inf
    ladder.climb()
    assert names(ladder) == []


def test_the_command_writes_tables_and_plots(work, bert, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    (tmp_path / "more.json").write_text(json.dumps(RECIPES))
    start = [str(work), "--work", str(work), "--output", str(tmp_path / "out"), "--set", "sgd"]
    start += ["--recipes", "bi,poly", "--more", str(tmp_path / "more.json"), "--base", str(bert)]
    start += ["--rungs", "4,8", "--device", "cpu", "--rounds", "1"]
    start += ["--ledger", str(tmp_path / "ladder.json")]
    assert ladders.main(start) == 0
    page = capsys.readouterr().out
    assert page.endswith((tmp_path / "out/ladder.md").read_text())
    assert page.index("## 4 contexts") < page.index("## 8 contexts") < page.index("ms of a context")
    for plot in ("budgets", "latency"):
        assert (tmp_path / f"out/{plot}.png").stat().st_size > 5000
        assert ">poly<" in (tmp_path / f"out/{plot}.svg").read_text()
    assert ladders.main([*start[:-1], str(tmp_path / "none.json"), "--recipes", "bo"]) == 2
    assert "no recipe 'bo'" in capsys.readouterr().err


def test_a_new_base_has_the_words_of_the_set(work, monkeypatch):
    small = NewEncoderConfig(num_layers=1, width=16, num_heads=2, vocabulary=200)
    monkeypatch.setitem(ladders.NEW_BASES, "tiny", small)
    folder = base_of("tiny", work, "sgd", work)
    made = BiEncoder.from_pretrained(folder, device="cpu")
    assert made.dimension == 16
    assert "is" in made.tokenizer.pretrained.get_vocab()  # of every response
    assert base_of("tiny", work, "sgd", work) == folder
    assert base_of("elsewhere", work, "sgd", work) == "elsewhere"
    assert base_of(None, work, "sgd", work) is None


def test_each_kind_of_machine_has_its_own_ledger():
    path = ledger_of("cpu")
    assert path.name.startswith("ladder-")
    assert path.name.endswith("threads.json")
    assert dataclasses.is_dataclass(Ladder)

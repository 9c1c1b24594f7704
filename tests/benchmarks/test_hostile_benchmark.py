"""The long hostile trial: shares of time, seeds, cases, and what a failure said."""

import time

import pytest
from benchmarks.results_store import ResultsStore

from benchmarks import hostile

TESTS = """
import os

def test_one(record_property):
    record_property("cases", 5)

def test_two(tmp_path):
    assert os.environ["SEED"] != "1", "seed one"
"""


@pytest.fixture
def trials(tmp_path, monkeypatch):
    file = tmp_path / "test_drawn.py"
    file.write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    trial = hostile.Trial(
        title="two tests",
        tests=(str(file),),
        environment=lambda seed: {"SEED": str(seed)},
        seconds=60,
    )
    monkeypatch.setattr(hostile, "TRIALS", {"drawn": trial})


def test_cases_and_failures_are_filed_by_seed(trials, tmp_path):
    store = ResultsStore(tmp_path / "hostile.json")
    for seed in range(3):
        store.add(f"trial=drawn seed={seed}", hostile.tried(hostile.TRIALS["drawn"], seed))
    found = ResultsStore(store.path).results
    name = "test_drawn.py::test_two"
    assert [each["cases"] for each in found.values()] == [6, 6, 6]
    assert [list(each["failed"]) for each in found.values()] == [[], [name], []]
    said = found["trial=drawn seed=1"]["failed"][name]
    assert "seed one" in said
    assert "PosixPath('$TMPDIR/" in said
    rows = hostile.report(store).splitlines()[2:]
    assert rows[0].startswith("| two tests | 18 | 1 | 6 |")
    assert rows[1].startswith("| all | 18 | 1 | 6 |")


def test_a_trial_that_hangs_is_a_failure():
    trial = hostile.Trial(title="", tests=(), environment=lambda seed: {}, seconds=0)
    assert hostile.tried(trial, 0)["failed"] == {"all": "hung after 0 s"}


def test_trials_have_their_share_of_the_time_and_new_seeds(tmp_path, monkeypatch):
    trials = {
        name: hostile.Trial(title="", tests=(), environment=lambda _: {}, seconds=1, share=share)
        for name, share in (("often", 3), ("seldom", 1))
    }
    monkeypatch.setattr(hostile, "TRIALS", trials)
    store = ResultsStore(tmp_path / "hostile.json")
    store.add("trial=often seed=0", {"cases": 1})
    schedule = hostile.Schedule(list(trials), store, time.monotonic() + 60)
    taken = [schedule.next() for _ in range(8)]
    assert [name for name, _ in taken].count("often") == 6
    assert sorted(seed for name, seed in taken if name == "often") == [1, 2, 3, 4, 5, 6]
    schedule.end = 0.0
    assert schedule.next() is None

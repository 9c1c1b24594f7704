"""Students beside their teachers: every run is filed, none is repeated, and how far they got."""

import numpy as np
import pytest
import torch
from benchmarks.ledger import Ledger
from benchmarks.teaching import Together, way_to_teacher

from benchmarks import runs, teaching
from tiny_encoders import load_variant

STEPS = '{"max_steps": 2, "batch_size": 4}'


def arguments(work, bert, *more):
    start = [str(work), "--work", str(work), "--ledger", str(work / "ledger.json"), "--set", "sgd"]
    start += ["--base", str(bert), "--device", "cpu", "--dtype", "float32", "--training", STEPS]
    return [*start, "--temperatures", "1", "--shares", "0.5,1", *map(str, more)]


def test_an_experiment_is_filed_and_not_repeated(work, bert, capsys, monkeypatch):
    given = arguments(work, bert, "--students", "poly-3", "--seeds", "0,1")
    given += ["--teacher-training", STEPS, "--teacher-settings", '{"head": "linear"}']
    assert teaching.main(given) == 0
    page = capsys.readouterr().out
    entries = Ledger(work / "ledger.json").entries()
    trained = [entry for entry in entries if entry.steps]
    by_teacher = [len((entry.recipe.teacher or "").split(" + ")) for entry in trained]
    assert len(trained) == 2 + 2 + 3, "teachers, untaught and taught students"
    assert by_teacher.count(2) == 3
    assert [entry.name for entry in entries if not entry.steps] == ["teachers together"]
    for words in ("## poly-3", "| poly-3 taught T 1 share ", "## Chosen on `choose`"):
        assert words in page
    assert page.count("of the way to the teachers") + page.count("are not above the untaught") == 2
    monkeypatch.setattr(runs, "train", None)
    assert teaching.main(given) == 0
    assert page.endswith(capsys.readouterr().out)


def test_a_given_teacher_on_dev(work, bert, capsys):
    load_variant("cross-interaction", bert).save_pretrained(work / "mine")
    given = arguments(work, bert, "--students", "bi", "--seeds", "0", "--teacher", work / "mine")
    assert teaching.main([*given, "--on", "dev", "--shares", "1"]) == 0
    found = {(entry.name, entry.on) for entry in Ledger(work / "ledger.json").entries()}
    names = ("mine", "bi", "bi taught T 1 share 1")
    assert found == {(name, on) for name in names for on in ("choose", "dev")}
    assert teaching.main([*given, "--teacher", str(work / "none")]) == 2
    assert "none" in capsys.readouterr().err


def test_the_way_to_the_teacher():
    draw = np.random.default_rng(0)
    untaught = draw.random(500)
    teacher = untaught + 0.2 + 0.1 * draw.random(500)
    share, interval = way_to_teacher(untaught, untaught + 0.6 * (teacher - untaught), teacher)
    assert (share, *interval) == pytest.approx((0.6, 0.6, 0.6))
    noise = untaught + 0.6 * (teacher - untaught) + 0.1 * draw.standard_normal(500)
    share, (low, high) = way_to_teacher(untaught, noise, teacher)
    assert 0.5 < low < share < high < 0.7
    few = np.array([0.0, 0.0, 1.0])
    assert way_to_teacher(np.zeros(3), few, few) == (1.0, None)


def test_models_together_rank_by_the_mean_of_their_distributions(bert):
    models = [load_variant("cross", bert), load_variant("bi", bert, temperature=0.05)]
    contexts, texts = [("a", "dialogue"), "a text"], ["the file", "a disk", "yes"]
    pairs = [(context, text) for text in texts for context in contexts]
    found = Together(models).score_pairs(pairs).view(3, 2).T.softmax(dim=1)
    each = [models[0].score(contexts, texts), models[1].score(contexts, texts) / 0.05]
    expected = torch.stack([scores.double().softmax(dim=1) for scores in each]).mean(dim=0)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

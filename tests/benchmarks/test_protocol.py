"""Runs of the protocol: filed with all they depend on, measured on dev once, trained once."""

import dataclasses
import json

import numpy as np
import pytest
from benchmarks.ledger import Entry, Ledger, Recipe, packed, unpacked
from benchmarks.ledger_tables import report
from benchmarks.parts import NUM_CANDIDATES
from protocol_data import TRAINING

from benchmarks import protocol, runs
from polyrank.errors import UsageError
from tiny_encoders import load_variant


def run(plan, on, work, ledger):
    return protocol.run(plan, on, work, work, ledger)


def test_a_run_is_filed_with_what_it_depends_on(plan, work, ledger):
    (entry,) = run(plan, "choose", work, ledger)
    (filed,) = ledger.entries()
    assert filed == entry
    assert filed.recipe.training == TRAINING
    assert filed.recipe.base.startswith(f"{plan.base.rpartition('/')[2]} ")
    assert (filed.steps, filed.contexts, filed.count) == (2, 8, 24)
    assert filed.seconds > 0
    assert filed.commit
    assert "cpu" in filed.hardware
    values = filed.query_metrics().values
    assert filed.figures == pytest.approx({n: v.mean() for n, v in values.items()}, abs=1e-5)


def test_dev_is_measured_once(plan, work, ledger):
    entries = run(plan, "dev", work, ledger)
    assert [entry.on for entry in entries] == ["choose", "dev"]
    with pytest.raises(UsageError, match=rf"already measured.*{entries[1].figures['mrr']:.4f}"):
        run(plan, "dev", work, ledger)
    with pytest.raises(UsageError, match="already measured"):
        ledger.add(entries[1])
    run(dataclasses.replace(plan, seed=1), "dev", work, ledger)
    assert len(ledger.entries()) == 4


def test_choose_may_be_measured_in_part_and_dev_may_not(plan, work, ledger):
    (part,) = protocol.run(plan, "choose", work, work, ledger, limit=5)
    (whole,) = run(plan, "choose", work, ledger)
    assert (part.on, part.count) == ("choose:5", 5)
    assert whole.query_metrics().values["mrr"][:5].tolist() == pytest.approx(
        part.query_metrics().values["mrr"].tolist(), abs=1e-6
    )
    with pytest.raises(UsageError, match="measured whole"):
        protocol.run(plan, "dev", work, work, ledger, limit=5)


def test_a_run_with_the_same_settings_is_not_repeated(plan, work, ledger, monkeypatch):
    run(plan, "choose", work, ledger)
    monkeypatch.setattr(runs, "train", None)
    renamed = dataclasses.replace(plan, name="other", settings={"reduction": "mean"})
    assert run(renamed, "choose", work, ledger) == ledger.entries()  # by its recipe
    assert [entry.on for entry in run(plan, "dev", work, ledger)] == ["choose", "dev"]
    assert [entry.on for entry in ledger.entries()] == ["choose", "dev"]


def test_an_interrupted_run_resumes(plan, work, ledger, capsys):
    whole = run(plan, "choose", work, ledger)[0]
    again = dataclasses.replace(plan, revision=1)

    def stop_at_the_last_step(words):
        if words.startswith("step 2/2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        protocol.run(again, "choose", work, work, ledger, say=stop_at_the_last_step)
    assert not again.folder(work).exists()
    assert ledger.entries() == [whole]
    resumed = run(again, "choose", work, ledger)[0]
    assert "Resuming after step 1 of 2" in capsys.readouterr().err
    assert resumed.values == whole.values
    assert resumed.key != whole.key


def test_several_teachers_are_filed_in_whatever_order(plan, work, ledger, bert, tmp_path):
    for name, variant in (("a", "bi"), ("b", "cross")):
        load_variant(variant, bert).save_pretrained(tmp_path / name)
    training = {**TRAINING, "objective": "in_batch_softmax", "teacher_candidates": 2}
    teachers = (str(tmp_path / "a"), str(tmp_path / "b"))
    taught = dataclasses.replace(plan, training=training, teachers=teachers)
    (entry,) = run(taught, "choose", work, ledger)
    first, second = (entry.recipe.teacher or "").split(" + ")
    assert (first[:2], second[:2]) == ("a ", "b ")
    turned = dataclasses.replace(taught, teachers=teachers[::-1])
    assert run(turned, "choose", work, ledger) == [entry]


def test_an_untrained_model_is_measured(plan, work, ledger):
    (entry,) = run(dataclasses.replace(plan, training=runs.UNTRAINED), "choose", work, ledger)
    assert (entry.steps, entry.seconds) == (0, 0)
    assert not (work / "models").exists()


def test_recipes_name_what_differs_from_the_first_defaults(plan, monkeypatch, tmp_path):
    assert plan.recipe().settings == {}
    given = dataclasses.replace(plan, settings={"reduction": "first", "temperature": 0.05})
    assert given.recipe().settings == {"reduction": "first"}
    before = json.loads(runs.DEFAULTS.read_text())
    before["model bi"]["temperature"] = 1.0  # as if the default had been another then
    (tmp_path / "defaults.json").write_text(json.dumps(before))
    monkeypatch.setattr(runs, "DEFAULTS", tmp_path / "defaults.json")
    assert plan.recipe().settings == {"temperature": 0.05}
    assert plan.recipe().digest("sgd") != Recipe(arch="bi", base=plan.recipe().base).digest("sgd")


def test_settings_of_teaching_count_only_where_something_is_taught(plan, tmp_path):
    (tmp_path / "mined.jsonl").write_text('{"context": "a", "response": "b"}\n')
    mined = dataclasses.replace(plan, examples=tmp_path / "mined.jsonl")
    assert "teacher_share" not in mined.recipe().training
    hot = dataclasses.replace(mined, training={**plan.training, "distillation_temperature": 3.0})
    assert hot.recipe().training["distillation_temperature"] == 3.0
    alone = dataclasses.replace(hot, examples=None)
    assert alone.recipe() == plan.recipe()


def test_new_settings_are_added_to_the_first_defaults(monkeypatch, tmp_path):
    before = json.loads(runs.DEFAULTS.read_text())
    del before["model cross"]["reading"]
    before["training"]["epochs"] = 7.0
    (tmp_path / "defaults.json").write_text(json.dumps(before))
    monkeypatch.setattr(runs, "DEFAULTS", tmp_path / "defaults.json")
    runs.complete_defaults()
    after = json.loads(runs.DEFAULTS.read_text())
    assert after["model cross"]["reading"] == "auto"
    assert after["training"]["epochs"] == 7.0


def test_lengths_of_the_set_are_in_no_recipe(plan):
    usual = dataclasses.replace(plan, settings={"max_candidate_length": 64})
    other = dataclasses.replace(plan, settings={"max_candidate_length": 128})
    assert usual.recipe() == plan.recipe()
    assert other.recipe().settings == {"max_candidate_length": 128}


def test_a_name_with_a_comma_is_refused(plan):
    with pytest.raises(UsageError, match="has a comma"):
        dataclasses.replace(plan, name="poly, taught")


def test_unknown_settings_are_refused(plan):
    with pytest.raises(UsageError, match="reductoin"):
        dataclasses.replace(plan, settings={"reductoin": "first"}).recipe()


@pytest.mark.parametrize(
    "values", [[1, 0, 1], [1 / rank for rank in range(1, 36)], [1 / 40, 0.41667, 0, 1], [0.75]]
)
def test_values_survive_packing(values):
    kept = json.loads(json.dumps(packed(values)))
    assert np.allclose(unpacked(kept), values, atol=1e-6)


def entry(name, seed, ranks, on="choose", **recipe):
    values = {"recall@1": [float(r == 1) for r in ranks], "mrr": [1 / r for r in ranks]}
    return Entry(
        name=name,
        set="sgd",
        on=on,
        recipe=Recipe(arch="bi", settings={"name": name}, **recipe),
        seed=seed,
        examples="abc",
        count=len(ranks),
        figures={metric: float(np.mean(own)) for metric, own in values.items()},
        values={metric: packed(own) for metric, own in values.items()},
    )


def test_the_report_averages_seeds_and_tests_recipes(ledger):
    draw = np.random.default_rng(0)
    for seed in range(2):
        ledger.add(entry("good", seed, draw.integers(1, 3, 200)))
        ledger.add(entry("bad", seed, draw.integers(5, NUM_CANDIDATES, 200)))
    page = report(ledger.entries())
    assert "Runs: 4, of 2 recipes" in page
    assert page.index("| good |") < page.index("| bad |")
    assert "| name | R@1/20 | MRR | R@1/20 by seed |" in page
    rows = [line for line in page.splitlines() if line.startswith("| good | bad |")]
    assert len(rows) == 2  # R@1/20 and MRR
    assert all("< 0.001" in row for row in rows)


def test_two_writers_keep_each_others_entries(tmp_path):
    first, second = Ledger(tmp_path / "one.json"), Ledger(tmp_path / "one.json")
    first.add(entry("a", 0, [1]))
    second.add(entry("b", 0, [2]))
    first.add(entry("c", 0, [3]))
    assert [one.name for one in first.entries()] == ["a", "b", "c"]


def test_the_command_line_refuses_with_two(work, plan, capsys):
    common = ["run", "--set", "sgd", "--arch", "bi", "--work", str(work), "--device", "cpu"]
    common += ["--base", plan.base, "--training", json.dumps(TRAINING), "--on", "dev"]
    start = [str(work), "--ledger", str(work / "ledger.json")]
    assert protocol.main([*start, *common]) == 0
    assert protocol.main([*start, *common]) == 2
    assert "already measured on the dev part of sgd" in capsys.readouterr().err
    assert protocol.main([*start, "report", "--set", "sgd", "--on", "dev"]) == 0
    assert "Runs: 1, of 1 recipes" in capsys.readouterr().out

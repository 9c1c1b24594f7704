"""`polyrank.train` as people call it: keywords, data of any kind, words on standard error."""

import datasets
import pytest
import torch

import polyrank
from polyrank import BiEncoder, CrossEncoder, Example, LabelledPair, ObjectiveConfig, TrainingConfig
from polyrank.errors import DataError, UsageError
from polyrank.runtime import set_seed
from polyrank.training.given import ELSEWHERE

ROWS = [{"question": f"what is file {row}", "answer": f"a list {row}"} for row in range(20)]
QUICK = {"batch_size": 4, "max_steps": 2, "evaluations": 1}


@pytest.fixture
def model(bert):
    set_seed(0)
    return BiEncoder.from_pretrained(bert, device="cpu", dtype="float32")


def weights(model):
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def test_twenty_examples_make_a_model_folder_with_a_card(model, tmp_path, capsys):
    result = polyrank.train(model, ROWS, output=tmp_path / "mine", dev=ROWS, **QUICK)
    said = capsys.readouterr()
    assert "step 2/2" in said.err
    assert said.out == ""
    assert (tmp_path / "mine" / "README.md").read_text("utf-8").count("20 examples") == 2
    shown = str(result)
    assert repr(result) == shown
    assert shown.startswith("Trained 2 steps (8 pairs) in ")
    assert f"is in {tmp_path / 'mine'}" in shown
    assert f"dev recall@1     {result.figures['recall@1']:.4f}" in shown
    saved = polyrank.load_model(tmp_path / "mine", device="cpu", dtype="float32")
    assert torch.equal(weights(saved), weights(model))


def test_keywords_and_settings_objects_make_the_same_model(bert, tmp_path):
    def trained(name, **given):
        set_seed(0)
        model = BiEncoder.from_pretrained(bert, device="cpu", dtype="float32")
        polyrank.train(model, ROWS, tmp_path / name, show_progress_bar=False, **given)
        return weights(model)

    by_name = trained("a", **QUICK, learning_rate=1e-3, symmetric=True)
    config = TrainingConfig(**QUICK, learning_rate=1e-3)
    assert torch.equal(by_name, trained("b", config=config, symmetric=True))
    objective = ObjectiveConfig(symmetric=True)
    assert torch.equal(by_name, trained("c", config=config, objective=objective))
    mixed = trained("d", config=TrainingConfig(**QUICK), learning_rate=1e-3, objective=objective)
    assert torch.equal(by_name, mixed)
    assert not torch.equal(by_name, trained("e", **QUICK, learning_rate=1e-3))


def test_a_name_chooses_the_objective(model, tmp_path):
    pairs = [LabelledPair(first=f"a {row}", second="b", label=row / 20) for row in range(20)]
    polyrank.train(model, pairs, tmp_path / "a", objective="regression", **QUICK)
    assert '"objective": "regression"' in (tmp_path / "a" / "training.json").read_text("utf-8")


@pytest.mark.parametrize(
    ("given", "problem", "remedy"),
    [
        ({"epoch": 3}, "no setting 'epoch'", "Did you mean 'epochs'?"),
        ({"symetric": True}, "no setting 'symetric'", "Did you mean 'symmetric'?"),
        ({"warmup_steps": 10}, "no setting 'warmup_steps'", "Here it is 'warmup'."),
        ({"epochs": "three"}, "epochs must be a number, got 'three'", "Change the value"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0", "Change the value"),
        (
            {"config": TrainingConfig(epochs=2), "epochs": 1},
            "epochs is given twice, as 1 and in config as 2",
            "Leave one of the two out",
        ),
        ({"config": {"epochs": 2}}, "config must be of the type TrainingConfig", "as keywords"),
        ({"objective": 3}, "objective must be of the type ObjectiveConfig", "as keywords"),
        ({"objective": "cosine"}, "cosine", "Did you mean 'cosent'?"),
    ],
)
def test_bad_settings_are_refused_in_two_sentences(model, tmp_path, given, problem, remedy):
    with pytest.raises(UsageError) as caught:
        polyrank.train(model, ROWS, tmp_path / "a", **given)
    assert problem in caught.value.problem
    assert remedy in caught.value.remedy
    assert not (tmp_path / "a").exists()


def test_settings_without_effect_are_named(model, tmp_path):
    said = []
    settings = QUICK | {"plateau_factor": 0.5, "metric": "mrr", "concatenation": "u,v"}
    polyrank.train(model, ROWS, tmp_path / "a", say=said.append, **settings)
    assert said[1:4] == [
        "plateau_factor has no effect with schedule = linear.",
        "metric has no effect with no dev data.",
        "concatenation has no effect with the objective in_batch_softmax.",
    ]


def test_what_other_libraries_call_a_setting_leads_to_one():
    known = {*TrainingConfig.__dataclass_fields__, *ObjectiveConfig.__dataclass_fields__}
    assert set(ELSEWHERE.values()) <= known | {"dev", "output"}
    assert not known & set(ELSEWHERE)


@pytest.mark.parametrize("given", ["path/to/model", None, TrainingConfig()])
def test_what_is_not_a_model_is_refused(tmp_path, given):
    with pytest.raises(UsageError, match=r"model must be a bi-, poly- or cross-encoder, got"):
        polyrank.train(given, ROWS, tmp_path / "a")


def test_a_text_in_the_place_of_examples_is_refused(model, tmp_path):
    with pytest.raises(DataError, match=r"examples is a text, and there is no file 'how do i'"):
        polyrank.train(model, "how do i", tmp_path / "a", **QUICK)
    with pytest.raises(DataError, match=r"dev is a text, and there is no file"):
        polyrank.train(model, ROWS, tmp_path / "a", dev="how do i", **QUICK)
    with pytest.raises(DataError, match=r"dev: At row 2: The row is the single text"):
        polyrank.train(model, ROWS, tmp_path / "a", dev=[ROWS[0], "how do i"], **QUICK)


class Streamed(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(ROWS)


@pytest.mark.parametrize(
    "stream",
    [
        lambda: (row for row in ROWS),
        Streamed,
        lambda: datasets.Dataset.from_list(ROWS).to_iterable_dataset(),
    ],
    ids=["generator", "torch", "datasets"],
)
def test_of_a_stream_only_what_the_steps_need_is_read(bert, tmp_path, stream):
    made = []
    for name, data in (("stream", stream()), ("list", ROWS[:8])):
        set_seed(0)
        model = BiEncoder.from_pretrained(bert, device="cpu", dtype="float32")
        said = []
        polyrank.train(model, data, tmp_path / name, say=said.append, **QUICK)
        made.append((weights(model), (tmp_path / name / "training.json").read_text("utf-8")))
        told = "The examples come one by one: reading the first 8 examples" in said[0]
        assert told == (name == "stream")
    assert torch.equal(made[0][0], made[1][0])
    assert '"num_examples": 8' in made[0][1]


def test_without_max_steps_a_stream_is_read_to_its_end(model, tmp_path):
    said = []
    settings = {"batch_size": 4, "epochs": 0.2, "evaluations": 1}
    polyrank.train(model, iter(ROWS), tmp_path / "a", say=said.append, **settings)
    assert said[0] == "The examples come one by one: reading all examples."
    assert '"num_examples": 20' in (tmp_path / "a" / "training.json").read_text("utf-8")


def test_an_interrupted_run_on_a_stream_resumes(bert, tmp_path):
    class StopError(Exception):
        pass

    def stop(words):
        if words.startswith("step 2/"):
            raise StopError

    def run(name, say):
        set_seed(0)
        model = BiEncoder.from_pretrained(bert, device="cpu", dtype="float32")
        settings = {"batch_size": 4, "max_steps": 4, "evaluations": 4}
        polyrank.train(model, iter(ROWS), tmp_path / name, say=say, **settings)
        return weights(model)

    with pytest.raises(StopError):
        run("cut", stop)
    said = []
    resumed = run("cut", said.append)
    assert any(words.startswith("Resuming after step") for words in said)
    assert torch.equal(resumed, run("whole", said.append))


def test_dev_examples_get_as_many_candidates_as_there_are(bert, tmp_path):
    model = CrossEncoder.from_pretrained(bert, device="cpu", dtype="float32")
    said = []
    settings = QUICK | {"num_negatives": 2}
    result = polyrank.train(model, ROWS, tmp_path / "a", dev=ROWS[:6], say=said.append, **settings)
    assert "dev: there are few responses, so each example gets 6 candidates, not 20." in said
    assert "recall@5" in result.figures
    assert "recall@10" not in result.figures
    with pytest.raises(DataError, match=r"9 distractors for each response"):
        polyrank.train(model, ROWS, tmp_path / "b", dev=ROWS[:6], dev_candidates=10, **settings)


def test_records_keep_what_they_have(model, tmp_path):
    dev = [Example(context="a", response="b", candidates=("b", "c", "d"), gold=0)]
    result = polyrank.train(model, ROWS, tmp_path / "a", dev=dev, **QUICK)
    assert "recall@2" in result.figures
    assert "recall@5" not in result.figures

"""The recipes: what they set, and how flags, YAML and --show-config meet them."""

import json

import pytest
import yaml

from polyrank.cli.flags import flags_of
from polyrank.cli.main import commands, run
from polyrank.cli.options import build
from polyrank.cli.train import TrainOptions
from polyrank.config import coerce, field_types
from polyrank.errors import UsageError
from polyrank.models.config import CONFIGS
from polyrank.training.config import without_effect
from polyrank.training.objectives.registry import OBJECTIVES
from polyrank.training.recipes import RECIPES, find

EVERY = [(name, arch) for name, recipe in RECIPES.items() for arch in recipe.architectures]
GIVEN = {"base": "b", "train": "t", "output": "o"}


def options(config=None, **given):
    return build(TrainOptions, {**GIVEN, **given}, config, "polyrank train")


@pytest.mark.parametrize(("name", "arch"), EVERY)
def test_every_setting_exists_suits_the_architecture_and_has_an_effect(name, arch):
    settings = find(name).settings(arch)
    flags = {flag.name: flag for flag in flags_of(TrainOptions)}
    for setting, value in settings.items():
        assert coerce(value, flags[setting].type, setting, name) == value
    made = options(recipe=name, arch=arch)
    assert set(made.model) <= set(field_types(CONFIGS[arch]))
    CONFIGS[arch](**made.model)
    objective = OBJECTIVES[made.objective.objective]
    assert arch in objective.architectures
    if arch == "cross":
        assert made.model["task"] == objective.task
    assert without_effect(made.training) == {}


@pytest.mark.parametrize(
    ("name", "arch", "published"),
    [
        (
            "poly-encoder-bert",
            "poly",
            {
                "batch_size": 512,
                "learning_rate": 5e-5,
                "warmup": 100,
                "schedule": "plateau",
                "plateau_factor": 0.4,
                "evaluations_per_epoch": 2,
                "trainable": "all_but_embeddings",
                "optimiser": "adamw",
                "weight_decay": 0.01,
                "similarity": "dot",
                "code_mean": 0,
                "code_recency": 0,
            },
        ),
        (
            "poly-encoder-bert",
            "cross",
            {"batch_size": 16, "num_negatives": 15, "warmup": 1000, "objective": "listwise"},
        ),
        (
            "poly-encoder-reddit",
            "bi",
            {"optimiser": "adamax", "rescale_last_layer": "bert", "trainable": "all"},
        ),
        (
            "sbert-nli",
            "bi",
            {"batch_size": 16, "epochs": 1, "learning_rate": 2e-5, "concatenation": "u,v,|u-v|"},
        ),
        ("sbert-sts", "bi", {"objective": "regression", "warmup": 0.1, "reduction": "mean"}),
        (
            "two-tower",
            "bi",
            {
                "max_steps": 2000,
                "projection": 512,
                "batch_size": 512,
                "max_context_length": 64,
                "logq": True,
            },
        ),
    ],
)
def test_what_was_published(name, arch, published):
    settings = find(name).settings(arch)
    assert {setting: settings[setting] for setting in published} == published


def test_the_usual_architecture_comes_first():
    assert options(recipe="two-tower").arch == "bi"
    assert options(recipe="poly-encoder-bert").arch == "poly"


def test_flags_override_yaml_which_overrides_the_recipe(tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text("recipe: poly-encoder-bert\nbatch_size: 256\nwarmup: 7\nnum_codes: 16\n")
    made = options(config, warmup="9")
    assert (made.training.batch_size, made.training.warmup) == (256, 9.0)
    assert made.training.schedule == "plateau"
    assert made.model["num_codes"] == 16
    assert made.model["code_mean"] == 0.0


def test_an_unknown_recipe_names_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'sbert-nli'"):
        options(recipe="sbert-nil")
    with pytest.raises(UsageError, match="The recipe two-tower is for bi, not for cross"):
        options(recipe="two-tower", arch="cross")


@pytest.mark.parametrize(("name", "arch"), EVERY)
def test_what_is_shown_runs_the_same(name, arch, tmp_path, capsys):
    arguments = ["train", "--recipe", name, "--arch", arch, "--seed", "3", "--show-config"]
    assert run(arguments, commands()) == 0
    shown = tmp_path / "shown.yaml"
    shown.write_text(capsys.readouterr().out)
    assert "# train: is required" in shown.read_text()
    assert options(shown) == options(recipe=name, arch=arch, seed="3")


def test_everything_that_can_be_shown_is_read_again(tmp_path, capsys):
    own = ["--arch", "cross", "--base", "b", "--train", "t.jsonl", "--output", "o", "--limit", "5"]
    own += ["--columns", "context=q,response=a", "--max-steps", "none", "--num-labels", "7"]
    assert run(["train", *own, "--show-config", "--json"], commands()) == 0
    out, err = capsys.readouterr()
    shown = json.loads(out)
    assert shown["missing"] == []
    assert yaml.safe_load(err) == shown["config"]
    again = tmp_path / "again.yaml"
    again.write_text(err)
    made = build(TrainOptions, {}, again, "polyrank train")
    assert made.model == {"num_labels": 7}
    assert made.columns == ("context=q", "response=a")
    assert (made.limit, made.training.max_steps) == (5, None)


def test_without_show_config_nothing_may_be_missing(capsys):
    assert run(["train", "--recipe", "two-tower"], commands()) == 2
    assert "--train is required and missing" in capsys.readouterr().err

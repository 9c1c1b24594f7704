"""The table of calls in docs/sentence-transformers.md: every row runs, in both columns.

Both libraries have the same tiny weights. Where a row has a value in both columns, the values
agree; the rows that have none, or two that cannot be compared, are listed here.
"""

import ast
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from huggingface_hub import HfApi
from markdown_it import MarkdownIt
from sentence_transformers.cross_encoder import losses as cross_encoder_losses
from sentence_transformers.sentence_transformer import losses

from polyrank.cli.main import commands, run
from polyrank.training.objectives.registry import OBJECTIVES

PAGE = Path(__file__).parents[2] / "docs" / "sentence-transformers.md"
TEXT = PAGE.read_text(encoding="utf-8")
CALL = re.compile(r"^\| ([^|`]+) \| `(.+)` \| `(.+)` \|$", re.M)
CALLS = CALL.findall(TEXT)
WITHOUT_VALUES = {
    "import",
    "load a model of the hub",
    "choose the device",
    "compute in half precision",
    "load a reranker",
    "quantise the vectors",
    "import what measures",
    "import what trains",
    "load data",
    "mine hard negatives",
    "train",
    "choose the settings",
    "train with them",
    "train big batches in little memory",
    "learn from a reranker",
    "save",
    "load what was saved",
    "write a folder of sentence-transformers",
    "encode with several processes",
    "push to the hub",
}
LOSS = re.compile(r"^\| `(\w+Loss)`( of a cross-encoder)? \| `(\w+)`", re.M)


def run_call(code, names):
    """Run statements or a command; the value of the last if it is an expression, else None."""
    if code.startswith("polyrank "):
        assert run(shlex.split(code)[1:], commands()) == 0
        return None
    tree = ast.parse(code)
    last = tree.body[-1]
    if not isinstance(last, ast.Expr):
        exec(code, names)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), "<call>", "exec"), names)
    return eval(compile(ast.Expression(last.value), "<call>", "eval"), names)


def as_numbers(value):
    """A text, a number, an array or hits, to be compared; of hits, the scores."""
    if isinstance(value, dict):
        return float(value["score"])
    if hasattr(value, "score") and hasattr(value, "text"):
        return value.score
    if isinstance(value, list):
        return [as_numbers(each) for each in value]
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def assert_agree(theirs, ours):
    if isinstance(ours, str):
        assert theirs == ours
    else:
        theirs, ours = np.asarray(as_numbers(theirs)), np.asarray(as_numbers(ours))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
        assert theirs.shape == ours.shape
        assert np.abs(ours).max() > 0.01


@pytest.fixture(scope="module")
def columns(stand_ins, tmp_path_factory):
    """The names of each column, and a folder that the rows write to."""
    (given,) = [token.content for token in MarkdownIt().parse(TEXT) if token.info == "python"]
    folder = tmp_path_factory.mktemp("calls")
    both = {}, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for names in both:
            exec(given, names)
    return both, folder


@pytest.fixture(autouse=True)
def hub(columns, hub_with_stand_ins, monkeypatch):
    monkeypatch.chdir(columns[1])
    asked = ("model_info", "create_repo", "create_branch", "create_commit", "upload_folder")
    for name in asked:
        monkeypatch.setattr(HfApi, name, uploaded)


def uploaded(self, repo_id, *arguments, folder_path=None, **settings):
    """What the hub would be asked for."""
    assert repo_id == "me/my-model"
    assert folder_path is None or Path(folder_path, "model.safetensors").is_file()
    return SimpleNamespace(repo_id=repo_id, commit_url="https://hub/me/my-model")


def test_the_table_has_the_calls_that_people_make():
    assert len({to for to, _, _ in CALLS}) == len(CALLS) >= 30
    rows = [line for line in TEXT.splitlines() if line.startswith("| ")]
    assert len(CALL.findall("\n".join(rows))) == len(CALLS)


@pytest.mark.filterwarnings("default")  # those of sentence-transformers' trainer
@pytest.mark.parametrize(("to", "theirs", "ours"), CALLS, ids=[to for to, _, _ in CALLS])
def test_a_call(to, theirs, ours, columns):
    (their_names, our_names), _ = columns
    their_value, our_value = run_call(theirs, their_names), run_call(ours, our_names)
    if to not in WITHOUT_VALUES:
        assert_agree(their_value, our_value)


def test_the_losses_have_these_names_in_both():
    rows = LOSS.findall(TEXT)
    assert len(rows) == TEXT.split("## Losses")[1].count("\n| `") > 9
    for theirs, of_cross_encoder, ours in rows:
        assert hasattr(cross_encoder_losses if of_cross_encoder else losses, theirs)
        assert ours in OBJECTIVES

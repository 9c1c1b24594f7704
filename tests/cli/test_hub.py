"""Models of the hub on the command line: a stand-in answers huggingface_hub's own client."""

import json

import pytest

from polyrank.cli.main import commands, run
from polyrank.models.checkpoint import load_model
from tiny_encoders import TEXTS, load_variant

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # its client's


def call(capsys, *arguments):
    """Run a command with --json: its exit code and its object."""
    code = run([*map(str, arguments), "--json"], commands())
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def pairs(tmp_path):
    rows = [{"context": text, "candidates": TEXTS[:4]} for text in TEXTS[:2]]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_push_then_use_by_id(hub, bert, tmp_path, pairs, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    folder, other = tmp_path / "model", tmp_path / "other"
    load_variant("poly-learnt", bert).save_pretrained(folder)
    load_variant("poly-learnt", bert, temperature=3.0).save_pretrained(other)
    code, said = call(capsys, "push", folder, "me/model", "--private")
    assert code == 0
    assert said["address"] == f"{hub.address}/me/model"
    assert said["fingerprint"] == load_model(folder).fingerprint()
    assert hub.private == {"me/model"}
    code, _ = call(capsys, "push", other, "me/model", "--revision", "v2", "--message", "Softer")
    assert code == 0
    assert hub.messages[-1] == "Softer"
    scores = []
    for name, revision in ((folder, []), ("me/model", []), ("me/model", ["--revision", "v2"])):
        made = tmp_path / "scores.jsonl"
        code = run(
            ["predict", str(name), *revision, "--data", str(pairs), "--output", str(made)],
            commands(),
        )
        assert code == 0
        capsys.readouterr()
        scores.append(made.read_text(encoding="utf-8"))
    assert scores[0] == scores[1]
    assert scores[0] != scores[2]


def test_push_keeps_the_dtype_of_the_weights(hub, bert, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    half = load_variant("bi", bert, weights_dtype="bfloat16")
    half.save_pretrained(tmp_path / "half")
    code, said = call(capsys, "push", tmp_path / "half", "me/half")
    assert code == 0
    assert said["fingerprint"] == half.fingerprint()
    found = load_model("me/half", weights_dtype="auto")
    assert found.fingerprint() == half.fingerprint()


def test_search_with_a_model_of_the_hub(hub, bert, tmp_path, capsys):
    load_variant("bi", bert).save_pretrained(tmp_path / "model")
    hub.add("me/model", tmp_path / "model", branch="v1")
    (tmp_path / "texts.txt").write_text("\n".join(filter(None, TEXTS)), encoding="utf-8")
    index = tmp_path / "index"
    made = ["index", "build", "me/model", "--revision", "v1", "--output", index]
    code, _ = call(capsys, *made, "--candidates", tmp_path / "texts.txt")
    assert code == 0
    code, own = call(capsys, "search", index, "print")
    asked = ["search", index, "print", "--model", "me/model", "--revision", "v1"]
    assert call(capsys, *asked) == (0, own)
    assert own["results"][0]["hits"][0]["text"] == "print"


def test_bad_revisions(hub, bert, tmp_path, pairs, capsys):
    load_variant("bi", bert).save_pretrained(tmp_path / "model")
    hub.add("me/model", tmp_path / "model")
    data = ["--data", pairs, "--output", tmp_path / "scores.jsonl"]
    code, said = call(capsys, "predict", "me/model", "--revision", "v9", *data)
    assert code == 2
    assert "me/model on the hub has no revision 'v9'." in said["error"]["message"]
    code, said = call(capsys, "predict", tmp_path / "model", "--revision", "v9", *data)
    assert code == 2
    assert "so it has no revision 'v9'." in said["error"]["message"]


def test_push_what_is_not_a_model(hub, tmp_path, capsys):
    (tmp_path / "folder").mkdir()
    code, said = call(capsys, "push", tmp_path / "folder", "me/model")
    assert code == 2
    assert "is not a saved model" in said["error"]["message"]
    assert hub.log == []

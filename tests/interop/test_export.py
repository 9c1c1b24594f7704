"""What all targets of an export share: refusals, replacement, the command."""

import json
import shutil
import subprocess
import sys

import pytest
import torch

import polyrank
from polyrank.cli.main import commands, run
from polyrank.errors import ModelError, StorageError, UsageError
from polyrank.interop.sentence_transformers import writer
from tiny_encoders import TEXTS, load_variant

TARGET = "sentence-transformers"


@pytest.fixture
def model(bert, tmp_path):
    model = load_variant("bi", bert, shared_towers=True)
    model.save_pretrained(tmp_path / "model")
    return model


@pytest.fixture
def output(tmp_path):
    return tmp_path / "export"


def test_an_export_says_what_it_was_made_from(model, output):
    made = polyrank.export(model.path, output, to=TARGET)
    described = json.loads((output / "polyrank_export.json").read_text())
    assert described["fingerprint"] == model.fingerprint()
    assert (described["target"], described["architecture"]) == (TARGET, "bi")
    assert tuple(described["notes"]) == made.notes
    assert made.load == f'SentenceTransformer("{output}")'


def test_a_loaded_model_and_its_folder_give_the_same_files(model, output, tmp_path):
    polyrank.export(model.path, output, to=TARGET)
    light = polyrank.load_model(model.path, trainable=False, device="cpu", dtype="float32")
    polyrank.export(light, tmp_path / "light", to=TARGET)
    for file in output.rglob("*"):
        other = tmp_path / "light" / file.relative_to(output)
        if file.suffix == ".safetensors":
            assert file.read_bytes() == other.read_bytes()


def test_an_unknown_target_or_setting_is_refused_with_the_nearest(model, output):
    with pytest.raises(UsageError, match=r"no target 'sentence-transformer'.*Did you mean"):
        polyrank.export(model, output, to="sentence-transformer")
    with pytest.raises(UsageError, match=r"no setting 'only_candidate'.*Did you mean"):
        polyrank.export(model, output, to=TARGET, only_candidate=True)
    assert not output.exists()


def test_only_an_export_is_replaced(model, output):
    output.mkdir()
    polyrank.export(model, output, to=TARGET)  # an empty folder is not in the way
    (output / "old.txt").write_text("old")
    polyrank.export(model, output, to=TARGET)
    assert not (output / "old.txt").exists()
    (output / "polyrank_export.json").unlink()
    for place in (output, model.path):
        before = sorted(each.name for each in place.iterdir())
        with pytest.raises(UsageError, match="already exists and is not an export"):
            polyrank.export(model, place, to=TARGET)
        assert sorted(each.name for each in place.iterdir()) == before


def test_a_failed_export_leaves_what_was_there(model, output, monkeypatch):
    polyrank.export(model, output, to=TARGET)
    before = {each: each.stat().st_mtime_ns for each in output.rglob("*")}

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer, "write_card", fail)
    with pytest.raises(StorageError, match="No space left"):
        polyrank.export(model, output, to=TARGET)
    assert {each: each.stat().st_mtime_ns for each in output.rglob("*")} == before
    assert [each.name for each in output.parent.iterdir() if each.name.startswith(".")] == []


def test_a_model_in_training_is_refused(model, output, tmp_path):
    work = tmp_path / ".new.training"
    (work / "checkpoints" / "checkpoint-5").mkdir(parents=True)
    (work / "job.json").write_text("{}")
    for source in (tmp_path / "new", work, work / "checkpoints" / "checkpoint-5"):
        with pytest.raises(ModelError, match=r"still in training.*holds unfinished work.*resume"):
            polyrank.export(source, output, to=TARGET)
    assert not output.exists()
    shutil.copytree(model.path, tmp_path / "new")
    made = polyrank.export(tmp_path / "new", output, to=TARGET)
    assert made.notes[0].startswith("Unfinished training")


def test_a_revision_is_for_ids_alone(model, output):
    with pytest.raises(UsageError, match="has no revision 'v1'"):
        polyrank.export(model.path, output, to=TARGET, revision="v1")
    assert not output.exists()


def test_what_is_not_a_model_is_refused(bert, output, tmp_path):
    with pytest.raises(ModelError, match="is not a saved model"):
        polyrank.export(bert, output, to=TARGET)
    with pytest.raises(ModelError, match="There is no model at"):
        polyrank.export(tmp_path / "nothing" / "here", output, to=TARGET)


def test_the_command(model, output, capsys):
    said = [str(model.path), "--to", TARGET, "--output", str(output)]
    assert run(["export", *said], commands()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f'Load it with: SentenceTransformer("{output}")'
    assert lines[1].startswith("Note: A context there is one text: join the turns")
    assert run(["export", *said, "--json"], commands()) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["target"], told["load"]) == (TARGET, f'SentenceTransformer("{output}")')
    again = polyrank.BiEncoder.from_pretrained(output, device="cpu", dtype="float32")
    assert torch.equal(again.encode_candidates(TEXTS), model.encode_candidates(TEXTS))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "sentence_transformers"], "--to is 'sentence_transformers'"),
        ([], "--to is required"),
        (["--to", TARGET, "--only-candidate"], "Did you mean '--only-candidates'"),
    ],
)
def test_the_command_refuses(arguments, words, model, output, capsys):
    assert run(["export", str(model.path), "--output", str(output), *arguments], commands()) == 2
    assert words in capsys.readouterr().err
    assert not output.exists()


def test_info_says_what_an_export_is(model, output, capsys):
    polyrank.export(model, output, to=TARGET)
    assert run(["info", str(output), "--json"], commands()) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["kind"], found["fingerprint"]) == ("export", model.fingerprint())
    assert found["is"] == "a bi-encoder exported for sentence-transformers"


def test_help_imports_nothing_of_this_room():
    program = (
        "import sys; from polyrank.cli.main import commands, run; run(['export', '--help'], "
        "commands()); print([name for name in sys.modules if 'interop' in name])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert "--only-candidates" in said
    assert said.splitlines()[-1] == "[]"

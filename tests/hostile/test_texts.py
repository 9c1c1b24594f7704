"""Texts that are no trouble to read and trouble to write: on a terminal, in UTF-8, in an index."""

import json
import os
import shutil
import subprocess

import pytest

from launching import started
from polyrank.cli.main import commands, run
from polyrank.cli.output import escape_what_cannot_be_encoded
from polyrank.models.bi_encoder import BiEncoder
from polyrank.retrieval.index import Index
from tiny_encoders import load_variant

HALF = "\ud800"
STEERING = "a\x1b[2J\x1b]0;owned\x07b\x9b31m\rc\x08"
TURNED = "a\u202egpj.exe\u202c\u2066b\u2069"


@pytest.fixture(scope="module")
def saved(bert, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    load_variant("bi", bert).save_pretrained(folder / "bi")
    load_variant("cross", bert).save_pretrained(folder / "cross")
    return folder


def polyrank(*arguments, **environment):
    """The command in a process of its own, with strict UTF-8 or what the environment says."""
    process = started(arguments, {"PYTHONUTF8": "1", **environment})
    out, told = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, out, told)


def write(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="ascii")
    return path


def test_a_lone_surrogate_is_read_as_the_replacement_character(saved):
    model = BiEncoder.from_pretrained(saved / "bi")
    whole = model.encode_candidates([f"a {HALF} b", "a \ufffd b"])
    assert whole[0].tolist() == whole[1].tolist()
    assert model.encode_contexts([[HALF, "b"]]).isfinite().all()


def test_what_a_terminal_would_obey_is_escaped(saved, tmp_path):
    index = tmp_path / "index"
    candidates = [(f"i{STEERING}\nd", STEERING), (TURNED, TURNED)]
    Index.build(BiEncoder.from_pretrained(saved / "bi"), candidates, index).close()
    found = polyrank("search", index, STEERING)
    assert found.returncode == 0
    text = found.stdout.decode()
    assert text.isascii()
    assert text.count("\n") == 5
    assert "\\x1b[2J" in text
    assert "\\u202e" in text
    missing = polyrank("info", tmp_path / f"no{STEERING}")
    assert missing.returncode == 2
    assert b"\x1b" not in missing.stderr
    assert b"Traceback" not in missing.stderr


def test_json_for_programs_keeps_every_character(saved, tmp_path):
    index = tmp_path / "index"
    Index.build(BiEncoder.from_pretrained(saved / "bi"), [("a", STEERING)], index).close()
    found = polyrank("search", index, "x" + os.fsdecode(b"\xff"), "--json")
    assert found.returncode == 0, found.stderr
    answer = json.loads(found.stdout)
    assert answer["results"][0]["hits"][0]["text"] == STEERING


def test_files_with_lone_surrogates_are_used(saved, tmp_path):
    examples = write(
        tmp_path / "a.jsonl",
        {"context": f"a {HALF}", "response": "b", "candidates": ["b", f"{HALF}c"]},
        {"context": "d", "response": f"e{HALF}", "candidates": [f"e{HALF}", "f"]},
    )
    for arguments in (
        ("evaluate", saved / "bi", "--data", examples),
        ("predict", saved / "cross", "--data", examples, "--output", tmp_path / "scores.jsonl"),
        ("mine", "--data", examples, "--method", "random", "--output", tmp_path / "mined.jsonl"),
    ):
        assert run(list(map(str, arguments)), commands()) == 0
    assert "e\ufffd" in (tmp_path / "mined.jsonl").read_text(encoding="utf-8")


LOCALES = [{"LC_ALL": name, "LANG": name} for name in ("C", "ko_KR.EUC-KR")]


@pytest.mark.parametrize("environment", [*LOCALES, {"PYTHONIOENCODING": "ascii"}])
def test_any_locale_will_do(environment, saved, tmp_path):
    index = tmp_path / "index"
    Index.build(BiEncoder.from_pretrained(saved / "bi"), [("a", "안녕 ☃ 𝄞")], index).close()
    found = polyrank("search", index, "☃", PYTHONUTF8="0", **environment)
    assert found.returncode == 0, found.stderr


def test_names_that_are_not_utf8(saved, tmp_path, capsys):
    """Data may have them; what is made, and models, may not."""
    escape_what_cannot_be_encoded()  # as the process does when it begins
    strange = tmp_path / os.fsdecode(b"a\xff.jsonl")
    pairs = [{"context": f"what is {n}", "response": f"it is {n}"} for n in range(8)]
    shutil.copy(write(tmp_path / "pairs.jsonl", *pairs), strange)
    line = ["train", "--arch", "bi", "--base", saved / "bi", "--max-steps", 1, "--device", "cpu"]
    given = [*line, "--train", strange, "--output", tmp_path / "model"]
    assert run(list(map(str, given)), commands()) == 0
    assert "a\\udcff.jsonl" in (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    for given in (
        [*line, "--train", tmp_path / "pairs.jsonl", "--output", tmp_path / os.fsdecode(b"\xff")],
        ["predict", tmp_path / os.fsdecode(b"\xff"), "--data", tmp_path / "pairs.jsonl"],
    ):
        capsys.readouterr()
        (tmp_path / os.fsdecode(b"\xff")).mkdir(exist_ok=True)
        assert run(list(map(str, given)), commands()) == 2
        assert "is not UTF-8" in capsys.readouterr().err

"""`polyrank info` and `polyrank index info`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from polyrank.cli.main import commands, run
from polyrank.jobs import Job, working
from polyrank.models.description import fingerprint_of
from polyrank.retrieval.bulk.encode import BulkEncoder
from polyrank.retrieval.index import Index
from tiny_encoders import load_variant

TEXTS = ["read a file", "no sound", "thanks", "which kernel"]


@pytest.fixture(scope="module")
def made(bert, tmp_path_factory):
    """A model of each kind, an index and encoded parts."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("bi", "poly-learnt", "cross"):
        load_variant(name, bert).save_pretrained(folder / name)
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    model = load_variant("poly-learnt", bert)
    records = [(f"id{n}", text, {"year": n}) for n, text in enumerate(TEXTS)]
    with Index.build(model, records, folder / "index", storage="int8") as index:
        index.delete(["id1"])
    encoder = BulkEncoder(model, folder / "texts.txt", folder / "parts", 2)
    next(iter(encoder.encode_all()))
    return folder


@pytest.fixture
def info(capsys):
    def call(*arguments):
        code = run([*map(str, arguments), "--json"], commands())
        return code, json.loads(capsys.readouterr().out)

    return call


@pytest.mark.parametrize("name", ["bi", "poly-learnt", "cross"])
def test_a_model(made, name, info):
    code, found = info("info", made / name)
    model = load_variant(name, made / name)
    assert (code, found["kind"]) == (0, "model")
    assert name.split("-")[0] in found["is"]
    assert found["settings"]["max_context_length"] == model.config.max_context_length
    assert found["fingerprint"] == fingerprint_of(made / name)


def test_prompts_and_dimensions_of_a_model(bert, tmp_path, info, capsys):
    layers = ({"dimension": 12, "bias": True}, {"dimension": 7, "activation": "tanh"})
    for number, (settings, dimension) in enumerate(
        (({}, 32), ({"dense": layers}, 7), ({"dense": layers, "truncate_dim": 5}, 5))
    ):
        model = load_variant("bi", bert, context_prompt="query: ", **settings)
        model.save_pretrained(tmp_path / str(number))
        _, found = info("info", tmp_path / str(number))
        assert found["dimension"] == model.dimension == dimension
        assert found["prompts"] == {"context": "query: "}
    run(["info", str(tmp_path / "2")], commands())
    shown = capsys.readouterr().out
    assert 'prompts      context "query: "' in shown
    assert "projection" not in shown  # what is not set is not shown
    assert "dimension 12, bias true, activation identity" in shown


@pytest.mark.parametrize("name", ["bi", "poly-learnt", "cross"])
def test_the_fingerprint_is_that_of_the_loaded_model(made, name):
    from polyrank.models.checkpoint import load_model

    assert fingerprint_of(made / name) == load_model(made / name, device="cpu").fingerprint()


def test_an_index(made, info, capsys):
    code, found = info("info", made / "index")
    assert code == 0
    assert (found["kind"], found["candidates"], found["deleted"]) == ("index", 3, 1)
    assert (found["storage"], found["backend"]) == ("int8", "exact")
    assert list(found["metadata"]) == ["year"]
    assert found["model"]["fingerprint"] == fingerprint_of(made / "poly-learnt")
    assert info("index", "info", made / "index")[1] == found
    code, found = info("index", "info", made / "bi")
    assert (code, found["error"]["type"]) == (2, "IndexFolderError")
    assert run(["info", str(made / "index")], commands()) == 0
    assert "index is an index of 3 candidates.\n" in capsys.readouterr().out


def test_encoded_parts(made, info):
    _, found = info("info", made / "parts")
    assert (found["kind"], found["finished"], found["missing"]) == ("encoded parts", 1, [1])


def test_data_and_texts(tmp_path, info):
    table = tmp_path / "faq.csv"
    table.write_text("question,answer\nhow?,so\nwhy?,because\n")
    _, found = info("info", table)
    assert (found["kind"], found["records"]) == ("data", 2)
    assert found["columns"] == ["question", "answer"]
    texts = tmp_path / "texts.txt"
    texts.write_text("one\ntwo\nthree\n")
    assert info("info", texts)[1]["texts"] == 3


def test_unfinished_work_is_found_by_its_output(tmp_path, info, capsys):
    job = Job(output=tmp_path / "model", doing="training", noun="run", identity={"seed": 1})

    def interrupted():
        with working(job) as work:
            work.journal().append({"step": 1})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    for path in (tmp_path / "model", job.work):
        _, found = info("info", path)
        assert (found["kind"], found["finished pieces"]) == ("unfinished", 1)
    assert run(["info", str(tmp_path / "model")], commands()) == 0
    out = capsys.readouterr().out
    assert "is the unfinished training of model." in out
    assert "Run the command that began it again" in out


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("picture", b"\x89PNG\r\n\x1a\n", "a PNG picture"),
        ("empty.txt", b"", "an empty file"),
        ("code.py", b"print(1)\n", "a text file"),
        ("noise", b"\xff\x00\x01", "a binary file"),
    ],
)
def test_anything_else_is_said_to_be_none_of_these(tmp_path, info, name, content, words):
    (tmp_path / name).write_bytes(content)
    code, found = info("info", tmp_path / name)
    assert (code, found["kind"]) == (0, "unknown")
    assert found["is"].endswith(f"It seems to be {words}")


def test_what_is_not_there_is_an_error(tmp_path, info):
    code, found = info("info", tmp_path / "nothing")
    assert (code, found["error"]["type"]) == (2, "UsageError")


def test_a_damaged_model_is_an_error(made, tmp_path, info):
    (tmp_path / "polyrank.json").write_text("{}")
    code, found = info("info", tmp_path)
    assert (code, found["error"]["type"]) == (2, "ModelError")


@pytest.mark.parametrize("name", ["poly-learnt", "index", "parts"])
def test_torch_is_not_imported(made, name):
    code = (
        "import sys\n"
        "from polyrank.cli.main import commands, run\n"
        f"assert run(['info', {str(made / name)!r}], commands()) == 0\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n"

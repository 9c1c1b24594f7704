"""Poor machines: no home, little memory, few files, closed streams, signals, a clock that is wrong,
folders that cannot be written, files that change while they are read.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from mounting import ALONE, may_mount
from transformers import AutoConfig, AutoModel

from launching import started
from polyrank.cli.main import commands, run
from polyrank.errors import DataError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.pretraining.corpus.convert import Parts, convert
from polyrank.retrieval.index import Index
from tiny_encoders import load_variant


@pytest.fixture(scope="module")
def folder(bert, tmp_path_factory):
    """A model, its index, and what to train on."""
    made = tmp_path_factory.mktemp("made")
    load_variant("bi", bert).save_pretrained(made / "bi")
    model = BiEncoder.from_pretrained(made / "bi", device="cpu")
    Index.build(model, [("a", "a file"), ("b", "a disk")], made / "index").close()
    pairs = [{"context": f"what is {n}", "response": f"it is {n}"} for n in range(64)]
    (made / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return made


def ended(process):
    """The exit code and the words on standard error, which are never a traceback."""
    _, told = process.communicate(timeout=120)
    assert b"Traceback" not in told
    assert b"Exception ignored" not in told
    return process.returncode, told.decode()


def training(folder, output, bert, steps=2):
    return [
        *("train", "--arch", "bi", "--base", bert, "--train", folder / "pairs.jsonl"),
        *("--max-steps", steps, "--device", "cpu", "--output", output),
    ]


@pytest.mark.parametrize("closed", [(0,), (1,), (0, 1, 2)])
def test_closed_streams(closed, folder):
    process = started(
        ["search", folder / "index", "file"], preexec_fn=lambda: [os.close(n) for n in closed]
    )
    assert ended(process) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize(
    "line", [["search", "index", "file"], ["search", "index", "file", "--json"], ["--version"]]
)
def test_no_space_for_what_is_printed(line, folder):
    with open("/dev/full", "wb") as full:
        process = started(
            [folder / word if word == "index" else word for word in line], stdout=full
        )
        code, told = ended(process)
    assert code == 1
    assert "Error: The output cannot be written: No space left on device." in told


def test_a_device_is_never_replaced(folder, tmp_path, capsys):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for arguments in (
        ["predict", folder / "bi", "--data", folder / "pairs.jsonl", "--output", pipe],
        ["mine", "--data", folder / "pairs.jsonl", "--method", "random", "--output", pipe],
    ):
        assert run(list(map(str, arguments)), commands()) == 2
        assert "is a device or a pipe" in capsys.readouterr().err
    assert pipe.is_fifo()


SIGNALLED = """
import gc, json, os, signal, sys, time
from polyrank.progress import quieten_libraries

quieten_libraries()
import polyrank.training.run
from polyrank.__main__ import main

TWICE_AT_ONCE = 0.05

def begin(output):
    told, tells = os.pipe()
    child = os.fork()
    if not child:
        os.close(told)
        os.dup2(tells, 1)
        os.dup2(tells, 2)
        sys.argv = ["polyrank", *sys.argv[1:], "--output", output]
        main()  # which ends this process as it ends the command
    os.close(tells)
    return child, open(told, "rb")

def until(words, told):
    said = b""
    while words not in said:
        line = told.readline()
        assert line, said
        said += line
    return said

gc.freeze()
for how in ("once", "twice at once", "twice", "terminated"):
    child, told = begin(how)
    said = until(b"Training", told)
    os.kill(child, signal.SIGTERM if how == "terminated" else signal.SIGINT)
    if how == "twice at once":
        time.sleep(TWICE_AT_ONCE)
    elif how == "twice":
        said += until(b"resume", told)
    if how.startswith("twice"):
        os.kill(child, signal.SIGINT)
    said += told.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    result = json.dumps({"how": how, "code": code, "said": said.decode()})
    print(result, file=sys.__stdout__, flush=True)  # the next child would print it, too
"""


def test_interrupted_or_terminated_it_leaves_no_traceback_and_no_output(folder, bert, tmp_path):
    """One process imports everything, and forks each command."""
    line = [*training(folder, "", bert, steps=100_000)[:-2], "--evaluations", "2"]
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, *map(str, line)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        check=False,
        timeout=120,
    )
    found = {each["how"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert len(found) == 4, done.stderr.decode()
    for how, each in found.items():
        assert "Traceback" not in each["said"], how
        assert "Exception ignored" not in each["said"], how
        assert not (tmp_path / how).exists()
        is_told = "run the same command again to resume" in each["said"]
        assert is_told == (how != "terminated"), each["said"]
    assert found["once"]["code"] == 130
    assert found["twice at once"]["code"] in (130, -signal.SIGINT)
    assert found["twice"]["code"] in (130, -signal.SIGINT)
    assert found["terminated"]["code"] == -signal.SIGTERM


POOR = """
import gc, re, resource, sys
from pathlib import Path
from polyrank.progress import quieten_libraries

quieten_libraries()
from polyrank.cli.main import commands, run

def taken():
    found = re.search(r"VmData:\\s+(\\d+) kB", Path("/proc/self/status").read_text())
    return 1024 * int(found[1])

*lines, more, files = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_NOFILE, (int(files), int(files)))
for line in lines:  # whatever it imports and loads
    assert run(line.replace("OUTPUT", "first").split(), commands()) == 0
gc.freeze()
resource.setrlimit(resource.RLIMIT_DATA, (taken() + int(more), resource.RLIM_INFINITY))
sys.exit(max(run(line.replace("OUTPUT", "second").split(), commands()) for line in lines))
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="it is Linux's")
def test_no_home_no_temporary_folder_few_files_and_then_little_memory(folder, bert, tmp_path):
    """First 64 files may be open; then there are 256 MB beyond what the model needs, too."""
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"the file {n} of the disk\n" for n in range(500)))
    lines = [
        f"search {folder}/index file --device cpu",
        f"index build {folder}/bi --candidates {texts} --output OUTPUT-index --device cpu",
        " ".join(map(str, training(folder, "OUTPUT-model", bert))),
    ]
    assert twice(lines, 256, tmp_path) == (0, "")


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="it is Linux's")
def test_a_model_too_large_for_the_memory_is_not_damaged(bert, tmp_path):
    shutil.copytree(bert, tmp_path / "encoder")
    config = AutoConfig.from_pretrained(bert)
    config.update({"hidden_size": 1024, "intermediate_size": 1 << 13, "num_hidden_layers": 1})
    AutoModel.from_config(config).save_pretrained(tmp_path / "encoder")
    load_variant("bi", tmp_path / "encoder").save_pretrained(tmp_path / "large")
    (tmp_path / "texts.txt").write_text("a file\n")
    line = "index build large --candidates texts.txt --output OUTPUT --device cpu"
    code, told = twice([line], 16, tmp_path)
    assert (code, told.partition(": ")[2][:26]) == (1, "There is not enough memory")


def twice(lines, megabytes, folder):
    """What commands end with and say without a home or a temporary folder.

    They are run as they are and then with that much memory beyond what the first run needs.
    """
    homes = ("HOME", "XDG_CACHE_HOME", "HF_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in homes}
    poor = {"TMPDIR": "/no/such", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [sys.executable, "-c", POOR, *lines, str(megabytes << 20), "64"],
        cwd=folder,
        env={**environment, **poor},
        capture_output=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stderr.decode()


def test_a_clock_that_goes_back_hides_no_commit(folder, bert, tmp_path):
    model = BiEncoder.from_pretrained(folder / "bi", device="cpu")
    Index.build(model, [("a", "a file")], tmp_path / "index").close()
    tomorrow = time.time() + 86_400
    os.utime(tmp_path / "index" / "manifest.json", (tomorrow, tomorrow))
    with (
        Index.open(tmp_path / "index", device="cpu") as reader,
        Index.open(tmp_path / "index", device="cpu") as writer,
    ):
        for number in range(3):
            writer.add([(f"new{number}", "a disk")])
            assert reader.refresh()
            assert len(reader) == 2 + number
            assert not reader.refresh()


def test_a_source_that_changes_while_it_is_read_makes_no_corpus(tmp_path, monkeypatch):
    source = tmp_path / "talk.jsonl"
    source.write_text('{"turns": ["hello", "hi"]}\n' * 50)
    write = Parts.write

    def and_append(*arguments):
        with source.open("a") as handle:
            handle.write('{"turns": ["more", "and more"]}\n')
        return write(*arguments)

    monkeypatch.setattr(Parts, "write", and_append)
    with pytest.raises(DataError, match="changed while it was being read"):
        convert(source, tmp_path / "corpus")
    monkeypatch.undo()
    assert not (tmp_path / "corpus").exists()
    assert convert(source, tmp_path / "corpus").counts["conversations"] == 51


CODES = """
import sys
from polyrank.cli.main import commands, run

print([run(line.split(), commands()) for line in sys.argv[1:]])
"""


@pytest.mark.skipif(not may_mount(), reason="this machine lets nobody mount")
def test_folders_that_cannot_be_written(folder, tmp_path):
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    (tmp_path / "texts.txt").write_text("a file\na disk\n")
    sealed = f"mount -t tmpfs -o ro,size=1m tmpfs {outputs} && mount --bind -o ro {folder} {folder}"
    lines = [
        f"index build {folder}/bi --candidates {tmp_path}/texts.txt --output {outputs}/index",
        f"search {folder}/index file",  # what is only read need not be writable
    ]
    done = subprocess.run(
        [*ALONE, "sh", "-c", f'{sealed} && exec "$0" "$@"', sys.executable, "-c", CODES, *lines],
        capture_output=True,
        check=False,
    )
    told = done.stderr.decode()
    assert done.stdout.splitlines()[-1] == b"[1, 0]", told
    assert "Traceback" not in told
    assert told.count("Read-only file system") == 1

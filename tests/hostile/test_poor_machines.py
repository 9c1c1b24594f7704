"""Poor machines: no home, no space for what is printed, few files, closed streams, signals."""

import json
import os
import resource
import signal
import subprocess
import sys
import time

import pytest

from polyrank.models.bi_encoder import BiEncoder
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


def started(arguments, environment=None, **options):
    """The command in a process of its own; a variable that is None is not there."""
    everything = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    return subprocess.Popen(
        [sys.executable, "-m", "polyrank", *map(str, arguments)],
        env={name: value for name, value in everything.items() if value is not None},
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        **options,
    )


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


def test_no_home_no_temporary_folder_and_few_files(folder, bert, tmp_path):
    environment = {"HOME": None, "XDG_CACHE_HOME": None, "HF_HOME": None, "TMPDIR": "/no/such"}
    few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))  # noqa: E731
    for arguments in (
        ["search", folder / "index", "file"],
        training(folder, tmp_path / "model", bert),
    ):
        assert ended(started(arguments, environment, preexec_fn=few)) == (0, "")


@pytest.mark.parametrize("closed", [(0,), (1,), (0, 1, 2)])
def test_closed_streams(closed, folder):
    process = started(
        ["search", folder / "index", "file"], preexec_fn=lambda: [os.close(n) for n in closed]
    )
    assert ended(process) == (0, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_no_space_for_what_is_printed(more, folder):
    with open("/dev/full", "wb") as full:
        process = started(["search", folder / "index", "file", *more], stdout=full)
        code, told = ended(process)
    assert code == 1
    assert "Error: The output cannot be written: No space left on device." in told


def test_a_device_is_never_replaced(folder, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for arguments in (
        ["predict", folder / "bi", "--data", folder / "pairs.jsonl", "--output", pipe],
        ["mine", "--data", folder / "pairs.jsonl", "--method", "random", "--output", pipe],
    ):
        code, told = ended(started(arguments))
        assert code == 2
        assert "is a device or a pipe" in told
    assert pipe.is_fifo()


@pytest.mark.parametrize("often", [1, 2])
def test_interrupted_once_or_twice_it_says_how_to_resume(often, folder, bert, tmp_path):
    output = tmp_path / "model"
    heard = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731 - a shell may ignore it
    process = started(training(folder, output, bert, steps=100_000), preexec_fn=heard)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(b"Training"):
            break
    for _ in range(often):
        process.send_signal(signal.SIGINT)
        time.sleep(0.05)
    code, told = ended(process)
    assert code in (130, -signal.SIGINT)
    assert "run the same command again to resume" in told
    assert not output.exists()

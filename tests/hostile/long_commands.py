"""The commands that take long, with tiny inputs, what tells two outputs apart, and a trial of all.

A trial is a program in a process of its own and with one thread, since it forks.
"""

import gc
import hashlib
import importlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from polyrank.cli.main import commands, run
from polyrank.evaluation.report import PAGE, RESULT
from polyrank.models.checkpoint import load_model
from polyrank.retrieval.bulk.parts import read_part
from polyrank.retrieval.index import Index
from polyrank.retrieval.store.manifest import read_manifest
from tiny_encoders import WORDS, load_variant


def digest_of(*parts):
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else repr(part).encode())
    return found.hexdigest()


def of_model(path):
    load_model(path, device="cpu")
    weights, description = path / "model.safetensors", path / "polyrank.json"
    return digest_of(weights.read_bytes(), description.read_bytes())


def of_index(path):
    with Index.open(path, device="cpu", dtype="float32") as index:
        index.verify()
        hits = index.search(["file", "disk kernel"], top_k=len(index))
        return digest_of(len(index), [[tuple(hit) for hit in each] for each in hits])


def of_stored(path):
    """An index with the rows of its files, deleted ones included."""
    return digest_of(
        of_index(path), [(each.rows, each.live) for each in read_manifest(path).shards]
    )


def of_corpus(path):
    found = json.loads((path / "corpus.json").read_text())
    return digest_of(found["counts"], [part["sha256"] for part in found["parts"]])


def of_file(path):
    return digest_of(path.read_bytes())


def of_parts(path):
    parts = [read_part(each) for each in sorted(path.glob("part-*"))]
    return digest_of(parts)


def of_comparison(path):
    found = json.loads((path / RESULT).read_text())
    page = (path / PAGE).read_text().partition("## ")[2].partition("## ")[0]
    return digest_of([(each["name"], each["figures"]) for each in found["models"]], page)


@dataclass(frozen=True)
class Command:
    """A command line, in which OUTPUT stands for its output, and what tells two outputs apart."""

    line: str
    digest: Callable[[Path], str]
    changes: str = ""
    """The folder of which OUTPUT is a copy, if the command changes what is there."""


LOADED_LATE = ("polyrank.training.run", "polyrank.evaluation.compare")
"""What commands load when they run: once for all processes, so that a kill meets the work."""
CPU = "--device cpu --dtype float32"
STEPS = "--max-steps 6 --batch-size 8 --evaluations 3"
SHORT = "--max-context-length 16 --max-candidate-length 16"
COMMANDS = {
    "index build": Command(
        f"index build bi --candidates texts.jsonl --output OUTPUT {CPU}", of_index
    ),
    "index add": Command(f"index add OUTPUT more.jsonl --replace {CPU}", of_index, "index"),
    "index delete": Command("index delete OUTPUT ids.txt", of_index, "index"),
    "index compact": Command("index compact OUTPUT", of_stored, "holes"),
    "corpus": Command("corpus talk.jsonl --output OUTPUT", of_corpus),
    "encode": Command(
        f"encode bi --candidates texts.jsonl --num-parts 6 --output OUTPUT {CPU}", of_parts
    ),
    "mine": Command(
        "mine --data pairs.jsonl --method model --retriever bi --reranker cross --output OUTPUT "
        f"{CPU}",
        of_file,
    ),
    "train": Command(
        "train --arch poly --base encoder --train pairs.jsonl --output OUTPUT "
        f"{STEPS} {SHORT} {CPU}",
        of_model,
    ),
    "distil": Command(
        "distil --teacher cross --pairs random --arch bi --base encoder --train pairs.jsonl "
        f"--labels OUTPUT.labels --output OUTPUT {STEPS} {SHORT} {CPU}",
        of_model,
    ),
    "pretrain": Command(
        f"pretrain --corpus talk --tasks mlm --base encoder --output OUTPUT {STEPS} {SHORT} {CPU}",
        of_model,
    ),
    "compare": Command(
        f"compare one=bi two=cross --data dev.jsonl --sizes 5 --output OUTPUT {CPU}", of_comparison
    ),
}


def make_inputs(folder, encoder):
    """Make everything that the commands read, and work there."""
    draw = random.Random(0)

    def text():
        return " ".join(draw.choice(WORDS) for _ in range(draw.randint(1, 9)))

    shutil.copytree(encoder, folder / "encoder")
    for name in ("bi", "cross"):
        load_variant(name, encoder).save_pretrained(folder / name)
    pairs = [{"context": [text(), text()], "response": f"{text()} {n}"} for n in range(96)]
    write(folder / "pairs.jsonl", pairs)
    asked = [{**pair, "candidates": [pair["response"], "no", "yes"]} for pair in pairs]
    write(folder / "dev.jsonl", asked)
    write(folder / "texts.jsonl", [{"id": str(n), "text": text()} for n in range(300)])
    write(folder / "more.jsonl", [{"id": str(n), "text": text()} for n in range(200, 500)])
    (folder / "ids.txt").write_text("".join(f"{n}\n" for n in range(0, 300, 2)))
    write(folder / "talk.jsonl", [{"turns": [text() for _ in range(6)]} for _ in range(60)])
    os.chdir(folder)
    for line in (
        "corpus talk.jsonl --output talk",
        f"index build bi --candidates texts.jsonl --output index {CPU}",
        f"index build bi --candidates texts.jsonl --output holes {CPU}",
        "index delete holes ids.txt",
    ):
        assert run(line.split(), commands()) == 0, line


def write(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def start(name, output, log):
    """Start a command in a process of its own, which writes to `log` what it says."""
    command = COMMANDS[name]
    if command.changes and not output.exists():
        shutil.copytree(command.changes, output)
    words = [word.replace("OUTPUT", str(output)) for word in command.line.split()]
    child = os.fork()
    if child:
        return child
    os.setsid()  # what it starts is killed with it
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os._exit(run(words, commands()))


def is_there(name, output):
    """Whether an output says that it is whole."""
    if name == "encode":  # its parts come one after the other, and each is whole
        of_parts(output)
        return False
    return (output / RESULT).exists() if name == "compare" else output.exists()


def run_trial(tried):
    """Try commands, and print a line of JSON for each: what `tried` gives for a name, how often it
    is tried, and what draws. The program's arguments are a folder, the folder of a tiny BERT, the
    number of tries, a seed and the commands; without any, all are tried.
    """
    folder, encoder, tries, seed = Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:5])
    make_inputs(folder, encoder)
    for module in LOADED_LATE:
        importlib.import_module(module)
    gc.freeze()  # no process looks through what was imported
    draw = random.Random(seed)
    for name in sys.argv[5:] or COMMANDS:
        print(json.dumps(tried(name, tries, draw)), flush=True)


def trial(program, folder, encoder, few, before=()):
    """The lines of a program of the trial: of all commands, POLYRANK_HOSTILE_KILLS times each; of a
    few, once, without that variable. POLYRANK_HOSTILE_SEED draws. `before` is what starts it.
    """
    tries = os.environ.get("POLYRANK_HOSTILE_KILLS")
    seed = os.environ.get("POLYRANK_HOSTILE_SEED", "0")
    line = [*before, sys.executable, Path(__file__).with_name(program), folder, encoder]
    done = subprocess.run(
        [*line, tries or "1", seed, *(() if tries else few)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "false",  # its threads do not survive a fork
        },
        timeout=1800,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    assert [each["command"] for each in found] == list(COMMANDS if tries else few)
    return found

"""Contextual masked auto-encoding before fine-tuning, against other tasks and against nothing.

all-MiniLM-L6-v2 continues with pre-training for `--steps` on the conversations of a set whose days
or services are in the part `train` of the protocol; then bi and poly-64 are trained on the pairs of
that part for `--tuning-steps`, and measured on `choose`. Without pre-training they are trained on
the pairs for as many steps more, so that all have the same number of steps.

    cmae             a decoder fills in the reply from the vector of its context
    cmae_every       cmae whose decoder gets the vector at every token, not as its first input
    next_utterance   the reply among those of the step
    three_classes    reply, other turn of the conversation, or from elsewhere; and masked words
    mlm              masked words of context and reply
    cmae+next        cmae and next_utterance, half of the pairs each
    none

python -m benchmarks.cmae DATA --work DIR [--sets ubuntu_irc,sgd --models bi,poly --seeds 0,1,2
    --before cmae,next_utterance,mlm,none --steps 120 --tuning-steps 60 --batch 64]

Two tables: the loss of the decoder on held-out conversations, with the vector of the reply's own
context and with another, and the effective dimensions of the vectors of contexts before
fine-tuning (--output keeps them); and the runs of the protocol's ledger, compared. DIR keeps
corpora, encoders and models; what is there is not made again, and what was interrupted resumes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks import protocol
from benchmarks.command import call
from benchmarks.dialogues import SGD_TRAINING
from benchmarks.ledger import LEDGER, Entry, Ledger
from benchmarks.ledger_tables import report
from benchmarks.parts import LENGTHS, parts_of, share_of
from benchmarks.results_store import ResultsStore, table
from benchmarks.runs import Plan
from benchmarks.timing import machine
from polyrank.data.json_files import read_json_lines
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.hub.card import RECORD
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries
from polyrank.storage import write_text

SETS = ("ubuntu_irc", "sgd")
CONVERSATIONS = {
    "ubuntu_irc": Path("ubuntu_irc", "conversations.train.jsonl.xz"),
    "sgd": SGD_TRAINING,
}
IN_BATCH = ["--unrelated-utterances", "0"]
THREE_CLASSES = ["--unrelated-utterances", "0.333", "--related-utterances", "0.333"]
BEFORE: dict[str, list[str]] = {
    "cmae": ["--tasks", "cmae"],
    "cmae_every": ["--tasks", "cmae", "--decoder-vector", "every"],
    "next_utterance": ["--tasks", "next_utterance", *IN_BATCH],
    "three_classes": ["--tasks", "next_utterance", *THREE_CLASSES, "--context-turns", "3"],
    "mlm": ["--tasks", "mlm"],
    "cmae+next": ["--tasks", "cmae,next_utterance", *IN_BATCH],
    "none": [],
}
"""The flags of `polyrank pretrain` by what comes before fine-tuning."""
USUAL = ["cmae", "next_utterance", "mlm", "none"]
MODELS: dict[str, dict[str, Any]] = {"bi": {}, "poly": {"num_codes": 64}}
CONTEXTS = 1000
"""Contexts of `choose` whose vectors' effective dimensions are measured."""
FIGURES = ("decoder_loss", "shuffled_decoder_loss")


def conversations_of(data: Path, name: str, work: Path) -> Path:
    """The conversations of the groups that are trained on, as a file."""
    file = work / "conversations" / f"{name}.jsonl"
    if not file.is_file():
        lines = [
            json.dumps(record, ensure_ascii=False)
            for _, record in read_json_lines(data / CONVERSATIONS[name])
            if share_of(group_of(name, record)) != 0
        ]
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, "\n".join(lines) + "\n")
    return file


def group_of(name: str, record: dict[str, Any]) -> str:
    """What a conversation must not leave: the day of the channel, or the first service."""
    group: str = record["services"][0] if name == "sgd" else record["id"].rpartition("#")[0]
    return group


def encoder_of(options: argparse.Namespace, name: str, before: str) -> Path:
    """The encoder of a set before fine-tuning, pre-trained where it is not there."""
    if before == "none":
        return Path(options.base)
    corpus: Path = options.work / "corpora" / name
    if not corpus.is_dir():
        source = conversations_of(options.data, name, options.work)
        call("corpus", str(source), "--language", "en", "--output", str(corpus))
    folder: Path = options.work / "encoders" / f"{name}-{before}-{options.steps}-{options.batch}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        given = ["pretrain", "--corpus", str(corpus), "--base", str(options.base)]
        given += [*BEFORE[before], "--no-merge-speaker"]
        given += ["--max-steps", str(options.steps), "--batch-size", str(options.batch)]
        lengths = {**LENGTHS[name], "max_joined_length": max(LENGTHS[name].values())}
        for length, most in lengths.items():
            given += [f"--{length.replace('_', '-')}", str(most)]
        given += ["--evaluations", str(options.evaluations), "--device", options.device]
        call(*given, "--output", str(folder))
    return folder


def diagnosed(options: argparse.Namespace, name: str, before: str) -> dict[str, Any]:
    """The held-out losses of an encoder's decoder, and the effective dimensions of its vectors."""
    folder = encoder_of(options, name, before)
    found: dict[str, Any] = {}
    if (folder / RECORD).is_file() and before != "none":
        figures = json.loads((folder / RECORD).read_text(encoding="utf-8"))["figures"]
        found = {one: figures.get(f"cmae_{one}") for one in FIGURES}
    model = BiEncoder.from_pretrained(folder, device=options.device, defaults=LENGTHS[name])
    choose = parts_of(options.data, name, options.work).choose[:CONTEXTS]
    vectors = model.encode_contexts([example.context for example in choose])
    return {**found, "effective_dimensions": effective_dimensions(vectors)}


def effective_dimensions(vectors: Tensor) -> float:
    """The exponential of the entropy of the principal components' shares of the variance: (N, d).

    It is d where all directions have the same share, and 1 where all vectors lie on a line.
    """
    exact = vectors.double()
    values = torch.linalg.svdvals(exact - exact.mean(dim=0)).square()
    shares = values / values.sum()
    return float(torch.special.entr(shares).sum().exp())


def tuned(options: argparse.Namespace, name: str, arch: str, before: str, seed: int) -> Entry:
    """Train and measure a model by the protocol, unless the ledger has that run."""
    is_bare = before == "none"
    steps = options.tuning_steps + (options.steps if is_bare else 0)
    is_default = is_bare and str(options.base) == str(default_base())
    label = f"{arch} after {before}"
    plan = Plan(
        set=name,
        arch=arch,
        name=label,
        settings={**MODELS[arch], "shared_towers": options.shared_towers},
        training={"max_steps": steps, "batch_size": options.batch, "evaluations": 1},
        base=None if is_default else str(encoder_of(options, name, before)),
        seed=seed,
        device=options.device,
    )
    ledger = Ledger(options.ledger)
    found = protocol.run(plan, options.on, options.data, options.work, ledger, limit=options.limit)
    return replace(found[-1], name=label)


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser().parse_args(arguments)
    quieten_libraries()
    print(
        f"{machine()}; {options.steps} steps before {options.tuning_steps}, of {options.batch}",
        flush=True,
    )
    store = ResultsStore(options.output)
    rows, entries = [], []
    for name in options.sets:
        for before in options.before:
            is_bare = before == "none"
            key = {
                "set": name,
                "before": before,
                "base": None if str(options.base) == str(default_base()) else options.base.name,
                "steps": None if is_bare else options.steps,
                "batch": None if is_bare else options.batch,
            }
            found = store.get(key, partial(diagnosed, options, name, before))
            losses = [found.get(figure) for figure in FIGURES]
            rows.append([name, before, *losses, found["effective_dimensions"]])
            for arch in options.models:
                for seed in options.seeds:
                    entries.append(tuned(options, name, arch, before, seed))
    columns = ["set", "before", "decoder, own vector", "another vector", "effective dimensions"]
    print(table(columns, rows))
    print()
    print(report(entries, sorted({entry.name for entry in entries})))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    listed = protocol.listed
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("data", type=Path)
    made.add_argument("--work", type=Path, required=True)
    made.add_argument("--ledger", type=Path, default=LEDGER)
    made.add_argument("--output", type=Path, default=LEDGER.with_name("cmae.json"))
    made.add_argument("--sets", type=listed, default=list(SETS))
    made.add_argument("--models", type=listed, default=list(MODELS))
    made.add_argument("--before", type=listed, default=USUAL, help=", ".join(BEFORE))
    made.add_argument("--seeds", type=protocol.numbers, default=[0])
    made.add_argument("--steps", type=int, default=120)
    made.add_argument("--tuning-steps", type=int, default=60)
    made.add_argument("--batch", type=int, default=64)
    made.add_argument("--evaluations", type=int, default=2)
    made.add_argument("--base", type=Path, default=default_base())
    made.add_argument("--shared-towers", action="store_true", help="one tower in bi and poly")
    made.add_argument("--on", choices=protocol.MEASURED, default="choose")
    made.add_argument("--limit", type=int, help="examples of `choose`, to look at something")
    made.add_argument("--device", default="auto")
    return made


if __name__ == "__main__":
    main()

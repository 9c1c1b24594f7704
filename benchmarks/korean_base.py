"""A small encoder that reads Korean, pre-trained here from nothing on the texts of DATA.

python -m benchmarks.korean_base DATA --output FOLDER [--steps 3000]

A vocabulary of its own and a BERT of 4 layers of width 256, pre-trained by `polyrank corpus` and
`polyrank pretrain` on pairs of Korean texts: a question and its reply (korean_chatbot train), two
sentences that say about the same (KorSTS train, 3.5 points or more), a sentence and what follows
from it (KorNLI, its XNLI dev part). Half of the pairs are ranked in the batch, half are read as one
text with masked tokens. Dev texts of korean_chatbot and KorSTS are not read. It has seen some
13,000 pairs: a start for Korean, and nothing like an encoder that was trained on a corpus.

FOLDER is one that `from_pretrained` reads, with how it came about in its README.md. Run again, it
goes on where it was.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.command import call
from polyrank.data.json_files import read_json_lines
from polyrank.progress import quieten_libraries

MIN_SCORE = 3.5
ENCODER = {"layers": 4, "width": 256, "heads": 4, "positions": 128, "vocabulary": 8000}
SETTINGS = {
    "tasks": "next_utterance,mlm",
    "unrelated-utterances": 0,
    "projection": "none",
    "max-candidate-length": 64,
    "max-joined-length": 128,
    "batch-size": 64,
    "learning-rate": 1e-3,
    "evaluations": 3,
}


def pairs(data: Path) -> Iterator[tuple[str, str]]:
    """Two texts that belong together, from each set."""
    for _, record in read_json_lines(data / "korean_chatbot" / "train.jsonl.xz"):
        yield record["context"][-1], record["response"]
    folder = data / "korsts_kornli"
    for _, record in read_json_lines(folder / "sts-train.jsonl.xz"):
        if record["score"] >= MIN_SCORE:
            yield record["sentence1"], record["sentence2"]
    for _, record in read_json_lines(folder / "xnli.dev.ko.jsonl.xz"):
        if record["label"] == "entailment":
            yield record["sentence1"], record["sentence2"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3000)
    options = parser.parse_args()
    quieten_libraries()
    source = options.output.with_name(f"{options.output.name}-pairs.jsonl")
    corpus = options.output.with_name(f"{options.output.name}-corpus")
    lines = [
        json.dumps({"id": str(number), "turns": list(pair)}, ensure_ascii=False) + "\n"
        for number, pair in enumerate(dict.fromkeys(pairs(options.data)))
    ]
    source.write_text("".join(lines), encoding="utf-8")
    made = ["corpus", str(source), "--format", "conversations", "--output", str(corpus)]
    given = ["pretrain", "--corpus", str(corpus), "--output", str(options.output)]
    given += ["--max-steps", str(options.steps), "--no-merge-speaker"]
    for name, value in {**ENCODER, **SETTINGS}.items():
        given += [f"--{name}", str(value)]
    call(*made, "--language", "ko")
    call(*given)


if __name__ == "__main__":
    main()

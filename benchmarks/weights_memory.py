"""Peak memory of an encoder of 0.6 billion parameters, by the dtype that its weights are kept in.

python -m benchmarks.weights_memory [--layers 28 --most-gb 2.6 --work DIR]

The encoder has the shape of Qwen3-Embedding-0.6B (28 layers, width 1024, 16 heads over 8 of keys,
151,669 tokens) and random weights, stored in bfloat16 as published. Each case loads it in a
process of its own and encodes texts on the CPU; its peak is the largest resident size of that
process, torch and the mapped file included. Fails if one tower with kept weights needs more than
--most-gb (10**9 bytes).
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import string
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.texts import mixed_texts
from benchmarks.timing import machine

VOCABULARY = 151_669
END = "<|endoftext|>"
TEXTS = "texts.json"
SOURCES = ("encoder", "model")
CASES = [
    {"source": source, "weights_dtype": weights, "dtype": dtype, "shared_towers": shared}
    for source, weights, dtype, shared in itertools.product(
        SOURCES, ("auto", "float32"), ("bfloat16", "float32"), (True, False)
    )
    if source == "encoder" or shared
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--most-gb", type=float, default=2.6)
    parser.add_argument("--work", type=Path, help="where the encoder is kept for another run")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measured(options.work, json.loads(options.case), options.texts)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        make(work, options.layers)
        (work / TEXTS).write_text(json.dumps(mixed_texts(options.texts)), encoding="utf-8")
        print(f"{options.texts} texts, {options.layers} layers; {machine()}")
        print("source   weights   computed  towers    parameters  peak GB   s/load  s/encode")
        failed = False
        for case in CASES:
            found = in_process(work, case, options)
            towers = "one" if case["shared_towers"] else "two"
            print(
                f"{case['source']:8} {case['weights_dtype']:9} {case['dtype']:9} {towers:9} "
                f"{found['parameters']:10,} {found['peak'] / 1e9:8.2f} {found['load']:8.1f} "
                f"{found['encode']:9.1f}"
            )
            failed |= case["weights_dtype"] == "auto" and found["peak"] > options.most_gb * 1e9
    if failed:
        sys.exit(f"Kept weights need more than {options.most_gb} GB.")


def in_process(
    work: Path, case: dict[str, object], options: argparse.Namespace
) -> dict[str, float]:
    """What one case measures, in a process that does nothing else."""
    command = [sys.executable, "-m", "benchmarks.weights_memory", "--work", str(work)]
    command += ["--texts", str(options.texts), "--case", json.dumps(case)]
    made = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(made.stdout.splitlines()[-1])
    return found


def measured(work: Path, case: dict[str, object], count: int) -> dict[str, float]:
    """The parameters, the seconds and the peak of loading an encoder and encoding with it."""
    import resource
    from time import perf_counter

    from polyrank import BiEncoder

    settings = {name: case[name] for name in ("weights_dtype", "dtype")}
    if case["source"] == "encoder":
        settings |= {"reduction": "last", "shared_towers": case["shared_towers"]}
    start = perf_counter()
    model = BiEncoder.from_pretrained(work / str(case["source"]), device="cpu", **settings)
    loaded = perf_counter()
    texts = json.loads((work / TEXTS).read_text(encoding="utf-8"))[:count]
    model.encode_contexts(texts)
    model.encode_candidates(texts)
    unit = 1 if sys.platform == "darwin" else 1024
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "load": loaded - start,
        "encode": perf_counter() - loaded,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit,
    }


def make(work: Path, layers: int) -> None:
    """Write the encoder, and a model around it with one tower, unless they are there."""
    from transformers import AutoModel, Qwen3Config

    from polyrank import BiEncoder

    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
    )
    folder = work / "encoder"
    if not (folder / "model.safetensors").is_file():
        torch.manual_seed(0)
        AutoModel.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
        write_tokenizer(folder)
    if not (work / "model").is_dir():
        model = BiEncoder.from_pretrained(
            folder, reduction="last", shared_towers=True, weights_dtype="auto", device="cpu"
        )
        model.save_pretrained(work / "model")


def write_tokenizer(folder: Path) -> None:
    """A byte-level BPE of as many tokens as Qwen's, of random words."""
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    draw = random.Random(0)
    pieces = dict.fromkeys(sorted(pre_tokenizers.ByteLevel.alphabet()))
    merges: dict[tuple[str, str], None] = {}
    while len(pieces) < VOCABULARY - 1:
        word = "Ġ" + "".join(draw.choices(string.ascii_lowercase, k=draw.randint(3, 8)))
        for end in range(1, len(word)):
            if len(pieces) < VOCABULARY - 1:
                pieces[word[: end + 1]] = None
                merges[word[:end], word[end]] = None
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    made = Tokenizer(models.BPE(vocabulary, list(merges)))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.add_special_tokens([AddedToken(END)])
    special = [(END, made.token_to_id(END))]
    made.post_processor = TemplateProcessing(single=f"$A {END}", special_tokens=special)
    PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=END, pad_token=END, padding_side="left"
    ).save_pretrained(folder)


if __name__ == "__main__":
    main()

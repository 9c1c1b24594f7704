"""A small encoder that reads Korean, pre-trained here from nothing on the texts of DATA.

python -m benchmarks.korean_base DATA --output FOLDER [--minutes 8 | --steps 2000]

A WordPiece vocabulary and a BERT of 4 layers of width 256, trained as a masked language model with
BERT's corruption (Devlin et al. 2019, section 3.1), without its next-sentence task. The texts are
the Korean training texts of DATA, each alone, and each record's two texts as a pair; dev texts of
korean_chatbot and KorSTS are not read. It has seen some 30,000 sentences: a start for Korean, and
nothing like an encoder that was trained on a corpus.

The learning rate falls to nothing over the time given, so that a run of `--minutes` depends on the
machine; one of `--steps` does not. Ctrl-C ends a run early and saves what there is. The folder is
one that `from_pretrained` reads, with `pretraining.json` beside the weights.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import WordPiece
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast
from transformers.utils import logging

from benchmarks.timing import machine
from polyrank.cli.main import quieten_libraries
from polyrank.data.files import read_json_lines
from polyrank.runtime import resolve_dtype, set_seed
from polyrank.storage import replaced_folder, require_replaceable
from polyrank.tokens.batching import Batch, collate, plan
from polyrank.tokens.tokenizer import TextTokenizer

CPU = torch.device("cpu")
TEXTS = {
    "korean_chatbot/train.jsonl.xz": ("context", "response"),
    "korsts_kornli/sts-train.jsonl.xz": ("sentence1", "sentence2"),
    "korsts_kornli/xnli.dev.ko.jsonl.xz": ("sentence1", "sentence2"),
}
"""Records of two texts. KorNLI is only trained on, never measured, so that its XNLI part counts."""
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MASK_ID = SPECIAL.index("[MASK]")
POSITIONS = 256
CHOSEN, MASKED, RANDOM = 0.15, 0.8, 0.1
"""The share of a text's tokens to predict; of these, replaced by [MASK] and by any token."""
WARMUP = 0.06
RECORD = "pretraining.json"
SAY_EVERY = 50


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Token ids of single texts and of pairs, with their segments."""

    ids: list[list[int]]
    segments: list[list[int]]


@dataclass(kw_only=True)
class Progress:
    """How far a run has come."""

    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    loss: float = math.nan


def read_pairs(data: Path) -> list[tuple[str, str]]:
    """The two texts of every record."""
    pairs = []
    for name, fields in TEXTS.items():
        for _, record in read_json_lines(data / name):
            first, second = (record[field] for field in fields)
            pairs.append((first if isinstance(first, str) else " ".join(first), second))
    return list(dict.fromkeys(pairs))


def blank_tokenizer(model: WordPiece) -> Any:
    """A tokeniser that keeps syllables whole: stripping accents would take them apart."""
    made: Any = Tokenizer(model)
    cleaned = normalizers.BertNormalizer(strip_accents=False, lowercase=True)
    made.normalizer = normalizers.Sequence([normalizers.NFC(), cleaned])
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def train_vocabulary(texts: list[str], size: int) -> dict[str, int]:
    """The `size` pieces of a WordPiece vocabulary, the same in every run.

    The trainer numbers the characters inside words as it meets them, in an order that changes from
    run to run, and breaks ties by these numbers; named beforehand, they have fixed ones.
    """
    made = blank_tokenizer(WordPiece(unk_token="[UNK]"))
    characters = {letter for text in texts for letter in made.normalizer.normalize_str(text)}
    inner = [f"##{letter}" for letter in sorted(characters) if letter.isalnum()]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=[*SPECIAL, *inner], show_progress=False
    )
    made.train_from_iterator(texts, trainer)
    vocabulary: dict[str, int] = made.get_vocab()
    return vocabulary


def train_tokenizer(texts: list[str], size: int) -> PreTrainedTokenizerFast:
    """A WordPiece tokeniser with BERT's special tokens and segments."""
    vocabulary = train_vocabulary(texts, size)
    made = blank_tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    made.decoder = decoders.WordPiece()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", SPECIAL.index("[CLS]")), ("[SEP]", SPECIAL.index("[SEP]"))],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def tokenise(tokenizer: PreTrainedTokenizerFast, pairs: list[tuple[str, str]]) -> Rows:
    """Every text once and every pair once, at most `POSITIONS` tokens, none without a word."""
    reader = TextTokenizer(tokenizer)
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    ids = [row for row in reader.candidates(texts, POSITIONS) if len(row) > 2]
    segments = [[0] * len(row) for row in ids]
    half = (POSITIONS - reader.pair_overhead) // 2
    firsts = reader.encode([first for first, _ in pairs])
    seconds = reader.encode([second for _, second in pairs])
    for first, second in zip(firsts, seconds, strict=True):
        row, kinds = reader.join(first[:half], second[:half])
        ids.append(row)
        segments.append(kinds)
    return Rows(ids=ids, segments=segments)


def epochs(rows: Rows, budget: int, seed: int) -> Iterator[Batch]:
    """Batches without end: each epoch groups rows of like length anew, in a random order."""
    draw = np.random.default_rng(seed)
    while True:
        shuffled = draw.permutation(len(rows.ids))
        groups = plan([len(rows.ids[row]) for row in shuffled], budget)
        for group in draw.permutation(len(groups)):
            yield collate(rows.ids, shuffled[groups[group]], 0, rows.segments)


def corrupt(ids: Tensor, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """BERT's corruption of `ids` (B, T): the inputs (B, T), and which tokens to predict (B, T).

    Of each row, 15 % of its tokens, at least one: 80 % become [MASK], 10 % any token of the `size`
    in the vocabulary, 10 % stay. Special tokens are neither chosen nor put in, but for [MASK].
    """
    ordinary = ids >= len(SPECIAL)
    count = (CHOSEN * ordinary.sum(dim=1)).round().clamp(min=1)  # (B)
    drawn = torch.rand(ids.shape, generator=generator).masked_fill(~ordinary, -1.0)
    places = drawn.argsort(dim=1, descending=True).argsort(dim=1)
    chosen = (places < count[:, None]) & ordinary
    fate = torch.rand(ids.shape, generator=generator)
    others = torch.randint(len(SPECIAL), size, ids.shape, generator=generator)
    inputs = ids.masked_fill(chosen & (fate < MASKED), MASK_ID)
    replaced = chosen & (fate >= MASKED) & (fate < MASKED + RANDOM)
    return torch.where(replaced, others, inputs), chosen


def loss_of(model: BertForMaskedLM, batch: Batch, generator: torch.Generator) -> Tensor:
    """The mean cross-entropy of the chosen tokens, scored by no others than them."""
    ids = batch["input_ids"]
    inputs, chosen = corrupt(ids, model.config.vocab_size, generator)
    outputs = model.bert(
        input_ids=inputs,
        attention_mask=batch.get("attention_mask"),
        token_type_ids=batch["token_type_ids"],
    ).last_hidden_state  # (B, T, h)
    logits = model.cls(outputs[chosen])  # (chosen, vocabulary)
    return nn.functional.cross_entropy(logits.float(), ids[chosen])


def build_model(options: argparse.Namespace, size: int) -> BertForMaskedLM:
    """The network with random weights. Attention is not dropped, which is slow on a CPU."""
    config = BertConfig(
        vocab_size=size,
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        intermediate_size=4 * options.width,
        max_position_embeddings=POSITIONS,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
    )
    return BertForMaskedLM(config)


def build_optimiser(model: nn.Module, rate: float) -> torch.optim.Optimizer:
    """AdamW that decays matrices only."""
    weights = list(model.parameters())
    groups = [
        {"params": [each for each in weights if each.ndim > 1], "weight_decay": 0.01},
        {"params": [each for each in weights if each.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, eps=1e-6)


def rate_at(done: float) -> float:
    """The share of the peak learning rate when `done` of the run, 0 to 1, is over."""
    if done < WARMUP:
        return max(done / WARMUP, 0.01)
    return (1 - done) / (1 - WARMUP)


def pretrain(
    model: BertForMaskedLM, rows: Rows, options: argparse.Namespace, progress: Progress
) -> None:
    """Train in place until the time or the steps are over; keeps `progress` up to date."""
    optimiser = build_optimiser(model, options.learning_rate)
    generator = torch.Generator().manual_seed(options.seed)
    dtype = resolve_dtype("auto", CPU)
    losses: list[float] = []
    started = time.perf_counter()
    model.train()
    for batch in epochs(rows, options.batch_tokens, options.seed):
        progress.seconds = time.perf_counter() - started
        limit = options.minutes * 60
        done = progress.steps / options.steps if options.steps else progress.seconds / limit
        if done >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = options.learning_rate * rate_at(done)
        with torch.autocast("cpu", dtype=dtype, enabled=dtype != torch.float32):
            loss = loss_of(model, batch, generator)
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        losses.append(loss.item())
        progress.steps += 1
        progress.tokens += batch["input_ids"].numel()
        progress.loss = float(np.mean(losses[-SAY_EVERY:]))
        if progress.steps % SAY_EVERY == 0:
            print(
                f"step {progress.steps:6,}  {progress.seconds:5.0f} s  {done:4.0%}  "
                f"loss {progress.loss:.3f}",
                flush=True,
            )


def save(
    model: BertForMaskedLM,
    tokenizer: PreTrainedTokenizerFast,
    options: argparse.Namespace,
    progress: Progress,
) -> None:
    """Write the encoder, without the layer that predicts tokens, and how it came about."""
    settings = {name: value for name, value in vars(options).items() if name not in PATHS}
    record = {**settings, "run": vars(progress), "machine": machine()}
    with replaced_folder(options.output) as folder:
        model.eval().bert.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


PATHS = ("data", "output")


def read_options() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--steps", type=int, help="in the place of --minutes")
    parser.add_argument("--vocabulary", type=int, default=8000)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--batch-tokens", type=int, default=2048, help="padded tokens of a step")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    options = read_options()
    quieten_libraries()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    require_replaceable(options.output, RECORD, "Korean encoder")
    set_seed(options.seed)
    pairs = read_pairs(options.data)
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    tokenizer = train_tokenizer(texts, options.vocabulary)
    rows = tokenise(tokenizer, pairs)
    model = build_model(options, len(tokenizer))
    print(
        f"{machine()}\n{len(texts):,} texts, {len(pairs):,} pairs, "
        f"{sum(map(len, rows.ids)):,} tokens an epoch; {len(tokenizer):,} pieces; "
        f"{model.bert.num_parameters() / 1e6:.1f} million parameters",
        flush=True,
    )
    progress = Progress()
    try:
        pretrain(model, rows, options, progress)
    except KeyboardInterrupt:
        print("interrupted: saving what there is")
    save(model, tokenizer, options, progress)
    print(f"{progress.steps:,} steps, loss {progress.loss:.3f}: {options.output}")


if __name__ == "__main__":
    main()

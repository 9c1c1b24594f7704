"""Makes a new encoder and its tokeniser from the texts of corpora, once per run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from polyrank.config import to_mapping
from polyrank.models.backbone import new_encoder, quiet
from polyrank.models.config import NewEncoderConfig
from polyrank.progress import bar
from polyrank.storage import replaced_folder, write_text
from polyrank.tokens.vocabulary import train_tokenizer

RECORD = "base.json"


def base_folder(output: Path) -> Path:
    """Where a run keeps the new encoder that it starts from."""
    output = output.absolute()
    return output.with_name(f".{output.name}.base")


def make_base(
    folder: Path, texts: Iterable[str], config: NewEncoderConfig, *, identity: Any, seed: int
) -> None:
    """Write a new encoder to `folder`, unless it is there already.

    The same texts, configuration and seed give the same encoder. `identity` is that of the texts.
    Raises DataError where there are none, StorageError if the disk refuses.
    """
    record = json.dumps([identity, to_mapping(config), seed], indent=1) + "\n"
    known = folder / RECORD
    if known.is_file() and known.read_text(encoding="utf-8") == record:
        return
    with bar("Making the vocabulary"):
        tokenizer = train_tokenizer(
            texts, config.vocabulary, lower_case=config.lower_case, max_length=config.positions
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder: Any = new_encoder(config, tokenizer)
    with replaced_folder(folder) as fresh, quiet():
        encoder.save_pretrained(fresh)
        tokenizer.save_pretrained(fresh)
        write_text(fresh / RECORD, record)

"""A cache of the hub with tiny models under the ids that the documentation names."""

import json
import os
from pathlib import Path

import torch
from transformers import AutoModel, BertConfig, BertForSequenceClassification, BertTokenizer

from polyrank.models.source import HUB_ID, default_base

REAL = "POLYRANK_REAL_WEIGHTS" in os.environ
"""Whether all-MiniLM-L6-v2 is itself instead."""
DOCS = Path(__file__).parents[2] / "docs"
RERANKER = "cross-encoder/ms-marco-MiniLM-L6-v2"
REVISION = "0" * 40


def tokenizer_of_the_pages():
    """Every character of the documentation is a piece, so that no text is unknown."""
    letters = sorted(set("".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    pieces += [f"##{letter}" for letter in letters]
    vocabulary = {piece: place for place, piece in enumerate(dict.fromkeys(pieces))}
    return BertTokenizer(vocab=vocabulary, do_lower_case=True, strip_accents=False)


def tiny_config(tokenizer, **settings):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 48, "max_position_embeddings": 128, "initializer_range": 0.2}
    return BertConfig(vocab_size=len(tokenizer), **sizes, **settings)


def write_encoder(folder):
    """A sentence-transformers folder that averages and normalises."""
    tokenizer = tokenizer_of_the_pages()
    AutoModel.from_config(tiny_config(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for n, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling), encoding="utf-8")
    limits = {"max_seq_length": 128, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(limits), encoding="utf-8")


def write_reranker(folder):
    """A published reranker: one label, whose logit is the score."""
    tokenizer = tokenizer_of_the_pages()
    identity = {"activation_fn": "torch.nn.modules.linear.Identity", "version": "5.0.0"}
    config = tiny_config(tokenizer, num_labels=1, sentence_transformers=identity)
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_hub(cache):
    """Fill a cache: with stand-ins, but for all-MiniLM-L6-v2 where real weights are wanted."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoder, reranker = cache / "tiny" / "encoder", cache / "tiny" / "reranker"
        for folder, write in ((encoder, write_encoder), (reranker, write_reranker)):
            folder.mkdir(parents=True)
            write(folder)
    models = {
        HUB_ID: default_base() if REAL else encoder,
        "klue/roberta-base": encoder,
        RERANKER: reranker,
    }
    for name, folder in models.items():
        repository = cache / f"models--{name.replace('/', '--')}"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text(REVISION, encoding="utf-8")
        (repository / "snapshots").mkdir()
        if not (folder / "modules.json").exists():  # as the cache knows after a download
            absent = repository / ".no_exist" / REVISION
            absent.mkdir(parents=True)
            (absent / "modules.json").touch()
        (repository / "snapshots" / REVISION).symlink_to(folder)

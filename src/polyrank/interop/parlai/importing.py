"""ParlAI's rankers as ordinary polyrank models, with the same scores.

files.py         the files, read without running code
options.py       what defines a score, and what is refused
dictionary.py    which token has which id
tokenizer.py     texts → these ids
weights.py       weights by polyrank's names
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from polyrank.errors import ModelError
from polyrank.interop.parlai.dictionary import read_dictionary
from polyrank.interop.parlai.files import Files, find_files, read_options, read_state
from polyrank.interop.parlai.options import Options, parse_options
from polyrank.interop.parlai.tokenizer import Converted, convert_tokenizer
from polyrank.interop.parlai.weights import State, model_weights, num_segments
from polyrank.models.backbone import Backbone
from polyrank.models.base import Model
from polyrank.models.bert import VARIANT, Bert, BertConfig
from polyrank.models.checkpoint import ARCHITECTURES, load_model
from polyrank.models.config import (
    BiEncoderConfig,
    CrossEncoderConfig,
    DenseLayer,
    PolyEncoderConfig,
)
from polyrank.models.description import DESCRIPTION
from polyrank.models.folder import fit_weights
from polyrank.storage import require_replaceable
from polyrank.tokens.tokenizer import TextTokenizer

TABLES = {
    "bi": ("context_encoder.embeddings.weight",),
    "poly": ("encoder_ctxt.embeddings.weight", "encoder_cand.embeddings.weight"),
    "cross": ("encoder.embeddings.weight",),
}
"""The tables of word vectors, by architecture."""
SPECIAL = 2
"""The number of special tokens that ParlAI puts around a text."""


def import_checkpoint(checkpoint: str | Path, output: str | Path) -> Model:
    """Turn a ranker that ParlAI trained into a model folder.

    Token ids and scores are ParlAI's. No code of the checkpoint is run.

    Args:
        checkpoint: The model file, beside which .opt and .dict are, or its folder.
        output: The model folder; a model there is replaced.

    Returns:
        The bi-, poly- or cross-encoder that was written, on the CPU.

    Raises:
        ModelError: The checkpoint is damaged or of a kind that cannot be kept.
        UsageError: Something else is at `output`, or polyrank reads the checkpoint as it is.
        StorageError: The folder cannot be written.
    """
    require_replaceable(Path(output), DESCRIPTION, "a model")
    files = find_files(Path(checkpoint))
    options = parse_options(read_options(files.options), files.options)
    ids = read_dictionary(files, options)
    converted = convert_tokenizer(files, options, ids)
    state = State(read_state(files.model), files.model)
    require_same_size(state, options, len(ids), files)
    weights = model_weights(state, options, converted.unknown, converted.num_aliases)
    model = build_model(state, options, len(ids), converted)
    fit_weights(model, weights, files.model)
    model.eval().save_pretrained(output)
    del model, weights, state
    return load_model(output, device="cpu")


def require_same_size(state: State, options: Options, size: int, files: Files) -> None:
    """Raise ModelError unless there is one word vector for each token of the dictionary."""
    for name in TABLES[options.architecture]:
        rows = len(state.tensors[name]) if name in state.tensors else size
        if rows != size:
            raise ModelError(
                f"{files.dictionary} has {size:,} tokens, but the weights {files.model} have "
                f"{rows:,} word vectors.",
                "Give the dictionary that ParlAI wrote for these weights. If they were trained "
                "with --fp16, set force_fp16_tokens to true in the .opt file.",
            )


def build_model(state: State, options: Options, size: int, converted: Converted) -> Model:
    """The model of a checkpoint, before its weights are read; its parameters are not allocated."""
    prefix = TABLES[options.architecture][0].removesuffix("embeddings.weight")
    positions = len(state.take(f"{prefix}position_embeddings.weight"))
    tokenizer = TextTokenizer(converted.pretrained)
    with torch.device("meta"):
        encoder = build_encoder(options, size + converted.num_aliases, positions)
        model_class: Any = ARCHITECTURES[options.architecture]
        model: Model = model_class(Backbone(encoder), tokenizer, settings_of(options, positions))
    return model


def build_encoder(options: Options, size: int, positions: int) -> Bert:
    """The encoder of a checkpoint: BERT, or a variant of it that `transformers` does not have."""
    described = {
        "vocab_size": size,
        "hidden_size": options.embedding_size,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.n_heads,
        "intermediate_size": options.ffn_size,
        "hidden_act": options.activation,
        "hidden_dropout_prob": options.dropout or 0.0,
        "attention_probs_dropout_prob": options.attention_dropout or 0.0,
        "max_position_embeddings": positions,
        "type_vocab_size": max(num_segments(options), 1),
        "layer_norm_eps": 1e-5,
        "pad_token_id": 0,
    }
    if options.variant in ("xlm", "bart"):
        return Bert(BertConfig(model_type="bert", **described))
    switches = {"norm_first": options.variant == "prelayernorm", "norm_embeddings": False}
    return Bert(BertConfig(model_type=VARIANT, **described, **switches))


def settings_of(
    options: Options, positions: int
) -> BiEncoderConfig | PolyEncoderConfig | CrossEncoderConfig:
    """The settings of a model that scores as the checkpoint does."""
    reading = reading_of(options, positions)
    if options.architecture == "cross":
        return CrossEncoderConfig(
            head="linear", reduction=options.reduction_type, head_dropout=0.0, **reading
        )
    is_cosine = options.architecture == "bi" and options.normalize_sent_emb
    vectors: dict[str, Any] = {
        "shared_towers": False,
        "reduction": options.reduction_type,
        "similarity": "cosine" if is_cosine else "dot",
        "temperature": 1.0,
        **reading,
    }
    if options.architecture == "bi":
        layers = [
            DenseLayer(dimension=2 * options.embedding_size, activation="relu"),
            DenseLayer(dimension=options.embedding_size),
        ]
        return BiEncoderConfig(dense=tuple(layers) if options.share_encoders else (), **vectors)
    return PolyEncoderConfig(
        num_codes=options.poly_n_codes,
        context_vectors="learnt" if options.polyencoder_type == "codes" else "first",
        attention=options.poly_attention_type,
        code_recency=0.0,
        code_mean=0.0,
        **vectors,
    )


def reading_of(options: Options, positions: int) -> dict[str, Any]:
    """How texts are joined and cut, within the positions that the encoder has.

    ParlAI cuts a context before it adds the special tokens, and a candidate after that.
    """
    special = SPECIAL if options.adds_tokens else 0
    context, candidate = options.limit("text_truncate"), options.limit("label_truncate")
    if options.architecture == "cross":  # whose lengths are those of the texts alone
        room = positions - 2 * special
        candidate = min(room // 2 if candidate is None else candidate - special, room - 1)
        context = room - candidate if context is None else min(context, room - candidate)
    else:
        context = positions if context is None else min(context + special, positions)
        candidate = positions if candidate is None else min(candidate, positions)
    return {
        "max_context_length": context,
        "max_candidate_length": candidate,
        "context_truncation": "left",
        "turn_separator": options.delimiter,
        "max_turns": options.history_size if options.history_size > 0 else None,
        "cut_candidate_end": options.adds_tokens,
    }

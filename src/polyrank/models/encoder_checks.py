"""Checks what a folder says of its encoder and tokeniser, before either is built.

Anybody may have written the folder. Knows names of settings; builds and loads nothing.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from polyrank.errors import ModelError, shortened
from polyrank.folder_files import read_object
from polyrank.models.description import Shapes

WIDTHS = (
    *("hidden_size", "dim", "d_model", "embedding_size", "intermediate_size", "hidden_dim"),
    *("ffn_dim", "vocab_size", "type_vocab_size", "max_position_embeddings", "num_vectors"),
)
"""Settings of encoders that are a size of some tensor."""
DEPTHS = ("num_hidden_layers", "n_layers", "num_layers")
"""Settings of encoders that say how many layers there are."""
HEADS = ("num_attention_heads", "n_heads", "num_heads", "num_key_value_heads")
"""Settings of encoders that say how many heads attention has."""
LEAST = {
    **dict.fromkeys((*WIDTHS, *HEADS), 1),
    **dict.fromkeys((*DEPTHS, "type_vocab_size"), 0),
    "max_position_embeddings": -1,  # any, says XLNet
}
"""The least that each of these settings may be."""
MOST_LAYERS = 1000
"""Of an encoder whose weights are elsewhere."""


def require_text_encoder(folder: Path) -> None:
    """Raise ModelError for what needs code of its own, or does not encode texts alone."""
    described = read_object(folder / "config.json")
    if {"AutoModel", "AutoConfig"} & set(described.get("auto_map") or ()):
        raise ModelError(
            f"The encoder in {folder} needs Python code of its own (auto_map in its config.json), "
            "which polyrank does not run.",
            "Choose an encoder whose architecture transformers has.",
        )
    if described.get("is_encoder_decoder"):
        raise ModelError(
            f"The model in {folder} is an encoder with a decoder ({described.get('model_type')}), "
            "which polyrank cannot use.",
            "Choose an encoder such as BERT, or a decoder that encodes, such as Qwen3-Embedding.",
        )
    if "text_config" in described or "vision_config" in described:
        raise ModelError(
            f"The model in {folder} ({described.get('model_type')}) reads more than texts, which "
            "polyrank cannot use.",
            "Choose an encoder of texts alone.",
        )


def require_sizes(config: Any, folder: Path, shapes: Shapes) -> None:
    """Raise ModelError for an encoder that is larger than its weights, before it is built, and for
    sizes below 1 and NaN: torch builds what has -1 heads, and fails at the first text.

    Without weights, only the number of layers is limited.
    """
    most = dict.fromkeys(DEPTHS, len(shapes) or MOST_LAYERS)
    if shapes:
        sizes = [size for shape in shapes.values() for size in shape]
        most |= dict.fromkeys(WIDTHS, max(sizes, default=0))
    if not any("position" in name for name in shapes):
        most.pop("max_position_embeddings", None)
    damaged = "The folder is damaged; download it again."
    for name, least in LEAST.items():
        size = getattr(config, name, None)
        if isinstance(size, int) and size < least:
            raise ModelError(
                f"The encoder's description in {folder} has {name} = {shortened(str(size))}, "
                f"expected at least {least}.",
                damaged,
            )
    for name, value in vars(config).items():
        if isinstance(value, float) and math.isnan(value):
            raise ModelError(
                f"The encoder's description in {folder} has {name} = NaN, expected a number.",
                damaged,
            )
    for name, bound in most.items():
        size = getattr(config, name, None)
        if isinstance(size, int) and size > bound:
            raise ModelError(
                f"The encoder's description in {folder} has {name} = {shortened(str(size))}, which "
                "is more than its weights can fill.",
                "The folder mixes files of two models or is damaged; download it again.",
            )


def require_own_vocabulary(folder: Path) -> None:
    """Raise ModelError if the settings of a tokeniser name a file, which transformers would read.

    A tokeniser that is then saved would hold what any file of this machine does.
    """
    settings = read_object(folder / "tokenizer_config.json")
    for name in ("vocab", "merges"):
        if isinstance(settings.get(name), str):
            raise ModelError(
                f"{folder / 'tokenizer_config.json'} names a file as {name}: "
                f"{shortened(settings[name])}.",
                "Take that line out, and put the tokeniser's own files into the folder.",
            )

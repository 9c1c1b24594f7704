"""ParlAI's weights under polyrank's names.

An encoder becomes a BERT. The scale of its word vectors is multiplied into them, and the scale of
its outputs into the layer norm that ends it. Both change no score.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polyrank.errors import ModelError
from polyrank.interop.parlai.options import Options
from polyrank.models.backbone import shorten

IN_LAYER = {
    "attention.q_lin": "attention.self.query",
    "attention.k_lin": "attention.self.key",
    "attention.v_lin": "attention.self.value",
    "attention.out_lin": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "ffn.lin1": "intermediate.dense",
    "ffn.lin2": "output.dense",
    "norm2": "output.LayerNorm",
}
"""The parts of a layer: ParlAI's names and BERT's."""
UNUSED = ("memory_transformer.", "embeddings.", "cand_embeddings.")
"""Weights of a bi-encoder that are used with memories only, or are there twice."""
Layer = tuple[Tensor, Tensor]
"""The weight and the bias of a layer."""


class State:
    """The weights of a checkpoint; each is taken once, and none may be missing or left."""

    def __init__(self, tensors: dict[str, Tensor], file: Path) -> None:
        self.tensors = tensors
        self.file = file
        self.taken: set[str] = set()

    def take(self, name: str) -> Tensor:
        """The weights of a name. Raises ModelError if there are none."""
        if name not in self.tensors:
            others = [one for one in self.tensors if one.split(".")[0] == name.split(".")[0]]
            raise ModelError(
                f"The weights {self.file} lack {name!r}, which its options ask for.",
                "Give the .opt file that ParlAI wrote for these weights."
                if others
                else "The file is incomplete or another agent's; copy it again.",
            )
        self.taken.add(name)
        return self.tensors[name]

    def require_all_taken(self) -> None:
        """Raise ModelError if weights are left that the options do not ask for."""
        left = [
            name for name in sorted(self.tensors.keys() - self.taken) if not name.startswith(UNUSED)
        ]
        if left:
            raise ModelError(
                f"The weights {self.file} hold {len(left)} tensors that its options do not ask "
                f"for: {shorten(left)}.",
                "Give the .opt file that ParlAI wrote for these weights.",
            )


def layer_of(state: State, name: str) -> Layer:
    """The weight and the bias of a layer."""
    return state.take(f"{name}.weight"), state.take(f"{name}.bias")


def encoder_weights(
    state: State, prefix: str, options: Options, unknown: int, num_aliases: int
) -> dict[str, Tensor]:
    """The weights of an encoder by BERT's names.

    Args:
        state: The checkpoint's weights.
        prefix: What ParlAI's names of this encoder begin with.
        options: The checkpoint's options.
        unknown: The id of the token "unknown".
        num_aliases: How many further ids get its vector.
    """
    width = options.embedding_size
    embeddings = state.take(f"{prefix}embeddings.weight")
    if options.embeddings_scale:
        embeddings = embeddings * math.sqrt(width)
    aliases = embeddings[unknown].expand(num_aliases, -1)
    found = {
        "embeddings.word_embeddings.weight": torch.cat([embeddings, aliases]),
        "embeddings.position_embeddings.weight": state.take(f"{prefix}position_embeddings.weight"),
        "embeddings.token_type_embeddings.weight": torch.zeros(1, width),
    }
    if num_segments(options):
        segments = state.take(f"{prefix}segment_embeddings.weight")
        found["embeddings.token_type_embeddings.weight"] = segments
    last = "LayerNorm"
    for number in range(options.layers):
        for theirs, ours in IN_LAYER.items():
            weight, bias = layer_of(state, f"{prefix}layers.{number}.{theirs}")
            last = f"encoder.layer.{number}.{ours}"
            found |= {f"{last}.weight": weight, f"{last}.bias": bias}
    if options.variant != "aiayn":
        weight, bias = layer_of(state, f"{prefix}norm_embeddings")
        norm = "embeddings.LayerNorm"
        if options.variant == "prelayernorm":
            norm = last = "final_norm"
        found |= {f"{norm}.weight": weight, f"{norm}.bias": bias}
    for part in ("weight", "bias"):
        found[f"{last}.{part}"] = found[f"{last}.{part}"] * options.output_scaling
    return found


def num_segments(options: Options) -> int:
    """The number of segments that an encoder knows; 0 if it has no vectors for them."""
    return 2 if options.architecture == "cross" else int(options.n_segments)


def tower(name: str, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """An encoder's weights as those of a model's tower."""
    return {f"{name}.encoder.{part}": tensor for part, tensor in weights.items()}


def model_weights(
    state: State, options: Options, unknown: int, num_aliases: int
) -> dict[str, Tensor]:
    """All weights of a ranker by polyrank's names. Raises ModelError if any is missing or left."""
    given: Any = (options, unknown, num_aliases)
    if options.architecture == "cross":
        weight, bias = layer_of(state, "linear_layer")
        found = tower("tower", encoder_weights(state, "encoder.", *given))
        found |= {"head.out.weight": weight, "head.out.bias": bias}
    elif options.architecture == "poly":
        found = tower("context_tower", encoder_weights(state, "encoder_ctxt.", *given))
        found |= tower("candidate_tower", encoder_weights(state, "encoder_cand.", *given))
        if options.polyencoder_type == "codes":
            found["codes"] = state.take("codes") * code_scale(options)
    else:
        found = bi_encoder_weights(state, *given)
    state.require_all_taken()
    return found


def code_scale(options: Options) -> float:
    """What the codes are multiplied by, so that both attentions have the scale of the second."""
    scales = {"basic": 1.0, "sqrt": options.embedding_size**-0.5}
    return scales[options.codes_attention_type] / scales[options.poly_attention_type]


def bi_encoder_weights(
    state: State, options: Options, unknown: int, num_aliases: int
) -> dict[str, Tensor]:
    """The weights of a bi-encoder.

    A shared encoder becomes two equal ones, since two layers follow it on the side of candidates
    only. Contexts get two layers that change nothing.
    """
    given: Any = (options, unknown, num_aliases)
    found = tower("context_tower", encoder_weights(state, "context_encoder.", *given))
    candidates = "cand_encoder.transformer." if options.share_encoders else "cand_encoder."
    found |= tower("candidate_tower", encoder_weights(state, candidates, *given))
    if options.share_encoders:
        found |= dense("context_dense", *unchanged(options.embedding_size))
        layers = [layer_of(state, f"cand_encoder.mlp.{place}") for place in (0, 2)]
        found |= dense("candidate_dense", *widened(*layers))
    return found


def dense(name: str, *layers: Layer) -> dict[str, Tensor]:
    """The weights of dense layers by polyrank's names."""
    return {
        f"{name}.{place}.linear.{part}": tensor
        for place, layer in enumerate(layers)
        for part, tensor in zip(("weight", "bias"), layer, strict=True)
    }


def unchanged(width: int) -> tuple[Layer, Layer]:
    """Two layers with a ReLU between them that change nothing: x = relu(x) − relu(−x)."""
    both = torch.cat([torch.eye(width), -torch.eye(width)])  # (2d, d)
    return (both, torch.zeros(2 * width)), (both.T, torch.zeros(width))


def widened(first: Layer, second: Layer) -> tuple[Layer, Layer]:
    """Two layers with a ReLU between them, made twice as wide with zeros, as `unchanged` are."""
    (up, up_bias), (down, down_bias) = first, second
    zeros = torch.zeros_like
    return (
        (torch.cat([up, zeros(up)]), torch.cat([up_bias, zeros(up_bias)])),
        (torch.cat([down, zeros(down)], dim=1), down_bias),
    )

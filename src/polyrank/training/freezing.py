"""Which parameters of the encoders are trained.

What is frozen gets no gradient and no state of an optimiser; below the lowest trained layer nothing
is kept for the way back, since nothing there needs a gradient. Knows how the families of encoders
are built; knows nothing of what is above them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from polyrank.errors import UsageError
from polyrank.models.base import Model

LAYERS = ("encoder.layer", "transformer.layer", "layers", "encoder.layers")
"""Where the encoders of BERT, ELECTRA and RoBERTa, of DistilBERT and of ModernBERT are stacked."""
TOP = {"top": 1, "top4": 4}


def freeze(model: Model, trainable: str) -> None:
    """Let only that of the encoders be trained which `trainable` names (Humeau et al., table 3).

    `top` and `top4`: the highest layers; `all_but_embeddings`: every layer, but nothing of what
    stands below them (words, positions, segments, their normalisation and projection); `all`. What
    follows the last layer is trained with it. Raises UsageError for an encoder whose layers are
    not known.
    """
    for encoder in encoders(model):
        encoder.requires_grad_(True)
        if trainable == "all":
            continue
        layers = layers_of(encoder)
        encoder.requires_grad_(False)
        for layer in layers[-TOP.get(trainable, len(layers)) :]:
            layer.requires_grad_(True)
        if (final := final_norm(encoder)) is not None:
            final.requires_grad_(True)


@torch.no_grad()
def rescale(model: Model, factor: float) -> None:
    """Multiply the outputs of the encoders by `factor`, in the last of their linear maps.

    That is the scale and shift of the last normalisation: the outputs of a layer are normalised, so
    a factor on the matrices before it would be lost. Raises UsageError for an encoder without one.
    """
    if factor == 1:
        return
    for encoder in encoders(model):
        norm = final_norm(encoder)
        if norm is None:
            last = layers_of(encoder)[-1]
            norm = next((one for one in reversed(list(last.modules())) if is_norm(one)), None)
        if norm is None:
            raise unknown(encoder, "no normalisation of its outputs is known", "rescale_last_layer")
        for parameter in norm.parameters():
            parameter.mul_(factor)


def encoders(model: Model) -> Iterator[nn.Module]:
    """The encoders of a model's towers."""
    for name in model.tower_names:
        tower: Any = getattr(model, name)
        if tower is not None:
            yield tower.encoder


def layers_of(encoder: nn.Module) -> nn.ModuleList:
    """The stack of layers, the lowest first. Raises UsageError where it is not known."""
    modules = dict(encoder.named_modules())
    for name in LAYERS:
        found = modules.get(name)
        if isinstance(found, nn.ModuleList) and len(found):
            return found
    raise unknown(encoder, "its layers are not known", "trainable")


def final_norm(encoder: nn.Module) -> nn.Module | None:
    """The normalisation after the last layer, where the encoder has one (ModernBERT)."""
    norm: nn.Module | None = getattr(encoder, "final_norm", None)
    return norm


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a normalisation with a scale."""
    return "norm" in type(module).__name__.lower() and getattr(module, "weight", None) is not None


def unknown(encoder: nn.Module, why: str, setting: str) -> UsageError:
    """The error for an encoder of a family whose parts are not known."""
    kind: Any = encoder.config
    return UsageError(
        f"{setting} cannot be used with an encoder of the type {kind.model_type}: {why}.",
        f"Leave {setting} out, or use BERT, ELECTRA, RoBERTa, DistilBERT or ModernBERT.",
    )

"""What is done to the encoders before they are trained: freezing, scale, dropout, attention.

What is frozen gets no gradient and no state of the optimiser; below the lowest trained layer
nothing is kept for the backward pass, since nothing there needs a gradient. Knows how the families
of encoders are built; knows nothing of what is above them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from polyrank.errors import UsageError
from polyrank.models.base import Model
from polyrank.training.config import TrainingConfig

LAYERS = ("encoder.layer", "transformer.layer", "layers", "encoder.layers")
"""Where the encoders of BERT, ELECTRA and RoBERTa, of DistilBERT and of ModernBERT are stacked."""
TOP = {"top": 1, "top4": 4}


def prepare(model: Model, config: TrainingConfig) -> None:
    """Set what is trained, the scale of the outputs, dropout and the attention that trains fastest.

    Raises UsageError for an encoder whose layers are not known, where they must be.
    """
    freeze(model, config.trainable)
    rescale(model, config.rescale_last_layer)
    for tower in model.towers:
        for path, module in tower.named_modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0 if "attention" in path and "output" not in path else config.dropout
        if model.device.type == "cpu":
            # torch's fused attention is slow in the backward pass on CPUs; see docs/log.md.
            encoder: Any = tower.encoder
            encoder.set_attn_implementation("eager")


def freeze(model: Model, trainable: str) -> None:
    """Train only the part of the encoders that `trainable` names (Humeau et al., table 3).

    `top` and `top4`: the highest layers; `all_but_embeddings`: every layer, but nothing below them
    (words, positions, segments, their normalisation and projection); `all`. What follows the last
    layer is trained with it. Raises UsageError for an encoder whose layers are not known.
    """
    for encoder in (tower.encoder for tower in model.towers):
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

    This is the scale and shift of the last normalisation: the outputs of a layer are normalised, so
    a factor on the matrices before it would be lost. Raises UsageError for an encoder without one.
    """
    if factor == 1:
        return
    for encoder in (tower.encoder for tower in model.towers):
        norm = final_norm(encoder)
        if norm is None:
            last = layers_of(encoder)[-1]
            norm = next((one for one in reversed(list(last.modules())) if is_norm(one)), None)
        if norm is None:
            raise unknown(encoder, "no normalisation of its outputs is known", "rescale_last_layer")
        for parameter in norm.parameters():
            parameter.mul_(factor)


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

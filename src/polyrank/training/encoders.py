"""Prepares encoders for training: freezing, scale, dropout, attention. What is frozen gets no
gradient and no optimiser state; below the lowest trained layer nothing is kept for the backward
pass, since nothing there needs a gradient. Knows how the families of encoders are built; knows
nothing of what is above them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from polyrank.errors import UsageError
from polyrank.models.adapters.layers import is_adapted, train_adapters
from polyrank.models.backbone import KEPT, choose_attention
from polyrank.models.base import Model
from polyrank.progress import Say, silent
from polyrank.records import Context, Example
from polyrank.tokens.batching import Batch, mask_of
from polyrank.training import processes
from polyrank.training.batches import PairBatcher, TextBatcher
from polyrank.training.config import TrainingConfig

LAYERS = ("encoder.layer", "transformer.layer", "layers", "encoder.layers")
"""Where the encoders of BERT and its kin, of DistilBERT, of ModernBERT and of decoders are
stacked."""
TOP = {"top": 1, "top4": 4}
BERT_STD = 0.52
"""The standard deviation of the outputs of BERT's last layer (bert-base-uncased).

J. Cardona (2021, cardona.co, "Does BERT encode the length of a sentence in the norm of its [CLS]
embedding?") shows norms of 13 to 16 for 100,000 sentences. The mean of an output's 768 numbers is
near 0, so their standard deviation is about 14.5 / √768.
"""
MEASURED = 64
"""Records on whose texts the outputs of an encoder are measured."""


def prepare(
    model: Model, config: TrainingConfig, records: Sequence[Any] = (), say: Say = silent
) -> list[float]:
    """Set what is trained, the scale of the outputs, dropout and the attention that trains fastest.

    Returns the factors by which the outputs of the encoders are multiplied, one for each tower.
    `records` are those of the training, on whose texts the outputs are measured where the factors
    depend on them. Raises UsageError for an encoder whose layers are not known, where they must be.
    """
    freeze(model, config.trainable)
    require_float32(model)
    factors = rescaling(model, config, records, say)
    rescale(model, factors)
    for tower in model.towers:
        for path, module in tower.named_modules():
            if isinstance(module, nn.Dropout) and "lora_dropout" not in path:
                module.p = 0.0 if "attention" in path and "output" not in path else config.dropout
        if model.device.type == "cpu" and not tower.is_static:
            # torch's fused attention is slow in the backward pass on CPUs; see docs/log.md.
            choose_attention(tower.encoder, "eager")
    return factors


def freeze(model: Model, trainable: str) -> None:
    """Train only the part of the encoders that `trainable` names (Humeau et al., table 3).

    `top` and `top4`: the highest layers; `all_but_embeddings`: every layer, but nothing below them
    (words, positions, segments, their normalisation and projection); `all`. What follows the last
    layer is trained with it. Of an encoder with an adapter, only that is trained. Raises UsageError
    for an encoder whose layers are not known.
    """
    for encoder in (tower.encoder for tower in model.towers):
        if is_adapted(encoder):
            train_adapters(encoder)
            continue
        encoder.requires_grad_(True)
        if trainable == "all":
            continue
        layers = layers_of(encoder)
        encoder.requires_grad_(False)
        for layer in layers[-TOP.get(trainable, len(layers)) :]:
            layer.requires_grad_(True)
        if (final := final_norm(encoder)) is not None:
            final.requires_grad_(True)


def require_float32(model: Model) -> None:
    """Raise UsageError for trained weights in 16 bits, where a small step would be lost."""
    kept = {p.dtype for p in model.parameters() if p.requires_grad and p.dtype in KEPT}
    if kept:
        raise UsageError(
            f"The encoder's weights are kept in {str(kept.pop()).removeprefix('torch.')}, in which "
            "they cannot be trained.",
            "Load the model with weights_dtype=float32, or train adapters over them with lora_rank "
            "(--lora-rank).",
        )


def rescaling(
    model: Model, config: TrainingConfig, records: Sequence[Any], say: Say = silent
) -> list[float]:
    """The factor of each encoder's outputs: the one given, or what makes them as large as BERT's.

    Raises UsageError for an encoder whose outputs do not differ.
    """
    factor = config.rescale_last_layer
    if factor != "bert":
        return [factor] * len(model.towers)
    found: list[float] = processes.run_on_first(lambda: output_stds(model, records))
    if not all(0 < std < float("inf") for std in found):
        raise UsageError(
            f"The outputs of the encoder have a standard deviation of {found}, which no factor "
            f"can bring to that of BERT.",
            "Give another base, or a factor with --rescale-last-layer.",
        )
    factors = [BERT_STD / std for std in found]
    for std, one in zip(found, factors, strict=True):
        say(
            f"The encoder's outputs are multiplied by {one:.4g}: their standard deviation was "
            f"{std:.4g} and becomes BERT's, {BERT_STD}."
        )
    return factors


@torch.no_grad()
def output_stds(model: Model, records: Sequence[Any]) -> list[float]:
    """The standard deviation of each encoder's outputs, over the tokens of some records' texts.

    Up to `MEASURED` records, from all over the training set. Each encoder reads the texts that it
    will read in training: contexts, candidates, both, or pairs of them.
    """
    was_training = model.training
    model.eval()
    step = max(len(records) // MEASURED, 1)
    some = [records[place] for place in range(0, len(records), step)][:MEASURED]
    found = [std_of(outputs) for outputs in outputs_by_tower(model, some)]
    model.train(was_training)
    return found


def outputs_by_tower(model: Any, records: Sequence[Any]) -> Iterator[Iterator[Tensor]]:
    """For each tower, the outputs at the tokens of its texts, batch by batch: (tokens, h)."""
    texts = [texts_of(record) for record in records]
    firsts, seconds = [first for first, _ in texts], [second for _, second in texts]
    budget = model.batch_tokens
    if model.architecture == "cross" and not model.reads_texts_apart:
        sides: list[list[Batch]] = [PairBatcher(model, budget).pairs(firsts, seconds)]
    else:
        read = TextBatcher(model, budget)
        sides = [read.contexts(firsts), read.candidates(seconds)]
        if len(model.towers) == 1:
            sides = [sides[0] + sides[1]]
    for tower, batches in zip(model.towers, sides, strict=True):
        yield (outputs_of(tower, batch, model.device) for batch in batches)


def texts_of(record: Any) -> tuple[Context, str]:
    """The two texts of an example, a labelled pair or a pair of a corpus."""
    if isinstance(record, Example):
        return record.context, record.response
    return record.first, record.second


def outputs_of(tower: nn.Module, batch: Batch, device: torch.device) -> Tensor:
    """The outputs at the tokens of a batch: (tokens, h)."""
    moved = {name: tensor.to(device) for name, tensor in batch.items()}
    outputs: Tensor = tower(moved)[mask_of(moved).bool()]
    return outputs.double()


def std_of(parts: Iterator[Tensor]) -> float:
    """The standard deviation of all numbers of some tensors."""
    count, total, squares = 0, 0.0, 0.0
    for part in parts:
        count += part.numel()
        total += float(part.sum())
        squares += float(part.square().sum())
    return (squares / count - (total / count) ** 2) ** 0.5


@torch.no_grad()
def rescale(model: Model, factors: Sequence[float]) -> None:
    """Multiply the outputs of each encoder by its factor, in the last of its linear maps.

    This is the scale and shift of the last normalisation: the outputs of a layer are normalised, so
    a factor on the matrices before it would be lost. Raises UsageError for an encoder without one.
    """
    for encoder, factor in zip((tower.encoder for tower in model.towers), factors, strict=True):
        if factor == 1:
            continue
        norm = final_norm(encoder)
        if norm is None:
            last = layers_of(encoder, "rescale_last_layer")[-1]
            norm = next((one for one in reversed(list(last.modules())) if is_norm(one)), None)
        if norm is None:
            raise unknown(
                encoder, "the normalisation of its outputs is not known", "rescale_last_layer"
            )
        offset = 1.0 if type(norm).__name__.startswith("Gemma") else 0.0
        for parameter in norm.parameters():  # Gemma multiplies by 1 + weight
            parameter.add_(offset).mul_(factor).sub_(offset)


def layers_of(encoder: nn.Module, setting: str = "trainable") -> nn.ModuleList:
    """The stack of layers, the lowest first.

    Raises UsageError where it is not known, which names the setting that needs it.
    """
    modules = dict(encoder.named_modules())
    for name in LAYERS:
        found = modules.get(name)
        if isinstance(found, nn.ModuleList) and len(found):
            return found
    raise unknown(encoder, "its layers are not known", setting)


def final_norm(encoder: nn.Module) -> nn.Module | None:
    """The normalisation after the last layer, where the encoder has one: ModernBERT, decoders."""
    norm: nn.Module | None = getattr(encoder, "final_norm", None) or getattr(encoder, "norm", None)
    return norm


def is_norm(module: nn.Module) -> bool:
    """Whether a module is a normalisation with a scale."""
    return "norm" in type(module).__name__.lower() and getattr(module, "weight", None) is not None


def unknown(encoder: nn.Module, why: str, setting: str) -> UsageError:
    """The error for an encoder of a family whose parts are not known."""
    kind: Any = encoder.config
    return UsageError(
        f"{setting} cannot be used with an encoder of the type {kind.model_type}: {why}.",
        f"Leave {setting} out, or use an encoder whose layers are known, such as BERT.",
    )

"""LoRA's layers in a model's encoders: put in by peft, and merged into the weights.

`attach` freezes the encoders and adds a trained update of low rank to their linear layers (Hu et
al., 2021): W + (alpha / rank) · B A. Weights that both towers have in common are then kept once.
`merge` makes an ordinary model of it again. Knows nothing of files.

Letters: r rank of an update, (o, i) outputs and inputs of a linear layer.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from polyrank.errors import MissingExtraError, UsageError, nearest
from polyrank.models.backbone import Backbone
from polyrank.models.bert import ROBERTAS, VARIANT

if TYPE_CHECKING:
    from polyrank.models.base import Model

BERT_LAYERS = ("query", "key", "value", "output.dense", "intermediate.dense")
DECODER_LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TARGETS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("bert", "electra", *ROBERTAS, "camembert", VARIANT), BERT_LAYERS),
    "distilbert": ("q_lin", "k_lin", "v_lin", "out_lin", "lin1", "lin2"),
    "modernbert": ("Wqkv", "Wi", "Wo"),
    "mpnet": ("attn.q", "attn.k", "attn.v", "attn.o", "output.dense", "intermediate.dense"),
    "deberta": ("in_proj", "output.dense", "intermediate.dense"),
    "deberta-v2": ("query_proj", "key_proj", "value_proj", "output.dense", "intermediate.dense"),
    **dict.fromkeys(
        ("qwen2", "qwen3", "mistral", "llama", "gemma", "gemma2", "gemma3_text"), DECODER_LAYERS
    ),
}
"""By type of encoder, the ends of the names of its layers' linear maps: those of the attention and
those of the feed-forward part. Embeddings and poolers are not among them."""
ALL_LINEAR = "all-linear"


def peft() -> Any:
    """The package peft. Raises MissingExtraError where it is not installed."""
    try:
        import peft
    except ImportError:
        raise MissingExtraError("peft", "lora", "LoRA") from None
    return peft


def attach(
    model: Model, *, rank: int, alpha: float, dropout: float = 0.0, targets: Sequence[str] = ()
) -> None:
    """Freeze the encoders and give each an adapter, which changes no output until it is trained.

    The towers' adapters are their own; weights that are equal in both towers are kept once, for
    both. Draws the adapters from torch's generator.

    Args:
        model: The model.
        rank: The rank of the updates.
        alpha: An update is multiplied by alpha / rank.
        dropout: The dropout of an update's inputs during training.
        targets: The ends of the names of the linear layers to adapt; none for those that are known
            for the encoder's type, or all; `all-linear` for all.

    Raises:
        UsageError: The encoder has no such linear layers.
        MissingExtraError: peft is not installed.
    """
    library = peft()
    share_weights(model)
    for name, tower in named_towers(model):
        encoder: Any = tower.encoder
        ends = targets_of(tower, targets)
        config = library.LoraConfig(
            task_type="FEATURE_EXTRACTION",
            r=rank,
            lora_alpha=alpha,
            lora_dropout=dropout,
            target_modules=ends,
        )
        library.inject_adapter_in_model(config, encoder, adapter_name(model, name))
        config.target_modules = set(ends)  # peft shortens a list of all layers: too far for others
        for parameter in adapter_parameters(encoder):
            parameter.data = parameter.data.float()  # also above weights of half precision
        train_adapters(encoder)


def train_adapters(encoder: nn.Module) -> None:
    """Let the adapters in an encoder be trained, and nothing else of it."""
    encoder.requires_grad_(False)
    for parameter in adapter_parameters(encoder):
        parameter.requires_grad_(True)


def named_towers(model: Model) -> list[tuple[str, Backbone]]:
    """The encoders of a model by their names in it."""
    return [
        (name, tower)
        for name in model.tower_names
        if isinstance(tower := getattr(model, name), Backbone)
    ]


def adapter_name(model: Model, tower_name: str) -> str:
    """What peft calls the adapter of a tower: by its side, or `default` if it serves both."""
    if len(model.towers) == 1:
        return "default"
    return "candidate" if tower_name.startswith("candidate") else "context"


def targets_of(tower: Backbone, asked: Sequence[str] = ()) -> list[str]:
    """The ends of the names of the layers that an encoder's adapter changes. Raises UsageError."""
    linear = [
        name for name, module in tower.encoder.named_modules() if isinstance(module, nn.Linear)
    ]
    if not linear:
        raise UsageError(
            "lora_rank needs an encoder with linear layers, and this one has none.",
            "Leave lora_rank out, or choose an encoder such as MiniLM.",
        )
    config: Any = tower.encoder.config
    if tuple(asked) == (ALL_LINEAR,):
        return linear
    if not asked:
        known = [end for end in TARGETS.get(config.model_type, ()) if adapted(linear, end)]
        return known or linear
    for end in asked:
        if not adapted(linear, end):
            ends = sorted({name.rpartition(".")[2] for name in linear})
            raise UsageError(
                f"lora_targets names {end!r}, but no linear layer of the {config.model_type} "
                "encoder has that name.",
                f"{nearest(end, ends)} Without lora_targets, polyrank chooses the layers.",
            )
    return list(asked)


def adapted(names: Sequence[str], end: str) -> bool:
    """Whether any of the names is `end` or ends with it."""
    return any(name == end or name.endswith(f".{end}") for name in names)


def is_adapted(module: nn.Module) -> bool:
    """Whether there are LoRA layers in a module."""
    return next(lora_layers(module), None) is not None


def lora_layers(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """The LoRA layers in a module, with their names in it."""
    for name, layer in module.named_modules():
        if hasattr(layer, "base_layer") and hasattr(layer, "lora_A"):
            yield name, layer


def adapter_parameters(module: nn.Module) -> list[nn.Parameter]:
    """The parameters of all adapters in a module."""
    return [
        parameter
        for _, layer in lora_layers(module)
        for name, parameter in layer.named_parameters()
        if not name.startswith("base_layer.")
    ]


def share_weights(model: Model) -> None:
    """Let the second tower have the first's own parameters wherever the two are equal."""
    found = named_towers(model)
    if len(found) < 2:
        return
    if found[0][1] is found[1][1]:  # weights that are kept in 16 bits, in one module
        setattr(model, found[1][0], copied(found[1][1]))
        return
    towers = model.towers
    first = dict(towers[0].named_parameters())
    for name, parameter in list(towers[1].named_parameters()):
        equal = first.get(name)
        if equal is not None and same(equal, parameter):
            holder, _, leaf = name.rpartition(".")
            setattr(towers[1].get_submodule(holder), leaf, equal)


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal, and may be one."""
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(one, other)


@torch.no_grad()
def merge(model: Model) -> None:
    """Put the adapters into the weights: an ordinary model again, with weights of its own."""
    for tower in model.towers:
        unload(tower)
    shared = {id(parameter) for parameter in model.towers[0].parameters()}
    for tower in model.towers[1:]:
        for name, parameter in list(tower.named_parameters()):
            if id(parameter) in shared:
                holder, _, leaf = name.rpartition(".")
                setattr(tower.get_submodule(holder), leaf, nn.Parameter(parameter.detach().clone()))
    for tower in model.towers:
        tower.requires_grad_(True)


@torch.no_grad()
def merged_copy(module: nn.Module) -> nn.Module:
    """A module with its adapters merged; it has every other parameter in common with `module`."""
    clone = copied(module)
    unload(clone)
    return clone


def copied(module: nn.Module) -> nn.Module:
    """A copy of a module that has its parameters in common with it."""
    return copy.deepcopy(module, {id(one): one for one in module.parameters()})


def unload(module: nn.Module) -> None:
    """Replace the LoRA layers in a module by linear layers with merged weights."""
    for name, layer in list(lora_layers(module)):
        holder, _, leaf = name.rpartition(".")
        setattr(module.get_submodule(holder), leaf, merged_layer(layer))
    for part in module.modules():
        if hasattr(part, "peft_config"):
            del part.peft_config


def merged_layer(layer: Any) -> nn.Module:
    """The layer below a LoRA layer, with the update in its weight.

    peft merges the variants of LoRA itself.
    """
    base: nn.Module = layer.get_base_layer()
    names = list(layer.active_adapters)
    plain = type(base) is nn.Linear and len(names) == 1 and not layer.fan_in_fan_out
    if plain and not (layer.lora_variant or layer.lora_bias.get(names[0])):
        name = names[0]
        a, b = layer.lora_A[name].weight, layer.lora_B[name].weight
        merged = merged_weight(layer.base_layer.weight, a, b, layer.scaling[name])
        base.weight = nn.Parameter(merged)
        return base
    layer.merge()
    return base


def merged_weight(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """W + scale · B A: (o, i), (r, i), (o, r) → (o, i), in the weight's dtype.

    Summed over the rank one by one. Every number is then rounded in the same way on every
    machine, so that a merged model has one fingerprint, which no product of matrices gives.
    """
    a, b = a.to(weight.device, torch.float32), b.to(weight.device, torch.float32)
    update = torch.zeros(weight.shape, device=weight.device)
    part = torch.empty_like(update)
    for place in range(len(a)):
        torch.mul(b[:, place, None], a[place], out=part)
        update.add_(part)
    return (weight.float() + update.mul_(scale)).to(weight.dtype)

"""Folders of adapters, as peft writes them: a model's own, and those of others.

    adapter_config.json         how the adapter was made, and the name of its base
    adapter_model.safetensors   A and B of every layer

The base is not in the folder. A model's own folder has the SHA-256 of the base's weights in its
`polyrank.json`, so that another base is refused. Adapters are merged as they are read, so a model
that has been read is an ordinary one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from polyrank.errors import ModelError, UsageError
from polyrank.folder_files import read_object
from polyrank.models.adapters.layers import (
    adapter_name,
    lora_layers,
    merged_weight,
    named_towers,
    peft,
    unload,
)
from polyrank.models.backbone import BACKBONE_FOLDER, build_encoder, load_encoder, shorten
from polyrank.models.description import digest_of, read_description
from polyrank.models.folder import dtype_of, fit_weights, read_tensors, read_weights, shapes_of
from polyrank.models.foreign.sentence_transformers import read_folder
from polyrank.models.source import HUB_ID, installed_folder, local_folder

if TYPE_CHECKING:
    from polyrank.models.base import Model

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"
PREFIX = "base_model.model."
"""What peft puts before the name of a layer."""
ENCODER = "encoder."
"""Where a tower keeps its encoder."""
OTHER_KINDS = ("use_dora", "lora_bias", "fan_in_fan_out", "rank_pattern", "alpha_pattern")
"""Settings of an adapter that is not the plain LoRA which polyrank writes."""
MORE = ("modules_to_save", "trainable_token_indices", "layer_replication", "bias")
"""Settings of an adapter that changes more than the layers that it names."""
MERGE = (
    "Merge it into its base with peft (merge_and_unload), and give the folder of the merged "
    "encoder."
)
AGAIN = "download or train the adapter again"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


class Base(NamedTuple):
    """The weights that an adapter is for."""

    name: str
    """A folder or a hub id."""
    revision: str | None
    sha256: str


def find_bases(model: Model) -> dict[str, Base]:
    """The base of each tower, by the tower's name.

    Raises UsageError where a tower is not what lies in the folder that the model comes from: then
    an adapter would be of no use.
    """
    bases: dict[str, Base] = {}
    for place, (name, tower) in enumerate(named_towers(model)):
        folder = model.origins[place] if model.origins else None
        own = tower.encoder.state_dict()
        found = {} if folder is None else weights_of_base(folder, name)
        if folder is None or not same_weights(own, found):
            why = "was not loaded from a folder" if folder is None else f"is not that of {folder}"
            raise UsageError(
                f"An adapter is saved without its base, but the encoder of the {name} {why}.",
                "Save the model and load it before you train, or give lora_merge=True "
                "(--lora-merge), which saves all weights.",
            )
        bases[name] = Base(*name_of(encoder_folder(folder, name)), digest(own))
    return bases


def same_weights(own: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> bool:
    """Whether two sets of weights are equal, in the precision of the first."""
    return own.keys() == found.keys() and all(
        torch.equal(tensor.cpu(), found[name].to(tensor.dtype)) for name, tensor in own.items()
    )


def digest(weights: Mapping[str, Tensor]) -> str:
    """The SHA-256 of an encoder's weights, which are exact in float32."""
    tensors = sorted(weights.items())
    return digest_of(
        {}, ((name, tensor.detach().cpu().float().numpy()) for name, tensor in tensors)
    )


def name_of(folder: Path) -> tuple[str, str | None]:
    """What others call a base: its id and revision on the hub, or else the path of its folder."""
    repository = folder.parent.parent.name
    if folder.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.removeprefix("models--").replace("--", "/", 1), folder.name
    if folder == installed_folder():
        return HUB_ID, None
    return str(folder.absolute()), None


def encoder_folder(folder: Path, tower: str = "") -> Path:
    """Where the encoder of a base lies: in a sentence-transformers model, perhaps below it."""
    taken = None if read_description(folder) is not None else read_folder(folder)
    if taken is None:
        return folder
    return (tower.startswith("candidate") and taken.candidate_encoder) or taken.encoder


def write_adapters(model: Model, folder: Path) -> dict[str, Any]:
    """Write the adapters of a model into its new folder, where peft finds them.

    One adapter lies in the folder itself; those of two towers lie below it, in `context` and
    `candidate`. Each has a tokeniser beside it, since others look for one there. Returns what
    `polyrank.json` says of them.
    """
    described = {}
    for tower_name, tower in named_towers(model):
        adapter = adapter_name(model, tower_name)
        below = "." if adapter == "default" else adapter
        place = folder / below
        place.mkdir(exist_ok=True)
        encoder: Any = tower.encoder
        base = model.bases[tower_name]
        config = encoder.peft_config[adapter].to_dict()
        config |= {
            "base_model_name_or_path": base.name,
            "revision": base.revision,
            "inference_mode": True,
            "target_modules": sorted(config["target_modules"]),
        }
        text = json.dumps(config, indent=2, sort_keys=True, default=sorted)  # sets
        (place / CONFIG).write_text(text + "\n", encoding="utf-8")
        tensors = {
            f"{PREFIX}{name}.{part}.weight": getattr(layer, part)[adapter].weight
            for name, layer in lora_layers(encoder)
            for part in ("lora_A", "lora_B")
        }
        tensors = {name: one.detach().cpu().contiguous() for name, one in tensors.items()}
        try:
            save_file(tensors, place / WEIGHTS, metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(str(error)) from error
        is_candidate = tower_name.startswith("candidate")
        tokenizer = model.candidate_tokenizer if is_candidate else model.tokenizer
        tokenizer.pretrained.save_pretrained(place)
        described[tower_name] = {
            "folder": below,
            "base_sha256": base.sha256,
            "dtype": str(next(tower.parameters()).dtype).removeprefix("torch."),
        }
    return described


def weights_of(folder: Path) -> dict[str, Tensor]:
    """Every weight of a saved model by its name, with adapters merged into those of their bases.

    Raises ModelError where a file, or the base of an adapter, is missing or not what it was.
    """
    weights = read_weights(folder)
    description = read_description(folder)
    adapters = description.adapters if description is not None else None
    for tower, described in (adapters or {}).items():
        place = folder / described["folder"]
        config = read_config(place)
        base = base_folder(config, place)
        dtype = getattr(torch, described["dtype"])
        own = {name: tensor.to(dtype) for name, tensor in weights_of_base(base, tower).items()}
        if digest(own) != described["base_sha256"]:
            raise ModelError(
                f"The weights in {base} are not those that the adapter in {place} was trained on.",
                f"Name the right base as base_model_name_or_path in {place / CONFIG}.",
            )
        merged = with_update(own, config, place)
        weights |= {f"{tower}.{ENCODER}{name}": tensor for name, tensor in merged.items()}
    return weights


def with_update(
    weights: Mapping[str, Tensor], config: Mapping[str, Any], place: Path
) -> dict[str, Tensor]:
    """An encoder's weights with the update of a plain LoRA adapter. Raises ModelError."""
    rank, alpha = config.get("r"), config.get("lora_alpha")
    odd = [name for name in OTHER_KINDS if config.get(name)]
    if odd or not isinstance(rank, int) or not isinstance(alpha, (int, float)) or rank < 1:
        raise ModelError(
            f"{place / CONFIG} does not describe the adapter that polyrank wrote"
            f"{': it has ' + ', '.join(odd) if odd else ''}.",
            "Restore the file, or train the adapter again.",
        )
    tensors = read_tensors(place / WEIGHTS, "adapter", AGAIN)
    scale = alpha / (rank**0.5 if config.get("use_rslora") else rank)
    merged = dict(weights)
    for key in sorted(name for name in tensors if name.endswith(".lora_A.weight")):
        layer = key.removeprefix(PREFIX).removesuffix(".lora_A.weight")
        a, b = tensors[key], tensors.get(key.replace(".lora_A.", ".lora_B."))
        weight = weights.get(f"{layer}.weight")
        if weight is None or b is None or weight.shape != (len(b), a.shape[1]):
            raise not_for_base(place, [layer])
        merged[f"{layer}.weight"] = merged_weight(weight, a, b, scale)
    return merged


def not_for_base(place: Path, layers: list[str]) -> ModelError:
    """The error of an adapter whose tensors do not fit its base."""
    return ModelError(
        f"The adapter in {place} does not fit its base: {shorten(layers)}.",
        f"Name the base that it was trained on as base_model_name_or_path in {place / CONFIG}.",
    )


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds an adapter alone, which is not a saved model or an encoder."""
    return (
        (folder / CONFIG).is_file()
        and not (folder / "config.json").exists()
        and read_description(folder) is None
    )


def read_config(place: Path) -> dict[str, Any]:
    """The description of a LoRA adapter. Raises ModelError for any other file."""
    config = read_object(place / CONFIG)
    if not config:
        raise ModelError(f"{place / CONFIG} cannot be read.", f"The file is damaged; {AGAIN}.")
    kind = config.get("peft_type")
    if kind != "LORA":
        raise ModelError(
            f"The adapter in {place} is of the kind {kind}; polyrank reads LORA.",
            MERGE,
        )
    if not (place / WEIGHTS).is_file():
        pickled = (place / PICKLED).is_file()
        raise ModelError(
            f"The adapter in {place} has no {WEIGHTS}"
            f"{', only ' + PICKLED + ', which is pickle and can run code' if pickled else ''}.",
            "Convert it once with peft: PeftModel.from_pretrained(BASE, FOLDER).save_pretrained("
            "FOLDER)."
            if pickled
            else f"The folder is incomplete; {AGAIN}.",
        )
    return config


def base_folder(config: Mapping[str, Any], place: Path) -> Path:
    """The folder of an adapter's base. Raises ModelError where there is none."""
    name = config.get("base_model_name_or_path")
    try:
        if not isinstance(name, str) or not name:
            raise UsageError("It names none.", "")
        revision = None if Path(name).exists() else config.get("revision")
        return local_folder(name, revision=revision)
    except (ModelError, UsageError) as error:
        raise ModelError(
            f"The adapter in {place} needs its base {name or ''}: {error.problem}",
            f"Put the base there, or name its place as base_model_name_or_path in "
            f"{place / CONFIG}.",
        ) from error


def weights_of_base(folder: Path, tower: str) -> dict[str, Tensor]:
    """The encoder's weights in a base: an encoder, or the tower of a saved model."""
    if read_description(folder) is None:
        return dict(load_any_encoder(encoder_folder(folder, tower)).state_dict())
    weights = weights_of(folder)
    for origin in (tower, "context_tower", "tower"):
        prefix = f"{origin}.{ENCODER}"
        found = {
            name.removeprefix(prefix): tensor
            for name, tensor in weights.items()
            if name.startswith(prefix)
        }
        if found:
            return found
    raise ModelError(
        f"The model in {folder} has no encoder that an adapter could be for.",
        "The folder is damaged; save or download it again.",
    )


def described_in(folder: Path) -> Path:
    """Where a source says what it is: in the base, for an adapter without modules of its own."""
    while is_adapter(folder) and not (folder / "modules.json").is_file():
        folder = base_folder(read_config(folder), folder)
    return folder


def tokenizer_folder(folder: Path) -> Path:
    """Where the tokeniser of a source lies: in the base, for an adapter without one of its own."""
    while is_adapter(folder) and not any((folder / name).is_file() for name in TOKENIZER):
        folder = base_folder(read_config(folder), folder)
    return folder / BACKBONE_FOLDER if read_description(folder) else encoder_folder(folder)


def load_any_encoder(folder: Path, weights_dtype: str = "float32") -> Any:
    """An encoder of `transformers` with its weights; an adapter's is merged into those of its base.

    Raises ModelError, and MissingExtraError for an adapter without peft.
    """
    if not is_adapter(folder):
        return load_encoder(folder, weights_dtype)
    config = read_config(folder)
    base = base_folder(config, folder)
    if read_description(base) is None:
        encoder = load_any_encoder(encoder_folder(base), weights_dtype)
    else:
        weights = weights_of_base(base, "context_tower")
        dtype = dtype_of(weights, weights_dtype)
        encoder = build_encoder(base / BACKBONE_FOLDER, shapes_of(weights), dtype=dtype)
        fit_weights(encoder, weights, base)
    return with_adapter(encoder, folder)


def with_adapter(encoder: Any, folder: Path) -> Any:
    """An encoder with the adapter of any peft user merged into its weights.

    Raises ModelError for one that does not fit, or that changes more than linear layers.
    """
    library = peft()
    config = library.PeftConfig.from_pretrained(str(folder))
    more = [name for name in MORE if getattr(config, name, None) not in (None, "none", False)]
    if more:
        raise ModelError(
            f"The adapter in {folder} has {', '.join(more)}; polyrank reads updates of layers.",
            MERGE,
        )
    tensors = read_tensors(folder / WEIGHTS, "adapter", AGAIN)
    top = f"{PREFIX}{getattr(encoder, 'base_model_prefix', '')}."
    if all(name.startswith(top) for name in tensors):  # made for the encoder within a larger model
        tensors = {PREFIX + name.removeprefix(top): one for name, one in tensors.items()}
    tensors = {k: v for k, v in tensors.items() if not k.startswith(f"{PREFIX}pooler.")}  # not used
    try:
        library.inject_adapter_in_model(config, encoder)
        report = library.set_peft_model_state_dict(encoder, tensors)
    except (ValueError, RuntimeError, KeyError, TypeError) as error:
        faults = [line.strip() for line in str(error).splitlines() if "size mismatch" in line]
        raise not_for_base(folder, faults or [" ".join(str(error).split())[:200]]) from error
    lacking = [name for name in report.missing_keys if "lora_" in name]
    if surplus := [*report.unexpected_keys, *lacking]:
        raise not_for_base(folder, surplus)
    unload(encoder)
    return encoder.requires_grad_(True).eval()

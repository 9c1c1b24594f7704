"""The folder of a saved model: `polyrank.json`, `model.safetensors`, the encoder's description.

    polyrank.json        architecture and settings: every setting that affects a score; the classes
    model.safetensors    every weight, by its name in the model
    backbone/            config.json and the tokeniser, as `transformers` writes them
    candidate_backbone/  the same of the candidates' encoder, if it is of another kind

Knows nothing of what the settings mean.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, dtype, float32, nn

from polyrank._version import __version__
from polyrank.errors import ModelError
from polyrank.models.backbone import DTYPES, KEPT, shorten
from polyrank.models.description import DESCRIPTION, FORMAT, WEIGHTS, Description, Shapes
from polyrank.storage import replaced_folder, require_replaceable, write_text


def write_folder(
    path: Path,
    description: Description,
    weights: dict[str, Tensor],
    encoders: Mapping[str, tuple[Any, Any]],
    extra: Mapping[str, str],
    adapters: Callable[[Path], dict[str, Any]] | None = None,
) -> None:
    """Write a model beside `path` and rename it into place.

    `encoders` are described with their tokenisers in the folders by which they are named; `extra`
    are further texts by name.

    `adapters` writes the adapters of the towers, which are not among the weights then, and says
    where they are.

    Raises StorageError, and UsageError if something other than a model is in the way.
    """
    require_replaceable(path, DESCRIPTION, "a model")
    with replaced_folder(path) as fresh:
        write_encoders(fresh, encoders)
        try:
            save_file(apart(weights), fresh / WEIGHTS, metadata={"format": "pt"})
        except SafetensorError as error:
            raise OSError(str(error)) from error
        if adapters is not None:
            description = description._replace(adapters=adapters(fresh))
        for name, text in extra.items():
            write_text(fresh / name, text)
        write_description(fresh, description)


def apart(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, none sharing its memory with another."""
    tensors: dict[str, Tensor] = {}
    places: set[int] = set()
    for name, tensor in weights.items():
        own = tensor.detach().cpu().contiguous()
        tensors[name] = own.clone() if own.data_ptr() in places else own
        places.add(tensors[name].data_ptr())
    return tensors


def write_encoders(folder: Path, encoders: Mapping[str, tuple[Any, Any]]) -> None:
    """Write the description and the tokeniser of each encoder into the folder of its name."""
    for name, (encoder, tokenizer) in encoders.items():
        encoder.config.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)


def write_description(folder: Path, description: Description) -> None:
    """Write `polyrank.json`."""
    described = {
        "format": FORMAT,
        "polyrank_version": __version__,
        "architecture": description.architecture,
        "settings": description.settings,
    }
    if description.classifier is not None:
        described["classifier"] = description.classifier
    if description.adapters is not None:
        described["adapters"] = description.adapters
    (folder / DESCRIPTION).write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")


def read_weights(path: Path) -> dict[str, Tensor]:
    """All tensors of a saved model. Raises ModelError if the file is missing or damaged."""
    return read_tensors(path / WEIGHTS, "weights", "download or train the model again")


def dtype_of(weights: Mapping[str, Tensor], weights_dtype: str) -> dtype:
    """The dtype that `weights_dtype` stands for: with `auto`, that of most numbers of a file."""
    if weights_dtype != "auto":
        return DTYPES[weights_dtype]
    counts: Counter[dtype] = Counter()
    for tensor in weights.values():
        counts[tensor.dtype] += tensor.numel()
    ((found, _),) = counts.most_common(1)
    return found if found in KEPT else float32


def read_tensors(file: Path, what: str, remedy: str) -> dict[str, Tensor]:
    """All tensors of a file. Raises ModelError, which names the file and the remedy."""
    try:
        return load_file(file)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"The {what} {file} cannot be read: {error}.",
            f"The folder is incomplete or damaged; {remedy}.",
        ) from error


def shapes_of(weights: Mapping[str, Tensor]) -> Shapes:
    """The shape of each weight by its name."""
    return {name: tensor.shape for name, tensor in weights.items()}


def fit_weights(model: nn.Module, weights: dict[str, Tensor], where: Path) -> None:
    """Load the tensors into the model; each must be there, and no others.

    Copies replace parameters on the meta device; other parameters are overwritten.
    Raises ModelError that names the missing, the surplus and the misshapen.
    """
    own = model.state_dict()
    missing = sorted(own.keys() - weights.keys())
    surplus = sorted(weights.keys() - own.keys())
    misshapen = sorted(
        name for name in own.keys() & weights.keys() if own[name].shape != weights[name].shape
    )
    faults = [
        f"{kind}: {shorten(names)}"
        for kind, names in (("missing", missing), ("surplus", surplus), ("misshapen", misshapen))
        if names
    ]
    if faults:
        raise ModelError(
            f"The weights in {where} do not fit the model described there ({'; '.join(faults)}).",
            "The folder mixes files of two models or is damaged; save or download it again.",
        )
    # Copied, since the mapped ones are not aligned: with these a last bit may differ. Those that
    # are kept in 16 bits stay mapped, so that they are in memory once.
    absent = {name: tensor.dtype for name, tensor in own.items() if tensor.is_meta}
    copies = {
        name: weights[name].to(kind if kind in KEPT else float32, copy=kind not in KEPT)
        for name, kind in absent.items()
    }
    model.load_state_dict(copies, assign=True, strict=False)
    rest = {name: tensor for name, tensor in weights.items() if name not in copies}
    model.load_state_dict(rest, strict=False)

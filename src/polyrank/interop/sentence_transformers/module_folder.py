"""Writes the modules of a folder of sentence-transformers, one method per kind of module.

The types, keys and files are those that all versions from 5.3 on read. Knows no architecture.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import save_file
from torch import Tensor

from polyrank.folder_files import read_json
from polyrank.models.backbone import quiet

LEGACY = "sentence_transformers.models"
CONFIG = "config.json"
WEIGHTS = "model.safetensors"
POOLING_KEYS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
IDENTITY = "torch.nn.modules.linear.Identity"


class Module(NamedTuple):
    """One module: the name of its class, and what writes its files into a folder."""

    kind: str
    write: Any
    """Takes the module's folder."""
    home: str = LEGACY
    """The Python module of its class."""

    @property
    def type(self) -> str:
        """The full name of its class."""
        return f"{self.home}.{self.kind}"


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file as the library does."""
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write weights without pickle."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(plain, path / WEIGHTS, metadata={"format": "pt"})


def write_modules(folder: Path, modules: Sequence[Module], *, apart: bool = False) -> None:
    """Write `modules.json` and the folder of each module.

    The first is in the folder itself, unless it is `apart`: a version that does not read
    `modules.json` then finds no model instead of another one.
    """
    listed = []
    for number, module in enumerate(modules):
        place = f"{number}_{module.kind}" if number or apart else ""
        (folder / place).mkdir(exist_ok=True)
        module.write(folder / place)
        listed.append({"idx": number, "name": str(number), "path": place, "type": module.type})
    write_json(folder / "modules.json", listed)


def router(routes: Mapping[str, Sequence[Module]]) -> Module:
    """A module that sends queries and documents through modules of their own."""

    def write(folder: Path) -> None:
        types, structure = {}, {}
        for route, modules in routes.items():
            structure[route] = [f"{route}_{i}_{each.kind}" for i, each in enumerate(modules)]
            for name, module in zip(structure[route], modules, strict=True):
                (folder / name).mkdir()
                module.write(folder / name)
                types[name] = module.type
        described = {
            "types": types,
            "structure": structure,
            # Version 5.3 fails on route_mappings, which newer ones do not need.
            "parameters": {"default_route": "document", "allow_empty_key": True},
        }
        write_json(folder / "router_config.json", described)

    return Module("Router", write)


def transformer(
    encoder: Any,
    tokenizer: Any,
    max_length: int | None,
    *,
    truncation: str = "right",
    config: Mapping[str, Any] | None = None,
) -> Module:
    """An encoder of `transformers` with its tokeniser.

    Args:
        encoder: The encoder, or a model for sequence classification.
        tokenizer: A tokeniser of `transformers`.
        max_length: The maximum number of tokens of a text, or of a pair.
        truncation: The side on which a longer text is cut.
        config: Further entries of `config.json`.

    Returns:
        The module.
    """

    def write(folder: Path) -> None:
        with quiet():
            encoder.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        update_json(folder / CONFIG, config or {})
        stated = {} if max_length is None else {"model_max_length": max_length}
        update_json(folder / "tokenizer_config.json", {"truncation_side": truncation, **stated})
        described = {"max_seq_length": max_length, "do_lower_case": False}
        write_json(folder / "sentence_bert_config.json", described)

    return Module("Transformer", write)


def update_json(path: Path, values: Mapping[str, Any]) -> None:
    """Add entries to the object in a JSON file."""
    write_json(path, {**read_json(path), **values})


def pooling(width: int, mode: str, *, include_prompt: bool = True) -> Module:
    """A reduction of token outputs to one vector."""

    def write(folder: Path) -> None:
        modes = {key: name == mode for name, key in POOLING_KEYS.items()}
        described = {"word_embedding_dimension": width, **modes, "include_prompt": include_prompt}
        write_json(folder / CONFIG, described)

    return Module("Pooling", write)


def dense(
    weight: Tensor, bias: Tensor | None = None, activation: str = IDENTITY, **names: str
) -> Module:
    """A linear layer: `weight` (outputs, inputs), and the full name of its activation.

    `names` are those of its input and output.
    """

    def write(folder: Path) -> None:
        described = {
            "in_features": weight.shape[1],
            "out_features": weight.shape[0],
            "bias": bias is not None,
            "activation_function": activation,
            **names,
        }
        write_json(folder / CONFIG, described)
        biases = {} if bias is None else {"linear.bias": bias}
        write_tensors(folder, {"linear.weight": weight, **biases})

    return Module("Dense", write)


def layer_of(linear: Any, activation: Any = None, **names: str) -> Module:
    """A dense module of a linear layer and the module of its activation."""
    kind = type(activation)
    name = IDENTITY if activation is None else f"{kind.__module__}.{kind.__name__}"
    return dense(linear.weight, linear.bias, name, **names)


def layer_norm(norm: Any) -> Module:
    """A norm of a vector."""

    def write(folder: Path) -> None:
        write_json(folder / CONFIG, {"dimension": norm.normalized_shape[0]})
        write_tensors(folder, {"norm.weight": norm.weight, "norm.bias": norm.bias})

    return Module("LayerNorm", write)


def normalize() -> Module:
    """Vectors of unit length."""
    return Module("Normalize", lambda folder: None)


def static_embedding(vectors: Tensor, tokenizer: Any, max_length: int | None) -> Module:
    """The average of the vectors (V, h) of a text's tokens."""

    def write(folder: Path) -> None:
        from tokenizers import Tokenizer

        write_tensors(folder, {"embedding.weight": vectors})
        own = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        if max_length is not None:
            own.enable_truncation(max_length)
        own.save(str(folder / "tokenizer.json"))

    return Module("StaticEmbedding", write)

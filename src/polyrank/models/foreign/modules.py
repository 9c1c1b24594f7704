"""Reads the modules of sentence-transformers: what each does to a text, or why it is refused.

Knows one module after another, in the formats of versions 5.x and 6.x, and nothing of the model
that they make up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from polyrank.errors import ModelError, shortened
from polyrank.folder_files import leaves, read_json
from polyrank.models.description import shapes_in

PACKAGE = "sentence_transformers."
REDUCTIONS = {
    "cls": "first",
    "mean": "mean",
    "max": "max",
    "lasttoken": "last",
    "mean_sqrt_len_tokens": "mean_sqrt",
    "weightedmean": "weighted_mean",
}
LEGACY_REDUCTIONS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
ACTIVATIONS = {
    "Identity": "identity",
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
    "SiLU": "silu",
    "Sigmoid": "sigmoid",
    "ELU": "elu",
    "SELU": "selu",
    "Mish": "mish",
    "Softplus": "softplus",
}
"""The classes of torch.nn that a dense layer may have, and what polyrank calls them."""
TRANSFORMER_FILES = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
PLAIN_TEXT = {"method": "forward", "method_output_name": "last_hidden_state"}
ARGUMENTS = {
    "model": (
        "add_pooling_layer attn_implementation device_map dtype low_cpu_mem_usage torch_dtype "
        "use_safetensors"
    ),
    "processor": "model_max_length padding_side truncation_side use_fast",
    "config": "",
}
"""Arguments of loading that leave a text's vector as it is, or that are taken over, by what they
are for. Some are those of the hub and are in every group."""
HUB_ARGUMENTS = (
    "cache_dir code_revision local_files_only revision subfolder token trust_remote_code"
)
OLD_NAMES = {"model": "model_args", "processor": "tokenizer_args", "config": "config_args"}
NO_LIMIT = 1_000_000
"""A length that no text has."""
VECTOR = "sentence_embedding"


class Module(NamedTuple):
    """A module of a folder: its class, and where its files are."""

    kind: str
    place: Path


class Side(NamedTuple):
    """What the modules do to a text."""

    encoder: Path
    lengths: Mapping[str, int]
    """The maximum number of tokens, by task: `query` and `document`."""
    truncation: str
    """The side on which longer texts are cut."""
    lower_case: bool
    reduction: str
    pools_prompt: bool
    layers: tuple[dict[str, Any], ...]
    """The settings of the dense layers."""
    dense: tuple[Path, ...]
    """The folders of their weights."""
    is_normalised: bool


def refusal(problem: str) -> ModelError:
    """The error for a model that polyrank cannot compute; `problem` says what it does."""
    return ModelError(
        f"{problem}, which polyrank does not support.",
        "Use it with sentence-transformers, or copy the files of its encoder into a folder without "
        "modules.json and choose how to pool with reduction.",
    )


def read_required(path: Path) -> Any:
    """A JSON file of the folder; raises ModelError if it is missing or broken."""
    try:
        return read_json(path)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read: {error}.", "The folder is incomplete; download it again."
        ) from error


def read_known(path: Path) -> dict[str, Any]:
    """A JSON object of the folder, empty where there is no such file; raises ModelError if it is
    broken.
    """
    if not path.is_file():
        return {}
    found = read_required(path)
    if not isinstance(found, dict):
        raise ModelError(
            f"{path} does not hold settings by name.", "The folder is damaged; download it again."
        )
    return found


def read_modules(path: Path) -> list[dict[str, Any]]:
    """The modules of the folder, in their order."""
    modules = read_required(path)
    if isinstance(modules, list) and all(
        isinstance(module, dict) and {"type", "path"} <= module.keys() for module in modules
    ):
        return modules
    raise ModelError(
        f"{path} is not a list of modules with a type and a path.",
        "The folder is damaged; download it again.",
    )


def module_at(folder: Path, kind: Any, path: Any) -> Module:
    """The module of a class in a folder below `folder`.

    Raises ModelError for one whose class is not of sentence-transformers or whose path leads away.
    """
    kind, path = str(kind), str(path)
    if leaves(path):
        raise ModelError(
            f"A module of {folder} is said to be in {path}, outside of the folder.",
            "The folder is damaged; download it again.",
        )
    if not kind.startswith(PACKAGE):
        raise ModelError(
            f"{folder} needs the code of a module {kind}, which polyrank does not run.",
            "Use the model with the library that has the module, or give another model.",
        )
    return Module(kind.rsplit(".", 1)[-1], folder / path)


def read_side(folder: Path, modules: list[Module]) -> Side:
    """What modules do to a text, one after the other. Raises ModelError where it is not known."""
    modules = [module for module in modules if module.kind != "Dropout"]
    kinds = [module.kind for module in modules]
    known = {"Transformer", "Pooling", "Dense", "Normalize"}
    for kind in kinds:
        if kind not in known:
            raise refusal(f"{folder} has a module {kind}")
    last = len(kinds) - 1
    while last > 0 and kinds[last] == "Normalize":
        last -= 1
    expected = ["Transformer", "Pooling"] + ["Dense"] * (last - 1)
    if kinds[: last + 1] != expected:
        raise refusal(f"{folder} has the modules {', '.join(kinds)} in this order")
    for module in modules[last + 1 :]:
        require_vector(module.place, read_known(module.place / "config.json"))
    reduction, pools_prompt = read_pooling(modules[1].place / "config.json")
    dense = tuple(module.place for module in modules[2 : last + 1])
    return Side(
        modules[0].place,
        *read_transformer(modules[0].place),
        reduction,
        pools_prompt,
        tuple(read_dense(place) for place in dense),
        dense,
        is_normalised=last + 1 < len(kinds),
    )


def read_transformer(place: Path) -> tuple[dict[str, int], str, bool]:
    """How texts are cut, by task and side, and whether they are brought to lower case.

    Raises ModelError for an encoder that is used in another way than for its last outputs.
    """
    described = describe_transformer(place)
    task = described.get("transformer_task", "feature-extraction")
    if task != "feature-extraction":
        raise refusal(f"The encoder in {place} is loaded for {task}")
    modality = described.get("modality_config") or {"text": PLAIN_TEXT}
    if "message" in modality or modality.get("text") != PLAIN_TEXT:
        raise refusal(f"The encoder in {place} reads texts as {json.dumps(modality)}")
    output = described.get("module_output_name", "token_embeddings")
    if output != "token_embeddings":
        raise refusal(f"The encoder in {place} gives its {output}")
    for name in ("query_expansion", "tokenizer_name_or_path"):
        if described.get(name):
            raise refusal(f"The encoder in {place} has {name}")
    given = {kind: arguments_of(place, described, kind) for kind in ARGUMENTS}
    tokens = read_known(place / "tokenizer_config.json") | given["processor"]
    return (
        lengths_of(place, described, given["processor"]),
        str(tokens.get("truncation_side", "right")),
        bool(described.get("do_lower_case")),
    )


def describe_transformer(place: Path) -> dict[str, Any]:
    """What sentence-transformers wrote of the encoder in a folder; empty if it wrote nothing."""
    files = (read_known(place / name) for name in TRANSFORMER_FILES)
    return next((found for found in files if found), {})


def read_length(place: Path) -> int | None:
    """The maximum number of tokens that an encoder reads; None if nothing limits it."""
    length = lengths_of(place, describe_transformer(place), {})["query"]
    return length if length < NO_LIMIT else None


def arguments_of(place: Path, described: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """The arguments with which a part of the encoder is loaded. Raises ModelError for others."""
    given: dict[str, Any] = {}
    for name in (OLD_NAMES[kind], f"{kind}_kwargs"):
        given |= described.get(name) or {}
    others = given.keys() - set(f"{ARGUMENTS[kind]} {HUB_ARGUMENTS}".split())
    if others:
        raise refusal(f"The {kind} in {place} is loaded with {', '.join(sorted(others))}")
    return given


def lengths_of(
    place: Path, described: Mapping[str, Any], arguments: Mapping[str, Any]
) -> dict[str, int]:
    """The maximum number of tokens of the texts of each task. Raises ModelError."""
    length = arguments.get("model_max_length", described.get("max_seq_length"))
    if length is None:
        limits: list[Any] = [
            read_known(place / "tokenizer_config.json").get("model_max_length"),
            read_known(place / "config.json").get("max_position_embeddings"),
        ]
        length = min([limit for limit in limits if is_length(limit)], default=NO_LIMIT)
    processing = dict(described.get("processing_kwargs") or {})
    text = dict(processing.pop("text", None) or {})
    forced = text.pop("max_length", None)
    if any(processing.values()) or text:
        raise refusal(f"The encoder in {place} has processing_kwargs")
    own = {task: described.get(f"{task}_length") for task in ("query", "document")}
    return {task: int(min(forced or each or length, NO_LIMIT)) for task, each in own.items()}


def is_length(value: Any) -> bool:
    """Whether a number stands for a limit; −1 and none do not."""
    return isinstance(value, (int, float)) and value > 0


def read_pooling(path: Path) -> tuple[str, bool]:
    """The reduction that a pooling module describes, and whether it goes over a prompt's tokens.

    Raises ModelError for several at once.
    """
    described = read_required(path)
    mode = described.get("pooling_mode")
    if mode is None:
        mode = [name for key, name in LEGACY_REDUCTIONS.items() if described.get(key)] or "mean"
    modes = [mode] if isinstance(mode, str) else list(mode)
    unknown = [str(name) for name in modes if name not in REDUCTIONS]
    if unknown:
        raise refusal(f"{path} pools by {', '.join(unknown)}")
    if len(modes) != 1:
        raise refusal(f"{path} joins {len(modes)} poolings to one vector, {' and '.join(modes)}")
    return REDUCTIONS[modes[0]], bool(described.get("include_prompt", True))


def read_dense(place: Path) -> dict[str, Any]:
    """The settings of a dense layer. Raises ModelError for what polyrank's layers do not have."""
    path = place / "config.json"
    described = read_required(path)
    require_vector(place, described)
    name = str(described.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = ACTIVATIONS.get(name.rsplit(".", 1)[-1]) if name.startswith("torch.nn.") else None
    if activation is None:
        raise refusal(f"{path} describes a dense layer with the activation {name}")
    if described.get("use_residual"):
        raise refusal(f"{path} describes a dense layer with a residual connection")
    if not (place / "model.safetensors").is_file() and (place / "pytorch_model.bin").is_file():
        raise ModelError(
            f"The weights of the dense layer in {place} are only there as pytorch_model.bin, which "
            "polyrank does not read, since unpickling can run code.",
            "Convert them once: save what SentenceTransformer loads with save_pretrained.",
        )
    return {
        "dimension": out_features(place, described),
        "bias": bool(described.get("bias", True)),
        "activation": activation,
    }


def out_features(place: Path, described: Mapping[str, Any]) -> int:
    """The width of what a dense layer gives. Raises ModelError where its weights have another."""
    width = int(described["out_features"])
    shapes = shapes_in(place / "model.safetensors")
    if shapes and not any(shape[0] == width for shape in shapes.values() if shape):
        raise ModelError(
            f"{place} describes a dense layer with out_features = {shortened(str(width))}, and its "
            "weights have another width.",
            "The folder mixes files of two models or is damaged; download it again.",
        )
    return width


def require_vector(place: Path, described: Mapping[str, Any]) -> None:
    """Raise ModelError for a module that works on something other than a text's vector."""
    source = described.get("module_input_name") or VECTOR
    target = described.get("module_output_name") or source
    if (source, target) != (VECTOR, VECTOR):
        raise refusal(f"The module in {place} turns {source} into {target}")

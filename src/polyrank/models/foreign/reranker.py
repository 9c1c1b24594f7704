"""Cross-encoders of `transformers` and sentence-transformers: their encoders, heads and labels.

`transformers` saves a `…ForSequenceClassification`. sentence-transformers saves the same, or an
encoder with modules for pooling and dense layers. Knows the names of their settings and tensors;
knows nothing of training.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from polyrank.errors import ModelError
from polyrank.folder_files import read_object
from polyrank.models.bert import ROBERTAS
from polyrank.models.description import DESCRIPTION, shards_of
from polyrank.models.folder import fit_weights, read_tensors
from polyrank.models.foreign.modules import (
    out_features,
    read_length,
    read_modules,
    read_pooling,
    read_required,
)
from polyrank.models.foreign.sentence_transformers import is_cross_encoder
from polyrank.models.heads import ACTIVATIONS

WEIGHTS = "model.safetensors"
SUFFIX = "ForSequenceClassification"
SPECIAL_TOKENS = 4
"""The most that a known encoder puts around a pair."""
MOST_OF_A_CONTEXT = 128
"""The maximum tokens of a context in a pair whose length is stated; the candidate has the rest."""
NEW_HEAD = (
    "Give another reranker, or choose head = linear or interaction, which trains a new head on its "
    "encoder."
)
NORM_EPS = 1e-5
"""The constant in the norm of a head."""


class HeadForm(NamedTuple):
    """The head of one family: dense, activation, perhaps a norm, out."""

    layers: Mapping[str, str]
    """From the names of its layers to those of a `PoolerHead`."""
    activation: str = "tanh"
    """Its activation; where `config.json` names it, the key and then a colon."""
    has_norm: bool = False
    pooling: str = ""
    """The key in `config.json` of the reduction, where it is not the first output."""


OF_ROBERTA = {"classifier.dense": "dense", "classifier.out_proj": "out"}
OF_DEBERTA = {"pooler.dense": "dense", "classifier": "out"}
HEADS = {
    "bert": HeadForm({"bert.pooler.dense": "dense", "classifier": "out"}),
    "albert": HeadForm({"albert.pooler": "dense", "classifier": "out"}),
    **{kind: HeadForm(OF_ROBERTA) for kind in (*ROBERTAS, "camembert", "mpnet")},
    "electra": HeadForm(OF_ROBERTA, "gelu"),
    "distilbert": HeadForm({"pre_classifier": "dense", "classifier": "out"}, "relu"),
    "deberta": HeadForm(OF_DEBERTA, "pooler_hidden_act:"),
    "deberta-v2": HeadForm(OF_DEBERTA, "pooler_hidden_act:"),
    "modernbert": HeadForm(
        {"head.dense": "dense", "head.norm": "norm", "classifier": "out"},
        "classifier_activation:",
        has_norm=True,
        pooling="classifier_pooling",
    ),
}
"""The head of each kind of encoder, by its `model_type`."""
REDUCTIONS = {"cls": "first", "mean": "mean"}


class Part(NamedTuple):
    """One layer of a head: where its weights are, and what it is called there and here."""

    folder: Path
    origin: str
    name: str


class Reranker(NamedTuple):
    """A cross-encoder of another project."""

    encoder: Path
    """The folder of its encoder."""
    labels: tuple[str, ...]
    """The names of what it tells apart; of one score, one name."""
    settings: dict[str, Any]
    """The settings of its head, and its task."""
    parts: tuple[Part, ...]
    """The layers of its head."""
    max_length: int | None
    """The maximum number of tokens of a pair."""
    prompt: str = ""
    """What is put before its first text."""

    @property
    def reading(self) -> dict[str, Any]:
        """The settings of its texts: maximum tokens of each, which together fit into a pair."""
        prompt = {"context_prompt": self.prompt} if self.prompt else {}
        if self.max_length is None:
            return prompt
        room = max(self.max_length - SPECIAL_TOKENS, 2)
        context = min(MOST_OF_A_CONTEXT, room // 2)
        return {"max_context_length": context, "max_candidate_length": room - context, **prompt}


def read_config(folder: Path) -> dict[str, Any]:
    """The description that `transformers` wrote; empty if none can be read."""
    return read_object(folder / "config.json")


def read_reranker(folder: Path) -> Reranker | None:
    """The cross-encoder of another project in a folder; None if there is none.

    Raises ModelError for one with a head that polyrank does not have.
    """
    if (folder / DESCRIPTION).exists():
        return None
    if not (folder / "modules.json").is_file():
        return of_transformers(folder)
    if not is_cross_encoder(folder):
        return None
    described = read_required(folder / "config_sentence_transformers.json")
    prompt = (described.get("prompts") or {}).get(described.get("default_prompt_name"))
    return of_modules(folder)._replace(prompt=prompt or "")


def of_transformers(folder: Path) -> Reranker | None:
    """A `…ForSequenceClassification`; None for another folder."""
    config = read_config(folder)
    architecture = str((config.get("architectures") or [""])[0])
    if not architecture.endswith(SUFFIX):
        return None
    form = HEADS.get(str(config.get("model_type")))
    if form is None:
        raise ModelError(
            f"{folder} holds a {architecture}, whose head polyrank does not have; it has those of "
            f"{', '.join(HEADS)}.",
            NEW_HEAD,
        )
    activation, reduction = form.activation, "first"
    if activation.endswith(":"):
        activation = str(config.get(activation[:-1], "gelu"))
    if form.pooling:
        reduction = REDUCTIONS.get(str(config.get(form.pooling, "cls")), "")
    odd_norm = form.has_norm and config.get("norm_eps", NORM_EPS) != NORM_EPS
    if activation not in ACTIVATIONS or not reduction or odd_norm:
        keys = [form.activation[:-1], form.pooling, "norm_eps"]
        said = ", ".join(f"{key} = {config[key]}" for key in keys if key in config)
        raise ModelError(f"polyrank does not have the head in {folder} ({said}).", NEW_HEAD)
    settings = {
        "head": "pooler",
        "head_activation": activation,
        "head_norm": form.has_norm,
        "reduction": reduction,
    }
    parts = tuple(Part(folder, origin, name) for origin, name in form.layers.items())
    return reranker(folder, labels_of(config), settings, parts)


def of_modules(folder: Path) -> Reranker:
    """A cross-encoder of sentence-transformers, by its modules."""
    modules = [
        (str(module["type"]).rsplit(".", 1)[-1], folder / str(module["path"]))
        for module in read_modules(folder / "modules.json")
    ]
    kinds = [kind for kind, _ in modules if kind != "Dropout"]
    places = dict(modules)
    encoder = modules[0][1]
    if kinds == ["Transformer"]:
        found = of_transformers(encoder)
        if found is not None:
            return found
    dense = [place for kind, place in modules if kind == "Dense"]
    norm = ["LayerNorm"] if "LayerNorm" in kinds else []
    known = kinds == ["Transformer", "Pooling", *["Dense"] * (len(dense) - 1), *norm, "Dense"]
    if not known or len(dense) > 2 or (norm and len(dense) == 1):
        raise ModelError(
            f"The cross-encoder of sentence-transformers in {folder} has the modules "
            f"{', '.join(kinds)}, which polyrank does not have together.",
            "Give one with a Transformer for sequence classification, or with Transformer, "
            "Pooling and one or two Dense.",
        )
    described = [read_required(place / "config.json") for place in dense]
    activations = [activation_of(one, place) for one, place in zip(described, dense, strict=True)]
    if activations[-1] != "identity" or described[-1].get("module_output_name") != "scores":
        raise ModelError(
            f"{dense[-1]} does not make scores by a linear layer alone: its activation is "
            f"{activations[-1]} and its output {described[-1].get('module_output_name')}.",
            NEW_HEAD,
        )
    settings: dict[str, Any] = {
        "head": "linear",
        "reduction": read_pooling(places["Pooling"] / "config.json")[0],
    }
    parts = [Part(dense[-1], "linear", "out")]
    if len(dense) == 2:
        settings |= {
            "head": "pooler",
            "head_activation": activations[0],
            "head_norm": bool(norm),
        }
        parts.append(Part(dense[0], "linear", "dense"))
    if norm:
        parts.append(Part(places["LayerNorm"], "norm", "norm"))
    labels = labels_of(read_config(encoder))
    count = out_features(dense[-1], described[-1])
    if len(labels) != count:
        labels = tuple(map(str, range(count)))
    if settings["reduction"] not in ("first", "mean", "max") or (count > 1 and len(dense) == 1):
        raise ModelError(
            f"The head in {folder} pools by {settings['reduction']} and has {len(dense)} dense "
            f"layers for {count} labels, which polyrank does not have.",
            NEW_HEAD,
        )
    return reranker(encoder, labels, settings, tuple(parts))


def reranker(
    encoder: Path, labels: tuple[str, ...], settings: dict[str, Any], parts: tuple[Part, ...]
) -> Reranker:
    """A cross-encoder with the task that its labels say."""
    if len(labels) > 1:
        settings |= {"task": "classify", "num_labels": len(labels)}
    return Reranker(encoder, labels, settings, parts, read_length(encoder))


def activation_of(described: Mapping[str, Any], place: Path) -> str:
    """The name of a dense module's activation."""
    named = str(described.get("activation_function", "")).rpartition(".")[2]
    for name, module in ACTIVATIONS.items():
        if module.__name__ == named:
            return name
    raise ModelError(
        f"{place} has the activation {named or 'none'}; polyrank has {', '.join(ACTIVATIONS)}.",
        NEW_HEAD,
    )


def labels_of(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the labels in their order; `transformers` leaves out two plain ones."""
    named = config.get("id2label") or {"0": "LABEL_0", "1": "LABEL_1"}
    return tuple(str(name) for _, name in sorted(named.items(), key=lambda one: int(one[0])))


def take_head(head: nn.Module, found: Reranker) -> None:
    """Put the weights of another cross-encoder's head into a new one.

    A bias that it lacks is zero. Raises ModelError where others lack.
    """
    own = head.state_dict()
    taken = {name: torch.zeros_like(one) for name, one in own.items() if name.endswith("bias")}
    for folder, origin, name in found.parts:
        weights = head_tensors(folder, origin)
        taken |= {f"{name}.{part}": tensor for part, tensor in weights.items()}
    fit_weights(head, taken, found.encoder)


def head_tensors(folder: Path, origin: str) -> dict[str, Tensor]:
    """The weight and the bias of one layer, from the file that has them."""
    names = {part: f"{origin}.{part}" for part in ("weight", "bias")}
    remedy = "fetch the model again"
    where = shards_of(folder)
    files = {where.get(name, WEIGHTS) for name in names.values()} if where else {WEIGHTS}
    weights: dict[str, Tensor] = {}
    for file in files:
        weights |= read_tensors(folder / file, "weights", remedy)
    return {part: weights[name] for part, name in names.items() if name in weights}

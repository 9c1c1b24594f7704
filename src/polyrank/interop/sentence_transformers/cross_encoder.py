"""A cross-encoder as a model for sequence classification, or as an encoder with modules above it.

Knows which heads the library can express, and what each is called there.
"""

from __future__ import annotations

import copy
from typing import Any

from polyrank.interop.sentence_transformers.module_folder import (
    IDENTITY,
    Module,
    layer_norm,
    layer_of,
    pooling,
    transformer,
)
from polyrank.models.bert import VARIANT
from polyrank.models.foreign.reranker import HEADS, REDUCTIONS
from polyrank.models.heads import DenseHead, PoolerHead, ScoreHead

POOLING = {"first": "cls", "mean": "mean", "max": "max"}
SCORES = {"module_output_name": "scores"}


def can_be_expressed(model: Any) -> bool:
    """Whether a cross-encoder's scores need no module but those of the library.

    It has an encoder of `transformers`, which reads pairs of texts as one, and no prompt for the
    second.
    """
    known = model.tower.encoder.config.model_type != VARIANT
    is_own = model.reads_texts_apart or model.reads_once
    return known and not is_own and not model.config.candidate_prompt


def is_classifier(model: Any) -> bool:
    """Whether the head is that of `…ForSequenceClassification` for this kind of encoder."""
    config, encoder = model.config, model.tower.encoder.config
    form = HEADS.get(encoder.model_type)
    if form is None or not isinstance(model.head, PoolerHead):
        return False
    activation = config.head_activation if form.activation.endswith(":") else form.activation
    if activation != config.head_activation or form.has_norm != config.head_norm:
        return False
    norm = model.head.norm
    if norm is not None and not encoder.norm_bias and bool(norm.bias.any()):
        return False  # this kind of encoder has biases in all norms or in none
    reductions = REDUCTIONS.values() if form.pooling else ["first"]
    return config.reduction in reductions


def classifier(model: Any) -> Module:
    """The model for sequence classification that a cross-encoder is."""
    from transformers import AutoModelForSequenceClassification

    encoder = model.tower.encoder
    form, config = HEADS[encoder.config.model_type], copy.deepcopy(encoder.config)
    config.id2label, config.label2id = labels_of(model)
    if form.activation.endswith(":"):
        setattr(config, form.activation[:-1], model.config.head_activation)
    if form.pooling:
        setattr(config, form.pooling, POOLING[model.config.reduction])
        config.classifier_bias = True
    made = AutoModelForSequenceClassification.from_config(config, dtype=encoder.dtype)
    weights = {
        f"{made.base_model_prefix}.{name}": tensor for name, tensor in encoder.state_dict().items()
    }
    own = made.state_dict().keys()
    for origin, name in form.layers.items():
        layer = model.head.get_submodule(name)
        weights |= {
            f"{origin}.{part}": getattr(layer, part)
            for part in ("weight", "bias")
            if f"{origin}.{part}" in own
        }
    made.load_state_dict(weights, assign=True)  # each in its own dtype
    return pair_transformer(model, made.eval(), {})


def modules(model: Any) -> list[Module]:
    """The encoder of a cross-encoder and the modules that make scores of its outputs."""
    head = model.head
    id2label, label2id = labels_of(model)
    named = {"id2label": id2label, "label2id": label2id}
    above: list[Module]
    if isinstance(head, ScoreHead):
        above = [layer_of(head.out, **SCORES)]
    elif isinstance(head, DenseHead):
        _, first, activation, _, last = head.layers
        above = [layer_of(first, activation), layer_of(last, **SCORES)]
    else:
        norm = [] if head.norm is None else [layer_norm(head.norm)]
        above = [layer_of(head.dense, head.activation), *norm, layer_of(head.out, **SCORES)]
    reduction = pooling(model.tower.width, POOLING[model.config.reduction])
    return [pair_transformer(model, model.tower.encoder, named), reduction, *above]


def pair_transformer(model: Any, encoder: Any, entries: dict[str, Any]) -> Module:
    """The transformer that reads a pair; `entries` are further ones of its `config.json`."""
    config = model.config
    sides = config.context_truncation, config.candidate_truncation
    return transformer(
        encoder,
        model.tokenizer.pretrained,
        pair_length(model),
        truncation="left" if sides == ("left", "left") else "right",
        config={**entries, "sentence_transformers": {"activation_fn": IDENTITY}},
    )


def pair_length(model: Any) -> int:
    """The maximum tokens of a pair, with its special ones."""
    config = model.config
    both = config.max_context_length + config.max_candidate_length
    return int(both + model.tokenizer.pair_overhead)


def labels_of(model: Any) -> tuple[dict[int, str], dict[str, int]]:
    """The names of what a pair is told to be, by their numbers, and the reverse."""
    names = model.classes or ("LABEL_0",)
    return dict(enumerate(names)), {name: number for number, name in enumerate(names)}


def notes_of(model: Any) -> list[str]:
    """What the library does otherwise with a pair."""
    config = model.config
    notes = [
        f"A pair is cut as a whole there, at {pair_length(model)} tokens and the longer text "
        f"first. The model cuts a context at {config.max_context_length} tokens and a candidate at "
        f"{config.max_candidate_length}. Pairs that fit have equal scores."
    ]
    if config.cut_candidate_end:
        notes.append(
            "A candidate that is too long keeps its last special token there; the model cuts it."
        )
    if config.task == "regress":
        notes.append("The values are given as they are, without a sigmoid.")
    return notes

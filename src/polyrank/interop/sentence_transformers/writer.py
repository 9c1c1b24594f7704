"""Writes a model as a folder that sentence-transformers loads: its modules, its settings, its card.

Knows which architecture becomes what; `bi_encoder` and `cross_encoder` know the modules.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from polyrank._version import __version__
from polyrank.errors import UsageError
from polyrank.export_targets import SentenceTransformersExport
from polyrank.interop.export import Written
from polyrank.interop.sentence_transformers import cross_encoder
from polyrank.interop.sentence_transformers.bi_encoder import bi_encoder, candidates_alone
from polyrank.interop.sentence_transformers.card import write_card
from polyrank.interop.sentence_transformers.module_folder import (
    IDENTITY,
    Module,
    write_json,
    write_modules,
)
from polyrank.models.adapters.layers import is_adapted
from polyrank.models.hub.card import PLACEHOLDER

SETTINGS = "config_sentence_transformers.json"
NEW_VERSION = ">=5.4"
"""The versions that read a cross-encoder with modules; earlier ones find no model."""
CALLS = {
    "vectors": 'vectors = model.encode(["one answer", "another"])',
    "both": 'queries = model.encode_query(["a question"])\n'
    'documents = model.encode_document(["one answer", "another"])\n'
    "scores = model.similarity(queries, documents)",
    "pairs": 'scores = model.predict([("a question", "one answer"), ("a question", "another")])',
}
"""Python that uses a loaded export."""


class Plan(NamedTuple):
    """What a model becomes."""

    modules: Sequence[Module]
    notes: Sequence[str]
    calls: str
    """The name of the calls that use it."""
    settings: dict[str, Any] | None
    """What describes the whole model; None for a folder of `transformers` alone."""
    load: str = "SentenceTransformer"
    """The class that loads it."""
    arguments: str = ""
    """Further arguments of the class."""
    apart: bool = False
    """Whether the first module has a folder of its own."""


def write(model: Any, folder: Path, config: SentenceTransformersExport, path: Path) -> Written:
    """Write the files of a model into an empty folder, which will be at `path`.

    Raises UsageError for a model that the library cannot express.
    """
    model.require_weights("be exported")
    plan = plan_of(with_transformers(model), config)
    if plan.settings is None:
        plan.modules[0].write(folder)
    else:
        write_modules(folder, plan.modules, apart=plan.apart)
        write_json(folder / SETTINGS, plan.settings)
    load = '{}("{}"{})'.format(plan.load, "{}", plan.arguments)
    use = f"from sentence_transformers import {plan.load}\n\nmodel = {load}\n{CALLS[plan.calls]}"
    notes = [*plan.notes, *([] if plan.arguments else precision_notes(model))]
    write_card(folder, model, path.name, use.format(PLACEHOLDER), notes)
    return Written(load=load.format(path), notes=tuple(notes))


def precision_notes(model: Any) -> list[str]:
    """What to say of weights that are not in float32."""
    dtypes = {each.dtype for tower in model.towers for each in tower.parameters()}
    if dtypes == {torch.float32}:
        return []
    names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
    return [
        f"The encoder's weights are {names}, in which the library computes. With "
        'model_kwargs={"dtype": "float32"} its results are equal.'
    ]


def plan_of(model: Any, config: SentenceTransformersExport) -> Plan:
    """What a model becomes. Raises UsageError for what the library cannot express."""
    if config.only_candidates:
        if model.architecture == "cross":
            raise UsageError(
                "A cross-encoder reads a pair of texts at once, so its candidates have no vectors.",
                "Leave only_candidates out, or export a bi- or poly-encoder.",
            )
        require_known_encoders(model)
        modules, notes = candidates_alone(model)
        prompts = {"document": model.config.candidate_prompt}
        return Plan(modules, notes, "vectors", of_vectors(model, prompts, "document"))
    if model.architecture == "bi":
        require_known_encoders(model)
        modules, notes = bi_encoder(model)
        both = model.config.context_prompt, model.config.candidate_prompt
        prompts = dict(zip(("query", "document"), both, strict=True))
        default = "document" if both[0] == both[1] else None
        return Plan(modules, notes, "both", of_vectors(model, prompts, default))
    if model.architecture == "cross" and model.config.context_sees_candidates:
        raise UsageError(
            "A score of this cross-encoder depends on all candidates of a context, and "
            "sentence-transformers scores pairs in batches of its own.",
            "Train one without context_sees_candidates.",
        )
    is_cross = model.architecture == "cross" and unknown_encoder(model) is None
    if is_cross and cross_encoder.can_be_expressed(model):
        return plan_of_cross_encoder(model)
    return plan_of_scorer(model)


def unknown_encoder(model: Any) -> str | None:
    """The kind of an encoder of the model that `transformers` does not have, if there is one."""
    encoders = (tower.encoder for tower in model.towers if not tower.is_static)
    kinds = (one.config.model_type for one in encoders if not hasattr(one, "save_pretrained"))
    return next(kinds, None)


def require_known_encoders(model: Any) -> None:
    """Raise UsageError for a model whose encoder the library cannot load."""
    kind = unknown_encoder(model)
    if kind is not None:
        raise UsageError(
            f"The model's encoder is of polyrank's own kind {kind}, which sentence-transformers "
            "cannot load.",
            "Export it to another format, such as --to onnx.",
        )


def plan_of_cross_encoder(model: Any) -> Plan:
    """A cross-encoder by modules of the library alone."""
    notes, prompt = cross_encoder.notes_of(model), model.config.context_prompt
    if cross_encoder.is_classifier(model) and not prompt:
        modules = [cross_encoder.classifier(model)]
        return Plan(modules, notes, "pairs", None, "CrossEncoder")
    notes.append("The folder needs sentence-transformers 5.4 or newer.")
    modules = cross_encoder.modules(model)
    return Plan(modules, notes, "pairs", of_pairs(prompt), "CrossEncoder", apart=True)


def plan_of_scorer(model: Any) -> Plan:
    """The whole model as one module, whose class is in polyrank and whose folder is the model's."""
    module = Module(
        "PairScorer", model.save_copy, "polyrank.interop.sentence_transformers.pair_scorer"
    )
    notes = [
        "sentence-transformers has no module for this model, so the folder names a class of "
        "polyrank. Where it is loaded, polyrank must be installed, and trust_remote_code=True "
        "allows the library to import it; the folder has no code. It is also polyrank's own folder "
        "of the model."
    ]
    if model.architecture == "poly":
        notes.append(
            "Its candidates alone are an ordinary SentenceTransformer: export them with "
            "--only-candidates."
        )
    trusting = ", trust_remote_code=True"
    settings = of_pairs("")
    settings["requirements"]["polyrank"] = f">={__version__}"
    return Plan([module], notes, "pairs", settings, "CrossEncoder", trusting)


def of_vectors(model: Any, prompts: dict[str, str], default: str | None) -> dict[str, Any]:
    """The settings of a model that gives vectors; `default` names the prompt of `encode`."""
    return {
        "model_type": "SentenceTransformer",
        "prompts": prompts,
        "default_prompt_name": default if default and prompts[default] else None,
        "similarity_fn_name": model.config.similarity,
    }


def of_pairs(prompt: str) -> dict[str, Any]:
    """The settings of a model that scores pairs; the prompt is put before the first text."""
    return {
        "model_type": "CrossEncoder",
        "prompts": {"context": prompt} if prompt else {},
        "default_prompt_name": "context" if prompt else None,
        "activation_fn": IDENTITY,
        "requirements": {"sentence-transformers": NEW_VERSION},
    }


def with_transformers(model: Any) -> Any:
    """The model with the encoders and the tokeniser of `transformers`, which write their files.

    One that was loaded for inference alone has others, and one with adapters has layers of peft:
    it is saved, with the adapters merged, and loaded again.
    """
    if hasattr(model.tokenizer.pretrained, "sep_token") and not is_adapted(model):
        return model
    from polyrank.models.checkpoint import load_model

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        model.save_copy(place)
        again = load_model(place, device="cpu", dtype="float32", weights_dtype="auto")
    again.path = model.path
    return again

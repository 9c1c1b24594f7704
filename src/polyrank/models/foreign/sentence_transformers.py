"""Reads a folder saved by sentence-transformers: its encoders, and all that its vectors depend on.

Reads the formats of versions 5.x and 6.x. What polyrank cannot compute is refused by name. Of our
models it knows only the names of their settings; `modules` reads one module.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from polyrank.errors import ModelError
from polyrank.folder_files import read_object
from polyrank.models.foreign.modules import (
    Module,
    Side,
    module_at,
    read_known,
    read_modules,
    read_required,
    read_side,
    refusal,
)

DESCRIPTION = "config_sentence_transformers.json"
MODULES = "modules.json"
ROUTERS = ("Router", "Asym")
OTHER_TYPES = ("SparseEncoder", "MultiVectorEncoder")
COSINE = {"similarity": "cosine"}
DOT = {"similarity": "dot", "temperature": 1.0}
SIDES = {"context": "query", "candidate": "document"}
"""What sentence-transformers calls the tasks of our two sides."""
SPARE_PROMPTS = ("passage", "corpus")
"""Names of prompts of documents that `encode_document` looks up after `document`."""


class Taken(NamedTuple):
    """What a folder says: where its encoders are, and the settings of the model."""

    encoder: Path
    settings: dict[str, Any]
    dense: tuple[Path, ...] = ()
    """The folders of the weights of the dense layers of contexts and, unless it has its own, of
    candidates."""
    candidate_encoder: Path | None = None
    """The encoder of candidates, if they have another."""
    candidate_dense: tuple[Path, ...] = ()
    lower_case: bool = False
    """Whether texts are brought to lower case before the tokeniser."""
    note: str = ""
    """What people should know of how it was read."""

    @property
    def has_two_sides(self) -> bool:
        """Whether contexts and candidates have encoders or dense layers of their own."""
        return self.candidate_encoder is not None or self.dense != self.candidate_dense


def is_sentence_transformer(folder: Path) -> bool:
    """Whether a folder was saved by sentence-transformers as a model that makes vectors."""
    return (folder / MODULES).is_file() and not is_cross_encoder(folder)


def is_cross_encoder(folder: Path) -> bool:
    """Whether a folder says that it is a cross-encoder's."""
    return read_object(folder / DESCRIPTION).get("model_type") == "CrossEncoder"


def read_folder(folder: Path) -> Taken | None:
    """What a sentence-transformers folder says, or None if `folder` is not one.

    Raises ModelError for modules whose arithmetic polyrank does not have.
    """
    if not (folder / MODULES).is_file():
        return None
    if is_cross_encoder(folder):  # its other modules are not of single texts
        first = read_modules(folder / MODULES)[0]
        return Taken(module_at(folder, first["type"], first["path"]).place, {})
    require_vectors(folder)
    context, candidate = (read_side(folder, pipeline(folder, task)) for task in SIDES.values())
    require_alike(folder, context, candidate)
    prompts, note = read_prompts(folder)
    settings = {
        "reduction": context.reduction,
        **read_similarity(folder, context.is_normalised),
        **prompts,
        "max_context_length": context.lengths["query"],
        "max_candidate_length": candidate.lengths["document"],
    }
    if candidate.reduction != context.reduction:
        settings["candidate_reduction"] = candidate.reduction
    if not context.pools_prompt:
        settings["pool_prompt"] = False
    if context.dense:
        settings["dense"] = context.layers
    for name, side in (("context_truncation", context), ("candidate_truncation", candidate)):
        if side.truncation == "left":
            settings[name] = "left"
    others = candidate.encoder != context.encoder
    return Taken(
        context.encoder,
        settings,
        context.dense,
        candidate.encoder if others else None,
        candidate.dense,
        context.lower_case,
        note,
    )


def require_vectors(folder: Path) -> None:
    """Raise ModelError for a model of sentence-transformers that makes no dense vectors."""
    kind = read_object(folder / DESCRIPTION).get("model_type")
    if kind in OTHER_TYPES:
        raise ModelError(
            f"{folder} holds a {kind} of sentence-transformers, which does not make one dense "
            "vector per text.",
            "Use it with sentence-transformers, or give a model of its class SentenceTransformer.",
        )


def require_alike(folder: Path, context: Side, candidate: Side) -> None:
    """Raise ModelError for sides that differ in more than encoders, lengths and weights."""
    for name, first, second in (
        ("dense layers", context.layers, candidate.layers),
        ("include_prompt", context.pools_prompt, candidate.pools_prompt),
        ("Normalize", context.is_normalised, candidate.is_normalised),
        ("do_lower_case", context.lower_case, candidate.lower_case),
    ):
        if first != second:
            raise refusal(f"The routes of queries and documents in {folder} differ in their {name}")


def pipeline(folder: Path, task: str) -> list[Module]:
    """The modules that a text of a task goes through, those of its route in place of a router."""
    found: list[Module] = []
    for described in read_modules(folder / MODULES):
        module = module_at(folder, described["type"], described["path"])
        found += read_route(module.place, task) if module.kind in ROUTERS else [module]
    return found


def read_route(place: Path, task: str) -> list[Module]:
    """The modules of the route that a router chooses for texts of a task. Raises ModelError."""
    file = place / "router_config.json"
    described = read_required(file if file.is_file() else place / "config.json")
    try:
        types, structure = dict(described["types"]), dict(described["structure"])
        parameters = dict(described.get("parameters") or {})
        mappings = {
            ast.literal_eval(key): route
            for key, route in (parameters.get("route_mappings") or {}).items()
        }
        route = route_of(task, mappings, structure)
        if route is None:
            raise ModelError(
                f"The router in {place} has no route for the task {task!r}, only "
                f"{', '.join(map(repr, structure))}.",
                f"Give a model with routes for {' and '.join(map(repr, SIDES.values()))}.",
            )
        return [module_at(place, types[name], name) for name in structure[route]]
    except (KeyError, TypeError, ValueError, SyntaxError) as error:
        raise ModelError(
            f"{file} does not describe a router: {type(error).__name__}: {error}.",
            "The folder is damaged; download it again.",
        ) from error


def route_of(task: str, mappings: Mapping[Any, str], structure: Mapping[str, Any]) -> str | None:
    """The route for texts of a task, in the order in which `Router` looks it up."""
    for key in ((task, "text"), (task, None), (None, "text"), (None, None)):
        if key in mappings:
            return mappings[key]
    return next((name for name in (task, "text") if name in structure), None)


def read_similarity(folder: Path, is_normalised: bool) -> dict[str, Any]:
    """How vectors are compared, whether they have unit length, and where they are cut.

    Raises ModelError for what polyrank does not have.
    """
    described = read_known(folder / DESCRIPTION)
    name, dimension = described.get("similarity_fn_name"), described.get("truncate_dim")
    if name in ("euclidean", "manhattan"):
        raise refusal(f"{folder} compares vectors by their {name} distance")
    settings: dict[str, Any] = {} if dimension is None else {"truncate_dim": int(dimension)}
    if name == "dot" and is_normalised and dimension is not None:
        raise refusal(
            f"{folder} cuts vectors to {dimension} numbers after Normalize and compares what is "
            "left by the dot product"
        )
    if name == "dot" and not is_normalised:
        return {**settings, **DOT}
    return {**settings, **COSINE} | ({} if is_normalised else {"unit_length": False})


def read_prompts(folder: Path) -> tuple[dict[str, str], str]:
    """The prompts of both sides that are not empty, and a note on prompts that are for neither.

    They are those of `encode_query` and `encode_document`. If neither has one, the default prompt
    is for both, as in `encode`. Raises ModelError for prompts or a default that are not there.
    """
    described = read_known(folder / DESCRIPTION)
    named, default = described.get("prompts") or {}, described.get("default_prompt_name")
    if not isinstance(named, dict) or not {default} <= {None, *named, *SIDES.values()}:
        raise ModelError(
            f"{folder / DESCRIPTION} has the prompts {named} and the default prompt {default}, "
            "which is not among them.",
            "The folder is damaged; download it again.",
        )
    prompts = {str(name): str(text) for name, text in named.items() if text}
    used = [prompts.get(task, "") for task in SIDES.values()]
    spare = [name for name in SPARE_PROMPTS if name in prompts and not used[1]]
    if not any(used):
        used = [prompts.get(str(default), "")] * 2
        spare = [] if any(used) else list(prompts)
    note = ""
    if spare:
        note = (
            f"{folder} has prompts that neither contexts nor candidates get: {', '.join(spare)}. "
            "encode_query and encode_document of sentence-transformers do not use them either; "
            "give context_prompt and candidate_prompt if you want them."
        )
    names = (f"{side}_prompt" for side in SIDES)
    return {name: text for name, text in zip(names, used, strict=True) if text}, note

"""Writes a model as a folder that sentence-transformers loads: its modules, its settings, its card.

Knows which architecture becomes what; `bi_encoder` knows the modules.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from polyrank.errors import UsageError
from polyrank.export_targets import SentenceTransformersExport
from polyrank.interop.export import Written
from polyrank.interop.sentence_transformers.bi_encoder import bi_encoder, candidates_alone
from polyrank.interop.sentence_transformers.card import write_card
from polyrank.interop.sentence_transformers.module_folder import write_json, write_modules
from polyrank.models.hub.card import PLACEHOLDER

USE_BI = """\
from sentence_transformers import SentenceTransformer

model = {load}
queries = model.encode_query(["a question"])
documents = model.encode_document(["one answer", "another"])
scores = model.similarity(queries, documents)"""
USE_CANDIDATES = """\
from sentence_transformers import SentenceTransformer

model = {load}
vectors = model.encode(["one answer", "another"])"""


def write(model: Any, folder: Path, config: SentenceTransformersExport, path: Path) -> Written:
    """Write the files of a model into an empty folder, which will be at `path`.

    Raises UsageError for a model that the library cannot express.
    """
    if config.only_candidates and model.architecture == "cross":
        raise UsageError(
            "A cross-encoder reads a pair of texts at once, so its candidates have no vectors.",
            "Leave only_candidates out, or export a bi- or poly-encoder.",
        )
    if model.architecture != "bi" and not config.only_candidates:
        raise UsageError(
            f"sentence-transformers has no {model.architecture}-encoder.",
            "Export a bi-encoder, or the candidates of a poly-encoder with only_candidates.",
        )
    model = with_transformers(model)
    alone = config.only_candidates
    modules, notes = candidates_alone(model) if alone else bi_encoder(model)
    write_modules(folder, modules)
    write_json(folder / "config_sentence_transformers.json", settings_of(model))
    load = f'SentenceTransformer("{path}")'
    use = (USE_CANDIDATES if alone else USE_BI).format(load=load.replace(str(path), PLACEHOLDER))
    write_card(folder, model, path.name, use, notes)
    return Written(load=load, notes=tuple(notes))


def with_transformers(model: Any) -> Any:
    """The model with the encoders and the tokeniser of `transformers`, which write their files.

    One that was loaded for inference alone has others, and is saved and loaded again.
    """
    if hasattr(model.tokenizer.pretrained, "sep_token"):
        return model
    from polyrank.models.checkpoint import load_model

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        model.save_copy(place)
        again = load_model(place, device="cpu", dtype="float32")
    again.path = model.path
    return again


def settings_of(model: Any) -> dict[str, Any]:
    """The content of `config_sentence_transformers.json`."""
    return {
        "model_type": "SentenceTransformer",
        "prompts": {"query": "", "document": ""},
        "default_prompt_name": None,
        "similarity_fn_name": model.config.similarity,
    }

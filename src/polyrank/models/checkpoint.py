"""Loads a model from a folder or a hub id. The only module that knows all three architectures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from polyrank.errors import ModelError
from polyrank.models.adapters.folders import described_in
from polyrank.models.backbone import WeightsDtype
from polyrank.models.base import Model
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.config import EngineName
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.description import DESCRIPTION, read_description
from polyrank.models.foreign.reranker import read_reranker
from polyrank.models.foreign.sentence_transformers import is_sentence_transformer
from polyrank.models.loading.settings import needs_new_head, require_same_shape
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.models.source import faults_named, hub_id, local_folder, remedy_without_model
from polyrank.models.static.embeddings import is_static

ARCHITECTURES: dict[str, type[Model]] = {
    "bi": BiEncoder,
    "poly": PolyEncoder,
    "cross": CrossEncoder,
}


def load_model(
    path: str | Path,
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    trainable: bool = True,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    engine: EngineName = "auto",
    weights_dtype: WeightsDtype = "float32",
    **settings: Any,
) -> Model:
    """The saved model of a folder or hub id, whatever its architecture.

    A sentence-transformers model, which says how it pools, becomes a bi-encoder, and so do static
    embeddings. A reranker or another cross-encoder becomes a cross-encoder with its own head. A
    plain encoder, which does not say what it is for, is refused.

    Args:
        path: A folder, a file of word vectors or a hub id.
        device: Where to compute: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
        dtype: The precision of inference; `auto` is bfloat16 where the hardware has it.
        trainable: False for inference alone: the same scores, but an encoder of BERT's kind is
            loaded without `transformers`, whose import takes most of the time of a first search.
        revision: A branch, a tag or a commit of a model on the hub. By default, `main`.
        token: A token of the hub. By default, that of `hf auth login`.
        cache_dir: Where downloaded files are kept. By default, the hub's own cache.
        local_files_only: Use only what the cache has, and do not ask the hub.
        engine: What computes: `torch`, or `onnx` and `openvino` for an exported model. `auto` is
            torch if the folder has weights, otherwise the engine of its graphs.
        weights_dtype: The dtype in which the encoders' weights stay in memory: `float32`,
            `bfloat16`, or that of the file (`auto`). 16 bits take half the memory and are for
            inference alone.
        **settings: Fields of the architecture's configuration.

    Returns:
        A bi-, poly- or cross-encoder.

    Raises:
        ModelError: There is no model.
        OutOfMemoryError: There is not enough memory for it.
        UsageError: A setting contradicts it.
        MissingExtraError: The engine's runtime is not installed.
    """
    folder = local_folder(
        path,
        revision=revision,
        token=token,
        cache_dir=cache_dir,
        local_files_only=local_files_only,
    )
    model_class: type[Model] | None = None
    with faults_named(f"The model in {folder} could not be loaded"):
        description = read_description(folder)
        if description is not None:
            model_class = ARCHITECTURES[description.architecture]
            if needs_new_head(description.settings, settings):  # then it is not the saved model
                require_same_shape(folder, description.settings, settings)
        elif not is_static(folder) and read_reranker(folder) is not None:
            model_class = CrossEncoder
        elif is_sentence_transformer(described_in(folder)) or is_static(folder):
            model_class = BiEncoder
    if model_class is not None:
        is_own = Path(path).is_dir()
        model = model_class.from_folder(
            folder,
            is_own=is_own,
            device=device,
            dtype=dtype,
            engine=engine,
            trainable=trainable,
            weights_dtype=weights_dtype,
            **settings,
        )
        model.hub_id = hub_id(path)
        return model
    raise ModelError(
        f"{path} is not a saved model: it has no {DESCRIPTION}.",
        remedy_without_model(
            folder,
            "Give a folder that `polyrank train` or save_pretrained wrote, that of a "
            "sentence-transformers or model2vec model, or a file of word vectors.",
        ),
    )

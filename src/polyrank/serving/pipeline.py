"""What is served: models by name, an index, and a reranker. Knows nothing of HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyrank.errors import UsageError, nearest
from polyrank.models.base import Model
from polyrank.models.checkpoint import load_model
from polyrank.retrieval.index import Index
from polyrank.retrieval.rerank import require_reranker
from polyrank.retrieval.store.manifest import read_plain
from polyrank.serving.config import PipelineConfig
from polyrank.serving.naming import require_name, require_served, reranker_name, sources

FOR_EMBEDDINGS = ("bi", "poly")
FOR_RANKING = ("cross", "poly", "bi")
"""Which architecture answers a request that names no model, the first that is served."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Served:
    """A model under the name that requests call it by."""

    name: str
    model: Model
    since: int = field(default_factory=lambda: int(time.time()))
    """When it was loaded, in seconds since 1970."""

    @property
    def architecture(self) -> str:
        """`bi`, `poly` or `cross`."""
        return self.model.architecture


class Pipeline:
    """The models, the index and the reranker of a server."""

    def __init__(
        self,
        models: Mapping[str, Model],
        *,
        index: Index | None = None,
        reranker: str | None = None,
    ) -> None:
        """Serve loaded models.

        Args:
            models: The models by name. The index's own is added under the name of its folder,
                unless it is among them.
            index: The index that /search searches.
            reranker: The name of the cross-encoder that reorders what the index finds.

        Raises:
            UsageError: There is nothing to serve, a name cannot be used, or the reranker is not a
                cross-encoder that gives scores.
        """
        self.models: dict[str, Served] = {}
        self.index = index
        self.load: Callable[[], Pipeline] | None = None
        """Loads the same folders anew, if all came from folders."""
        for name, model in models.items():
            require_name(name)
            require_useful(name, model)
            self.models[name] = Served(name=name, model=model)
        if index is not None and all(index.model is not model for model in models.values()):
            self.add_model_of(index)
        if not self.models:
            raise UsageError("There is nothing to serve.", "Give a model or an index.")
        self.reranker: Served | None = None
        if reranker is not None:
            if reranker not in self.models:
                raise UsageError(
                    f"The reranker {reranker!r} is not among the models.",
                    nearest(reranker, self.models),
                )
            require_reranker(self.models[reranker].model)
            self.reranker = self.models[reranker]

    def add_model_of(self, index: Index) -> None:
        """Serve the model of the index, too. Raises UsageError where its name is taken."""
        name = index.path.name
        if name in self.models:
            raise UsageError(
                f"Both a model and the index {index.path} are called {name!r}, and the index has "
                "another model.",
                "Name the model apart, as NAME=FOLDER.",
            )
        require_name(name)
        self.models[name] = Served(name=name, model=index.model)  # type: ignore[arg-type]

    def reopened(self) -> Pipeline:
        """The same models and index, loaded anew. Models that were made in memory stay.

        Raises InputError for what cannot be loaded, StorageError if the store of the index does not
        answer.
        """
        if self.load is not None:
            return self.load()
        own = self.index_model
        models = {name: each.model for name, each in self.models.items()}
        index = None
        if self.index is not None and own is not None:
            index = Index.open(
                self.index.path,
                made_by(models.values(), self.index.path),
                device=own.model.device,
                dtype=own.model.compute_dtype,
            )
            if index.model is not own.model:
                del models[own.name]
        reranker = None if self.reranker is None else self.reranker.name
        return Pipeline(models, index=index, reranker=reranker)

    @property
    def index_model(self) -> Served | None:
        """The model that encodes what is searched for in the index."""
        if self.index is None:
            return None
        return next(each for each in self.models.values() if each.model is self.index.model)

    def first(self, architectures: Iterable[str]) -> Served | None:
        """The first model of the first of these architectures that is served."""
        for architecture in architectures:
            for served in self.models.values():
                if served.architecture == architecture:
                    return served
        return None


def load_pipeline(config: PipelineConfig, **loading: Any) -> Pipeline:
    """Load what is to be served.

    A folder that is given twice is loaded once, and so is the model of the index if it is given
    as a model, too.

    Args:
        config: The folders and their names.
        **loading: Options of `load_model`: device, dtype, batch_tokens, engine.

    Returns:
        The pipeline.

    Raises:
        UsageError: There is nothing to serve, or a name or a reranker cannot be used.
        ModelError: A folder is not a model.
        IndexFolderError: The folder of the index is not one.
        StorageError: The store of the index does not answer.
    """
    require_served(config)
    folders: dict[Path, Model] = {}
    models: dict[str, Model] = {}
    for name, path in sources(config).items():
        folder = path.resolve()
        if folder not in folders:
            folders[folder] = load_model(path, trainable=False, **loading)
        models[name] = folders[folder]
    index = None
    if config.index is not None:
        index = Index.open(config.index, made_by(folders.values(), config.index), **loading)
    pipeline = Pipeline(models, index=index, reranker=reranker_name(config))
    pipeline.load = lambda: load_pipeline(config, **loading)
    return pipeline


def made_by(models: Iterable[Model], index: Path) -> Any:
    """The one of these models that made an index, or None."""
    record = read_plain(index.resolve()).get("model")
    made = record.get("fingerprint") if isinstance(record, dict) else None
    return next(
        (
            model
            for model in models
            if model.architecture != "cross" and model.fingerprint() == made
        ),
        None,
    )


def require_useful(name: str, model: Model) -> None:
    """Raise UsageError for a cross-encoder that gives classes, which no request asks for."""
    if model.architecture == "cross" and model.config.task not in ("rank", "regress"):
        raise UsageError(
            f"The cross-encoder {name!r} gives classes, not scores.",
            "Serve one with task='rank' or 'regress'; polyrank predict gives classes.",
        )

"""What is served: models by name, an index, and a reranker. Knows nothing of HTTP."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyrank.errors import UsageError
from polyrank.models.base import Model
from polyrank.models.checkpoint import load_model
from polyrank.retrieval.index import Index
from polyrank.retrieval.rerank import require_reranker
from polyrank.serving.config import PipelineConfig

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
            UsageError: There is nothing to serve, or the reranker is not a cross-encoder.
        """
        self.models = {name: Served(name=name, model=model) for name, model in models.items()}
        self.index = index
        if index is not None and all(index.model is not model for model in models.values()):
            name = index.path.name
            self.models[name] = Served(name=name, model=index.model)  # type: ignore[arg-type]
        if not self.models:
            raise UsageError("There is nothing to serve.", "Give a model or an index.")
        self.reranker: Served | None = None
        if reranker is not None:
            require_reranker(self.models[reranker].model)
            self.reranker = self.models[reranker]

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
    """Load what is to be served; `loading` are the options of `load_model`.

    Raises UsageError, ModelError or IndexFolderError.
    """
    sources = dict(map(named, config.models))
    reranker = None
    if config.reranker is not None:
        reranker, folder = named(config.reranker)
        sources[reranker] = folder
    models = {name: load_model(path, **loading) for name, path in sources.items()}
    index = None
    if config.index is not None:
        index = Index.open(config.index, **loading)
    return Pipeline(models, index=index, reranker=reranker)


def named(source: str) -> tuple[str, Path]:
    """The name and the folder of `[NAME=]FOLDER`; the folder's name by default."""
    name, is_named, folder = source.partition("=")
    return (name, Path(folder)) if is_named else (Path(source).resolve().name, Path(source))

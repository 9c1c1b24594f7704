"""Encoding on a Ray cluster: a stage of Ray Data, and bulk encoding of parts by actors.

    dataset.map_batches(
        CandidateEncoder,
        fn_constructor_kwargs={"model": "my-poly"},
        compute=ray.data.ActorPoolStrategy(size=2),
        batch_size=1024,
    )                                                # rows with "text" get "vector"
    list(encode_with_ray("my-poly", "candidates.jsonl", "parts", num_parts=64, num_actors=8))

Uses only Ray's public names; Ray is the extra `ray`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

from polyrank.errors import MissingExtraError, PolyrankError, UsageError
from polyrank.models.checkpoint import load_model
from polyrank.progress import bar
from polyrank.retrieval.bulk.encode import BulkEncoder, EncodedPart
from polyrank.retrieval.bulk.survey import survey
from polyrank.retrieval.store.manifest import ShardLayout, Storage
from polyrank.retrieval.store.writing import ENCODING, UNIT
from polyrank.retrieval.vector_model import VectorModel, require_vectors

ON_THIS_MACHINE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""With 0, a cluster of one machine listens on 127.0.0.1 only, on Linux too. Ray reads this variable
when it is imported."""

RAY_STEPS = 10_000
"""Ray counts resources in this fraction of one."""


class CandidateEncoder:
    """A stage of Ray Data: the column "text" of a batch (n,) gets a column "vector" (n, d).

    Give the class to `map_batches`, so that each actor loads the model once. Vectors are float32,
    as `encode_candidates` gives them.
    """

    def __init__(
        self, model: str | Path, *, device: str = "auto", dtype: str = "auto", column: str = "text"
    ) -> None:
        self.model: Any = load_vector_model(model, device, dtype)
        self.column = column

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Add the vectors. Raises UsageError for a batch without the column."""
        if self.column not in batch:
            raise UsageError(
                f"The batch has no column {self.column!r}, only {', '.join(map(repr, batch))}.",
                "Rename the column of the texts, or give its name as `column`.",
            )
        texts = [str(text) for text in batch[self.column]]
        return {**batch, "vector": self.model.encode_candidates(texts).numpy()}


class PartEncoder:
    """The actor of `encode_with_ray`: a `BulkEncoder` whose model is loaded when first needed."""

    def __init__(self, make: Callable[[], BulkEncoder]) -> None:
        self._make = make
        self._encoder: BulkEncoder | None = None

    def encode(self, part_index: int) -> EncodedPart:
        """Encode a part, unless it is finished or another process is encoding it."""
        if self._encoder is None:
            self._encoder = self._make()
        return self._encoder.encode(part_index)


def encode_with_ray(
    model: str | Path,
    source: str | Path,
    output: str | Path,
    num_parts: int,
    num_actors: int,
    *,
    storage: Storage = "float32",
    layout: ShardLayout | None = None,
    device: str = "auto",
    dtype: str = "auto",
    address: str | None = None,
) -> Iterator[EncodedPart]:
    """Encode all missing parts as `encode_part` does, and yield them as they finish.

    The actors share the cores of the cluster, and its GPUs. They run on the cluster that Ray is
    connected to, on the one at `address`, or else on one that is started on this machine and shut
    down at the end. All machines must see `model`, `source` and `output` under these names. Raises
    what `encode_part` raises on any machine, MissingExtraError, and PolyrankError if an actor
    dies.
    """
    if num_parts < 1 or num_actors < 1:
        raise UsageError(
            f"There must be at least one part and one actor, got {num_parts} and {num_actors}.",
            "Give more.",
        )
    places = [Path(os.path.realpath(place)) for place in (model, source, output)]
    rows = survey(places[1], places[2]).rows  # once, not in every actor
    load = partial(load_vector_model, places[0], device, dtype)
    settings = {"storage": storage, "layout": layout}
    make = partial(make_encoder, load, places[1], places[2], num_parts, settings)
    with connected(address) as ray:
        count = min(num_actors, num_parts)
        actor = ray.remote(PartEncoder).options(**shares(ray.cluster_resources(), count))
        actors = [actor.remote(make) for _ in range(count)]
        try:
            with bar(ENCODING, total=rows, unit=UNIT) as task:
                for part in results(ray, ray.util.ActorPool(actors), num_parts):
                    task.count(part.num_candidates, part.state == "encoded")
                    yield part
        finally:
            for each in actors:
                ray.kill(each)


def make_encoder(
    load: Callable[[], VectorModel],
    source: Path,
    output: Path,
    num_parts: int,
    settings: dict[str, Any],
) -> BulkEncoder:
    """Load the model and join the job."""
    return BulkEncoder(load(), source, output, num_parts, **settings)


def load_vector_model(path: str | Path, device: str, dtype: str) -> VectorModel:
    """Load a bi- or poly-encoder. Raises ModelError, UsageError."""
    model = load_model(path, device=device, dtype=dtype)
    require_vectors(model)
    return cast("VectorModel", model)


def results(ray: Any, pool: Any, num_parts: int) -> Iterator[EncodedPart]:
    """The results of the actors, in any order."""
    try:
        yield from pool.map_unordered(lambda actor, i: actor.encode.remote(i), range(num_parts))
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, PolyrankError):
            raise error.cause from None
        raise
    except ray.exceptions.RayActorError as error:
        raise PolyrankError(
            f"An encoding actor died: {' '.join(str(error).split())}",
            "Run the same command again to resume; use fewer actors if memory is short.",
        ) from error


def shares(resources: dict[str, float], count: int) -> dict[str, float]:
    """The resources of each of `count` actors, so that all of them fit."""
    cpus, gpus = (resources.get(kind, 0.0) / count for kind in ("CPU", "GPU"))
    return {
        "num_cpus": float(int(cpus)) if cpus >= 1 else int(cpus * RAY_STEPS) / RAY_STEPS,
        "num_gpus": min(1.0, int(gpus * RAY_STEPS) / RAY_STEPS),
    }


@contextlib.contextmanager
def connected(address: str | None = None) -> Iterator[Any]:
    """Ray, connected to a cluster; a cluster that is started here is shut down at the end.

    Ray's usage statistics and dashboard are off. Unless Ray was imported before, it listens on
    127.0.0.1 only. Raises MissingExtraError.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    if address is not None:
        ray.init(address=address, log_to_driver=False)
    else:
        ray.init(address="local", include_dashboard=False, log_to_driver=False)
    try:
        yield ray
    finally:
        ray.shutdown()


def import_ray() -> Any:
    """Ray, without its usage statistics. Raises MissingExtraError."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    if "ray" not in sys.modules:
        os.environ.setdefault(ON_THIS_MACHINE, "0")
    try:
        importlib.import_module("ray.util")
        return importlib.import_module("ray")
    except ImportError:
        raise MissingExtraError("ray", "ray", "Encoding on a Ray cluster") from None

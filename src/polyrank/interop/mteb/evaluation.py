"""Runs tasks of MTEB on a model of polyrank; the results are MTEB's own.

MTEB is imported when it is used, which takes seconds.
"""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank.config import require_whole
from polyrank.errors import DataError, MissingExtraError, PolyrankError, UsageError
from polyrank.models.base import Model
from polyrank.models.checkpoint import load_model
from polyrank.models.hub.download import quieten
from polyrank.retrieval.rerank import require_reranker

if TYPE_CHECKING:
    from polyrank.interop.mteb.adapters import SearchAdapter

MEANT = re.compile(r"Did you mean: '?(.+?)'?\?")
NUM_RERANKED = 100
BATCH = 32
"""Rows of MTEB's batches, which polyrank cuts into batches of its own."""
REASON_LENGTH = 200


def model(
    source: Model | str | Path,
    *,
    name: str | None = None,
    reranker: Model | str | Path | None = None,
    num_candidates: int = NUM_RERANKED,
) -> SearchAdapter:
    """A model of polyrank that `mteb.evaluate` takes.

    A bi- or poly-encoder searches with an index of polyrank, exactly, and encodes: what MTEB calls
    queries as contexts, all other texts as candidates, each with the model's own prompt. A
    cross-encoder reranks the documents that a task names.

    Args:
        source: A model, the folder of a saved one, or its id on the hub.
        name: What MTEB calls it, such as my-name/my-model. By default, its id on the hub, or
            polyrank/ and the name of its folder.
        reranker: A cross-encoder, or its folder, that reorders what a bi- or poly-encoder finds.
        num_candidates: How many documents of each query the reranker reads.

    Returns:
        The model in MTEB's protocols. Its revision is the fingerprint of the weights and settings.

    Raises:
        ModelError: There is no model.
        UsageError: The model classifies pairs, or the reranker is not a cross-encoder.
        MissingExtraError: MTEB is not installed.
    """
    library()
    from polyrank.interop.mteb.adapters import SearchAdapter, VectorAdapter

    opened = open_model(source)
    require_whole("num_candidates", num_candidates)
    second = None if reranker is None else open_model(reranker)
    meta = meta_of(opened, second, name or name_of(opened, source))
    if opened.architecture == "cross":
        require_reranker(opened)
        if second is not None:
            raise UsageError(
                "A cross-encoder finds nothing that a reranker could reorder.",
                "Give a bi- or poly-encoder as the model, or leave the reranker out.",
            )
        return SearchAdapter(opened, meta)
    return VectorAdapter(opened, meta, reranker=second, num_candidates=num_candidates)


def evaluate(
    source: Model | str | Path,
    tasks: Sequence[Any] | Any,
    *,
    output: str | Path | None = None,
    name: str | None = None,
    reranker: Model | str | Path | None = None,
    num_candidates: int = NUM_RERANKED,
    show_progress_bar: bool = False,
) -> Any:
    """Measure a model on tasks of MTEB.

    Args:
        source: A model, the folder of a saved one, or its id on the hub.
        tasks: Names of tasks or benchmarks, such as SciFact or "MTEB(eng, v2)", or MTEB's own task
            objects, which may have data of their own; one or several.
        output: A folder for the results, in which MTEB finds them: `mteb.ResultCache(output)`.
            Tasks whose results of this model are there already are not run again.
        name: As of `model`.
        reranker: As of `model`.
        num_candidates: As of `model`.
        show_progress_bar: Show MTEB's progress on standard error.

    Returns:
        MTEB's `ModelResult`: `result.task_results` has one result for each task.

    Raises:
        UsageError: There is no such task, or the model cannot do it.
        DataError: The data of a task cannot be loaded.
        ModelError: There is no model.
        MissingExtraError: MTEB is not installed.
    """
    mteb = library()
    chosen = tasks_of([tasks] if isinstance(tasks, (str, mteb.AbsTask)) else tasks)
    adapted = model(source, name=name, reranker=reranker, num_candidates=num_candidates)
    require_protocols(adapted, chosen)
    cache = None if output is None else mteb.ResultCache(Path(output))
    results: list[Any] = []
    with shown(show_progress_bar):
        for task in chosen:
            with explained(task):
                found = mteb.evaluate(
                    adapted,
                    task,
                    co2_tracker=False,
                    cache=cache,
                    encode_kwargs={"show_progress_bar": show_progress_bar, "batch_size": BATCH},
                    show_progress_bar=show_progress_bar,
                )
            for refused in found.exceptions or ():
                raise unloaded(refused.task_name, refused.exception)
            results += found.task_results
    return found.model_copy(update={"task_results": results})


def as_json(result: Any) -> dict[str, Any]:
    """One of MTEB's results as MTEB writes it to a file, with null for what is not a number."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        result.to_disk(file)
        text = file.read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text, parse_constant=lambda _: None)
    return found


def library() -> Any:
    """MTEB. Raises MissingExtraError."""
    try:
        import mteb
    except ImportError:
        raise MissingExtraError("mteb", "mteb", "MTEB, with Python 3.11 or newer,") from None
    quieten()
    return mteb


def open_model(source: Model | str | Path) -> Any:
    """A model, or the one in a folder."""
    return load_model(source, trainable=False) if isinstance(source, (str, Path)) else source


def name_of(opened: Model, source: Any) -> str:
    """What MTEB calls a model: an organisation and a name."""
    if opened.hub_id is not None:
        return opened.hub_id
    folder = source if isinstance(source, (str, Path)) else opened.path
    return f"polyrank/{opened.architecture if folder is None else Path(folder).resolve().name}"


def meta_of(opened: Any, reranker: Any, name: str) -> Any:
    """What MTEB knows of a model. Its revision tells models and rerankers apart."""
    from mteb.models.model_meta import ModelMeta, ScoringFunction

    crosses = opened.architecture == "cross"
    is_dot = not crosses and opened.config.similarity == "dot"
    similarity = ScoringFunction.DOT_PRODUCT if is_dot else ScoringFunction.COSINE
    kinds = {"bi": "dense", "poly": "late-interaction", "cross": "cross-encoder"}
    revision = opened.fingerprint()[:12]
    if reranker is not None:
        revision += f"-{reranker.fingerprint()[:12]}"
    return ModelMeta.create_empty(
        overwrites={
            "name": name,
            "revision": revision,
            "n_parameters": opened.num_parameters(),
            "max_tokens": opened.config.max_candidate_length,
            "embed_dim": None if crosses else opened.dimension,
            "similarity_fn_name": None if crosses or opened.architecture == "poly" else similarity,
            "framework": ["PyTorch"],
            "model_type": [kinds[opened.architecture]],
            "use_instructions": any(
                getattr(opened.config, prompt, "")
                for prompt in ("context_prompt", "candidate_prompt")
            ),
        }
    )


def tasks_of(named: Iterable[Any]) -> list[Any]:
    """MTEB's tasks: those that are given, and those of a name. Raises UsageError."""
    found: list[Any] = []
    for task in named:
        found += tasks_named(task) if isinstance(task, str) else [task]
    if not found:
        raise UsageError("There is no task to evaluate on.", "Name one, such as SciFact.")
    return found


def tasks_named(name: str) -> list[Any]:
    """The task of a name, or all those of a benchmark. Raises UsageError with the nearest name."""
    import mteb
    from mteb.get_tasks import TASK_LIST

    try:
        return [mteb.get_task(name)]
    except KeyError as error:
        meant = [MEANT.search(str(error))]
    try:
        return list(mteb.get_benchmark(name).tasks)
    except KeyError as error:
        meant += [MEANT.search(str(error))]
    known = [str(task.metadata.name) for task in TASK_LIST]
    longer = [one for one in known if one.casefold().startswith(name.casefold())]
    task, benchmark = (found[1] if found else None for found in meant)
    near = min(longer, key=len, default=None) or task or benchmark
    raise UsageError(
        f"MTEB has no task and no benchmark {name!r}.",
        f"Did you mean {near!r}?" if near else "mteb.get_tasks() in Python lists them.",
    )


def require_protocols(adapted: Any, tasks: Iterable[Any]) -> None:
    """Raise UsageError for tasks of other things than text, or that a cross-encoder cannot do."""
    from mteb.abstasks import AbsTaskRetrieval

    for task in tasks:
        others = [kind for kind in task.metadata.modalities if kind != "text"]
        if others:
            raise UsageError(
                f"The task {task.metadata.name} has {' and '.join(others)}, but models of polyrank "
                "read text.",
                "Leave it out.",
            )
        if not hasattr(adapted, "encode") and not isinstance(task, AbsTaskRetrieval):
            raise UsageError(
                f"The task {task.metadata.name} of the type {task.metadata.type} needs vectors, "
                "which a cross-encoder does not have.",
                "Give a bi- or poly-encoder, or a task of the type Reranking.",
            )


@contextlib.contextmanager
def shown(wanted: bool) -> Iterator[None]:
    """With or without the bars of `datasets`."""
    import datasets

    had_bars = datasets.utils.logging.is_progress_bar_enabled()
    if not wanted:
        datasets.disable_progress_bars()
    try:
        yield
    finally:
        if had_bars:
            datasets.enable_progress_bars()


@contextlib.contextmanager
def explained(task: Any) -> Iterator[None]:
    """Turn what MTEB raises for a task whose data cannot be loaded into DataError."""
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

    try:
        yield
    except PolyrankError:
        raise
    except (OSError, ValueError, RuntimeError, DatasetsError, HTTPError) as error:
        if task.data_loaded:
            raise
        raise unloaded(task.metadata.name, error) from error


def unloaded(task: str, error: Any) -> DataError:
    """The error of data that cannot be loaded."""
    reason = " ".join(str(error).split())[:REASON_LENGTH].rstrip(".") or type(error).__name__
    return DataError(
        f"The data of the task {task} cannot be loaded: {reason}.",
        "Connect to the network, or give a task whose data the cache of the hub has.",
    )

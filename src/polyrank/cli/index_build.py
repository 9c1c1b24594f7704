"""`polyrank index build`: candidates, or parts that are encoded already, to an index folder."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from polyrank.cli.command import command
from polyrank.cli.options import (
    CANDIDATES,
    InferenceOptions,
    SourceOptions,
    load,
    option,
    positional,
)
from polyrank.cli.output import Output
from polyrank.display.words import span
from polyrank.errors import DataError, UsageError

FEWEST_CONTEXTS = 20


@dataclass(frozen=True, kw_only=True)
class BuildOptions(SourceOptions, InferenceOptions):
    """Options of `polyrank index build`."""

    model: Path = positional(
        "MODEL", help="The folder of the bi- or poly-encoder that encodes the candidates."
    )
    candidates: Path | None = option(
        None,
        help="The candidates: " + CANDIDATES,
    )
    encoded: Path | None = option(
        None,
        help="Instead of --candidates: the folder of the parts that `polyrank encode` wrote; "
        "nothing is encoded.",
    )
    output: Path = option(help="The folder for the index; an index there is replaced.")
    storage: Literal["float32", "bfloat16", "float16", "int8"] = option(
        "float32", help="The type of the stored vectors: 4, 2, 2 or 1 bytes per component."
    )
    copy_model: bool = option(
        True,
        help="Keep a copy of the model in the index. Otherwise, the index refers to its folder.",
    )
    backend: str = option(
        "exact",
        metavar="exact|hnsw|ivf|ivfpq|MILVUS",
        help="How to search. hnsw, ivf and ivfpq add approximate search; MILVUS is a database "
        "that stores the candidates: milvus://HOST:PORT/COLLECTION, or a path ending in .db "
        "for an embedded one.",
    )
    recall: float = option(0.99, help="The recall@100 to tune hnsw, ivf and ivfpq for.")
    contexts: Path | None = option(
        None,
        help="A file of contexts for tuning and measuring the recall, one text per line. By "
        "default, texts of candidates.",
    )
    milvus_index: str = option(
        "HNSW",
        help="The index in Milvus: FLAT, which certifies exact searches fastest, HNSW, HNSW_SQ, "
        "IVF_FLAT, IVF_SQ8 or AUTOINDEX; with parameters as in HNSW:M=32,efConstruction=400.",
    )


def interrupted(options: BuildOptions) -> str:
    """The words after Ctrl-C."""
    made = "vectors made so far" if options.encoded is None else "encoded parts"
    return (
        f"What stood at {options.output} before is unchanged, and the {made} are kept: run the "
        "same command again to resume."
    )


@command("index build", BuildOptions, interrupted=interrupted)
def build(options: BuildOptions, output: Output) -> None:
    """Encode candidates and write them to an index.

    The file may be of any size. With --encoded, the parts that `polyrank encode` wrote become the
    index. An interrupted run resumes when it is started again.
    """
    require_one_source(options)

    from polyrank.retrieval.index import Index

    model = load(options.model, options, revision=options.revision)
    started = time.perf_counter()
    if options.encoded is None:
        assert options.candidates is not None
        built = Index.build(
            model,
            options.candidates,
            options.output,
            copy_model=options.copy_model,
            storage=options.storage,
            backend=options.backend,
            recall=options.recall,
            contexts=contexts_of(options),
            milvus_index=options.milvus_index,
        )
    else:
        built = Index.assemble(
            model,
            options.encoded,
            options.output,
            copy_model=options.copy_model,
            backend=options.backend,
            recall=options.recall,
            contexts=contexts_of(options),
        )
    seconds = time.perf_counter() - started
    output.say(f"{len(built):,} candidates in the index {options.output}, {span(seconds)}")
    result: dict[str, Any] = {
        "index": options.output,
        "model": options.model,
        "backend": options.backend,
        "num_candidates": len(built),
        "seconds": seconds,
    }
    manifest = built.engine.manifest
    if manifest is not None:
        result |= {"storage": manifest.storage, "search": manifest.search}
        say_structure(manifest.search, output)
    output.say(f'Search it with: polyrank search {options.output} "your text"')
    output.result(result)


def require_one_source(options: BuildOptions) -> None:
    """Raise UsageError for options that do not say what to make an index of."""
    if options.candidates is None and options.encoded is None:
        raise UsageError(
            "polyrank index build: --candidates is required and missing.",
            "Give the file of the candidates; or, with --encoded, the parts of `polyrank encode`.",
        )
    if options.candidates is not None and options.encoded is not None:
        raise UsageError(
            "--candidates and --encoded are two sources of an index.", "Leave one of them out."
        )
    if options.encoded is not None and options.storage != BuildOptions.storage:
        raise UsageError(
            "--storage was chosen when the parts of --encoded were made.", "Leave it out."
        )


def contexts_of(options: BuildOptions) -> list[str] | None:
    """The contexts of --contexts. Raises DataError."""
    if options.contexts is None:
        return None
    from polyrank.data.files import read_lines

    contexts = [line for _, line in read_lines(options.contexts) if line.strip()]
    if len(contexts) < FEWEST_CONTEXTS:
        raise DataError(
            f"There are {len(contexts)} contexts, and a recall is measured on {FEWEST_CONTEXTS} or "
            "more.",
            "Give more, or leave --contexts out.",
            path=options.contexts,
        )
    return contexts


def say_structure(search: Mapping[str, Any] | None, output: Output) -> None:
    """What approximate search will find."""
    if search is None:
        return
    if not search["rows"]:
        output.warn(f"So few candidates are searched exactly; no {search['kind']} was built.")
        return
    recall = search["recall"]
    output.say(
        f"{search['kind']}: recall@{recall['k']} {recall['measured']:.4f}, measured on "
        f"{recall['contexts']} contexts that were not tuned on ({recall['target']} was asked for)"
    )
    if recall["measured"] < recall["target"]:
        output.warn(
            f"The recall asked for, {recall['target']}, was not reached; give contexts like those "
            "that will be searched (--contexts), or use another --backend."
        )

"""`polyrank index`: candidates to an index folder, and changes of one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from polyrank.cli.command import command
from polyrank.cli.flags import flag_of
from polyrank.cli.options import ModelOptions, load, option, positional
from polyrank.cli.output import Output
from polyrank.errors import DataError, UsageError

FEWEST_CONTEXTS = 20
CHANGES = ("add", "delete", "compact", "verify")
OF_BUILDING = (
    "candidates",
    "encoded",
    "output",
    "storage",
    "copy_model",
    "backend",
    "recall",
    "contexts",
    "milvus_index",
)


@dataclass(frozen=True, kw_only=True)
class IndexOptions(ModelOptions):
    """Options of `polyrank index`."""

    model: Path = positional(
        "MODEL|INDEX",
        help="The folder of a saved bi- or poly-encoder to make an index with, or the folder of an "
        "index to change or verify.",
    )
    candidates: Path | None = option(
        None,
        help="Make an index of these candidates: one text per line, or JSONL of objects with text "
        "and, optionally, id and metadata.",
    )
    encoded: Path | None = option(
        None,
        help="Make an index of the parts that `polyrank encode` wrote to this folder; nothing is "
        "encoded.",
    )
    output: Path | None = option(
        None, help="The folder for the new index; an index there is replaced."
    )
    storage: Literal["float32", "bfloat16", "float16", "int8"] = option(
        "float32", help="How to store the vectors: in 4, 2, 2 or 1 bytes per component."
    )
    copy_model: bool = option(
        True, help="Keep a copy of the model in the index, or only a reference to its folder."
    )
    backend: str = option(
        "exact",
        metavar="BACKEND",
        help="exact; hnsw, ivf or ivfpq, which add approximate search; or a Milvus database that "
        "stores the candidates: milvus://HOST:PORT/COLLECTION, or a path ending in .db for an "
        "embedded one.",
    )
    recall: float = option(0.99, help="The recall@100 that hnsw, ivf and ivfpq are tuned for.")
    contexts: Path | None = option(
        None,
        help="Contexts for tuning and measuring that recall, one text per line; by default, texts "
        "of candidates.",
    )
    milvus_index: str = option(
        "HNSW",
        help="The index in Milvus: FLAT, which certifies exact searches fastest, HNSW, HNSW_SQ, "
        "IVF_FLAT, IVF_SQ8 or AUTOINDEX; with parameters as in HNSW:M=32,efConstruction=400.",
    )
    add: Path | None = option(
        None,
        help="Add the candidates in this file to the index: all of them or, if any fails, none.",
    )
    replace: bool = option(False, help="With --add: let candidates replace those with the same id.")
    delete: Path | None = option(
        None,
        help="Delete the candidates with the ids in this file, one per line: all of them or, if "
        "any is unknown, none.",
    )
    compact: bool = option(False, help="Free the space of deleted candidates and merge shards.")
    verify: bool = option(False, help="Compare every file of the index with its checksum.")


def interrupted(options: IndexOptions) -> str:
    """The words after Ctrl-C."""
    if options.output is None:
        return f"The index {options.model} is unchanged."
    made = "vectors made so far" if options.encoded is None else "encoded parts"
    return (
        f"What stood at {options.output} before is unchanged, and the {made} are kept: run the "
        "same command again to resume."
    )


@command("index", IndexOptions, interrupted=interrupted)
def index(options: IndexOptions, output: Output) -> None:
    """Encode candidates once and write them to an index that `polyrank search` opens.

    The file may be of any size. With --encoded, the parts that `polyrank encode` wrote become the
    index. An interrupted run resumes when it is started again.
    --add, --delete and --compact change an index. An interrupted change leaves the index as it was,
    and searches continue while a change runs.
    """
    change = change_of(options)
    if change is None:
        require_sources(options)
        build(options, output)
    else:
        require_change_alone(options, change)
        {"add": add, "delete": delete, "compact": compact, "verify": verify}[change](
            options, output
        )


def change_of(options: IndexOptions) -> str | None:
    """The change that is asked for; without one, an index is made. Raises UsageError for two."""
    chosen = [name for name in CHANGES if getattr(options, name) not in (None, False)]
    if len(chosen) > 1:
        raise UsageError(
            f"--{chosen[0]} and --{chosen[1]} are two changes.", "Run one after the other."
        )
    if options.replace and chosen != ["add"]:
        raise UsageError("--replace goes with --add only.", "Leave it out.")
    return chosen[0] if chosen else None


def require_change_alone(options: IndexOptions, change: str) -> None:
    """Raise UsageError for options that only make sense for a new index."""
    standard = IndexOptions(model=options.model)
    for name in OF_BUILDING:
        if getattr(options, name) != getattr(standard, name):
            flag = "--no-copy-model" if name == "copy_model" else flag_of(name)
            raise UsageError(
                f"{flag} is for making an index, and --{change} changes one.",
                f"Leave one of them out; --{change} needs the folder of an index only.",
            )


def require_sources(options: IndexOptions) -> None:
    """Raise UsageError for options that do not say what to make an index of."""
    if options.candidates is not None and options.encoded is not None:
        raise UsageError(
            "--candidates and --encoded are two sources of an index.", "Leave one of them out."
        )
    if options.encoded is not None and options.storage != IndexOptions.storage:
        raise UsageError(
            "--storage was chosen when the parts of --encoded were made.", "Leave it out."
        )
    for name in ("candidates", "output"):
        if getattr(options, name) is None and (name == "output" or options.encoded is None):
            raise UsageError(
                f"polyrank index: --{name} is required and missing.",
                "Give it; or, for an index that is there, one of: --add, --delete, --compact, "
                "--verify.",
            )


def build(options: IndexOptions, output: Output) -> None:
    """Make an index."""
    from polyrank.retrieval.index import Index

    assert options.output is not None
    model = load(options.model, options)
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
    output.say(f"{len(built):,} candidates in the index {options.output}, {seconds:.1f} s")
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


def contexts_of(options: IndexOptions) -> list[str] | None:
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


def add(options: IndexOptions, output: Output) -> None:
    """Add candidates to an index."""
    from polyrank.retrieval.index import Index

    assert options.add is not None
    started = time.perf_counter()
    with Index.open(
        options.model,
        device=options.device,
        dtype=options.dtype,
        batch_tokens=options.batch_tokens,
    ) as opened:
        before = len(opened)
        count = opened.add(options.add, replace=options.replace)
        now = len(opened)
    seconds = time.perf_counter() - started
    replaced = before + count - now
    output.say(
        f"{count:,} candidates added to the index {options.model}, {replaced:,} of them in the "
        f"place of others; it has {now:,}, {seconds:.1f} s"
    )
    output.result(
        {
            "index": options.model,
            "num_added": count,
            "num_replaced": replaced,
            "num_candidates": now,
            "seconds": seconds,
        }
    )


def delete(options: IndexOptions, output: Output) -> None:
    """Delete candidates from an index."""
    from polyrank.retrieval.index import delete_listed, open_engine

    assert options.delete is not None
    with contextlib.closing(open_engine(options.model)) as engine:
        count = delete_listed(engine, options.delete)
        left = len(engine)
    output.say(f"{count:,} candidates deleted from the index {options.model}; it has {left:,}")
    output.result({"index": options.model, "num_deleted": count, "num_candidates": left})


def compact(options: IndexOptions, output: Output) -> None:
    """Free the space of deleted candidates."""
    from polyrank.retrieval.index import open_engine

    with contextlib.closing(open_engine(options.model)) as engine:
        before = engine.num_bytes
        engine.compact()
        after = engine.num_bytes
        freed = None if before is None or after is None else before - after
        count = len(engine)
    what = "Milvus was asked to compact" if freed is None else f"{freed / 1e6:,.1f} MB freed"
    output.say(f"{what}; the index {options.model} has {count:,}")
    output.result({"index": options.model, "num_bytes_freed": freed, "num_candidates": count})


def verify(options: IndexOptions, output: Output) -> None:
    """Compare every file of an index with its checksum."""
    from polyrank.retrieval.index import open_engine

    with contextlib.closing(open_engine(options.model)) as engine:
        engine.verify()
        engine.refresh()
        result: dict[str, Any] = {"index": options.model, "num_candidates": len(engine)}
        manifest = engine.manifest
        what = "the collection, its index and its count are those that were made"
        if manifest is not None:
            files, size = len(manifest.files), engine.num_bytes or 0
            result |= {
                "num_files": files,
                "num_bytes": size,
                "generation": manifest.generation,
            }
            what = f"{files:,} files, {size / 1e6:,.1f} MB, are byte for byte what was written"
    output.say(
        f"The index {options.model} is intact: {what}; {result['num_candidates']:,} candidates"
    )
    output.result(result)

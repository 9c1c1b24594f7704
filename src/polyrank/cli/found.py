"""What a folder or a file is: a model, an index, a corpus, encoded parts, data, unfinished work.

Reads manifests and beginnings, no weights but for their checksum, and needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyrank.errors import DataError, PolyrankError
from polyrank.export_targets import EXPORTED
from polyrank.folder_files import read_object
from polyrank.jobs import UNFINISHED, is_work, work_beside
from polyrank.models.config import NAMES
from polyrank.models.source import is_parlai

NOTHING = "not a model, an index, a corpus, encoded parts, data or unfinished work. It seems to be "
TEXTS = (".txt", ".jsonl", ".ndjson")
"""The endings of files that may hold candidates."""
TABLES = (".csv", ".tsv", ".json", ".parquet")
"""The endings of other files that may hold examples."""
LARGEST_COUNTED = 1 << 28
"""Files with more bytes than this are described, but their records are not counted."""
TRAINED = ("steps", "pairs", "seconds", "best_step", "num_examples")
ORIGIN = ("base", "train", "dev", "command")
BEGINNINGS = {
    b"\x89PNG": "a PNG picture",
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a ZIP archive, or a document or checkpoint in one",
    b"\x7fELF": "a program",
    b"SQLite format 3": "an SQLite database",
}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What something is, and all that is known of it."""

    kind: str
    words: str
    """What it is, as a sentence says it: "a poly-encoder"."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """By the words for people; a mapping or a list is a row of its own."""
    hint: str = ""
    """What to do with it."""


def find(path: Path) -> Finding:
    """What lies at `path`. Raises PolyrankError where it is one of ours and damaged."""
    kinds: tuple[Callable[[Path], Finding | None], ...] = (
        a_model,
        an_index,
        a_corpus,
        encoded_parts,
        unfinished_work,
        a_comparison,
        an_export,
        another_model,
        data,
    )
    for kind in kinds:
        try:
            found = kind(path)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(
                f"What describes {path} is damaged: {type(error).__name__}: {error}.",
                "Make it again, or download it again.",
            ) from error
        if found is not None:
            return found
    return Finding(kind="unknown", words=NOTHING + seems(path))


def encoder_facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the description of an encoder says of it."""
    names = {
        "type": "model_type",
        "layers": "num_hidden_layers",
        "width": "hidden_size",
        "vocabulary": "vocab_size",
    }
    return {name: config[key] for name, key in names.items() if key in config}


def a_model(path: Path) -> Finding | None:
    """A saved polyrank model."""
    from polyrank.models.description import fingerprint_of, read_description
    from polyrank.models.engines.record import is_export, read_record

    described = read_description(path)
    if described is None:
        return None
    settings = described.settings
    facts: dict[str, Any] = {"settings": settings}
    words = f"a {NAMES[described.architecture]}"
    if described.architecture == "poly":
        words += f" with {settings['num_codes']} codes"
    elif described.architecture == "cross":
        words += f" with the task {settings['task']} and the head {settings['head']}"
    encoder = read_object(path / "backbone" / "config.json")
    facts["encoder"] = encoder_facts(encoder)
    if other := read_object(path / "candidate_backbone" / "config.json"):
        facts["candidate_encoder"] = encoder_facts(other)
    if described.architecture != "cross":
        layers = settings.get("dense") or [{"dimension": encoder.get("hidden_size")}]
        dimensions = settings.get("truncate_dim"), settings.get("projection")
        facts["dimension"] = next(filter(None, dimensions), layers[-1]["dimension"])
    facts["prompts"] = {
        side: settings[f"{side}_prompt"]
        for side in ("context", "candidate")
        if settings.get(f"{side}_prompt")
    }
    if described.classifier is not None:
        facts["classes"] = list(described.classifier["classes"])
    trained = read_object(path / "training.json")
    if trained:
        origin = trained.get("provenance", {})
        facts |= {name: origin[name] for name in ORIGIN if origin.get(name)}
        facts["trained"] = {name: trained[name] for name in TRAINED if name in trained}
        if trained.get("figures"):
            facts["dev figures"] = trained["figures"]
    if is_export(path):
        exported = read_record(path)
        words += f", exported for the engine {exported.engine}"
        facts["precision"] = exported.precision
        facts["graphs"] = {name: graph.file for name, graph in exported.graphs.items()}
        facts["exported from"] = exported.source.get("fingerprint")
        facts["versions"] = exported.versions
        facts["check"] = exported.check
    facts["bytes"] = size_of(path)
    facts["fingerprint"] = fingerprint_of(path) if described.adapters is None else merged(path)
    if beside := work_beside(path):
        facts["unfinished"] = str(beside)
    use = f"polyrank index build {path} --candidates FILE --output INDEX"
    if described.architecture == "cross":
        use = f'polyrank search INDEX "your text" --reranker {path}'
    return Finding(kind="model", words=words, facts=facts, hint=f"Use it with: {use}")


def merged(path: Path) -> str:
    """The fingerprint of a model that is saved without its base."""
    from polyrank.models.checkpoint import load_model

    return load_model(path, device="cpu", trainable=False).fingerprint()


def an_index(path: Path) -> Finding | None:
    """An index of candidates, in a folder or in Milvus."""
    from polyrank.retrieval.store.manifest import FORMAT, read_manifest

    plain = read_object(path / "manifest.json")
    if plain.get("format") != FORMAT:
        return None
    hint = f'Search it with: polyrank search {path} "your text"'
    if "milvus" in plain:
        facts = {"collection": plain["milvus"], "model": plain.get("model")}
        return Finding(
            kind="index", words="an index whose candidates lie in Milvus", facts=facts, hint=hint
        )
    manifest = read_manifest(path)
    rows = sum(shard.rows for shard in manifest.shards)
    search = manifest.search
    facts = {
        "candidates": manifest.count,
        "deleted": rows - manifest.count,
        "dimension": manifest.dimension,
        "storage": manifest.storage,
        "backend": "exact" if search is None else search["kind"],
        "metadata": dict(manifest.fields),
        "model": {
            "architecture": manifest.model.architecture,
            "num_vectors": manifest.model.num_vectors,
            "fingerprint": manifest.model.fingerprint,
            "folder": manifest.model.absolute or str(path / manifest.model.folder),
            "copied": manifest.model.absolute is None,
        },
        "shards": len(manifest.shards),
        "changes": manifest.generation,
        "bytes": sum(record.bytes for record in manifest.files.values()),
    }
    if search is not None and search.get("recall"):
        facts["recall"] = search["recall"]
    return Finding(
        kind="index", words=f"an index of {manifest.count:,} candidates", facts=facts, hint=hint
    )


def a_corpus(path: Path) -> Finding | None:
    """A corpus for pre-training."""
    from polyrank.pretraining.corpus.manifest import MANIFEST, read_manifest

    if not (path / MANIFEST).is_file():
        return None
    manifest = read_manifest(path)
    facts = {
        "language": manifest.language,
        "source": manifest.source.get("name"),
        "counts": dict(manifest.counts),
        "dropped": {reason: found.count for reason, found in manifest.dropped.items()},
        "damage": manifest.damage,
        "bytes": sum(part.bytes for part in manifest.parts),
        "fingerprint": manifest.fingerprint,
    }
    hint = f"Look at its pairs with: polyrank pretrain --corpus {path} --preview"
    return Finding(kind="corpus", words=f"a corpus of {manifest.kind}", facts=facts, hint=hint)


def encoded_parts(path: Path) -> Finding | None:
    """The parts of a bulk encoding."""
    from polyrank.retrieval.bulk.parts import finished_parts

    if not path.is_dir():
        return None
    parts = finished_parts(path)
    if not parts:
        return None
    job = next(iter(parts.values())).job
    missing = [index for index in range(job.num_parts) if index not in parts]
    facts = {
        "finished": len(parts),
        "missing": missing,
        "candidates": sum(part.rows for part in parts.values()),
        "of": job.source.rows,
        "source": job.source.path,
        "storage": job.storage,
        "dimension": job.dimension,
        "fingerprint": job.fingerprint,
        "bytes": size_of(path),
    }
    hint = f"Make an index of them with: polyrank index build MODEL --encoded {path} --output INDEX"
    if missing:
        hint = "Run the same polyrank encode again for the missing parts."
    words = f"{len(parts)} of {job.num_parts} encoded parts of candidates"
    return Finding(kind="encoded parts", words=words, facts=facts, hint=hint)


def unfinished_work(path: Path) -> Finding | None:
    """Work that was interrupted: its hidden folder, or the output that does not exist yet."""
    work = path if is_work(path) else None
    if work is None and not path.exists():
        work = work_beside(path)
    if work is None:
        return None
    match = UNFINISHED.fullmatch(work.name)
    assert match is not None
    facts: dict[str, Any] = {"output": str(work.with_name(match["name"])), "work": str(work)}
    journal = work / "journal.jsonl"
    if journal.is_file():
        facts["finished pieces"] = len(journal.read_bytes().splitlines())
    states = sorted(
        (read_object(state) for state in work.rglob("checkpoint-*/trainer_state.json")),
        key=lambda state: state.get("global_step", 0),
    )
    if states:
        facts |= {"step": states[-1].get("global_step"), "of": states[-1].get("max_steps")}
    facts["bytes"] = size_of(work)
    return Finding(
        kind="unfinished",
        words=f"the unfinished {match['doing']} of {match['name']}",
        facts=facts,
        hint="Run the command that began it again, and it resumes; --restart starts anew.",
    )


def a_comparison(path: Path) -> Finding | None:
    """What `polyrank compare` wrote."""
    compared = read_object(path / "comparison.json")
    if "models" not in compared:
        return None
    names = [model.get("name") for model in compared["models"]]
    facts = {"models": names, "data": compared.get("data"), "metric": compared.get("metric")}
    hint = f"Read {path / 'comparison.md'}."
    return Finding(
        kind="comparison", words=f"a comparison of {len(names)} models", facts=facts, hint=hint
    )


def an_export(path: Path) -> Finding | None:
    """What `polyrank export` wrote."""
    described = read_object(path / EXPORTED)
    architecture, target = described.get("architecture"), described.get("target")
    if architecture not in NAMES or target is None:
        return None
    facts = {name: described.get(name) for name in ("settings", "fingerprint", "polyrank_version")}
    return Finding(
        kind="export",
        words=f"a {NAMES[architecture]} exported for {target}",
        facts={**facts, "bytes": size_of(path)},
        hint="README.md says how to load it.",
    )


def another_model(path: Path) -> Finding | None:
    """An encoder or a model of sentence-transformers, which is a base to train from.

    Or a checkpoint of ParlAI, which becomes one.
    """
    if is_parlai(path):
        hint = f"Turn it into a model with: polyrank import {path} --output MODEL"
        return Finding(kind="checkpoint", words="a checkpoint of ParlAI", hint=hint)
    described = read_object(path / "config.json")
    stages = path / "modules.json"
    if "model_type" not in described and not stages.is_file():
        return None
    words = "a sentence-transformers model" if stages.is_file() else "an encoder of transformers"
    facts = encoder_facts(described) | {"bytes": size_of(path)}
    hint = f"Train from it with: polyrank train --base {path} --train FILE --output my-model"
    return Finding(kind="encoder", words=words, facts=facts, hint=hint)


def data(path: Path) -> Finding | None:
    """A file or a folder of examples, pairs, a retrieval set or candidates."""
    from polyrank.data.files import base_suffix
    from polyrank.data.format import Beginning
    from polyrank.data.loading import detect_format, load_records
    from polyrank.data.source import Source

    if path.is_file() and known_beginning(beginning(path)):
        return None
    source = Source(path=path)
    try:
        format = detect_format(source)
    except PolyrankError:
        return candidates(path)
    is_named = path.is_dir() or base_suffix(path) in (*TEXTS, *TABLES)
    if not is_named and not format.has_mark(Beginning(source)):
        return None
    facts: dict[str, Any] = {"format": format.name, "bytes": size_of(path)}
    if names := list(Beginning(source).values):
        facts["columns"] = names
    words = {"examples": "a file of examples", "pairs": "a file of labelled pairs"}
    if size_of(path) <= LARGEST_COUNTED:
        try:
            records = load_records(path)
        except PolyrankError as error:
            facts["problem"] = str(error)
        else:
            facts |= counts_of(records)
    hint = f"See how it is read with: polyrank train --train {path} --preview"
    return Finding(
        kind="data", words=words.get(format.gives, "a corpus with queries"), facts=facts, hint=hint
    )


def counts_of(records: Any) -> dict[str, int]:
    """How many records there are, by what they are."""
    from polyrank.records import RetrievalSet

    if isinstance(records, RetrievalSet):
        return {"queries": len(records.queries), "documents": len(records.corpus)}
    return {"records": len(records)}


def candidates(path: Path) -> Finding | None:
    """A file of candidates: one text per line, or JSONL."""
    from polyrank.data.candidates import read_candidates
    from polyrank.data.files import base_suffix

    is_text = path.is_file() and base_suffix(path) in TEXTS
    if not is_text or size_of(path) > LARGEST_COUNTED:
        return None
    try:
        count = sum(1 for _ in read_candidates(path))
    except PolyrankError:
        return None
    if not count:
        return None
    hint = (
        f"Make an index of them with: polyrank index build MODEL --candidates {path} --output INDEX"
    )
    facts = {"texts": count, "bytes": size_of(path)}
    return Finding(kind="candidates", words=f"a file of {count:,} texts", facts=facts, hint=hint)


def seems(path: Path) -> str:
    """What a file or folder that is none of ours seems to be."""
    if path.is_dir():
        names = sorted(each.name for each in path.iterdir())
        shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        return f"a folder of {shown}" if names else "an empty folder"
    begun = beginning(path)
    if not begun or (words := known_beginning(begun)):
        return words if begun else "an empty file"
    with suppress(UnicodeDecodeError):
        begun[:1000].decode(errors="strict")
        return "a text file"
    return "a binary file"


def beginning(path: Path) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as file:
        return file.read(1024)


def known_beginning(begun: bytes) -> str:
    """What a file is by its first bytes; nothing where they tell nothing."""
    return next((words for mark, words in BEGINNINGS.items() if begun.startswith(mark)), "")


def size_of(path: Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    if path.is_file():
        return path.stat().st_size
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())

"""Which files of a model are needed: descriptions, tokenisers, and weights without pickle.

Knows how models are laid out, by polyrank, transformers, sentence-transformers, model2vec and peft;
knows nothing of the hub. A folder may still be empty: what is needed then is what says the rest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from polyrank.errors import ModelError
from polyrank.folder_files import read_object
from polyrank.models.description import DESCRIPTION, SHARDS, WEIGHTS, shards_of
from polyrank.models.engines.record import EXPORT, read_record

ADAPTER = "adapter_config.json"
MODULES = "modules.json"
ROUTER = "router_config.json"
DESCRIPTIONS = (
    "config.json",
    DESCRIPTION,
    MODULES,
    ADAPTER,
    ROUTER,
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    EXPORT,
)
TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
)
VOCABULARIES = (
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "spiece.model",
    "sentencepiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
"""What a tokeniser is made of where there is no tokenizer.json."""
ADAPTER_WEIGHTS = "adapter_model.safetensors"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
WITH_WEIGHTS = ("Transformer", "Dense", "LayerNorm", "StaticEmbedding")
"""The modules of sentence-transformers that have weights; others are refused when they are read."""


def needed(folder: Path, names: Collection[str]) -> list[str]:
    """The files that the model in `folder` needs, as far as what is there already tells.

    `names` are all files that the model has, wherever they are, as paths with /. Ask again when the
    files are there, until nothing is new. Weights come last. Raises ModelError if weights are
    missing or can only be unpickled.
    """
    places = dict(places_of(folder))
    found = [file for place in places for file in read_first(place, names)]
    weights: list[str] = []
    for place, has_weights in places.items():
        if has_weights and all((folder / file).is_file() for file in found):
            weights += weights_of(folder, place, names)
    return list(dict.fromkeys([*found, *weights]))


def places_of(folder: Path) -> Iterator[tuple[str, bool]]:
    """The folders of a model that hold something, "" for its own, and whether they hold weights."""
    if (folder / DESCRIPTION).is_file():
        from polyrank.models.backbone import BACKBONE_FOLDER

        yield "", True
        yield BACKBONE_FOLDER, False
        yield f"candidate_{BACKBONE_FOLDER}", False
        adapters = read_object(folder / DESCRIPTION).get("adapters")
        if isinstance(adapters, dict):
            below = {str(each.get("folder")) for each in adapters.values()}
            yield from ((place, True) for place in sorted(below - {"."}))
        return
    modules = modules_in(folder)
    if modules is None:
        yield "", True
        return
    kinds = dict(modules)
    for place, kind in modules:
        routed = read_object(folder / place / ROUTER).get("types") if kind == "Router" else None
        if isinstance(routed, dict):
            kinds |= {join(place, name): kind_of(each) for name, each in routed.items()}
    yield "", kinds.get("") in WITH_WEIGHTS
    yield from ((place, kind in WITH_WEIGHTS) for place, kind in kinds.items() if place)


def modules_in(folder: Path) -> list[tuple[str, str]] | None:
    """The place and the kind of each module of sentence-transformers; None without modules."""
    if not (folder / MODULES).is_file():
        return None
    from polyrank.models.foreign.modules import read_modules

    return [(str(each["path"]), kind_of(each["type"])) for each in read_modules(folder / MODULES)]


def kind_of(name: Any) -> str:
    """The name of a module's class, without its package."""
    return str(name).rsplit(".", 1)[-1]


def read_first(place: str, names: Collection[str]) -> list[str]:
    """The descriptions and the tokeniser in a place."""
    wanted = [*DESCRIPTIONS, *TOKENIZER, SHARDS]
    if join(place, TOKENIZER[0]) not in names and join(place, DESCRIPTIONS[0]) in names:
        wanted += VOCABULARIES
    return [file for name in wanted if (file := join(place, name)) in names]


def weights_of(folder: Path, place: str, names: Collection[str]) -> list[str]:
    """The weights in a place, or the graphs that have them.

    Raises ModelError if there are none, or only pickled ones.
    """
    if not place and DESCRIPTION in names and EXPORT in names:
        return require_all(folder, sorted(read_record(folder).files), names)
    adapter = join(place, ADAPTER) in names
    whole, index = join(place, ADAPTER_WEIGHTS if adapter else WEIGHTS), join(place, SHARDS)
    if whole in names:
        is_own = adapter and join(place, DESCRIPTION) in names  # whose heads lie beside it
        return [whole, join(place, WEIGHTS)] if is_own else [whole]
    if index in names and not adapter:
        files = {join(place, file) for file in shards_of(folder / place).values()}
        if files:
            return require_all(folder, sorted(files), names)
    pickled = [each for each in names if each.endswith(PICKLES) and parent(each) == place]
    if pickled:
        raise ModelError(
            f"The model has its weights only in {sorted(pickled)[0]}, which is a pickle and could "
            "run code; polyrank reads safetensors.",
            "Give another revision, or convert it once where you trust it: "
            "AutoModel.from_pretrained(NAME).save_pretrained(FOLDER), and AutoTokenizer likewise.",
        )
    raise ModelError(
        f"There is no {whole}, so the model has no weights that polyrank reads.",
        "Check the name, or give the folder of an encoder or a saved model.",
    )


def require_all(folder: Path, files: list[str], names: Collection[str]) -> list[str]:
    """The files of weights. Raises ModelError if some are missing."""
    missing = [file for file in files if file not in names]
    if not missing:
        return files
    raise ModelError(
        f"Of the model in {folder}, {len(missing)} of {len(files)} files of weights are missing, "
        f"{missing[0]} among them.",
        "Download it again, or ask its authors.",
    )


def join(place: str, name: str) -> str:
    """A file in a place, as a path with /."""
    return f"{place}/{name}" if place else name


def parent(file: str) -> str:
    """The place of a file."""
    return file.rpartition("/")[0]

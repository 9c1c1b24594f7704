"""From a folder or a hub id to a model of any architecture.

The one place that knows all three architectures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from polyrank.errors import ModelError
from polyrank.models.base import Model
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.folder import DESCRIPTION, read_description
from polyrank.models.poly_encoder import PolyEncoder

ARCHITECTURES: dict[str, type[Model]] = {
    "bi": BiEncoder,
    "poly": PolyEncoder,
    "cross": CrossEncoder,
}


def load_model(
    path: str | Path,
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    **settings: Any,
) -> Model:
    """The saved model in a folder, whichever its architecture.

    A folder or hub id of a plain encoder or of sentence-transformers is taken as a bi-encoder
    only if it says how it pools. Raises ModelError if there is no model.
    """
    folder = Path(path)
    description = read_description(folder)
    if description is not None:
        model_class = ARCHITECTURES[description.architecture]
        return model_class.from_pretrained(folder, device=device, dtype=dtype, **settings)
    if (folder / "modules.json").is_file():
        return BiEncoder.from_pretrained(folder, device=device, dtype=dtype, **settings)
    if not folder.exists():
        raise ModelError(f"There is no model at {path}.", "Check the path of the folder.")
    raise ModelError(
        f"{path} is no saved model: it has no {DESCRIPTION}.",
        "Give a folder that `polyrank train` or save_pretrained wrote, or that of a "
        "sentence-transformers model.",
    )

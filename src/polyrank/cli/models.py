"""What commands that run a model share: where, how precisely, how much at once, and loading it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from polyrank.cli.options import DeviceOptions, option
from polyrank.config import require


@dataclass(frozen=True, kw_only=True)
class ModelOptions(DeviceOptions):
    """Options of every command that runs a model. Inherit from it."""

    dtype: Literal["auto", "float32", "bfloat16"] = option(
        "auto", help="Precision of inference; auto is bfloat16 where the hardware has it."
    )
    batch_tokens: int | None = option(
        None, help="Tokens of one batch, padding included; the model's own by default."
    )

    def __post_init__(self) -> None:
        tokens = self.batch_tokens
        require(tokens is None or tokens >= 1, "--batch-tokens", "at least 1", tokens)


def load(path: Path, options: ModelOptions) -> Any:
    """The saved model in a folder, of any architecture, placed as the options say.

    Raises ModelError or UsageError.
    """
    from polyrank.models.checkpoint import load_model

    model = load_model(path, device=options.device, dtype=options.dtype)
    set_batch_tokens(model, options)
    return model


def set_batch_tokens(model: Any, options: ModelOptions) -> None:
    """Cut the model's batches as the options say, if they do."""
    if options.batch_tokens is not None:
        model.token_budget = options.batch_tokens

"""How a model computes: its encoders, device and precision, its batches, what runs them.

Knows nothing of how a score is formed, nor of folders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn

from polyrank.config import require_whole
from polyrank.errors import UsageError
from polyrank.models.answers import Answering
from polyrank.models.backbone import (
    Backbone,
)
from polyrank.models.engines.engine import Engine
from polyrank.models.inference import inference_copy, optimizer_steps
from polyrank.progress import bar
from polyrank.records import Context
from polyrank.runtime import peak_memory, resolve_device, resolve_dtype
from polyrank.tokens.batching import Batch, collate, planned
from polyrank.tokens.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from typing_extensions import Self


class Computing(Answering):
    """Base of a model: the encoders and what runs them, torch or an engine.

    Parameters are float32, ready to train, unless they are kept in 16 bits for inference alone.
    Inference runs in `compute_dtype` on copies that are made when first needed and dropped when the
    parameters change.
    """

    config: Any
    tower_names: ClassVar[tuple[str, ...]]

    def __init__(
        self, tokenizer: TextTokenizer, candidate_tokenizer: TextTokenizer | None = None
    ) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.candidate_tokenizer = candidate_tokenizer or tokenizer
        self.path: Path | None = None
        self.batch_tokens: int = 4096
        self.compute_dtype = torch.float32
        self.engine: Engine | None = None
        self._copies: dict[str, tuple[int, nn.Module]] = {}

    @property
    def device(self) -> torch.device:
        """The device of the parameters, or of what an engine takes."""
        if self.engine is not None:
            return self.engine.device
        return next(self.parameters()).device

    @property
    def towers(self) -> list[Backbone]:
        """The model's encoders: one, or one per side."""
        children = dict(self.named_children())
        return [cast("Backbone", children[name]) for name in self.tower_names if name in children]

    def place(self, device: str | torch.device, dtype: str | torch.dtype) -> None:
        """Move to a device (`auto`: an accelerator if there is one) and choose the precision of
        inference (`auto`: bfloat16 where the hardware has it).
        """
        self.require_weights("be moved")
        resolved = resolve_device(device)
        self.compute_dtype = resolve_dtype(dtype, resolved)
        self.to(resolved)
        self._copies.clear()

    def initialise(self) -> None:
        """Draw the weights that the encoders do not have; called once for every new model."""

    def train(self, mode: bool = True) -> Self:
        """Set training mode, which drops the copies made for inference.

        Raises UsageError for a model that an engine runs.
        """
        if mode:
            self.require_weights("be trained")
            self._copies.clear()
        return super().train(mode)

    def context_ids(self, contexts: Sequence[Context]) -> list[list[int]]:
        """The token ids of each context on its own, cut as the settings say."""
        config = self.config
        return self.tokenizer.contexts(
            contexts,
            config.max_context_length,
            config.context_truncation,
            config.context_prompt,
            separator=config.turn_separator,
            max_turns=config.max_turns,
        )

    def candidate_ids(self, texts: Sequence[Context]) -> list[list[int]]:
        """The token ids of each candidate on its own, cut as the settings say."""
        config = self.config
        return self.candidate_tokenizer.candidates(
            texts,
            config.max_candidate_length,
            config.candidate_truncation,
            config.candidate_prompt,
            separator=config.turn_separator,
            cut_end=config.cut_candidate_end,
        )

    def weights_state(self) -> int:
        """A number that changes whenever a parameter is written."""
        versions = tuple(
            (id(p), p.data_ptr(), 0 if p.is_inference() else p._version) for p in self.parameters()
        )
        return hash((optimizer_steps(), versions))

    def num_parameters(self) -> int:
        """The number of parameters; of an exported model, of the one it was exported from."""
        if self.engine is not None:
            return self.engine.record.num_parameters
        return sum(parameter.numel() for parameter in self.parameters())

    def require_weights(self, purpose: str) -> None:
        """Raise UsageError for an exported model, which has no weights; it cannot `purpose`."""
        if self.engine is not None:
            raise UsageError(
                f"The model {self.path or ''} is run by the engine {self.engine.name}, so it has "
                f"no weights and cannot {purpose}.".replace("  ", " "),
                "Take the model that it was exported from.",
            )

    def reader(self, graph: str) -> Callable[[Batch], Tensor]:
        """What makes of a batch the results that `graph` names (see `engines.record`)."""
        if self.engine is not None:
            return partial(self.engine.run, graph)
        return self.torch_reader(graph)

    def graph_names(self) -> tuple[str, ...]:
        """The graphs that give all its results (see `engines.record`)."""
        raise TypeError(f"{type(self).__name__} does not say which graphs it has.")

    def torch_reader(self, graph: str) -> Callable[[Batch], Tensor]:
        """The `reader` of torch's modules."""
        raise TypeError(f"{type(self).__name__} does not say what {graph} is.")

    def for_inference(self, name: str, *, dtype: torch.dtype | None = None) -> nn.Module:
        """The copy of the submodule `name` that inference runs on.

        Raises UsageError for a model that an engine runs.
        """
        self.require_weights(f"give its {name}")
        state = self.weights_state()
        own = self.get_submodule(name)
        name = next((n for n in self.tower_names if getattr(self, n, None) is own), name)
        known = self._copies.get(name)
        if known is None or known[0] != state:
            copied = inference_copy(own, dtype or self.compute_dtype, self.batch_tokens)
            self._copies[name] = (state, copied)
        return self._copies[name][1]

    def batched(
        self,
        sequences: Sequence[Sequence[int]],
        segments: Sequence[Sequence[int]] | None = None,
        *,
        description: str | None = None,
        unit: str = "texts",
        batch_size: int | None = None,
        tokenizer: TextTokenizer | None = None,
    ) -> Iterator[tuple[Tensor, Batch]]:
        """Yield (rows, batch) over all sequences, where the model computes.

        Args:
            sequences: Token ids.
            segments: The segment of each token, where there are two texts.
            description: What the progress is called; None shows none.
            unit: What the progress counts.
            batch_size: Rows of a batch; by default, a batch has `batch_tokens` padded tokens.
            tokenizer: What made the ids; by default, the tokeniser of the contexts.

        Yields:
            The places of some sequences, and their batch.
        """
        size = None if batch_size is None else require_whole("batch_size", batch_size)
        padding = (tokenizer or self.tokenizer).padding
        groups = planned(sequences, padding, self.batch_tokens, size)
        memory = partial(peak_memory, self.device)
        with bar(description, total=len(sequences), unit=unit, memory=memory) as advance:
            for rows in groups:
                batch = collate(sequences, rows, padding, segments)
                moved = {name: tensor.to(self.device) for name, tensor in batch.items()}
                yield moved["rows"], moved
                advance(len(rows))

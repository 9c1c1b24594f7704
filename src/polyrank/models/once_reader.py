"""The part of a cross-encoder that reads a context once for all its candidates.

Letters: C candidates of a batch, n pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from polyrank.config import require_whole
from polyrank.models.answers import key_of
from polyrank.models.backbone import Backbone
from polyrank.models.base import Model
from polyrank.models.config import CrossEncoderConfig
from polyrank.models.engines.engine import Engine
from polyrank.models.inputs import Pair
from polyrank.models.interaction import CLOSED, InteractionHead
from polyrank.models.once import (
    KeptContexts,
    Laid,
    lay_out,
    read_candidates,
    read_contexts,
    read_together,
)
from polyrank.models.pooling import reduce
from polyrank.progress import bar
from polyrank.records import Context
from polyrank.tokens.batching import Batch, batches
from polyrank.tokens.grouping import Grouped


class OnceReader(Model):
    """Reads contexts once, with blocks of their candidates (`models.once`)."""

    config: CrossEncoderConfig
    tower: Backbone
    candidate_tower: Backbone | None
    head: nn.Module
    has_segments: bool

    @property
    def reads_texts_apart(self) -> bool:
        """Whether it compares texts token by token (`models.interaction`)."""
        return self.config.head == "interaction"

    @property
    def is_gate_closed(self) -> bool:
        """Whether it scores texts nearly as if each was read apart."""
        head = self.head
        return isinstance(head, InteractionHead) and float(head.gate.detach().max()) <= CLOSED

    @property
    def reads_once(self) -> bool:
        """Whether it reads a context once for all its candidates (`models.once`)."""
        return self.config.reading == "once"

    def graph_names(self) -> tuple[str, ...]:
        """The graphs of a context and of its candidates, or of pairs."""
        return ("kept", "block") if self.reads_once else ("pair",)

    def grouped(
        self,
        contexts: Sequence[Context],
        candidates: Sequence[str],
        budget: int,
        size: int | None = None,
    ) -> Grouped:
        """Pairs as contexts, each of which stands once, with their candidates.

        Args:
            contexts: The context of each pair.
            candidates: The candidate of each pair.
            budget: About how many tokens a block has; one whose context sees its candidates has
                all of them.
            size: The number of candidates of a block, whatever its tokens.

        Returns:
            Token ids, planned in groups.
        """
        places: dict[Any, int] = {}
        owners = [places.setdefault(key_of(context), len(places)) for context in contexts]
        read = self.context_ids(list(places)), self.candidate_ids(candidates)
        whole = self.config.context_sees_candidates
        return Grouped(*read, owners, budget, size, whole=whole)

    def read_once(
        self,
        tower: Backbone,
        candidate_tower: Backbone | None,
        head: nn.Module,
        batch: Batch,
        kept: KeptContexts | None = None,
    ) -> tuple[Tensor, KeptContexts | None]:
        """The scores of a batch of contexts with their candidates.

        Args:
            tower: As for `read`.
            candidate_tower: As for `read`.
            head: As for `read`.
            batch: Contexts with a block of their candidates (`tokens.grouping`).
            kept: What was kept of the contexts when an earlier block was read.

        Returns:
            (C,), in float32 from the outputs on; and what may be kept of the contexts, which is
            nothing where they see their candidates.
        """
        laid = lay_out(batch, continued=not self.reads_texts_apart)
        return self.read_laid(tower, candidate_tower, head, batch, laid, kept)

    def read_laid(
        self,
        tower: Backbone,
        candidate_tower: Backbone | None,
        head: nn.Module,
        batch: Batch,
        laid: Laid,
        kept: KeptContexts | None,
    ) -> tuple[Tensor, KeptContexts | None]:
        """`read_once` of a batch that is laid out.

        Args:
            tower: As for `read`.
            candidate_tower: As for `read`.
            head: As for `read`.
            batch: The token ids; of the contexts only if nothing was kept.
            laid: Where the tokens stand.
            kept: As for `read_once`.

        Returns:
            As `read_once`.
        """
        second = candidate_tower or tower
        apart = head if isinstance(head, InteractionHead) else None
        gates = None if apart is None else apart.gate
        segment = int(self.has_segments and apart is None)
        if self.config.context_sees_candidates:
            left, right = read_together(tower, second, batch, laid, gates, segment)
        else:
            kept = read_contexts(tower, batch, laid) if kept is None else kept
            left, right = kept.outputs, read_candidates(second, batch, laid, kept, gates, segment)
        with torch.autocast(self.device.type, enabled=False):
            left, right = (
                each.to(torch.promote_types(each.dtype, torch.float32)) for each in (left, right)
            )
            if apart is not None:
                return apart.score_own(left, right, laid), kept
            rows = laid.candidates
            scores: Tensor = head(reduce(rows.padded(right), rows.real, self.config.reduction))
            return scores[:, 0], kept

    def scores_read_once(
        self, pairs: Sequence[Pair], *, batch_size: int | None, show_progress_bar: bool
    ) -> Tensor:
        """The score of each pair, from one reading of each context: (n,); `outputs_of_pairs`."""
        size = None if batch_size is None else require_whole("batch_size", batch_size)
        contexts, candidates = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        grouped = self.grouped(contexts, candidates, self.batch_tokens, size)
        scores = torch.zeros(len(pairs))
        described = "Scoring pairs" if show_progress_bar else None
        with bar(described, total=len(pairs), unit="pairs") as advance:
            for rows, found in self.read_groups(grouped):
                scores[rows] = found
                advance(len(rows))
        return scores

    def read_groups(self, grouped: Grouped) -> Iterator[tuple[Tensor, Tensor]]:
        """The scores of contexts' candidates, from one reading of each context.

        Args:
            grouped: Contexts and their candidates, as `grouped` gives them.

        Yields:
            The places of some candidates and their scores, on the CPU.
        """
        if self.engine is not None:
            yield from self.run_groups(grouped, self.engine)
            return
        modules = self.inference_modules()
        for group in grouped.groups:
            kept: KeptContexts | None = None
            for block in group.blocks:
                batch = grouped.batch(group, block)
                moved = {name: tensor.to(self.device) for name, tensor in batch.items()}
                with torch.inference_mode():
                    found, kept = self.read_once(*modules, moved, kept)
                yield batch["rows"], found.cpu()

    def run_groups(self, grouped: Grouped, engine: Engine) -> Iterator[tuple[Tensor, Tensor]]:
        """`read_groups` by an engine, which reads one context at a time and padded candidates.

        Args:
            grouped: As for `read_groups`.
            engine: Runs the graphs `kept` and `block`.

        Yields:
            As `read_groups`.
        """
        for group in grouped.groups:
            kept = [
                engine.run("kept", {"input_ids": torch.tensor([grouped.contexts[place]])})
                for place in group.contexts
            ]
            for block in group.blocks:
                for place, states in zip(group.contexts, kept, strict=True):
                    rows = [row for row in block if grouped.owners[row] == place]
                    ids = [grouped.candidates[row] for row in rows]
                    for batch in batches(ids, self.tokenizer.pad_id, budget=self.batch_tokens):
                        scores = engine.run("block", {"kept": states, **batch})
                        yield torch.tensor(rows)[batch["rows"]], scores

    def inference_modules(self) -> tuple[Any, Any, Any]:
        """The copies of the encoders and the head that inference runs on."""
        head = self.for_inference("head", dtype=torch.float32)
        names = ["tower"] if self.candidate_tower is None else ["tower", "candidate_tower"]
        towers: list[Any] = [self.for_inference(name) for name in names]
        return towers[0], towers[1] if len(towers) > 1 else None, head

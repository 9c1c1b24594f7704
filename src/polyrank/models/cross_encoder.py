"""The cross-encoder: it reads both texts together and has no vectors.

Letters: B pairs of a batch, T tokens, h width of the encoder, n pairs, L labels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from polyrank.errors import UsageError
from polyrank.models.backbone import Backbone, twin_of
from polyrank.models.bert import BERTS
from polyrank.models.config import ClassifierConfig, CrossEncoderConfig
from polyrank.models.heads import DenseHead, PoolerHead, ScoreHead
from polyrank.models.inputs import (
    Candidates,
    Contexts,
    Pair,
    as_candidates,
    as_contexts,
    is_vectors,
)
from polyrank.models.interaction import InteractionHead, read_side_by_side, sides_of
from polyrank.models.layers import STEPWISE, gates_of, require_kind
from polyrank.models.once_reader import OnceReader
from polyrank.models.pooling import reduce
from polyrank.records import Context
from polyrank.tokens.batching import Batch, batches, in_order, mask_of
from polyrank.tokens.tokenizer import TextTokenizer

Encoded = tuple[list[list[int]], list[list[int]] | None]
"""Token ids and, if the encoder has segments, segment ids of each pair."""


class CrossEncoder(OnceReader):
    """Reads a context and a candidate together; ranks, classifies or regresses."""

    config: CrossEncoderConfig
    architecture = "cross"
    tower_names = ("tower", "candidate_tower")

    def __init__(
        self, backbone: Backbone, tokenizer: TextTokenizer, config: CrossEncoderConfig
    ) -> None:
        super().__init__(tokenizer)
        assert "auto" not in (config.head, config.reading), "chosen where the base is known"
        self.config = config
        tokenizer.prompt_length(config.context_prompt, config.max_context_length)
        tokenizer.prompt_length(config.candidate_prompt, config.max_candidate_length)
        self._classes: ClassifierConfig | None = None
        if config.task == "classify":
            self._classes = ClassifierConfig(classes=tuple(map(str, range(config.num_labels))))
        self.has_segments = backbone.has_segments
        self.tower = backbone
        self.candidate_tower = None if config.shared_towers else twin_of(backbone)
        self.head: nn.Module
        if self.reads_once:
            require_kind(backbone, STEPWISE, "reading = once", "reading = pairs")
        elif self.reads_texts_apart:
            require_kind(backbone, BERTS, "head = interaction", "head = linear")
        if self.reads_texts_apart:
            shape = gates_of(backbone) if self.reads_once else ()
            self.head = InteractionHead(backbone.width, config.gate, shape, config.num_codes)
            return
        width, dropout = backbone.width, config.head_dropout
        outputs = config.num_labels if config.task == "classify" else 1
        if config.head == "pooler":
            norm = config.head_norm
            self.head = PoolerHead(width, outputs, dropout, config.head_activation, has_norm=norm)
        elif config.task == "rank":
            self.head = ScoreHead(width, dropout)
        else:
            self.head = DenseHead(width, outputs, dropout)

    def initialise(self) -> None:
        """Draw codes for the norm of this encoder's outputs."""
        if isinstance(self.head, InteractionHead):
            self.head.reset_codes(self.tower.output_norm())

    @property
    def classifier_config(self) -> ClassifierConfig | None:
        """The settings of the classes; None for another task."""
        return self._classes

    def take_classifier(self, config: ClassifierConfig) -> None:
        """Name the classes of the head. Raises UsageError if their number differs."""
        has = self.config.num_labels if self.config.task == "classify" else 0
        if len(config.classes) != has:
            raise UsageError(
                f"The classes {', '.join(config.classes)} were given to a cross-encoder that has "
                f"{has} classes.",
                f"Give it task = classify and num_labels = {len(config.classes)}.",
            )
        self._classes = config

    def pair_batches(
        self, contexts: Sequence[Context], candidates: Sequence[str], budget: int
    ) -> list[Batch]:
        """Pairs as the batches that `forward` takes.

        Args:
            contexts: The context of each pair.
            candidates: The candidate of each pair.
            budget: About how many tokens a batch has.

        Returns:
            Batches of pairs cut by length; of a model that reads a context once, of contexts with
            their candidates (`tokens.grouping`).
        """
        if not self.reads_once:
            ids, segments = self.encode_pairs(contexts, candidates)
            return batches(ids, self.tokenizer.pad_id, segments=segments, budget=budget)
        grouped = self.grouped(contexts, candidates, budget)
        return [grouped.batch(group, block) for group in grouped.groups for block in group.blocks]

    def encode_pairs(self, contexts: Sequence[Context], candidates: Sequence[str]) -> Encoded:
        """Token ids and segment ids of each pair; a repeated text is tokenised once.

        Turns are joined by the separator. Each text is cut to its own length, however short the
        other is.
        """
        config = self.config
        if self.reads_texts_apart:
            both = list(
                zip(self.context_ids(contexts), self.candidate_ids(candidates), strict=True)
            )
            return [a + b for a, b in both], [[0] * len(a) + [1] * len(b) for a, b in both]
        left = self.tokenizer.cut_contexts(
            contexts,
            config.max_context_length,
            config.context_truncation,
            config.context_prompt,
            separator=config.turn_separator,
            max_turns=config.max_turns,
        )
        longest = config.max_candidate_length
        end = len(self.tokenizer.pair.suffix) if config.cut_candidate_end else 0
        right = self.tokenizer.cut_contexts(
            candidates,
            longest + end,
            config.candidate_truncation,
            config.candidate_prompt,
            separator=config.turn_separator,
        )
        pairs = [
            self.tokenizer.join(first, second, has_end=len(second) <= longest)
            for first, second in zip(left, right, strict=True)
        ]
        ids = [pair[0] or [self.tokenizer.pad_id] for pair in pairs]
        return ids, [pair[1] or [0] for pair in pairs] if self.has_segments else None

    def read(
        self, tower: Backbone, candidate_tower: Backbone | None, head: nn.Module, batch: Batch
    ) -> Tensor:
        """The scores or logits of a batch of pairs.

        Args:
            tower: The encoder: the model's own, or a copy of it made for inference.
            candidate_tower: The encoder of the candidates, where they are read apart by one of
                their own.
            head: What makes scores of the outputs.
            batch: The pairs.

        Returns:
            (B,), or (B, L) for classes, in float32 from the outputs on.
        """
        if isinstance(head, InteractionHead):
            outputs = read_side_by_side(tower, candidate_tower or tower, batch, head.gate)
        else:
            outputs = tower(batch)
        with torch.autocast(self.device.type, enabled=False):
            outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
            if isinstance(head, InteractionHead):
                return head(outputs, sides_of(batch))[:, 0]
            result: Tensor = head(reduce(outputs, mask_of(batch), self.config.reduction))
            return result if self.config.task == "classify" else result[:, 0]

    def forward(self, pairs: list[Batch]) -> Tensor:
        """Scores with gradients, of batches cut by length: (n,), or (n, L) for classes."""
        modules = self.tower, self.candidate_tower, self.head
        if self.reads_once:
            return in_order([self.read_once(*modules, batch)[0] for batch in pairs], pairs)
        return in_order([self.read(*modules, batch) for batch in pairs], pairs)

    def score(
        self,
        contexts: Contexts,
        candidates: Candidates,
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
    ) -> Tensor:
        """Score every context against every candidate; each pair is read together.

        Args:
            contexts: One text, or a list of contexts: texts, and dialogues as lists of turns,
                oldest first.
            candidates: One text, or a list of texts.
            batch_size: Pairs in one batch. By default, batches are cut by `batch_tokens`.
            show_progress_bar: Show progress if it takes more than two seconds.

        Returns:
            float32, (B, N), on the CPU; (N,) for one context, (B,) for one candidate, () for one
            of each.

        Raises:
            UsageError: The arguments are not texts, or the model gives classes instead of scores.
        """
        for name, given in (("contexts", contexts), ("candidates", candidates)):
            if is_vectors(given):
                raise UsageError(
                    f"A cross-encoder scores texts, but the {name} are vectors.",
                    "Give the texts, or score with the bi- or poly-encoder that made the vectors.",
                )
        listed, one_context = as_contexts(contexts)
        texts, one_candidate = as_candidates(candidates)
        scores = self.scores_of_pairs(
            [(context, text) for context in listed for text in texts],
            batch_size=batch_size,
            show_progress_bar=show_progress_bar,
        ).view(len(listed), len(texts))
        scores = scores[:, 0] if one_candidate else scores
        return scores[0] if one_context else scores

    def scores_of_pairs(self, pairs: Sequence[Pair], **options: Any) -> Tensor:
        """The score of each pair: (n,). Raises UsageError for a model with classes."""
        self.require_scores()
        return self.outputs_of_pairs(pairs, (), **options)

    def logits_of_pairs(self, pairs: Sequence[Pair], **options: Any) -> Tensor:
        """The logits of the classes of each pair: (n, L)."""
        return self.outputs_of_pairs(pairs, (self.config.num_labels,), **options)

    def require_scores(self) -> None:
        """Raise UsageError for a model that gives classes."""
        if self.config.task == "classify":
            raise UsageError(
                "A cross-encoder with classes has no single score for a pair.",
                "Use classify or class_probabilities, or train one with task='rank'.",
            )

    def require_classes(self) -> None:
        """Raise UsageError for a task other than classes."""
        if self.config.task != "classify":
            raise UsageError(
                f"The cross-encoder has task = {self.config.task}, so it has no classes.",
                "Train one on labelled pairs with classes, with task = classify.",
            )

    def outputs_of_pairs(
        self,
        pairs: Sequence[Pair],
        shape: tuple[int, ...],
        *,
        batch_size: int | None = None,
        show_progress_bar: bool = False,
    ) -> Tensor:
        """The head's output for each pair.

        Args:
            pairs: n pairs of a context and a candidate.
            shape: The shape of what the head makes of one pair.
            batch_size: Pairs of a batch; by default, a batch has `batch_tokens` padded tokens.
            show_progress_bar: Show the progress of the scoring.

        Returns:
            (n, *shape), float32, on the CPU.
        """
        if self.reads_once:
            return self.scores_read_once(
                pairs, batch_size=batch_size, show_progress_bar=show_progress_bar
            )
        read = self.reader("pair")
        ids, segments = self.encode_pairs([pair[0] for pair in pairs], [pair[1] for pair in pairs])
        outputs = torch.zeros(len(ids), *shape)
        described = "Scoring pairs" if show_progress_bar else None
        batches = self.batched(
            ids, segments, description=described, unit="pairs", batch_size=batch_size
        )
        with torch.inference_mode():
            for rows, batch in batches:
                outputs[rows.cpu()] = read(batch).cpu()
        return outputs

    def torch_reader(self, graph: str) -> Callable[[Batch], Tensor]:
        """What makes scores or logits of a batch of pairs."""
        modules = self.inference_modules()
        return lambda batch: self.read(*modules, batch)

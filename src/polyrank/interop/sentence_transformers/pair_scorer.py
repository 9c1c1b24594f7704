"""A whole polyrank model as one module of sentence-transformers, which scores pairs.

sentence-transformers imports this module when it loads an export of a poly-encoder, or of a
cross-encoder that it cannot express; polyrank itself does not. It knows every architecture with
`forward` for pairs of batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.models import InputModule
from torch import Tensor

from polyrank.tokens.batching import Batch, collate

SIDES = ("context", "candidate")
NO_LIMIT = 2**62
"""Tokens of a batch, where the library has chosen its pairs."""


class PairScorer(InputModule):
    """Reads pairs of texts and gives their scores, (B, 1), in float32 with gradients.

    The first text of a pair may be a list of turns.
    """

    save_in_root = False

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @property
    def tokenizer(self) -> Any:
        """The tokeniser of `transformers`."""
        return self.model.tokenizer.pretrained

    @property
    def max_seq_length(self) -> int:
        """The maximum tokens of both texts together, without special ones."""
        config = self.model.config
        return int(config.max_context_length + config.max_candidate_length)

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **options: Any
    ) -> dict[str, Tensor]:
        """The token ids of pairs: of both texts together, or of each on its own. Where a context is
        read once, it stands once for all its candidates of the batch.

        Args:
            inputs: Pairs.
            prompt: A text to put before the first of each pair.
            **options: Nothing that matters here.

        Returns:
            Tensors by name.
        """
        contexts = [with_prompt(pair[0], prompt or "") for pair in inputs]
        candidates = [str(pair[1]) for pair in inputs]
        rows = np.arange(len(inputs))
        model = self.model
        if model.architecture == "cross" and model.reads_once:
            (batch,) = model.pair_batches(contexts, candidates, NO_LIMIT)
            return dict(batch)
        if model.architecture == "cross":
            ids, segments = model.encode_pairs(contexts, candidates)
            return collate(ids, rows, model.tokenizer.padding, segments)
        both = (
            (model.context_ids(contexts), model.tokenizer),
            (model.candidate_ids(candidates), model.candidate_tokenizer),
        )
        return {
            f"{side}_{name}": tensor
            for side, (ids, tokenizer) in zip(SIDES, both, strict=True)
            for name, tensor in collate(ids, rows, tokenizer.padding).items()
        }

    def forward(self, features: dict[str, Any], **options: Any) -> dict[str, Any]:
        """Add the scores of the pairs to `features`."""
        model = self.model
        if model.architecture == "cross":
            scores = model([features])
        else:
            context, candidate = (side_of(features, side) for side in SIDES)
            tower = model.candidate_tower or model.context_tower
            with torch.autocast(model.device.type, enabled=False):
                left = model.finish_contexts(model.context_tower(context).float(), context)
                right = model.finish_candidates(tower(candidate).float(), candidate)
            scores = model.score_each(left, right[:, None])[:, 0]
        return {**features, "scores": scores[:, None]}

    def save(self, output_path: str, *arguments: Any, **options: Any) -> None:
        """Write the model folder."""
        self.model.save_copy(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> PairScorer:
        """Load what `save` wrote, from a folder or the hub; computes in float32.

        Args:
            model_name_or_path: The folder, or the id on the hub.
            subfolder: The folder of this module in it.
            **options: Where the library looks: token, cache_folder, revision, local_files_only.

        Returns:
            The module.
        """
        from polyrank.models.checkpoint import load_model

        places = ("token", "cache_folder", "revision", "local_files_only")
        found = {name: options[name] for name in places if name in options}
        folder = cls.load_dir_path(model_name_or_path, subfolder=subfolder, **found)
        return cls(load_model(Path(folder), device="cpu", dtype="float32"))


def with_prompt(context: Any, prompt: str) -> Any:
    """A context with a text put before its first turn."""
    if isinstance(context, str):
        return prompt + context
    first, *others = context
    return [prompt + first, *others]


def side_of(features: dict[str, Any], side: str) -> Batch:
    """The batch of one side."""
    start = f"{side}_"
    return {
        name.removeprefix(start): one for name, one in features.items() if name.startswith(start)
    }

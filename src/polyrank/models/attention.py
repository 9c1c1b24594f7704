"""The attention of a poly-encoder: its codes over the tokens of a context, and each candidate over
the codes. They are the weights that its scores are made with.

Letters: T tokens of the context, m context vectors, N candidates, d dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from polyrank.models.poly_encoder import PolyEncoder
from polyrank.models.pooling import after_prompt
from polyrank.records import Context
from polyrank.scoring.poly import attention_scale, present, vector_weights
from polyrank.tokens.batching import mask_of


@dataclass(frozen=True, kw_only=True, eq=False)
class AttentionMap:
    """What a score is made of, for one context and N candidates."""

    ids: list[int]
    """The T tokens of the context as the model reads them, special ones included."""
    tokens: Tensor | None
    """(m, T): how much each context vector takes of each token; every row sums to 1. 1 and 0 where
    the vectors are outputs of tokens. A row of zeros where the context has fewer than m vectors.
    None if an engine runs the model: learnt codes are inside its graph."""
    weights: Tensor
    """(N, m): how much each candidate takes of each context vector; every row sums to 1."""
    scores: Tensor
    """(N,): the scores of the candidates, which these weights give."""


@torch.inference_mode()
def attention_map(model: PolyEncoder, context: Context, candidates: Tensor) -> AttentionMap:
    """The attention behind the scores of some candidates.

    Args:
        model: A poly-encoder.
        context: A text, or a list of turns.
        candidates: (N, d), what `encode_candidates_for_scoring` made of them.

    Returns:
        The attention, on the CPU.
    """
    sequences = model.context_ids([context])
    _, batch = next(model.batched(sequences))
    mask = mask_of(batch)
    tokens: Tensor | None = None
    if model.engine is None:
        outputs = model.for_inference("context_tower")(batch).float()  # (1, T, h)
        vectors = model.finish_contexts(outputs, batch)  # (1, m, d)
        tokens = model.token_weights(outputs, mask)  # (1, m, T)
    else:
        vectors = model.reader("context")(batch)
        if model.config.context_vectors != "learnt":
            tokens = model.chosen_tokens(after_prompt(mask, model.context_unpooled))
    vectors = vectors.cpu()
    logits = torch.einsum("bmd,nd->bmn", vectors, candidates.float())  # (1, m, N)
    scale = attention_scale(model.attention, vectors.shape[-1])
    weights = vector_weights(logits, present(vectors), scale)  # (1, m, N)
    return AttentionMap(
        ids=sequences[0],
        tokens=None if tokens is None else tokens[0, :, : len(sequences[0])].cpu(),
        weights=weights[0].T,
        scores=(weights * logits)[0].sum(dim=0),
    )

"""BERT's corruption of token ids, by tokens or by whole words. Knows nothing of models.

Letters: B rows, T tokens of a row, V tokens of the vocabulary.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from polyrank.errors import ModelError
from polyrank.tokens.masking_config import MaskingConfig

WORD_STARTS = ("Ġ", "▁")
"""What begins a word in byte-level BPE and SentencePiece vocabularies."""


class Masked(NamedTuple):
    """Corrupted ids (B, T), and which tokens are to be predicted: booleans (B, T)."""

    ids: Tensor
    chosen: Tensor


class Masking:
    """Corrupts batches of ids of one tokeniser."""

    def __init__(self, tokenizer: Any, config: MaskingConfig) -> None:
        """Raises ModelError for a tokeniser without a mask token."""
        if tokenizer.mask_token_id is None:
            raise ModelError(
                f"The tokeniser {type(tokenizer).__name__} has no mask token.",
                "Use the tokeniser of a masked language model, or leave out mlm, cmae, "
                "next_sentence and next_utterance.",
            )
        self.config = config
        self.mask_id: int = tokenizer.mask_token_id
        size = len(tokenizer)
        self.special = torch.zeros(size, dtype=torch.bool)
        self.special[sorted(set(tokenizer.all_special_ids))] = True
        self.ordinary = torch.nonzero(~self.special)[:, 0]
        self.continues = continuations(tokenizer.convert_ids_to_tokens(list(range(size))))

    def __call__(self, ids: Tensor, draws: Tensor) -> Masked:
        """Corrupt ids (B, T); special tokens, including padding, are neither chosen nor drawn.

        Chooses a share of each row's tokens, at least one if it has any; with whole words, as
        many words as begin within that share. `draws` (3, B, T), uniform from 0 to 1, decide.
        """
        config = self.config
        ordinary = ~self.special[ids]
        count = (config.masked_share * ordinary.sum(dim=1)).round().clamp(min=1)  # (B,)
        chance, fate, other = draws
        if config.whole_words:
            chosen = self.words(ids, ordinary, count, chance)
        else:
            chosen = (places(chance.masked_fill(~ordinary, -1)) < count[:, None]) & ordinary
        corrupted = ids.masked_fill(chosen & (fate < config.masked_token), self.mask_id)
        replaced = chosen & (fate >= config.masked_token)
        replaced &= fate < config.masked_token + config.masked_random
        drawn = self.ordinary[(other * len(self.ordinary)).long()]
        return Masked(torch.where(replaced, drawn, corrupted), chosen)

    def words(self, ids: Tensor, ordinary: Tensor, count: Tensor, chance: Tensor) -> Tensor:
        """Which tokens belong to chosen words: (B, T)."""
        before = torch.zeros_like(ordinary)
        before[:, 1:] = ordinary[:, :-1]
        starts = ordinary & ~(self.continues[ids] & before)
        word = (starts.cumsum(dim=1) - 1).clamp(min=0)  # (B, T)
        drawn = chance.gather(1, word).masked_fill(~ordinary, -1)  # the same for a whole word
        order = drawn.argsort(dim=1, descending=True, stable=True)
        sorted_word = word.gather(1, order)
        place = torch.arange(ids.shape[1])[None, :].expand_as(ids)
        new = torch.ones_like(ordinary)
        new[:, 1:] = sorted_word[:, 1:] != sorted_word[:, :-1]
        first = torch.where(new, place, 0).cummax(dim=1).values  # where a token's word begins
        taken = first < count[:, None]
        return torch.zeros_like(ordinary).scatter(1, order, taken) & ordinary


def places(values: Tensor) -> Tensor:
    """The rank of every value in its row, the largest 0: (B, T)."""
    return values.argsort(dim=1, descending=True).argsort(dim=1)


def continuations(tokens: list[str]) -> Tensor:
    """Which tokens of a vocabulary continue the word before them: booleans (V,)."""
    if any(token.startswith("##") for token in tokens):
        return torch.tensor([token.startswith("##") for token in tokens])
    if any(token.startswith(WORD_STARTS) for token in tokens):
        return torch.tensor([not token.startswith(WORD_STARTS) for token in tokens])
    return torch.zeros(len(tokens), dtype=torch.bool)

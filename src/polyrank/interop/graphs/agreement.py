"""How far an exported model is from the one it was made of, on held texts.

Knows the calls that both answer; knows no runtime.

Letters: B contexts, N candidates, m vectors of a context, d dimensions, L classes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from polyrank.errors import ModelError
from polyrank.models.base import Model
from polyrank.records import Context

NUM_CONTEXTS, NUM_CANDIDATES = 6, 32
BEST = 10
"""The overlap of rankings is that of their best 10."""
TOLERANCE = 1e-4
"""The largest difference of a result in float32, relative to the largest result."""


@dataclass(frozen=True, kw_only=True)
class HeldTexts:
    """What both models get. For int8, texts that nothing was calibrated on."""

    contexts: Sequence[Context]
    candidates: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How the results of two models compare; of a cross-encoder there are no vectors."""

    num_contexts: int
    num_candidates: int
    longest: int
    """Tokens of the longest text or pair."""
    largest_difference: float
    """Of any number of a vector, a score or a logit, relative to the largest such number, or to
    1."""
    mean_cosine: float | None
    worst_cosine: float | None
    overlap: float
    """The share of the best 10 candidates of a context that are the same, on average."""
    worst_score_difference: float

    def lines(self) -> list[str]:
        """What people are told."""
        found = [
            f"Checked on {self.num_contexts} contexts and {self.num_candidates} candidates of up "
            f"to {self.longest} tokens.",
        ]
        if self.mean_cosine is not None:
            found.append(
                f"Cosine to torch's vectors: {self.mean_cosine:.6f} on average, "
                f"{self.worst_cosine:.6f} at worst."
            )
        found.append(
            f"Largest difference {self.largest_difference:.1e}; of a score "
            f"{self.worst_score_difference:.1e}; {self.overlap:.1%} of the best {BEST} are the "
            "same."
        )
        return found


def require_equal(found: Agreement) -> None:
    """Raise ModelError for an export whose results are not those of torch in float32."""
    if not found.largest_difference <= TOLERANCE:  # neither a larger one nor NaN
        raise ModelError(
            f"The exported graphs give other results than torch: they differ by "
            f"{found.largest_difference:.1e} of the largest, and at most {TOLERANCE:.0e} is "
            "rounding.",
            "Nothing was written. Run the model with torch, or try other versions of torch and of "
            "the runtime.",
        )


def require_overlap(found: Agreement, least: float) -> None:
    """Raise ModelError for a quantised export that ranks too differently."""
    if not found.overlap >= least:
        raise ModelError(
            f"The quantised graphs keep {found.overlap:.3f} of the best {BEST} of texts that they "
            f"were not calibrated on, expected at least {least:g}; nothing was written.",
            "Calibrate on more texts or on texts more like those that the model will read, accept "
            "less with a lower min_overlap, or export it without quantise.",
        )


def held_texts(model: Model, seed: int = 0) -> HeldTexts:
    """Texts of tokens from the model's vocabulary, from one token to more than it reads.

    So they suit any language. Some contexts are dialogues.
    """
    config, draw = model.config, random.Random(seed)
    lengths = spread(config.max_candidate_length, NUM_CANDIDATES)
    candidates = [text_of(model.candidate_tokenizer, length, draw) for length in lengths]
    contexts: list[Context] = []
    for length in spread(config.max_context_length, NUM_CONTEXTS):
        text = text_of(model.tokenizer, length, draw)
        words = text.split()
        half = len(words) // 2
        is_dialogue = len(contexts) % 2 and half
        contexts.append([" ".join(words[:half]), " ".join(words[half:])] if is_dialogue else text)
    return HeldTexts(contexts=contexts, candidates=candidates)


def spread(longest: int, count: int) -> list[int]:
    """Lengths from 1 to a little above `longest`, closer together where they are small."""
    return [max(round((longest + 4) ** (place / (count - 1))), 1) for place in range(count)]


def text_of(tokenizer: Any, length: int, draw: random.Random) -> str:
    """A text of about `length` tokens, drawn from the vocabulary."""
    pretrained = tokenizer.pretrained
    reader = pretrained.backend_tokenizer if pretrained.is_fast else pretrained
    ids = [draw.randrange(len(pretrained)) for _ in range(length)]
    return str(reader.decode(ids, skip_special_tokens=True)).strip() or "a"


class Results(NamedTuple):
    """What two models give for the same texts."""

    longest: int
    differences: list[float]
    cosines: Tensor | None
    expected: Tensor
    """The scores of the model, (B, N)."""
    found: Tensor
    """Those of the export."""


def agreement(model: Model, exported: Model, texts: HeldTexts) -> Agreement:
    """Compare an exported model with the one it was made of, in batches and one by one."""
    compare = compare_pairs if model.architecture == "cross" else compare_vectors
    results = compare(model, exported, texts)
    cosines = results.cosines
    return Agreement(
        num_contexts=len(texts.contexts),
        num_candidates=len(texts.candidates),
        longest=results.longest,
        largest_difference=worst(results.differences),
        mean_cosine=None if cosines is None else float(cosines.mean()),
        worst_cosine=None if cosines is None else float(cosines.min()),
        overlap=overlap(results.expected, results.found),
        worst_score_difference=float((results.expected - results.found).abs().max()),
    )


def compare_vectors(model: Any, exported: Any, texts: HeldTexts) -> Results:
    """Compare bi- or poly-encoders."""
    ours, theirs = (vectors_of(each, texts) for each in (model, exported))
    alone = vectors_of(exported, texts, batch_size=1)
    differences = [
        relative(expected, found)
        for each in (theirs, alone)
        for expected, found in zip(ours, each, strict=True)
    ]
    rows = [torch.cat([each[0].flatten(0, 1), each[1]]) for each in (ours, theirs)]
    real = rows[0].any(dim=1)  # a row of zeros is no vector
    if model.classes is not None:
        pairs = list(zip(texts.contexts, texts.candidates, strict=False))
        differences.append(relative(model.class_logits(pairs), exported.class_logits(pairs)))
    ids = model.context_ids(texts.contexts) + model.candidate_ids(texts.candidates)
    return Results(
        longest=max(map(len, ids)),
        differences=differences,
        cosines=functional.cosine_similarity(rows[0][real], rows[1][real]),
        expected=model.score_all(*ours),
        found=model.score_all(*theirs),
    )


def compare_pairs(model: Any, exported: Any, texts: HeldTexts) -> Results:
    """Compare cross-encoders; of classes, the largest logit stands for a pair's score."""
    pairs = [(context, text) for context in texts.contexts for text in texts.candidates]
    expected, found = (pair_results(each, pairs) for each in (model, exported))
    some = pairs[:: len(texts.candidates) // 3 + 1]
    alone = pair_results(exported, some, batch_size=1)
    differences = [relative(expected, found)]
    differences.append(relative(pair_results(model, some), alone))
    ids, _ = model.encode_pairs([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    shape = len(texts.contexts), len(texts.candidates), -1
    return Results(
        longest=max(map(len, ids)),
        differences=differences,
        cosines=None,
        expected=expected.view(shape).amax(dim=-1),
        found=found.view(shape).amax(dim=-1),
    )


def vectors_of(model: Any, texts: HeldTexts, **options: Any) -> tuple[Tensor, Tensor]:
    """The vectors of the contexts (B, m, d), and of the candidates (N, d)."""
    contexts = model.encode_for_scoring(texts.contexts, **options)
    return contexts, model.encode_candidates(texts.candidates, **options)


def pair_results(model: Any, pairs: Sequence[Any], **options: Any) -> Tensor:
    """The scores (n,) or the logits (n, L) of pairs."""
    results: Tensor = (
        model.class_logits(pairs, **options)
        if model.classes is not None
        else model.score_pairs(pairs, **options)
    )
    return results


def relative(expected: Tensor, found: Tensor) -> float:
    """The largest difference, relative to the largest number, or to 1 if all are smaller."""
    return float((expected - found).abs().max() / expected.abs().max().clamp(min=1))


def worst(differences: Sequence[float]) -> float:
    """The largest, and NaN if one is not a number."""
    return float(torch.tensor(differences).max())


def overlap(expected: Tensor, found: Tensor) -> float:
    """The share of the best candidates that two scores (B, N) have in common."""
    count = min(BEST, expected.shape[1])
    best = [each.topk(count, dim=1).indices for each in (expected, found)]
    same = (best[0][:, :, None] == best[1][:, None, :]).any(dim=2)
    return float(same.float().mean())

"""What lanes take of a request's texts: their token ids, blocks of them, and estimates of both.

Knows the models' calls; knows nothing of requests or order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from polyrank.serving.scheduling.lanes import ContextTokens, Tokens
from polyrank.serving.scheduling.tokenising import num_characters

CHARACTERS = 4
"""Characters of a token, about, for the estimate before a text is tokenised."""

BLOCK_TOKENS = 1024
"""About the tokens of the candidates that are read with one reading of their context, after which
other requests have their turn."""


def reads_blocks(model: Any, graph: str) -> bool:
    """Whether a graph takes a context with a block of its candidates, instead of single texts."""
    return graph == "pair" and bool(model.reads_once)


def blocks_of(model: Any, pairs: Sequence[Any]) -> list[list[int]]:
    """The places of pairs of one context that are read together, about `BLOCK_TOKENS` tokens.

    All pairs of a context that sees its candidates.
    """
    config = model.config
    own: dict[Any, list[int]] = {}
    for place, (context, _) in enumerate(pairs):
        own.setdefault(context, []).append(place)
    if config.context_sees_candidates:
        return list(own.values())
    blocks: list[list[int]] = []
    for places in own.values():
        filled = BLOCK_TOKENS
        for place in places:
            tokens = about(pairs[place][1], config.max_candidate_length)
            if filled + tokens > BLOCK_TOKENS:
                blocks.append([])
                filled = 0
            blocks[-1].append(place)
            filled += tokens
    return blocks


def warming(model: Any, graph: str, text: str, count: int) -> list[Any]:
    """The items of a lane that stand for so many equal texts."""
    if reads_blocks(model, graph):
        return tokenised(model, graph, [(text, [text] * count)])
    return tokenised(model, graph, [(text, text) if graph == "pair" else text] * count)


def tokenised(model: Any, graph: str, texts: Sequence[Any]) -> list[Any]:
    """The token ids that a graph of a model takes for each text, pair or block of pairs."""
    if reads_blocks(model, graph):
        contexts = model.context_ids([context for context, _ in texts])
        candidates = iter(model.candidate_ids([one for _, block in texts for one in block]))
        taken = [list(islice(candidates, len(block))) for _, block in texts]
        return list(map(ContextTokens, contexts, taken))
    if graph == "pair":
        ids, segments = model.encode_pairs([pair[0] for pair in texts], [pair[1] for pair in texts])
        if segments is not None:
            return list(map(Tokens, ids, segments))
    else:
        encode = model.context_ids if graph.startswith("context") else model.candidate_ids
        ids = encode(texts)
    return list(map(Tokens, ids))


def longest(model: Any, graph: str) -> int:
    """The most tokens that a graph of a model takes of a text or pair."""
    config = model.config
    if graph == "pair":
        overhead: int = model.tokenizer.pair_overhead
        return int(config.max_context_length) + int(config.max_candidate_length) + overhead
    is_context = graph.startswith("context")
    return int(config.max_context_length if is_context else config.max_candidate_length)


def estimated(model: Any, graph: str, texts: Sequence[Any]) -> list[int]:
    """About how many tokens each text has, before it is tokenised."""
    if reads_blocks(model, graph):
        first, second = model.config.max_context_length, model.config.max_candidate_length
        return [
            about(context, first) + sum(about(text, second) for text in block)
            for context, block in texts
        ]
    most = longest(model, graph)
    return [about(text, most) for text in texts]


def about(text: Any, most: int) -> int:
    """About how many tokens a text has, at most `most`."""
    return min(num_characters(text) // CHARACTERS + 2, most)

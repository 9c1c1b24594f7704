"""Texts to calibrate a quantised model on, and other texts to check it on. Knows no runtime."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray
from torch import Tensor

from polyrank.data.candidates import read_candidates
from polyrank.data.loading import load_records
from polyrank.errors import DataError
from polyrank.interop.graphs.agreement import HeldTexts
from polyrank.interop.graphs.tracing import GraphFile
from polyrank.models.base import Model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.engines.engine import input_of
from polyrank.records import Context, LabelledPair, RetrievalSet
from polyrank.tokens.batching import collate, planned

FEWEST = 64
"""The fewest different texts that a file must have."""
MOST_READ = 20_000
"""How many records of a file are read."""
MOST_TEXTS = 300
"""How many contexts and how many candidates are calibrated on."""
CALIBRATION_TOKENS = 1024
"""Padded tokens of a calibration batch: little of so small a batch is padding."""

CHECKED = {"cross": (20, 50)}
"""How many contexts and candidates are checked of an architecture, if not `ALL_CHECKED`."""
ALL_CHECKED = 100, 500

T = TypeVar("T", bound=Hashable)


def read_texts(path: str | Path, seed: int = 0) -> tuple[HeldTexts, HeldTexts]:
    """The texts of a file to calibrate on, and other texts to check the result on.

    Args:
        path: Examples, pairs or a corpus with queries, in any format that `evaluate` reads; or
            candidates in any format that `index` reads, of which a part stands for contexts.
        seed: Draws the two halves.

    Returns:
        Half of the contexts and candidates each; no text is in both.

    Raises:
        DataError: The file cannot be read, or has fewer than `FEWEST` different texts.
    """
    path = Path(path)
    draw = random.Random(seed)
    found = contexts_and_candidates(path)
    if found is None:
        texts = different((one.text for one in islice(read_candidates(path), MOST_READ)), path)
        first, second = halves(texts, draw)
        few = len(second) // 5
        return (
            HeldTexts(contexts=first[:MOST_TEXTS], candidates=first[:MOST_TEXTS]),
            HeldTexts(contexts=second[:few], candidates=second[few:]),
        )
    contexts = halves(different(found[0], path), draw)
    candidates = halves(different(found[1], path), draw)
    seen = {*contexts[0], *candidates[0]}
    return (
        HeldTexts(contexts=contexts[0][:MOST_TEXTS], candidates=candidates[0][:MOST_TEXTS]),
        HeldTexts(
            contexts=[text for text in contexts[1] if text not in seen],
            candidates=[text for text in candidates[1] if text not in seen],
        ),
    )


def contexts_and_candidates(path: Path) -> tuple[list[Context], list[str]] | None:
    """The contexts and the candidates of a file of examples, pairs or judgements.

    None for a file of candidates alone, which its first record tells. Raises DataError.
    """
    if path.is_file():
        try:
            load_records(path, limit=1)
        except DataError:
            return None
    records = load_records(path, limit=MOST_READ)
    if isinstance(records, RetrievalSet):
        corpus = islice(records.corpus, MOST_READ)
        return list(records.queries.values()), [candidate.text for candidate in corpus]
    pairs = [
        (each.first, each.second)
        if isinstance(each, LabelledPair)
        else (each.context, each.response)
        for each in records
    ]
    return [context for context, _ in pairs], [text for _, text in pairs]


def different(texts: Iterable[T], path: Path) -> list[T]:
    """The different texts that are not empty. Raises DataError if they are too few."""
    found = list(dict.fromkeys(text for text in texts if text))
    if len(found) < FEWEST:
        raise DataError(
            f"The file has {len(found)} different texts to calibrate on and to check the result "
            f"with, expected at least {FEWEST}.",
            "Give a file with more texts of the kind that the model will read; a few hundred do.",
            path=path,
        )
    return found


def halves(texts: list[T], draw: random.Random) -> tuple[list[T], list[T]]:
    """Two halves of a list, drawn at random."""
    shuffled = draw.sample(texts, len(texts))
    return shuffled[: len(texts) // 2], shuffled[len(texts) // 2 :]


def calibration_inputs(
    model: Model, graph: GraphFile, texts: HeldTexts
) -> list[tuple[Tensor, ...]]:
    """The inputs of a graph, for batches of what it reads: contexts, candidates or pairs."""
    segments = None
    if isinstance(model, CrossEncoder):
        pairs = zip(texts.contexts, texts.candidates, strict=False)
        contexts, candidates = zip(*pairs, strict=True)
        ids, segments = model.encode_pairs(contexts, candidates)
    else:
        ids = []
        if any(output.startswith("context") for output in graph.outputs):
            ids += model.context_ids(texts.contexts)
        if any(output.startswith("candidate") for output in graph.outputs):
            ids += model.candidate_ids(texts.candidates)
    is_candidate = graph.outputs[0].startswith("candidate")
    padding = (model.candidate_tokenizer if is_candidate else model.tokenizer).padding
    return [
        tuple(input_of(collate(ids, rows, padding, segments), name) for name in graph.inputs)
        for rows in planned(ids, padding, CALIBRATION_TOKENS)
    ]


def feeds_of(
    graph: GraphFile, batches: Sequence[tuple[Tensor, ...]]
) -> list[dict[str, NDArray[Any]]]:
    """The inputs of batches by their names, as runtimes take them."""
    return [
        {name: each.numpy() for name, each in zip(graph.inputs, batch, strict=True)}
        for batch in batches
    ]


def fewer(texts: HeldTexts, model: Model) -> HeldTexts:
    """So many of the texts that a check takes seconds."""
    contexts, candidates = CHECKED.get(model.architecture, ALL_CHECKED)
    return HeldTexts(contexts=texts.contexts[:contexts], candidates=texts.candidates[:candidates])

"""The dev data of a run, as the architecture takes them.

Examples need candidates to rank, which are drawn where they have none. Knows nothing of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, cast

from polyrank.errors import DataError
from polyrank.evaluation.tasks import with_all_candidates, with_sampled_candidates
from polyrank.progress import Say
from polyrank.records import Example, LabelledPair, RetrievalSet
from polyrank.training.dev_evaluation import Dev
from polyrank.training.objectives.objective import records_of

NUM_CANDIDATES = 20
"""Candidates of a dev example that has none, unless another number is asked for."""
NumCandidates = int | Literal["all"] | None


def dev_examples(
    dev: Sequence[Example] | Sequence[LabelledPair] | RetrievalSet,
    num_candidates: NumCandidates,
    *,
    limit: int | None = None,
    seed: int = 0,
    name: str = "dev",
    say: Say,
) -> Dev:
    """Dev records whose examples have candidates, drawn from the responses of all of them.

    The first `limit` examples or pairs are taken; a corpus stays as it is. `num_candidates` is for
    examples that have no candidates: by default 20, or fewer where the responses are too few, and
    people are told; `all` makes a corpus of the responses. Raises DataError if there are too few
    responses for the number asked for.
    """
    if isinstance(dev, RetrievalSet) or not dev or records_of(dev) == "pairs":
        return dev if isinstance(dev, RetrievalSet) else dev[:limit]
    examples = cast("Sequence[Example]", dev)
    if num_candidates == "all":
        return with_all_candidates(examples, name)
    found, number = drawn(examples[:limit], num_candidates, seed, examples)
    if num_candidates is None and number < NUM_CANDIDATES:
        say(
            f"{name}: there are few responses, so each example gets {number} candidates, not "
            f"{NUM_CANDIDATES}."
        )
    return found


def drawn(
    examples: Sequence[Example],
    num_candidates: int | None,
    seed: int,
    source: Sequence[Example],
) -> tuple[list[Example], int]:
    """The examples with candidates, and how many were drawn: by default 20, or fewer where the
    responses of `source` are too few. Raises DataError for a number that cannot be drawn.
    """
    if num_candidates is None:
        for number in range(NUM_CANDIDATES, 1, -1):
            with suppress(DataError):
                return with_sampled_candidates(examples, number, seed, source=source), number
    number = NUM_CANDIDATES if num_candidates is None else num_candidates
    return with_sampled_candidates(examples, number, seed, source=source), number


def dev_for(
    dev: Dev,
    architecture: str,
    num_candidates: NumCandidates,
    *,
    limit: int | None = None,
    seed: int = 0,
    say: Say,
) -> Dev:
    """Dev records as an architecture takes them: a corpus becomes examples with drawn candidates
    for a cross-encoder, which cannot search, and where so many were asked for.
    """
    if not isinstance(dev, RetrievalSet):
        return dev
    questions = dev.first(limit)
    if architecture != "cross" and not isinstance(num_candidates, int):
        return questions
    documents = (Example(context=each.text, response=each.text) for each in dev.corpus)
    source: list[Any] = [*dev.examples(), *documents]
    asked = num_candidates if isinstance(num_candidates, int) else None
    examples, number = drawn(list(questions.examples()), asked, seed, source)
    if architecture == "cross":
        say(
            f"A cross-encoder cannot search a corpus: each dev question gets {number} candidates, "
            "drawn from it."
        )
    return examples

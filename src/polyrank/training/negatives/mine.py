"""Wrong responses for examples of any kind: what `polyrank.mine` does.

Knows what the arguments mean; other modules do the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from polyrank.config import with_keywords
from polyrank.data.candidates import read_candidates
from polyrank.data.examples import read_examples
from polyrank.data.loading import Data, examples_and_corpus
from polyrank.errors import DataError
from polyrank.models.checkpoint import load_model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.two_tower import TwoTower
from polyrank.progress import Say, print_line, silent
from polyrank.records import Candidate, Example, LabelledPair
from polyrank.retrieval.bm25.config import BM25Config
from polyrank.retrieval.index import Index
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.negatives.methods import method_of
from polyrank.training.negatives.mining import mine_in_memory, mine_to_file
from polyrank.training.negatives.pool import Pool

ELSEWHERE = {"model": "retriever", "cross_encoder": "reranker", "range_max": "to_rank"}
ELSEWHERE |= {"range_min": "from_rank", "sampling_strategy": "pick", "corpus": "candidates"}
Candidates = str | Path | Iterable[str | Candidate]


def mine(
    examples: Data,
    method: Literal["random", "dialogue", "bm25", "model"] = "bm25",
    *,
    retriever: TwoTower | str | Path | None = None,
    index: Index | None = None,
    candidates: Candidates | None = None,
    reranker: CrossEncoder | str | Path | None = None,
    output: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    bm25: BM25Config | None = None,
    restart: bool = False,
    show_progress_bar: bool = True,
    say: Say | None = None,
    **settings: Any,
) -> list[Example]:
    """Find negatives: wrong responses that a model should learn to tell from the right ones.

    A known response of a context is never its negative. Negatives that the examples already have
    are replaced.

    Args:
        examples: Examples of any kind, as for `load_examples`.
        method: Where negatives come from: random draws, other turns of the dialogue, a search with
            BM25, or a search with a bi- or poly-encoder, the `retriever`.
        retriever: The bi- or poly-encoder of the method `model`, or its folder.
        index: An index made by the retriever; by default, the candidates are indexed first.
        candidates: The texts to take negatives from, or their file; by default the responses of the
            examples, or the corpus that the data have.
        reranker: A cross-encoder, or its folder, that drops negatives it considers right, by the
            settings `reranker_…`; its scores are kept with the examples.
        output: A JSONL file for the examples; with one, an interrupted call resumes.
        columns: From a field, such as `context`, to the name of the column that holds it.
        bm25: Settings of BM25.
        restart: Discard an unfinished run of the same output.
        show_progress_bar: Show on standard error how far the search is.
        say: Gets the lines that are otherwise printed on standard error.
        **settings: Any field of `NegativesConfig`, such as `num_negatives=4`, `from_rank=10`,
            `relative_margin=0.05`.

    Returns:
        The examples with their negatives.

    Raises:
        DataError: The examples cannot be read, or no negative was found for any of them.
        UsageError: A setting or the method is unknown, or the model of the method is missing.
        MissingExtraError: BM25 needs the extra `bm25`.
    """
    made = with_keywords("mine()", settings, elsewhere=ELSEWHERE, config=NegativesConfig)
    config: NegativesConfig = made["config"]
    say = say or (print_line if show_progress_bar else silent)
    pool = pool_of(examples, candidates, columns, say)
    found = method_of(
        method,
        retriever=opened(retriever),
        index=index,
        bm25=bm25,
        show_progress_bar=show_progress_bar,
    )
    judge: Any = opened(reranker)
    how: dict[str, Any] = {"reranker": judge, "show_progress_bar": show_progress_bar}
    if output is None:
        return mine_in_memory(pool, found, config, **how)
    result = mine_to_file(pool, found, output, config, restart=restart, say=say, **how)
    return list(read_examples(result.output))


def pool_of(
    data: Data, candidates: Candidates | None, columns: Mapping[str, str] | None, say: Say
) -> Pool:
    """The examples and what their negatives are taken from. Raises DataError."""
    records, corpus = examples_and_corpus(data, columns=columns, say=say)
    if isinstance(records[0], LabelledPair):
        raise DataError(
            "The data hold labelled pairs, where contexts with responses were expected.",
            "Give examples, or a corpus with queries and judgements.",
        )
    examples = [record for record in records if isinstance(record, Example)]
    given = [] if candidates is None else candidates_of(candidates)
    return Pool.of_examples(examples, given or corpus)


def candidates_of(given: Candidates) -> list[Candidate]:
    """Candidates from a file or from texts, whose ids are then their places, from 1."""
    if isinstance(given, (str, Path)):
        return list(read_candidates(given))
    return [
        one if isinstance(one, Candidate) else Candidate(str(place), one)
        for place, one in enumerate(given, start=1)
    ]


def opened(model: Any) -> Any:
    """A model, or the one in a folder."""
    return load_model(model, trainable=False) if isinstance(model, (str, Path)) else model

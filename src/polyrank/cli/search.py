"""`polyrank search`: rank the candidates of an index for texts."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from polyrank.cli.command import command
from polyrank.cli.options import ModelOptions, load, option, positional
from polyrank.cli.output import Output, plain
from polyrank.config import require
from polyrank.errors import DataError, UsageError
from polyrank.records import Context, Hit

if TYPE_CHECKING:
    from polyrank.retrieval.engine import SearchReport, SearchResults
    from polyrank.retrieval.index import Index

DEFAULT_TOP_K = 10
DEFAULT_RERANK_TOP = 100
SHOWN_LETTERS = 300
STANDARD_INPUT = "-"


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ModelOptions):
    """Options of `polyrank search`."""

    index: Path = positional("INDEX", help="The folder of an index.")
    texts: tuple[str, ...] = positional(
        "TEXT",
        default=(),
        help="Contexts to search for, one at a time; without any, or with -, they are read from "
        "standard input, one per line.",
    )
    turn: tuple[str, ...] = option(
        (),
        split=False,
        metavar="TEXT",
        help="One turn of a dialogue; repeat it for each turn, oldest first, to search for the "
        "whole dialogue as one context.",
    )
    top_k: int | None = option(
        None,
        short="-k",
        help=f"How many candidates to return for each context; {DEFAULT_TOP_K} by default, or all "
        "of a smaller index.",
    )
    exact: bool = option(
        False,
        help="Guarantee the best candidates; by default, some may be missed where that is faster.",
    )
    filter: str | None = option(
        None,
        metavar="EXPRESSION",
        help="Search only candidates whose metadata match, for example: year >= 2020 and "
        'topic in ["disk", "boot"].',
    )
    rerank: Path | None = option(
        None,
        metavar="CROSS",
        help="The folder of a saved cross-encoder that reranks the candidates found.",
    )
    rerank_top: int | None = option(
        None,
        help="How many candidates to retrieve for --rerank, never fewer than --top-k; "
        f"{DEFAULT_RERANK_TOP} by default.",
    )
    model: Path | None = option(
        None, help="The model that made the index, if the index does not contain it."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        top = self.rerank_top
        require(top is None or top >= 1, "--rerank-top", "at least 1", top)


@command("search", SearchOptions)
def search(options: SearchOptions, output: Output) -> None:
    """Find the candidates of an index that score highest for a context.

    With --rerank, a cross-encoder scores them again.
    """
    if options.rerank is None and options.rerank_top is not None:
        output.warn("--rerank-top has no effect without --rerank.")
    contexts = list(contexts_of(options))
    if not contexts:
        raise UsageError("There is no text to search for.", "Give one, or lines on standard input.")

    from polyrank.retrieval.index import Index

    model = None if options.model is None else load(options.model, options)
    index = Index.open(
        options.index,
        model,
        device=options.device,
        dtype=options.dtype,
        token_budget=options.batch_tokens,
    )
    found, num_reranked = find(index, contexts, options)
    results = []
    for context, hits, report, count in zip(
        contexts, found, found.reports, num_reranked, strict=True
    ):
        say_hits(context, hits, output)
        say_report(report, count, output)
        results.append({"context": context, "hits": hits, **plain(report), "num_reranked": count})
    output.result({"index": options.index, "results": results})


def find(
    index: Index, contexts: Sequence[Context], options: SearchOptions
) -> tuple[SearchResults, list[int]]:
    """The hits of each context, and how many candidates the reranker read for it."""
    top_k = min(DEFAULT_TOP_K, len(index)) if options.top_k is None else options.top_k
    if options.rerank is None:
        found = index.search(contexts, top_k, exact=options.exact, where=options.filter)
        return found, [0] * len(found)

    from polyrank.retrieval.rerank import RetrieveRerank

    num_candidates = DEFAULT_RERANK_TOP if options.rerank_top is None else options.rerank_top
    reranker = load(options.rerank, options)
    pipeline = RetrieveRerank(index, reranker, num_candidates=num_candidates)
    reranked = pipeline.search(
        contexts, top_k, exact=options.exact, where=options.filter, progress=True
    )
    return reranked, [len(hits) for hits in reranked.retrieved]


def contexts_of(options: SearchOptions) -> Iterator[str | list[str]]:
    """The texts, with standard input in the place of `-`, then the dialogue of the turns."""
    texts = options.texts or (() if options.turn else (STANDARD_INPUT,))
    for text in texts:
        if text == STANDARD_INPUT:
            yield from standard_input()
        else:
            yield text
    if options.turn:
        yield list(options.turn)


def standard_input() -> Iterator[str]:
    """The lines of standard input that are not blank. Raises DataError where they are not UTF-8."""
    if sys.stdin.isatty():
        print("Type one text per line; end with Ctrl-D.", file=sys.stderr)
    for number, line in enumerate(sys.stdin.buffer, start=1):
        try:
            text = line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise DataError(
                f"The text is not UTF-8: {error.reason} at byte {error.start} of the line.",
                "Convert it, for example with: iconv -f LATIN1 -t UTF-8.",
                path="standard input",
                line=number,
            ) from error
        if text:
            yield text


def say_hits(context: str | list[str], hits: Sequence[Hit], output: Output) -> None:
    """The hits of one context, for people: rank, score and the beginning of the text."""
    turns = [context] if isinstance(context, str) else context
    output.say("\n".join(f"> {' '.join(turn.split())}" for turn in turns))
    for rank, hit in enumerate(hits, start=1):
        begun = textwrap.shorten(" ".join(hit.text.split()), SHOWN_LETTERS, placeholder=" …")
        output.say(f"{rank:>4}. {hit.score:9.4f}  [{hit.id}] {begun}")


def say_report(report: SearchReport, num_reranked: int, output: Output) -> None:
    """How the hits of one context were found, for people."""
    words = f"scored {report.num_scored:,} of {report.num_candidates:,} candidates"
    words += ", certified" if report.certified else ", approximate"
    words += f"; reranked {num_reranked:,}" if num_reranked else ""
    output.say(f"      {words}")
    output.say()

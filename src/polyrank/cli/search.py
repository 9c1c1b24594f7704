"""`polyrank search`: rank the candidates of an index for texts, or for questions as they come."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from polyrank.cli.command import command
from polyrank.cli.conversation import Answer, Question, converse, text_of
from polyrank.cli.options import InferenceOptions, SourceOptions, load, option, positional
from polyrank.cli.output import Output, visible
from polyrank.config import require
from polyrank.errors import UsageError

if TYPE_CHECKING:
    from polyrank.retrieval.index import Index
    from polyrank.retrieval.rerank import RetrieveRerank

DEFAULT_TOP_K = 10
DEFAULT_NUM_CANDIDATES = 100
SHOWN_LETTERS = 300
STANDARD_INPUT = "-"


@dataclass(frozen=True, kw_only=True)
class SearchOptions(SourceOptions, InferenceOptions):
    """Options of `polyrank search`."""

    index: Path = positional("INDEX", help="The folder of an index.")
    texts: tuple[str, ...] = positional(
        "TEXT",
        default=(),
        help="The contexts to search for. - stands for all lines of standard input; without any "
        "text, each line is answered as it comes.",
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
        help=f"The number of candidates to return for each context. By default, {DEFAULT_TOP_K}, "
        "or all of a smaller index.",
    )
    exact: bool = option(
        False,
        help="Guarantee the best candidates. By default, an approximate index may miss some, "
        "which is faster.",
    )
    filter: str | None = option(
        None,
        metavar="EXPRESSION",
        help="Search only candidates whose metadata match, for example: year >= 2020 and "
        'topic in ["disk", "boot"].',
    )
    reranker: Path | None = option(
        None,
        metavar="CROSS",
        help="The folder of a saved cross-encoder that reranks the candidates found.",
    )
    num_candidates: int | None = option(
        None,
        help="The number of candidates to retrieve for --reranker, at least --top-k. By default, "
        f"{DEFAULT_NUM_CANDIDATES}.",
    )
    model: Path | None = option(
        None, help="The model that made the index, if the index has no copy of it."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        number = self.num_candidates
        require(number is None or number >= 1, "--num-candidates", "at least 1", number)


@command("search", SearchOptions)
def search(options: SearchOptions, output: Output) -> None:
    """Find the candidates of an index that score highest for a context.

    With --reranker, a cross-encoder scores them again. Without a text, the index stays open and
    each line of standard input is answered as soon as it comes, from the index as it is then; on a
    terminal with a prompt, which Ctrl-D ends. A tab separates the turns of a dialogue; so does a
    line ["turn", "turn"]. A line {"context": …, "filter": …, "top_k": …, "exact": …} has settings
    of its own. With --json there is one object per line then: {"context", "hits", …}, or
    {"context", "error"} for a line that cannot be answered. The next line is answered all the
    same, and the exit code tells of the error at the end.
    """
    if options.reranker is None and options.num_candidates is not None:
        output.warn("--num-candidates has no effect without --reranker.")
    if options.revision is not None and options.model is None:
        output.warn("--revision has no effect without --model.")
    if not options.texts and not options.turn:
        converse(Searcher(options).answers, output, show)
        return
    contexts = list(contexts_of(options))
    if not contexts:
        raise UsageError("There is no text to search for.", "Give one, or lines on standard input.")
    results = []
    for answer in Searcher(options).answers([Question(context) for context in contexts]):
        show(answer, output)
        results.append(answer.result())
    output.result({"index": options.index, "results": results})


class Searcher:
    """An open index, and the cross-encoder that reranks what it finds."""

    def __init__(self, options: SearchOptions) -> None:
        # Threads have milliseconds of work here; by default, GNU's wait for it at full power.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        from polyrank.retrieval.index import Index

        model = (
            None
            if options.model is None
            else load(options.model, options, revision=options.revision)
        )
        self.options = options
        self.index: Index = Index.open(
            options.index,
            model,
            device=options.device,
            dtype=options.dtype,
            batch_tokens=options.batch_tokens,
            engine=options.engine,
        )
        self.pipeline: RetrieveRerank | None = None
        if options.reranker is not None:
            from polyrank.retrieval.rerank import RetrieveRerank

            most = options.num_candidates
            self.pipeline = RetrieveRerank(
                self.index,
                load(options.reranker, options),
                num_candidates=DEFAULT_NUM_CANDIDATES if most is None else most,
            )

    def answers(self, questions: Sequence[Question]) -> Iterator[Answer]:
        """What the index finds for questions that have the same settings; it is refreshed first."""
        self.index.refresh()
        contexts = [question.context for question in questions]
        asked, options = questions[0], self.options
        top_k = options.top_k if asked.top_k is None else asked.top_k
        top_k = DEFAULT_TOP_K if top_k is None else top_k
        exact = options.exact if asked.exact is None else asked.exact
        filter = options.filter if asked.filter is None else asked.filter
        if self.pipeline is None:
            found = self.index.search(contexts, top_k, exact=exact, filter=filter)
            num_reranked = [0] * len(found)
        else:
            reranked = self.pipeline.search(
                contexts, top_k, exact=exact, filter=filter, show_progress_bar=True
            )
            found, num_reranked = reranked, [len(hits) for hits in reranked.retrieved]
        for context, hits, report, count in zip(
            contexts, found, found.reports, num_reranked, strict=True
        ):
            yield Answer(context, hits, report, count)


def contexts_of(options: SearchOptions) -> Iterator[str | list[str]]:
    """The texts, with standard input in the place of `-`, then the dialogue of the turns."""
    for text in options.texts:
        if text == STANDARD_INPUT:
            yield from standard_input()
        else:
            yield text
    if options.turn:
        yield list(options.turn)


def standard_input() -> Iterator[str]:
    """The lines of standard input that are not blank. Raises DataError where they are not UTF-8."""
    for number, line in enumerate(sys.stdin.buffer, start=1):
        text = text_of(line, number)
        if text:
            yield text


def show(answer: Answer, output: Output, echo: bool = True) -> None:
    """An answer, for people: the context, each hit's rank, score and text, how it was found."""
    if echo:
        turns = [answer.context] if isinstance(answer.context, str) else answer.context
        output.say("\n".join(f"> {' '.join(turn.split())}" for turn in turns))
    for rank, hit in enumerate(answer.hits, start=1):
        begun = textwrap.shorten(" ".join(hit.text.split()), SHOWN_LETTERS, placeholder=" …")
        name = visible(hit.id, on_one_line=True)
        output.say(f"{rank:>4}. {hit.score:9.4f}  [{name}] {begun}")
    report = answer.report
    words = f"scored {report.num_scored:,} of {report.num_candidates:,} candidates"
    words += ", certified" if report.certified else ", approximate"
    words += f"; reranked {answer.num_reranked:,}" if answer.num_reranked else ""
    output.say(f"      {words}")
    output.say()

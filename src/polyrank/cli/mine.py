"""`polyrank mine`: negatives for examples, to train against."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from polyrank.cli.command import command
from polyrank.cli.data import DataOptions
from polyrank.cli.options import InferenceOptions, SourceOptions, flattened, load, option
from polyrank.cli.output import Output
from polyrank.config import require
from polyrank.display.words import span
from polyrank.errors import DataError, UsageError
from polyrank.retrieval.bm25.config import BM25Config
from polyrank.training.negatives.config import NegativesConfig

if TYPE_CHECKING:
    from polyrank.data.sampling import Share
    from polyrank.records import Example, LabelledPair
    from polyrank.training.negatives.methods import Method
    from polyrank.training.negatives.mining import MiningResult
    from polyrank.training.negatives.pool import Pool

SHOWN_LETTERS = 160
SEARCHED = ("from_rank", "to_rank", "pick", "max_score", "margin", "relative_margin")
RERANKER_LIMITS = ("reranker_max_score", "reranker_margin", "reranker_relative_margin")
"""Settings that have an effect only where candidates are searched, or judged by a cross-encoder."""


@dataclass(frozen=True, kw_only=True)
class MineOptions(SourceOptions, InferenceOptions, DataOptions):
    """Options of `polyrank mine`."""

    data: Path = option(
        help="Examples with context and response, or a BEIR folder. The documents of a BEIR "
        "folder become the candidates."
    )
    split: str | None = option(None, help="The split to use, if the data have several.")
    method: Literal["random", "dialogue", "bm25", "model"] = option(
        help="Where negatives come from. random draws from all candidates; dialogue takes other "
        "turns of the dialogue; bm25 searches with BM25, and model with a bi- or "
        "poly-encoder."
    )
    retriever: Path | None = option(
        None, help="The folder of the bi- or poly-encoder for --method model."
    )
    index: Path | None = option(
        None,
        help="An index that the retriever made. By default, the candidates are indexed first.",
    )
    candidates: Path | None = option(
        None,
        help="The texts to take negatives from, one per line or JSONL. By default, the responses "
        "in the data, or the documents of a BEIR folder.",
    )
    reranker: Path | None = option(
        None,
        help="The folder of a cross-encoder that drops negatives it considers right. The limits "
        "--reranker-… decide; its scores are written with the examples.",
    )
    output: Path = option(
        help="The JSONL file for the examples with their negatives; an existing file is replaced."
    )
    limit: int | None = option(None, help="Use only the first N examples.")
    restart: bool = option(False, help="Discard an unfinished run of the same output.")
    negatives: NegativesConfig = flattened()
    bm25: BM25Config = flattened()

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.limit is None or self.limit >= 1, "--limit", "at least 1", self.limit)
        if self.method == "model" and self.retriever is None:
            raise UsageError(
                "--method model needs the model to mine with.", "Give its folder with --retriever."
            )
        if self.reranker is None:
            for name in RERANKER_LIMITS:
                if getattr(self.negatives, name) is not None:
                    raise UsageError(
                        f"--{name.replace('_', '-')} is a limit on the scores of a cross-encoder.",
                        "Give its folder with --reranker, or leave the limit out.",
                    )


def interrupted(options: MineOptions) -> str:
    """The words after Ctrl-C."""
    return (
        f"What stood at {options.output} before is unchanged, and the negatives found so far are "
        "kept: run the same command again to resume."
    )


@command("mine", MineOptions, interrupted=interrupted)
def mine(options: MineOptions, output: Output) -> None:
    """Find hard negatives for training.

    Negatives are wrong responses that a model should learn to tell from the right ones.
    A known response of a context is never its negative. An interrupted run resumes when it is
    started again.
    """
    warn_without_effect(options, output)
    pool = pool_of(options, output)

    from polyrank.training.negatives.mining import mine_to_file as run

    method = method_of(options)
    reranker = None if options.reranker is None else load(options.reranker, options)
    result = run(
        pool,
        method,
        options.output,
        options.negatives,
        reranker=reranker,
        restart=options.restart,
        show_progress_bar=True,
        say=output.say,
    )
    say_counts(result, options, output)
    for example in result.shown:
        say_example(example, output)
    output.say(f"Written to {options.output} in {span(output.seconds)}")
    output.result(
        {
            "output": options.output,
            "method": options.method,
            **result.counts,
            "shown": [shown(example) for example in result.shown],
        }
    )


def warn_without_effect(options: MineOptions, output: Output) -> None:
    """Warn of options that have no effect on the method."""
    flags = [name for name in ("retriever", "index") if getattr(options, name) is not None]
    unused = flags if options.method != "model" else []
    if options.method in ("random", "dialogue"):
        standard = NegativesConfig()
        unused += [
            name for name in SEARCHED if getattr(options.negatives, name) != getattr(standard, name)
        ]
    if options.method != "bm25":
        unused += [name for name, value in vars(options.bm25).items() if value != STANDARD[name]]
    if options.revision is not None and (options.method != "model" or options.retriever is None):
        output.warn("--revision has no effect without --method model and --retriever.")
    for name in unused:
        output.warn(f"--{name.replace('_', '-')} has no effect with --method {options.method}.")


STANDARD = vars(BM25Config())


def pool_of(options: MineOptions, output: Output) -> Pool:
    """The examples and what their negatives are taken from."""
    pool = load_pool(
        options.data,
        options,
        split=options.split,
        candidates=options.candidates,
        limit=options.limit,
        say=output.say,
    )
    if isinstance(pool, list):
        raise DataError(
            "The data hold labelled pairs, where contexts with responses were expected.",
            "Give examples, or a corpus with queries and judgements.",
            path=options.data,
        )
    return pool


def load_pool(
    path: Path,
    options: DataOptions,
    *,
    split: str | None = None,
    candidates: Path | None = None,
    share: Share | None = None,
    limit: int | None = None,
    say: Callable[[str], None],
) -> Pool | list[LabelledPair]:
    """Training data with the candidates of their negatives; labelled pairs as they are."""
    from polyrank.cli.data import columns_of
    from polyrank.data.candidates import read_candidates
    from polyrank.data.loading import load_with_corpus
    from polyrank.data.source import Source
    from polyrank.records import Example
    from polyrank.training.negatives.pool import Pool

    source = Source(path=path, split=split, training=True, columns=columns_of(options))
    given = [] if candidates is None else list(read_candidates(candidates))
    records, corpus = load_with_corpus(source, options.format, None, say, share=share)
    examples = [record for record in records if isinstance(record, Example)]
    if not examples:
        return [record for record in records if not isinstance(record, Example)][:limit]
    return Pool.of_examples(examples, given or corpus).limited(limit)


def method_of(options: MineOptions) -> Method:
    """The method with its model or settings."""
    from polyrank.retrieval.index import Index
    from polyrank.training.negatives import methods

    searches = options.method == "model" and options.retriever is not None
    model = None
    if searches and options.retriever is not None:
        model = load(options.retriever, options, revision=options.revision)
    return methods.method_of(
        options.method,
        retriever=model,
        index=Index.open(options.index, model) if searches and options.index else None,
        bm25=options.bm25,
        show_progress_bar=True,
    )


def say_counts(result: MiningResult, options: MineOptions, output: Output) -> None:
    """What was kept and what each rule dropped."""
    from polyrank.training.negatives.mining import COUNTS

    for name, words in COUNTS.items():
        if result.counts[name] or name in ("examples", "kept"):
            output.say(f"{result.counts[name]:>12,}  {words}")
    if result.counts["short"] and options.negatives.missing == "keep":
        output.warn(
            f"{result.counts['short']:,} examples have fewer than "
            f"{options.negatives.num_negatives} negatives, {result.counts['without']:,} of them "
            "none; --missing fill or --missing drop would change that."
        )


def say_example(example: Example, output: Output) -> None:
    """One example with its negatives, for people to look at."""
    context = example.context if isinstance(example.context, str) else " | ".join(example.context)
    scores = example.scores or (None,) * (1 + len(example.negatives))
    output.say()
    output.say(f"> {shortened(context, newest=True)}")
    for sign, text, score in zip(
        "+" + "-" * len(example.negatives),
        (example.response, *example.negatives),
        scores,
        strict=True,
    ):
        number = "" if score is None else f"{score:8.3f} "
        output.say(f"{sign} {number}{shortened(text)}")
    output.say()


def shortened(text: str, *, newest: bool = False) -> str:
    """A text on one line, cut at its end, or at its beginning to keep what is newest."""
    line = " ".join(text.split())
    if newest and len(line) > SHOWN_LETTERS:
        return f"… {line[-SHOWN_LETTERS:]}"
    return textwrap.shorten(line, SHOWN_LETTERS, placeholder=" …")


def shown(example: Example) -> dict[str, Any]:
    """An example for programs."""
    record = {"context": example.context, "response": example.response}
    return {**record, "negatives": example.negatives, "scores": example.scores}

"""`polyrank search`: rank the candidates of an index for texts."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyrank.cli.command import command
from polyrank.cli.models import ModelOptions, load, set_batch_tokens
from polyrank.cli.options import option, positional
from polyrank.cli.output import Output
from polyrank.errors import DataError, UsageError
from polyrank.records import Hit

DEFAULT_TOP_K = 10
SHOWN_LETTERS = 300
STANDARD_INPUT = "-"


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ModelOptions):
    """Options of `polyrank search`."""

    index: Path = positional("INDEX", help="The folder of an index.")
    texts: tuple[str, ...] = positional(
        "TEXT",
        default=(),
        help="Contexts to search for, each on its own; - or none reads one a line from standard "
        "input.",
    )
    turn: tuple[str, ...] = option(
        (),
        split=False,
        metavar="TEXT",
        help="A turn of one dialogue; give it several times, the oldest first, to search for the "
        "dialogue as one context.",
    )
    top_k: int | None = option(
        None,
        short="-k",
        help=f"How many candidates to give for each context; {DEFAULT_TOP_K} by default, or all "
        "where there are fewer.",
    )
    model: Path | None = option(
        None, help="The model that made the index, where the index does not keep it."
    )


@command("search", SearchOptions)
def search(options: SearchOptions, output: Output) -> None:
    """Find the candidates of an index that score highest for a context."""
    contexts = list(contexts_of(options))
    if not contexts:
        raise UsageError("There is no text to search for.", "Give one, or lines on standard input.")

    from polyrank.retrieval.index import Index

    model = None if options.model is None else load(options.model, options)
    opened = Index.open(options.index, model, device=options.device, dtype=options.dtype)
    if model is None:
        set_batch_tokens(opened.model, options)
    top_k = min(DEFAULT_TOP_K, len(opened)) if options.top_k is None else options.top_k
    found = opened.search(contexts, top_k=top_k)
    for context, hits in zip(contexts, found, strict=True):
        say_hits(context, hits, output)
    results = [
        {"context": context, "hits": hits} for context, hits in zip(contexts, found, strict=True)
    ]
    output.result({"index": options.index, "results": results})


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
        print("Type one text a line; end with Ctrl-D.", file=sys.stderr)
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
    output.say()

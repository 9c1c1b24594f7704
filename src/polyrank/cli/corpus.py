"""`polyrank corpus`: a dump, a log or documents to a corpus that pre-training tasks draw from."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank.cli.command import command
from polyrank.cli.flags import Options
from polyrank.cli.options import option, positional
from polyrank.cli.output import Output
from polyrank.config import require
from polyrank.display.words import span

if TYPE_CHECKING:
    from polyrank.pretraining.corpus.source import Source
    from polyrank.pretraining.corpus.store import Corpus

NUM_EXAMPLES_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class CorpusOptions(Options):
    """Options of `polyrank corpus`."""

    source: tuple[Path, ...] = positional(
        "SOURCE",
        help="A MediaWiki dump (.xml), JSONL of articles or of conversations, dumps of Reddit "
        "(comments and, beside them, posts), or plain-text books (.txt), each plain or as .bz2, "
        ".gz, .xz or .zst; or python-docs, the documentation of this Python. Dumps of Reddit and "
        "books may be several files, folders or patterns.",
    )
    output: Path = option(help="The folder of the corpus to make.")
    format: str | None = option(
        None,
        help="What the source is: wikipedia, articles, books, python-docs, conversations or "
        "reddit. By default, this is detected.",
    )
    language: str | None = option(
        None,
        help="The language, such as de, whose rules split the text into sentences. By default, "
        "the language that a dump names.",
    )
    lists: bool = option(
        True, help="Keep the items of lists in a MediaWiki dump, each as a paragraph."
    )
    processes: int | None = option(
        None,
        help="The number of processes that convert a MediaWiki dump. By default, one per core. "
        "The corpus does not depend on it.",
    )
    keep_going: bool = option(
        False, help="If a file is damaged or cut off, make a corpus of what can be read."
    )
    restart: bool = option(
        False,
        help="Discard an unfinished conversion to the same output. A corpus that was made from "
        "something else is replaced.",
    )

    def __post_init__(self) -> None:
        require(
            self.processes is None or self.processes >= 1,
            "--processes",
            "at least 1",
            self.processes,
        )


def interrupted(options: CorpusOptions) -> str:
    """The words after Ctrl-C."""
    return (
        f"What stood at {options.output} before is unchanged, and the finished parts are kept: run "
        "the same command again to resume."
    )


@command("corpus", CorpusOptions, interrupted=interrupted)
def corpus(options: CorpusOptions, output: Output) -> None:
    """Make a pre-training corpus from Wikipedia, books or conversations.

    Articles keep their sections, paragraphs, sentences and links, with redirects resolved;
    templates, tables and references are dropped, and so are disambiguation pages and pages that are
    lists. A broken page is dropped and counted. An interrupted run resumes where it stopped when
    it is started again.
    """
    from polyrank.pretraining.corpus.convert import convert

    started = time.perf_counter()
    source = source_of(options, output)
    made = convert(
        source,
        options.output,
        num_processes=options.processes or num_cores(),
        restart=options.restart,
        keep_going=options.keep_going,
    )
    report(made, output, time.perf_counter() - started)


def source_of(options: CorpusOptions, output: Output) -> Source:
    """The source that the options name; warns of options that its kind does not have."""
    from polyrank.demo.corpus import PythonDocs
    from polyrank.pretraining.corpus.detection import KINDS, kind_of, source_at

    kinds: tuple[type[Source], ...] = (PythonDocs, *KINDS)
    kind = kind_of(options.source[0], options.format, kinds)
    settings: dict[str, Any] = {"language": options.language, "lists": options.lists}
    known = {name: value for name, value in settings.items() if name in kind.setting_names()}
    without_effect = (
        ("--no-lists", not options.lists and "lists" not in known),
        ("--processes", options.processes and not kind.has_pages),
    )
    for flag, is_given in without_effect:
        if is_given:
            output.warn(f"{flag} has no effect: it is for MediaWiki dumps.")
    return source_at(*options.source, kind=kind.name, kinds=kinds, **known)


def num_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def report(made: Corpus, output: Output, seconds: float) -> None:
    """Say what the corpus holds, and what of the source it does not."""
    manifest = made.manifest
    output.say(f"The corpus {made.path}: {made.kind} in {made.language}, {span(seconds)}")
    for name, count in made.counts.items():
        output.say(f"  {name.replace('_', ' '):<17} {count:>12,}")
    if made.dropped:
        output.say("Dropped, by reason:")
    for reason, found in made.dropped.items():
        examples = "; ".join(found.examples[:NUM_EXAMPLES_SHOWN])
        more = "; …" if found.count > NUM_EXAMPLES_SHOWN else ""
        output.say(f"  {reason:<23} {found.count:>6,}   {examples}{more}")
    if manifest.damage is not None:
        output.warn(f"It holds only what could be read. {manifest.damage}")
    output.result(
        {
            "corpus": made.path,
            "kind": made.kind,
            "language": made.language,
            **made.counts,
            "dropped": {reason: found.count for reason, found in made.dropped.items()},
            "dropped_examples": {reason: found.examples for reason, found in made.dropped.items()},
            "damage": manifest.damage,
            "fingerprint": made.fingerprint,
            "seconds": seconds,
        }
    )

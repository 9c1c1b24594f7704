"""`polyrank export`: a model as a folder that another project loads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyrank.cli.command import command
from polyrank.cli.flags import Options, flag_of
from polyrank.cli.options import any_of, option, positional
from polyrank.cli.output import Output
from polyrank.config import field_types
from polyrank.display.words import span
from polyrank.export_targets import TARGETS, TargetName


@dataclass(frozen=True, kw_only=True)
class ExportOptions(Options):
    """Options of `polyrank export`."""

    model: Path = positional(
        "MODEL", help="The folder or hub id of a saved model, of any architecture."
    )
    to: TargetName = option(help="The format to write.")
    output: Path = option(help="The folder for the export; an earlier export there is replaced.")
    revision: str | None = option(
        None,
        help="The branch, tag or commit of a model that is given by its id on the hub. By default, "
        "main.",
    )
    settings: dict[str, Any] = any_of({name: one.config() for name, one in TARGETS.items()})


@command("export", ExportOptions)
def export(options: ExportOptions, output: Output) -> None:
    """Write a model as a folder that another project loads.

    sentence-transformers: SentenceTransformer loads a bi-encoder and CrossEncoder a cross-encoder,
    with the same vectors and scores. A poly-encoder and a cross-encoder with the head interaction
    need polyrank beside it, and trust_remote_code=True.

    onnx, openvino: the graphs of a model of any architecture, which polyrank runs with ONNX Runtime
    or OpenVINO instead of torch. They are compared with torch first, and only written if they
    agree. --quantise int8 makes them faster on CPUs.

    The last lines say how to load the folder and where it differs from the model.
    """
    known = field_types(TARGETS[options.to].config)
    for name in options.settings.keys() - known:
        output.warn(f"{flag_of(name)} has no effect with --to {options.to}.")
    settings = {name: value for name, value in options.settings.items() if name in known}

    from polyrank.interop.export import export as write

    made = write(
        options.model, options.output, to=options.to, revision=options.revision, **settings
    )
    output.say(f"{options.output}, for {options.to}, {span(output.seconds)}")
    for note in made.notes:
        output.say(f"Note: {note}")
    output.say(f"Load it with: {made.load}")
    output.result(
        {
            "output": options.output,
            "model": options.model,
            "target": options.to,
            "load": made.load,
            "notes": list(made.notes),
            "report": made.report,
        }
    )

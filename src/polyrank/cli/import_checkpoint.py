"""`polyrank import`: a ranker that another project trained, as a model of polyrank."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from polyrank.cli.command import command
from polyrank.cli.flags import Options
from polyrank.cli.options import option, positional
from polyrank.cli.output import Output
from polyrank.display.words import span


@dataclass(frozen=True, kw_only=True)
class ImportOptions(Options):
    """Options of `polyrank import`."""

    checkpoint: Path = positional(
        "CHECKPOINT",
        help="ParlAI's model file, beside which its .opt and .dict are, or the folder with them.",
    )
    output: Path = option(help="The folder for the model; a model there is replaced.")


@command("import", ImportOptions)
def import_parlai(options: ImportOptions, output: Output) -> None:
    """Turn a ranker that ParlAI trained into a model folder.

    The agents transformer/polyencoder, biencoder, ranker and crossencoder become a poly-, bi- or
    cross-encoder with the same token ids and scores. No code of the checkpoint is run, and ParlAI
    is not needed.
    """
    from polyrank.interop.parlai.importing import import_checkpoint
    from polyrank.models.config import NAMES

    model = import_checkpoint(options.checkpoint, options.output)
    kind = NAMES[model.architecture]
    parameters = sum(parameter.numel() for parameter in model.parameters())
    output.say(f"{options.output}: a {kind} of {parameters:,} parameters, {span(output.seconds)}")
    output.say(
        f"Try it with: polyrank info {options.output}, or "
        f"polyrank evaluate {options.output} --data FILE"
    )
    output.result(
        {
            "output": options.output,
            "checkpoint": options.checkpoint,
            "architecture": model.architecture,
            "parameters": parameters,
            "tokens": len(model.tokenizer.pretrained),
            "fingerprint": model.fingerprint(),
        }
    )

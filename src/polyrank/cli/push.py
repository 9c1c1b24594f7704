"""`polyrank push`: a model to the Hugging Face hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from polyrank.cli.command import command
from polyrank.cli.flags import Options
from polyrank.cli.options import option, positional
from polyrank.cli.output import Output
from polyrank.display.words import span


@dataclass(frozen=True, kw_only=True)
class PushOptions(Options):
    """Options of `polyrank push`."""

    model: Path = positional("MODEL", help="The folder of a saved model, of any architecture.")
    repository: str = positional(
        "REPOSITORY", help="Where to upload it, such as my-name/my-model. It is made if missing."
    )
    private: bool | None = option(
        None, help="Make a new repository private. By default, the hub decides."
    )
    revision: str | None = option(
        None, help="The branch to upload to, made if missing. By default, main."
    )
    message: str | None = option(
        None, help="The words of the commit. By default, polyrank's version."
    )


@command("push", PushOptions)
def push(options: PushOptions, output: Output) -> None:
    """Upload a model with its card to the Hugging Face hub.

    The card, README.md, and the record of a training go with it. Log in first with `hf auth login`,
    or set HF_TOKEN. Afterwards the id of the repository loads the model: in from_pretrained,
    load_model and every command that takes a model.
    """
    from polyrank.models.checkpoint import load_model

    model = load_model(options.model, device="cpu", weights_dtype="auto")
    address = model.push_to_hub(
        options.repository,
        private=options.private,
        revision=options.revision,
        commit_message=options.message,
    )
    output.say(f"{options.model} is at {address}, {span(output.seconds)}")
    output.result(
        {
            "model": options.model,
            "repository": options.repository,
            "revision": options.revision or "main",
            "address": address,
            "fingerprint": model.fingerprint(),
        }
    )

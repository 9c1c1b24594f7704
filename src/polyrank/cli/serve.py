"""`polyrank serve`: models and an index behind a port."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyrank.cli.command import command
from polyrank.cli.options import InferenceOptions, flattened, option
from polyrank.cli.output import Output
from polyrank.serving.config import PipelineConfig, ServerConfig

KINDS = {"bi": "bi-encoder", "poly": "poly-encoder", "cross": "cross-encoder"}


@dataclass(frozen=True, kw_only=True)
class ServeOptions(InferenceOptions):
    """Options of `polyrank serve`."""

    model: tuple[str, ...] = option(
        (),
        split=False,
        metavar="[NAME=]FOLDER",
        help="A saved model of any architecture; repeat it for each. Requests call it by its name, "
        "which by default is that of its folder.",
    )
    index: Path | None = option(
        None, help="The folder of an index to search; its model is served, too."
    )
    reranker: str | None = option(
        None,
        metavar="[NAME=]CROSS",
        help="The folder of a saved cross-encoder that reranks the candidates found, or the name "
        "of one that --model gives.",
    )
    server: ServerConfig = flattened(ServerConfig())


@command("serve", ServeOptions, interrupted=lambda _: "The server has stopped.")
def serve(options: ServeOptions, output: Output) -> None:
    """Serve models and an index over HTTP.

    Clients of OpenAI, Cohere, Jina, text-embeddings-inference and vLLM can call it as it is: for
    embeddings, reranking and scores. The page at / shows what the models do; /docs lists all
    calls.

    SIGTERM and Ctrl-C end it without losing a request: for --drain-seconds it still accepts, and
    then it answers what it has accepted. SIGHUP reads the keys and the index again. With --json,
    standard output has one object once everything is loaded.
    """
    from polyrank.serving.server import serve as start

    def tell(facts: Mapping[str, Any]) -> None:
        if output.json:
            output.result(facts)
        else:
            output.say("\n".join(lines(facts)))

    start(
        PipelineConfig(models=options.model, index=options.index, reranker=options.reranker),
        options.server,
        {name: getattr(options, name) for name in ("device", "dtype", "batch_tokens", "engine")},
        tell=tell,
    )


def lines(facts: Mapping[str, Any]) -> list[str]:
    """What is served, for people."""
    rows = [
        (model["name"], f"{KINDS[model['architecture']]}, {model['device']}, {model['dtype']}")
        for model in facts["models"]
    ]
    index = facts["index"]
    if index is not None:
        words = f"{index['num_candidates']:,} candidates of {index['path']}, by {index['model']}"
        if facts["reranker"] is not None:
            words += f", reranked by {facts['reranker']}"
        rows.append(("/search", words))
    width = max(len(name) for name, _ in rows)
    processes = f" by {facts['workers']} processes" if facts["workers"] > 1 else ""
    return [
        f"Serving{processes} on {facts['url']}:",
        *(f"  {name:{width}}  {words}" for name, words in rows),
        "Requests need a key." if facts["needs_key"] else "Requests need no key.",
        f"The page is at {facts['url']}/, all calls are at {facts['url']}/docs. Ctrl-C stops it.",
    ]

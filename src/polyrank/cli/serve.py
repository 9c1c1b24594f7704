"""`polyrank serve`: models and an index behind a port."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from polyrank.cli.command import command
from polyrank.cli.options import InferenceOptions, flattened, option
from polyrank.cli.output import Output
from polyrank.serving.config import PipelineConfig, ServerConfig


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
        help="The folder of a saved cross-encoder that reranks the candidates found.",
    )
    server: ServerConfig = flattened(ServerConfig())


@command("serve", ServeOptions)
def serve(options: ServeOptions, output: Output) -> None:
    """Serve models and an index over HTTP.

    Clients of OpenAI, Cohere, Jina, text-embeddings-inference and vLLM can call it as it is: for
    embeddings, reranking and scores. The page at / shows what the models do; /docs lists all
    calls.
    """
    from polyrank.serving.server import serve as start

    start(
        PipelineConfig(models=options.model, index=options.index, reranker=options.reranker),
        options.server,
        {name: getattr(options, name) for name in ("device", "dtype", "batch_tokens", "engine")},
    )

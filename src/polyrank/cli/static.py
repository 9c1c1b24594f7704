"""`polyrank static`: a bi-encoder that averages a vector per token, from an encoder or a file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from polyrank.cli.command import command
from polyrank.cli.flags import flag_of
from polyrank.cli.options import SourceOptions, option, positional
from polyrank.cli.output import Output
from polyrank.config import require
from polyrank.display.words import span


@dataclass(frozen=True, kw_only=True)
class StaticOptions(SourceOptions):
    """Options of `polyrank static`."""

    source: str = positional(
        "SOURCE",
        help="An encoder, a model or a file of word vectors. Encoders and models are folders or "
        "hub ids; word vectors have the text format of GloVe, word2vec or fastText.",
    )
    output: Path = option(help="The folder for the bi-encoder; a model there is replaced.")
    dimension: int | None = option(
        None,
        help="The number of principal components to keep. By default, 256 of a wider encoder; "
        "the vectors of a file stay as they are.",
    )
    sif: float | None = option(
        1e-4,
        help="The constant of smooth inverse frequency, which gives frequent words less weight. "
        "`none` gives all words the same weight. Words are assumed to be sorted by falling "
        "frequency.",
    )
    limit: int | None = option(None, help="Read only the first N words of a file.")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("dimension", "limit"):
            value = getattr(self, name)
            require(value is None or value >= 1, flag_of(name), "at least 1", value)
        require(self.sif is None or self.sif > 0, "--sif", "above 0", self.sif)


@command("static", StaticOptions)
def static(options: StaticOptions, output: Output) -> None:
    """Make a bi-encoder of static embeddings, one vector per token.

    The vector of a text is their average. They come from an encoder that reads each token of its
    vocabulary alone (Model2Vec), or from a file of word vectors. It is a baseline for other models
    and a base for `polyrank train --arch bi`.
    """
    from polyrank.models.description import DESCRIPTION
    from polyrank.models.static.distilled import distil_static, static_from_file
    from polyrank.storage import require_replaceable

    require_replaceable(options.output, DESCRIPTION, "a model")
    started = time.perf_counter()
    if Path(options.source).is_file():
        model = static_from_file(
            Path(options.source),
            dimension=options.dimension,
            sif=options.sif,
            most=options.limit,
        )
    else:
        if options.limit is not None:
            output.warn("--limit has no effect without a file of word vectors.")
        model = distil_static(
            options.source,
            dimension=options.dimension,
            sif=options.sif,
            device=options.device,
            dtype=options.dtype,
            batch_tokens=options.batch_tokens,
            revision=options.revision,
            show_progress_bar=True,
        )
    model.save_pretrained(options.output)
    seconds = time.perf_counter() - started
    count, dimension = len(model.tokenizer.pretrained), model.dimension
    output.say(
        f"{count:,} tokens, {dimension} dimensions, in the bi-encoder {options.output}, "
        f"{span(seconds)}"
    )
    output.say(
        "Train from it with: "
        f"polyrank train --arch bi --base {options.output} --train FILE --output DIR"
    )
    output.result(
        {
            "output": options.output,
            "tokens": count,
            "dimension": dimension,
            "seconds": seconds,
        }
    )

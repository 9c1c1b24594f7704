"""The tables of Humeau, Shuster, Lachaux and Weston: Poly-encoders (ICLR 2020).

The paper's figures are percentages. The cross-encoder has the default head and the same batches as
the others, except at the paper's scale and where its training time is measured.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from polyrank.reproduce.table import Row, Scale, Settings, Table, Train
from polyrank.training.recipes import PAPERS_CODES

PAPER = "Humeau et al. (2020)"
RANKING = ("recall@1", "mrr")
CONVAI2 = ("ConvAI2 R@1/20, %",)
Architecture = Literal["bi", "poly", "cross"]


def trained(arch: Architecture, effort: float = 1.0, **settings: Any) -> tuple[Train, ...]:
    """One run on dialogues."""
    return (Train(arch=arch, data="dialogues", settings=settings, effort=effort),)


def poly(codes: int, effort: float = 1.0) -> tuple[Train, ...]:
    """A poly-encoder as it is trained by default."""
    return trained("poly", effort, num_codes=codes)


def batch_sizes(scale: Scale, *, equal_pairs: bool = False) -> list[Row]:
    """Batches that do not fit into memory go through the gradient cache.

    All sizes have the same steps, or see the same number of pairs.
    """
    published = {32: 81.0, 64: 81.7, 128: 82.3, 256: 83.0, 512: 83.3}
    return [
        Row(
            label=f"{size - 1} negatives",
            stages=trained("bi", 1.6 * 32 / size if equal_pairs else 0.2, batch_size=size),
            paper=(figure,),
        )
        for size, figure in published.items()
    ]


def layers(scale: Scale) -> list[Row]:
    """Bi and cross, each trained in part."""
    parts = {
        "top": ("top layer", 74.2, 80.6),
        "top4": ("top 4 layers", 82.0, 86.3),
        "all_but_embeddings": ("all but embeddings", 83.3, 87.3),
        "all": ("every layer", 83.0, 86.6),
    }
    return [
        Row(label=f"{name}, {words}", stages=stages, paper=(figure,))
        for part, (words, *figures) in parts.items()
        for name, stages, figure in (
            ("bi", trained("bi", trainable=part), figures[0]),
            ("cross", trained("cross", trainable=part), figures[1]),
        )
    ]


def reductions(scale: Scale) -> list[Row]:
    """The maximum is not in the paper."""
    kinds: dict[str, tuple[Settings, float | None]] = {
        "first output": ({"reduction": "first"}, 83.3),
        "mean of the first 16": ({"reduction": "mean_first", "reduction_tokens": 16}, 82.9),
        "mean of the first 64": ({"reduction": "mean_first", "reduction_tokens": 64}, 82.7),
        "mean of all": ({"reduction": "mean"}, 83.1),
        "maximum": ({"reduction": "max"}, None),
    }
    return [
        Row(label=label, stages=trained("bi", **settings), paper=(figure,))
        for label, (settings, figure) in kinds.items()
    ]


CODES = (1, 4, 16, 64, 360)


def context_vectors(scale: Scale) -> list[Row]:
    """Learnt codes as in the paper, and as polyrank has them by default."""
    papers: Settings = {**PAPERS_CODES, "num_codes": 0}
    ours: Settings = {"code_recency": 0.1, "code_mean": 0.67}
    kinds: dict[str, tuple[str, Settings, tuple[float | None, ...]]] = {
        "learnt codes": ("learnt", papers, (81.9, 83.8, 84.4, 84.9, 85.3)),
        "first m outputs": ("first", {}, (83.2, 83.4, 85.2, 86.0, 86.3)),
        "last m outputs": ("last", {}, (82.9, 82.8, 83.9, 84.9, 86.3)),
        "last m and first": ("last_and_first", {}, (None, 82.9, 83.8, 85.0, 86.2)),
        "learnt codes, polyrank's": ("learnt", ours, (None,) * 5),
    }
    sizes = (4, 16, 64) if scale.name == "small" else CODES
    return [
        Row(
            label=f"{label}, m = {size}",
            stages=trained("poly", **{**settings, "context_vectors": kind, "num_codes": size}),
            paper=(figures[CODES.index(size)],),
        )
        for label, (kind, settings, figures) in kinds.items()
        for size in sizes
        if not (kind == "last_and_first" and size == 1)
    ]


def architectures(scale: Scale) -> list[Row]:
    """With BERT's weights in the paper; here with those of the base."""
    published = {
        16: (83.2, 67.8, 75.1, 81.2, 88.3),
        64: (83.7, 67.0, 74.7, 81.3, 88.4),
        360: (83.7, 68.9, 76.2, 80.9, 88.1),
    }
    sizes = [size for size in published if size < 128 or scale.name != "small"]
    return [
        Row(label="bi", stages=trained("bi"), paper=(81.7, 66.8, 74.6, 80.6, 88.0)),
        *(Row(label=f"poly-{size}", stages=poly(size), paper=published[size]) for size in sizes),
        Row(label="cross", stages=trained("cross"), paper=(84.8, 67.4, 75.6, 82.8, 89.4)),
    ]


def training_time(scale: Scale) -> list[Row]:
    """Seconds for 1,000 contexts; the cross-encoder reads each with 15 wrong responses."""
    linear = {"head": "linear", "batch_size": 16, "num_negatives": 15}
    return [
        Row(label="bi", stages=trained("bi", 0.15), paper=(2.0, 4.9, 7.9)),
        Row(label="poly-16", stages=poly(16, 0.15), paper=(2.7, 5.5, 8.0)),
        Row(label="poly-64", stages=poly(64, 0.15), paper=(2.8, 5.7, 8.0)),
        Row(label="cross", stages=trained("cross", 0.15, **linear), paper=(9.4, 13.5, 39.9)),
    ]


def inference_speed(scale: Scale) -> list[Row]:
    """As the models start: training changes no time."""
    published = {16: (122, 678, 18, 38), 64: (126, 692, 23, 46), 360: (160, 837, 57, 88)}
    return [
        Row(label="bi", stages=trained("bi", 0), paper=(115, 160, 19, 22)),
        *(Row(label=f"poly-{m}", stages=poly(m, 0), paper=row) for m, row in published.items()),
        Row(
            label="cross",
            stages=trained("cross", 0, head="linear"),
            paper=(21_700, 2_200_000, 2_600, 266_000),
        ),
    ]


TABLES = (
    Table(
        name="batch-size",
        about="How many in-batch negatives the bi-encoder sees, with the same number of steps",
        source=f"{PAPER}, table 2",
        task="dialogues",
        metrics=RANKING,
        paper_columns=CONVAI2,
        rows=batch_sizes,
    ),
    Table(
        name="batch-size-equal-pairs",
        about="How many in-batch negatives the bi-encoder sees, with the same number of pairs",
        source=f"{PAPER}, table 2, where every size is trained to the end",
        task="dialogues",
        metrics=RANKING,
        paper_columns=CONVAI2,
        rows=partial(batch_sizes, equal_pairs=True),
    ),
    Table(
        name="layers",
        about="Which layers are fine-tuned, for bi and cross",
        source=f"{PAPER}, table 3",
        task="dialogues",
        metrics=RANKING,
        paper_columns=CONVAI2,
        rows=layers,
    ),
    Table(
        name="architectures",
        about="Bi, poly and cross: the main table",
        source=f"{PAPER}, table 4, BERT weights",
        task="dialogues",
        metrics=("recall@1", "mrr", "recall@2", "recall@5"),
        paper_columns=(
            *CONVAI2,
            "DSTC7 R@1/100, %",
            "DSTC7 MRR, %",
            "Ubuntu R@1/10, %",
            "Ubuntu MRR, %",
        ),
        rows=architectures,
    ),
    Table(
        name="inference-speed",
        about="Milliseconds per query, by number of cached candidates",
        source=f"{PAPER}, table 5",
        task="speed",
        metrics=("ms@1000", "ms@100000"),
        paper_columns=("CPU, 1k, ms", "CPU, 100k, ms", "GPU, 1k, ms", "GPU, 100k, ms"),
        rows=inference_speed,
    ),
    Table(
        name="training-time",
        about="Seconds of training per 1,000 contexts",
        source=f"{PAPER}, table 6",
        task="time",
        metrics=("seconds", "times"),
        paper_columns=("ConvAI2, h on 8 V100", "DSTC7, h", "Ubuntu, h"),
        rows=training_time,
    ),
    Table(
        name="reductions",
        about="How token outputs become one vector, for the bi-encoder",
        source=f"{PAPER}, table 7",
        task="dialogues",
        metrics=RANKING,
        paper_columns=("ConvAI2 valid R@1/20, %",),
        rows=reductions,
    ),
    Table(
        name="context-vectors",
        about="Where the poly-encoder's m context vectors come from, and how many",
        source=f"{PAPER}, table 8",
        task="dialogues",
        metrics=RANKING,
        paper_columns=("ConvAI2 dev R@1/20, %",),
        rows=context_vectors,
    ),
)

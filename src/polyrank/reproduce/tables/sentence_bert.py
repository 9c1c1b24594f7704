"""The tables of Reimers and Gurevych: Sentence-BERT (EMNLP 2019).

Figures are Spearman's correlation on the STS benchmark; the paper's are multiplied by 100.
"""

from __future__ import annotations

from polyrank.reproduce.table import Row, Rows, Scale, Table, Train

PAPER = "Reimers and Gurevych (2019)"
METRICS = ("spearman", "pearson")
SIAMESE = {"shared_towers": True}
CLASSES = {**SIAMESE, "objective": "classification"}
SCORES = {**SIAMESE, "objective": "regression", "similarity": "cosine", "temperature": 1.0}


def on_nli(**settings: object) -> Train:
    """A softmax over the classes of inference."""
    return Train(arch="bi", data="nli", settings={**CLASSES, **settings})


def on_sts(**settings: object) -> Train:
    """Cosine and squared error."""
    return Train(arch="bi", data="sts", settings={**SCORES, **settings})


def objectives(scale: Scale) -> list[Row]:
    """What is trained on which pairs."""
    untrained = Train(arch="bi", data="sts", settings=SIAMESE, effort=0)
    pairwise = {"task": "regress", "objective": "regression"}
    return [
        Row(label="bi, not trained", stages=(untrained,)),
        Row(label="bi, NLI", stages=(on_nli(),), paper=(77.03,)),
        Row(label="bi, STSb", stages=(on_sts(),), paper=(84.67,)),
        Row(label="bi, NLI then STSb", stages=(on_nli(), on_sts())),
        Row(label="cross, STSb", stages=(Train(arch="cross", data="sts", settings=pairwise),)),
    ]


def pooling(scale: Scale) -> list[Row]:
    """How outputs become one vector, by what is trained on."""
    kinds = {"mean": (80.78, 87.44), "max": (79.07, 69.92), "first": (79.80, 86.62)}
    names = {"mean": "MEAN", "max": "MAX", "first": "CLS"}
    return [
        Row(label=f"{names[kind]}, {data}", stages=(stage,), paper=(figure,))
        for kind, figures in kinds.items()
        for data, stage, figure in (
            ("NLI", on_nli(reduction=kind), figures[0]),
            ("STSb", on_sts(reduction=kind), figures[1]),
        )
    ]


def concatenation(scale: Scale) -> list[Row]:
    """What the classifier of inference sees of the two vectors."""
    published: dict[str, tuple[float, ...]] = {
        "u,v": (66.04,),
        "|u-v|": (69.78,),
        "u*v": (),
        "|u-v|,u*v": (),
        "u,v,u*v": (),
        "u,v,|u-v|": (80.78,),
        "u,v,|u-v|,u*v": (),
    }
    return [
        Row(label=f"({kind})", stages=(on_nli(concatenation=kind),), paper=figures)
        for kind, figures in published.items()
    ]


def table(name: str, about: str, source: str, paper: str, rows: Rows) -> Table:
    """One table; all measure the same."""
    return Table(
        name=name,
        about=about,
        source=f"{PAPER}, {source}",
        task="sts",
        metrics=METRICS,
        paper_columns=(paper,),
        rows=rows,
    )


TABLES = (
    table(
        "objectives",
        "Inference and scored pairs as training data of sentence encoders",
        "tables 1 and 2",
        "STSb test, Spearman × 100",
        objectives,
    ),
    table(
        "pooling",
        "How token outputs become a sentence's vector",
        "table 6",
        "STSb dev, Spearman × 100",
        pooling,
    ),
    table(
        "concatenation",
        "What the classifier of inference sees of the two vectors",
        "table 6",
        "STSb dev, Spearman × 100",
        concatenation,
    ),
)

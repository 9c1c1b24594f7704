"""The tables of Chang, Yu, Chang, Yang and Kumar: Pre-training Tasks (ICLR 2020).

A bi-encoder is pre-trained on a corpus, then trained on a share of the questions; a fifth of the
questions is tested on. Below the paper's scale it has one tower and means unless a row says
otherwise.
"""

from __future__ import annotations

from typing import Any

from polyrank.reproduce.table import Pretrain, Row, Scale, Table, Train

PAPER = "Chang et al. (2020)"
ALL = "ict,bfs,wlp"
NAMES = {"": "no pre-training", "mlm": "MLM", "ict": "ICT", "bfs": "BFS", "wlp": "WLP"}
NAMES[ALL] = "ICT + BFS + WLP"
RECALLS = ("recall@1", "recall@5", "recall@10", "recall@50", "recall@100")
SQUAD = tuple(f"ReQA SQuAD R@{k}, %" for k in (1, 5, 10, 50, 100))


def tuned(scale: Scale, share: float, **settings: Any) -> Train:
    """The training on a share of the questions."""
    usual: dict[str, Any] = {}
    if not scale.is_paper:
        usual = {"learning_rate": 2e-4, "max_context_length": 64, "max_candidate_length": 160}
        usual |= {"shared_towers": True}
    settings = {**usual, **settings}
    return Train(arch="bi", data="questions", share=share, settings=settings)


def encoder(tasks: str, encoder: dict[str, Any] | None = None, **settings: Any) -> Pretrain:
    """The pre-training."""
    return Pretrain(tasks=tasks, encoder=encoder or {}, settings=settings)


def pretraining_tasks(scale: Scale) -> list[Row]:
    """Each task alone is not in the paper's table 3, but in its ablation."""
    published: dict[tuple[float, str], tuple[float, ...]] = {
        (1, ""): (0.02, 0.06, 0.08, 0.31, 0.54),
        (1, "mlm"): (0.18, 0.51, 0.82, 2.46, 3.93),
        (1, ALL): (37.43, 61.48, 70.18, 85.37, 89.85),
        (5, ""): (0.17, 0.36, 0.54, 1.43, 2.17),
        (5, "mlm"): (1.19, 3.59, 5.40, 12.52, 17.41),
        (5, ALL): (45.90, 70.89, 78.47, 90.49, 93.64),
        (80, ""): (12.32, 26.88, 34.46, 53.74, 61.53),
        (80, "mlm"): (27.34, 49.59, 58.17, 74.89, 80.33),
        (80, ALL): (58.35, 82.76, 88.44, 95.87, 97.49),
    }
    bm25 = Row(label="BM25", paper=(41.86, 58.00, 63.64, 74.15, 77.91))
    return [
        bm25,
        *(
            Row(
                label=f"{share} %, {name}",
                stages=(encoder(tasks), tuned(scale, share)),
                paper=published.get((share, tasks), ()),
            )
            for share in (1, 5, 80)
            for tasks, name in NAMES.items()
        ),
    ]


def encoder_size(scale: Scale) -> list[Row]:
    """Deep and shallow encoders of the scale, with vectors of 128 and 512 (64 and 256) numbers."""
    small, large = (128, 512) if scale.layers == 12 else (64, 256)
    deep, shallow = scale.encoder(), scale.encoder(shallow=True)
    shares = (1, 80) if scale.name == "small" else (1, 5, 10, 80)
    models: list[tuple[str, dict[str, Any], int, tuple[float | None, ...]]] = [
        ("", deep, small, (0.72, 3.88, 6.94, 38.94)),
        ("mlm", deep, small, (2.99, 12.21, 22.97, 71.12)),
        ("ict", deep, small, (79.80, 85.97, 88.13, 93.91)),
        (ALL, deep, small, (81.31, 87.08, 89.06, 94.37)),
        (ALL, deep, large, (82.84, 88.05, 90.03, 94.60)),
        ("ict", shallow, small, (77.13, None, None, 91.88)),
        ("bfs", shallow, small, (72.99, None, None, 89.82)),
        ("wlp", shallow, small, (56.94, None, None, 86.15)),
    ]
    return [
        Row(
            label=f"{share} %, {sizes['num_layers']} layers, {NAMES[tasks]}, d = {size}",
            stages=(
                encoder(tasks, sizes, projection=size),
                tuned(scale, share, projection=size),
            ),
            paper=(figures[(1, 5, 10, 80).index(share)],),
        )
        for tasks, sizes, size, figures in models
        for share in shares
    ]


def towers(scale: Scale) -> list[Row]:
    """One encoder for both sides or two, in the pre-training and in the training."""
    kinds = {
        "shared": (True, True),
        "shared, then separate": (True, False),
        "separate": (False, False),
    }
    return [
        Row(
            label=f"{share} %, {label}",
            stages=(
                encoder(ALL, shared_towers=first),
                tuned(scale, share, shared_towers=second),
            ),
        )
        for share in (1, 80)
        for label, (first, second) in kinds.items()
    ]


TABLES = (
    Table(
        name="pretraining-tasks",
        about="What pre-training brings, with 1, 5 and 80 % of the questions to train on",
        source=f"{PAPER}, table 3",
        task="questions",
        metrics=RECALLS,
        paper_columns=SQUAD,
        rows=pretraining_tasks,
    ),
    Table(
        name="encoder-size",
        about="Layers, the size of the vectors and the tasks of pre-training",
        source=f"{PAPER}, the ablation study",
        task="questions",
        metrics=("recall@100", *RECALLS[:-1]),
        paper_columns=("Natural Questions R@100, %",),
        rows=encoder_size,
        always_new=True,
    ),
    Table(
        name="towers",
        about="One encoder for both sides, or two",
        source="not in a paper; the setting is that of Chang et al. (2020)",
        task="questions",
        metrics=("recall@100", *RECALLS[:-1]),
        paper_columns=(),
        rows=towers,
    ),
)

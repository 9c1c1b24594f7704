"""The papers' training settings, by name; flags and YAML override them.

    poly-encoder-bert    Humeau et al. (2020) from BERT's weights
    poly-encoder-reddit  the same from your own weights, pre-trained on dialogues
    sbert-nli            Sentence-BERT (Reimers and Gurevych, 2019) on inference pairs
    sbert-sts            Sentence-BERT on scored pairs
    two-tower            Chang et al. (2020), fine-tuning

and of pre-training

    two-tower-pretraining     Chang et al. (2020): ICT, BFS and WLP
    poly-encoder-pretraining  Humeau et al. (2020): MLM and next utterance, on dialogues

Published settings are given under our names. What a paper leaves open follows its authors' code;
`docs/training.md` says which is which. Does not need torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from polyrank.errors import UsageError, nearest

Settings = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings of model, objective and training, by architecture; the first is the usual one."""

    name: str
    about: str
    common: Settings
    by_architecture: Mapping[str, Settings]

    @property
    def architectures(self) -> tuple[str, ...]:
        """The architectures that it is for."""
        return tuple(self.by_architecture)

    def settings(self, architecture: str | None = None) -> dict[str, Any]:
        """All settings for an architecture, by their names, `arch` among them.

        Raises UsageError for an architecture that the recipe is not for.
        """
        chosen = self.architectures[0] if architecture is None else architecture
        if chosen not in self.by_architecture:
            known = ", ".join(self.architectures)
            raise UsageError(
                f"The recipe {self.name} is for {known}, not for {chosen}.",
                f"Choose one of {known}, or leave out the recipe.",
            )
        return {"arch": chosen, **self.common, **self.by_architecture[chosen]}


def find(name: str, known: Mapping[str, Recipe] | None = None) -> Recipe:
    """The recipe of a name, by default one to train with. Raises UsageError naming the nearest."""
    known = RECIPES if known is None else known
    if name not in known:
        raise UsageError(f"There is no recipe {name!r}.", nearest(name, known))
    return known[name]


LENGTHS = {"max_context_length": 360, "max_candidate_length": 72}
TWO_TOWERS = {
    "shared_towers": False,
    "similarity": "dot",
    "temperature": 1.0,
    "objective": "in_batch_softmax",
    "batch_size": 512,
    "warmup": 100.0,
}
PAPERS_CODES = {
    "num_codes": 64,
    "context_vectors": "learnt",
    "attention": "basic",
    "code_recency": 0.0,
    "code_mean": 0.0,
    "code_learning_rate": 5e-5,
}
CROSS = {
    "reduction": "first",
    "head": "linear",
    "task": "rank",
    "objective": "listwise",
    "batch_size": 16,
    "num_negatives": 15,
    "warmup": 1000.0,
}
HUMEAU = {
    **LENGTHS,
    "learning_rate": 5e-5,
    "new_learning_rate": 5e-5,
    "schedule": "plateau",
    "plateau_factor": 0.4,
    "evaluations_per_epoch": 2.0,
    "metric": "recall@1",
    "trainable": "all_but_embeddings",
    "dropout": 0.1,
}
SBERT = {
    "reduction": "mean",
    "max_context_length": 128,
    "max_candidate_length": 128,
    "batch_size": 16,
    "optimiser": "adamw",
    "weight_decay": 0.01,
    "learning_rate": 2e-5,
    "warmup": 0.1,
    "schedule": "linear",
    "trainable": "all",
    "dropout": 0.1,
}
SIAMESE = {"shared_towers": True, "similarity": "cosine", "temperature": 1.0}
PAIRWISE = {"reduction": "first", "head_dropout": 0.1, "new_learning_rate": 2e-5}

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="poly-encoder-bert",
            about="Humeau et al. (2020), from BERT's weights: AdamW, first output",
            common={**HUMEAU, "optimiser": "adamw", "weight_decay": 0.01},
            by_architecture={
                "poly": {**TWO_TOWERS, "reduction": "first", **PAPERS_CODES, "epochs": 8.0},
                "bi": {**TWO_TOWERS, "reduction": "first", "epochs": 10.0},
                "cross": {**CROSS, "epochs": 12.0},
            },
        ),
        Recipe(
            name="poly-encoder-reddit",
            about="Humeau et al. (2020), from your own weights: Adamax, outputs of BERT's size",
            common={
                **HUMEAU,
                "optimiser": "adamax",
                "trainable": "all",
                "rescale_last_layer": "bert",
            },
            by_architecture={
                "poly": {**TWO_TOWERS, "reduction": "mean", **PAPERS_CODES, "epochs": 8.0},
                "bi": {**TWO_TOWERS, "reduction": "mean", "epochs": 10.0},
                "cross": {**CROSS, "epochs": 12.0},
            },
        ),
        Recipe(
            name="sbert-nli",
            about="Reimers and Gurevych (2019), on inference: softmax over (u, v, |u-v|)",
            common={**SBERT, "objective": "classification", "epochs": 1.0},
            by_architecture={
                "bi": {**SIAMESE, "concatenation": "u,v,|u-v|", "new_learning_rate": 2e-5},
                "cross": {**PAIRWISE, "task": "classify", "num_labels": 3},
            },
        ),
        Recipe(
            name="sbert-sts",
            about="Reimers and Gurevych (2019), on scored pairs: cosine and squared error",
            common={**SBERT, "objective": "regression", "epochs": 4.0},
            by_architecture={
                "bi": {**SIAMESE, "new_learning_rate": 2e-5},
                "cross": {**PAIRWISE, "task": "regress"},
            },
        ),
        Recipe(
            name="two-tower",
            about="Chang et al. (2020), fine-tuning: sampled softmax over the batch",
            common={
                "max_context_length": 64,
                "max_candidate_length": 288,
                "optimiser": "adamw",
                "learning_rate": 5e-5,
                "new_learning_rate": 5e-5,
                "warmup": 0.1,
                "schedule": "linear",
                "max_steps": 2000,
                "trainable": "all",
                "dropout": 0.1,
            },
            by_architecture={
                "bi": {
                    "shared_towers": False,
                    "reduction": "first",
                    "projection": 512,
                    "similarity": "dot",
                    "temperature": 1.0,
                    "objective": "in_batch_softmax",
                    "logq": True,
                    "batch_size": 512,
                },
            },
        ),
    )
}

PRETRAINING: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="two-tower-pretraining",
            about="Chang et al. (2020), pre-training: ICT, BFS and WLP, equally often",
            common={
                "tasks": "ict,bfs,wlp",
                "mix_tasks": True,
                "keep_sentence": 0.0,
                "any_section": True,
                "any_passage": True,
                "logq": True,
                "max_context_length": 64,
                "max_candidate_length": 288,
                "batch_size": 8192,
                "max_steps": 100_000,
                "optimiser": "adamw",
                "learning_rate": 1e-4,
                "new_learning_rate": 1e-4,
                "warmup": 0.1,
                "schedule": "linear",
                "dropout": 0.1,
            },
            by_architecture={
                "bi": {
                    "shared_towers": False,
                    "reduction": "first",
                    "projection": 512,
                    "similarity": "dot",
                    "temperature": 1.0,
                },
            },
        ),
        Recipe(
            name="poly-encoder-pretraining",
            about="Humeau et al. (2020), pre-training: MLM and next utterance in turn",
            common={
                "tasks": "mlm,next_utterance",
                "mix_tasks": False,
                "unrelated_utterances": 0.5,
                "batch_size": 512,
                "optimiser": "adamw",
                "beta2": 0.98,
                "weight_decay": 0.0,
                "learning_rate": 2e-4,
                "new_learning_rate": 2e-4,
                "schedule": "inverse_sqrt",
                "dropout": 0.1,
            },
            by_architecture={"bi": {"shared_towers": True}},
        ),
    )
}

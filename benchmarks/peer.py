"""sentence-transformers' side of a comparison: trained by its own trainers, ranked by our code.

Texts come cut to the tokens that our models read of them, contexts on the left, candidates on the
right, with the turns of a context joined by the separator, as ours are: so both sides see the same.

Letters: B contexts, N candidates, C candidates of each context, d dimensions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from sentence_transformers import (
    CrossEncoder,
    CrossEncoderTrainer,
    CrossEncoderTrainingArguments,
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.cross_encoder import losses as cross_losses
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import Pooling, Router, Transformer
from torch import Tensor
from transformers import AutoTokenizer

from benchmarks.training_clock import TrainingClock, training_clock
from polyrank.records import Context, Example
from polyrank.runtime import has_bfloat16
from polyrank.scoring.poly import poly_scores, poly_scores_each

CPU = torch.device("cpu")
SURE = 100.0
"""A label whose softmax among zeros is one."""


@dataclass(frozen=True, kw_only=True)
class PeerConfig:
    """How the peer is trained; what is equal on both sides has our names."""

    batch_size: int
    max_steps: int
    learning_rate: float
    seed: int
    weight_decay: float = 0.01
    warmup: float = 0.1
    towers: str = "one"
    """One encoder for both sides, the peer's habit, or two, by its Router."""
    loss: str = "mnrl"
    """`mnrl` for bi; `bce` or `listnet` for cross."""
    attention: str = "sdpa"
    dropout: float | None = None
    """Dropout everywhere; the encoder's own by default."""


class Cutter:
    """Cuts texts to what is left of them at a length in tokens."""

    def __init__(self, base: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(base)
        self.tokenizer.backend_tokenizer.no_truncation()
        self.tokenizer.backend_tokenizer.no_padding()

    def context(self, context: Context, room: int) -> str:
        """The last `room` tokens of the turns, joined by the separator."""
        turns = [context] if isinstance(context, str) else context
        text = f" {self.tokenizer.sep_token} ".join(turns)
        ends = self.offsets(text)
        return text[ends[-room][0] :] if len(ends) > room else text

    def candidate(self, text: str, room: int) -> str:
        """The first `room` tokens."""
        ends = self.offsets(text)
        return text[: ends[room - 1][1]] if len(ends) > room else text

    def offsets(self, text: str) -> list[tuple[int, int]]:
        """Where each token stands in the text."""
        encoding = self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False)
        found: list[tuple[int, int]] = encoding.offsets
        return found


def precise() -> Any:
    """Mixed precision, where ours computes in bfloat16, too."""
    return torch.autocast("cpu", torch.bfloat16, enabled=has_bfloat16(CPU))


class PeerBi:
    """A SentenceTransformer as a ranker of our evaluation."""

    def __init__(self, base: Path, config: PeerConfig, lengths: tuple[int, int]) -> None:
        self.cutter = Cutter(base)
        self.rooms = (lengths[0] - 2, lengths[1] - 2)
        modules: list[Any]
        if config.towers == "two":
            query, document = (encoder(base, config, length) for length in lengths)
            modules = [Router.for_query_document([query], [document])]
        else:
            modules = [encoder(base, config, max(lengths))]
        self.model = SentenceTransformer(modules=[*modules, Pooling(384, "mean")], device="cpu")

    @torch.inference_mode()
    def encode_for_scoring(
        self, contexts: Sequence[Context], *, show_progress_bar: bool = False
    ) -> Tensor:
        """(B, 1, d), unit vectors."""
        texts = [self.cutter.context(context, self.rooms[0]) for context in contexts]
        with precise():
            vectors = self.model.encode_query(
                texts, convert_to_tensor=True, normalize_embeddings=True
            )
        return vectors.float()[:, None]

    @torch.inference_mode()
    def encode_candidates(self, texts: Sequence[str], *, show_progress_bar: bool = False) -> Tensor:
        """(N, d), unit vectors."""
        cut = [self.cutter.candidate(text, self.rooms[1]) for text in texts]
        with precise():
            vectors = self.model.encode_document(
                cut, convert_to_tensor=True, normalize_embeddings=True
            )
        return vectors.float()

    def score_all(self, contexts: Tensor, candidates: Tensor) -> Tensor:
        """(B, 1, d), (N, d) → (B, N)."""
        return poly_scores(contexts, candidates, "basic")

    def score_each(self, contexts: Tensor, candidates: Tensor) -> Tensor:
        """(B, 1, d), (B, C, d) → (B, C)."""
        return poly_scores_each(contexts, candidates, "basic")

    def train(self, examples: Sequence[Example], config: PeerConfig) -> TrainingClock:
        """MultipleNegativesRankingLoss over (context, response), no duplicates in a batch."""
        cut = self.cutter
        columns = {
            "anchor": [cut.context(example.context, self.rooms[0]) for example in examples],
            "positive": [cut.candidate(example.response, self.rooms[1]) for example in examples],
        }
        routes = {"anchor": "query", "positive": "document"} if config.towers == "two" else None
        with tempfile.TemporaryDirectory() as folder, training_clock() as clock:
            arguments = SentenceTransformerTrainingArguments(
                **common(config, folder), batch_sampler="no_duplicates", router_mapping=routes
            )
            SentenceTransformerTrainer(
                model=self.model,
                args=arguments,
                train_dataset=Dataset.from_dict(columns),
                loss=losses.MultipleNegativesRankingLoss(self.model),
            ).train()
        self.model.eval()
        return clock


class PeerCross:
    """Its CrossEncoder as a ranker of our evaluation."""

    def __init__(self, base: Path, config: PeerConfig, lengths: tuple[int, int]) -> None:
        self.cutter = Cutter(base)
        self.rooms = lengths
        torch.manual_seed(config.seed)
        self.model = CrossEncoder(
            str(base),
            device="cpu",
            num_labels=1,
            max_length=sum(lengths) + 4,
            model_kwargs={"attn_implementation": config.attention},
            config_kwargs=dropouts(config),
        )

    @torch.inference_mode()
    def score_pairs(
        self, pairs: Sequence[tuple[Context, str]], *, show_progress_bar: bool = False
    ) -> Tensor:
        """(n,), logits."""
        texts = [self.cut(context, candidate) for context, candidate in pairs]
        with precise():
            scores = self.model.predict(
                texts, activation_fn=torch.nn.Identity(), convert_to_tensor=True
            )
        return scores.float().flatten().cpu()

    def cut(self, context: Context, candidate: str) -> tuple[str, str]:
        """A pair as our cross-encoder reads it."""
        return (
            self.cutter.context(context, self.rooms[0]),
            self.cutter.candidate(candidate, self.rooms[1]),
        )

    def train(self, examples: Sequence[Example], config: PeerConfig) -> TrainingClock:
        """BinaryCrossEntropyLoss on pairs, or ListNetLoss on lists with one right response.

        Every example brings its negatives; a step has `batch_size` examples, whichever the loss.
        """
        width = 1 + len(examples[0].negatives)
        lists = [
            [self.cut(example.context, text) for text in (example.response, *example.negatives)]
            for example in examples
        ]
        columns: dict[str, list[Any]]
        if config.loss == "listnet":
            columns = {
                "query": [pairs[0][0] for pairs in lists],
                "docs": [[text for _, text in pairs] for pairs in lists],
                "labels": [[SURE] + [0.0] * (width - 1)] * len(lists),
            }
            loss = cross_losses.ListNetLoss(self.model, mini_batch_size=-1)
            size = config.batch_size
        else:
            columns = {
                "query": [context for pairs in lists for context, _ in pairs],
                "response": [text for pairs in lists for _, text in pairs],
                "label": ([1.0] + [0.0] * (width - 1)) * len(lists),
            }
            loss = cross_losses.BinaryCrossEntropyLoss(self.model)
            size = config.batch_size * width
        with tempfile.TemporaryDirectory() as folder, training_clock() as clock:
            arguments = CrossEncoderTrainingArguments(
                **{**common(config, folder), "per_device_train_batch_size": size}
            )
            CrossEncoderTrainer(
                model=self.model,
                args=arguments,
                train_dataset=Dataset.from_dict(columns),
                loss=loss,
            ).train()
        self.model.eval()
        return clock


def encoder(base: Path, config: PeerConfig, length: int) -> Transformer:
    """The encoder as a module of the peer."""
    return Transformer(
        str(base),
        max_seq_length=length,
        model_kwargs={"attn_implementation": config.attention},
        config_kwargs=dropouts(config),
    )


def dropouts(config: PeerConfig) -> dict[str, float]:
    """Settings of the encoder that change its dropout."""
    if config.dropout is None:
        return {}
    names = ("hidden_dropout_prob", "attention_probs_dropout_prob")
    return dict.fromkeys(names, config.dropout)


def common(config: PeerConfig, folder: str) -> dict[str, Any]:
    """Arguments of both of its trainers."""
    return {
        "output_dir": folder,
        "per_device_train_batch_size": config.batch_size,
        "max_steps": config.max_steps,
        "learning_rate": config.learning_rate,
        "lr_scheduler_type": "linear",
        "warmup_steps": config.warmup,
        "weight_decay": config.weight_decay,
        "max_grad_norm": 1.0,
        "bf16": has_bfloat16(CPU),
        "use_cpu": True,
        "seed": config.seed,
        "data_seed": config.seed,
        "dataloader_drop_last": True,
        "dataloader_pin_memory": False,
        "eval_strategy": "no",
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }

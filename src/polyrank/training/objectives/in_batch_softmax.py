"""In-batch softmax: the responses of the other contexts of a step are the negatives.

[−log(exp s(x_i, r_i) / Σ_j exp s(x_i, c_j))], j over the candidates of the whole step. In-batch
negatives: Humeau et al. (ICLR 2020). Sampled softmax of two towers: Chang et al. (ICLR 2020). logQ:
Yi et al. (RecSys 2019), Sampling-bias-corrected neural modeling for large corpus item
recommendations. A teacher of whole steps: as in `kl`.

Letters: B contexts of this process, R responses and N candidates of all processes, U different
candidates of this process.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from polyrank.config import require
from polyrank.errors import UsageError
from polyrank.records import Example
from polyrank.training.objectives.checks import few_responses, require_wrong_responses
from polyrank.training.objectives.kl import KlSettings, kl_divergence
from polyrank.training.objectives.objective import Case, Collator, Given, Objective, Settings

if TYPE_CHECKING:
    from torch import Tensor

    from polyrank.models.cross_encoder import CrossEncoder
    from polyrank.models.two_tower import TwoTower
    from polyrank.training.batches import Item
    from polyrank.training.drawn_negatives import DrawnNegatives
    from polyrank.training.module import CrossReadApart, TrainingModule, TwoTowers
    from polyrank.training.teaching.in_batch import Teachers


@dataclass(frozen=True, kw_only=True)
class InBatchSettings(Settings):
    """Raises UsageError for a value out of its range."""

    symmetric: bool = dataclasses.field(default=False, metadata={"architectures": ("bi", "poly")})
    """Let `in_batch_softmax` also rank the contexts for each response, and average the two
    losses.
    """
    logq: bool = False
    """Let `in_batch_softmax` subtract the logarithm of a candidate's frequency in the training set
    from its score, so that frequent responses are not punished for being frequent negatives.
    """
    extra_negatives: int = 0
    """Wrong responses that `in_batch_softmax` draws from the training set for each context. Like an
    example's own negatives, they serve every context of the step.
    """
    teacher_share: float | None = None
    """The weight of the teacher's scores in the loss of `in_batch_softmax`, if it scores whole
    steps. The right responses have the rest. By default 1 where it scores all candidates of the
    step, and 0.5 where it scores few."""
    teacher_candidates: int | None = None
    """How many candidates of the step a teacher scores for each context besides its response and
    its negatives: those that the student scores highest. By default all; 8 if a teacher must read
    the two texts together."""

    def __post_init__(self) -> None:
        require(self.extra_negatives >= 0, "extra_negatives", "0 or more", self.extra_negatives)
        share = self.teacher_share
        known = share is None or 0 < share <= 1
        require(known, "teacher_share", "above 0 and at most 1", share)
        few = self.teacher_candidates
        require(few is None or few >= 1, "teacher_candidates", "at least 1", few)


class InBatchSoftmax(Objective):
    """Every context against every candidate of the step; optionally, a teacher's scores of them."""

    name = "in_batch_softmax"
    records = ("examples",)
    architectures = ("bi", "poly", "cross")
    head = "interaction"
    settings = (InBatchSettings, KlSettings)

    def is_default(self, case: Case) -> bool:
        """For models that read texts apart."""
        reads_apart = case.architecture != "cross" or case.head == "interaction"
        return case.records == "examples" and reads_apart

    def check(self, given: Given) -> None:
        """A step must have a negative for each context."""
        examples = given.examples
        require_wrong_responses(given)
        if given.config.batch_size > 1 or given.objective.extra_negatives > 0:
            return
        if not all(example.negatives for example in examples):
            raise UsageError(
                "A batch_size of 1 leaves in_batch_softmax without negatives.",
                "Give a larger batch_size, extra_negatives, or examples with negatives.",
            )

    def make(self, given: Given) -> tuple[TrainingModule, Collator]:
        """All contexts meet all candidates."""
        import torch

        from polyrank.training.drawn_negatives import DrawnNegatives
        from polyrank.training.module import reading_apart

        model, examples, objective = given.model, given.examples, given.objective
        extra, pool = objective.extra_negatives, DrawnNegatives(examples, given.answers)
        teachers = self.teachers(given)
        collator = InBatchCollator(
            model,
            given.config.train_batch_tokens,
            pool=pool,
            extra_negatives=extra,
            seed=given.config.seed,
            log_frequencies=log_frequencies(examples, len(pool), extra) if objective.logq else None,
            teachers=teachers,
        )
        right = torch.from_numpy(given.answers.pairs).to(model.device)
        loss = partial(self.loss, right=right, teachers=teachers)
        return reading_apart(model, objective, loss), collator

    def teachers(self, given: Given) -> Teachers | None:
        """The teachers of a run. Raises UsageError for one with classes."""
        from polyrank.training.teaching.in_batch import Teachers

        if not given.teachers:
            return None
        return Teachers(given.teachers, given.objective, given.config.train_batch_tokens)

    def notes(self, given: Given) -> list[str]:
        """A note if there are few responses to draw from."""
        return few_responses(given, "extra_negatives", given.objective.extra_negatives)

    def loss(
        self,
        module: TwoTowers | CrossReadApart,
        encoded: dict[str, Tensor],
        step: dict[str, Any],
        *,
        right: Tensor | None = None,
        teachers: Teachers | None = None,
    ) -> Tensor:
        """The mean over this process's contexts, among the candidates of all processes.

        `right` (k,): all known pairs of a context and a response, as `KnownAnswers.pairs`. The
        teachers are not a part of the module, so that they are neither trained nor saved with it.
        """
        objective, count = module.objective, len(encoded["contexts"])
        texts, answered, frequencies = texts_of_all(step, count, logq=objective.logq)
        scores = module.score_step(encoded, step)  # (B, N)
        hits = right_columns(right, answered[:count], texts)
        known = known_answers(count, texts, answered, hits)
        loss = in_batch_softmax(
            scores, texts, contexts=answered, log_frequencies=frequencies, hits=hits
        )
        if objective.symmetric and self.uses("symmetric", module.model.architecture):
            turned = scores_of_responses(module, encoded, step, scores)  # (B, R)
            responses = texts[: len(answered)]
            hits = right_columns(right, answered, texts[:count])  # (R, B)
            hits = None if hits is None else hits.T
            loss_turned = in_batch_softmax(turned, answered, contexts=responses, hits=hits)
            loss = (loss + loss_turned) / 2
        if teachers is not None:
            expected, scored = teachers.teach(scores.detach(), texts, len(answered), ~known, step)
            taught = kl_divergence(scores, expected, scored, teachers.temperature)
            loss = (1 - teachers.share) * loss + teachers.share * taught
        return module.share_of_mean(loss, count)


class InBatchCollator:
    """Steps of the in-batch softmax: the responses of the others are the negatives.

    Beside them stand each example's own negatives and `extra_negatives` drawn from `pool` for it.
    `log_frequencies` are those of each text of the training set, where the loss needs them.
    """

    def __init__(
        self,
        model: TwoTower | CrossEncoder,
        batch_tokens: int,
        *,
        pool: DrawnNegatives | None = None,
        extra_negatives: int = 0,
        seed: int = 0,
        log_frequencies: Mapping[str, float] | None = None,
        teachers: Teachers | None = None,
    ) -> None:
        from polyrank.training.batches import TextBatcher

        self.read = TextBatcher(model, batch_tokens)
        self.teachers = teachers
        self.pool = pool
        self.extra_negatives = extra_negatives
        self.seed = seed
        self.log_frequencies = log_frequencies
        self.rarest = min(log_frequencies.values(), default=0.0) if log_frequencies else 0.0

    def __call__(self, step: Sequence[Item]) -> dict[str, Any]:
        """`contexts` and `candidates`: batches cut by length; `identities` (N,): the row of each
        column's text among the candidates, responses first, then negatives; `context_texts` (B,)
        and `texts` (U,): numbers that are equal for equal texts in every process;
        `log_frequencies` (U,). With teachers, also what they need.
        """
        import torch

        from polyrank.data.answers import text_identity

        examples: list[Example] = [item.example for item in step]
        contexts = [example.context for example in examples]
        columns = [example.response for example in examples]
        own = [[place] for place in range(len(step))]
        for item, places in zip(step, own, strict=True):
            negatives = self.negatives(item)
            places += range(len(columns), len(columns) + len(negatives))
            columns += negatives
        rows = {text: row for row, text in enumerate(dict.fromkeys(columns))}
        made: dict[str, Any] = {
            "contexts": self.read.contexts(contexts),
            "candidates": self.read.candidates(list(rows)),
            "identities": torch.tensor([rows[text] for text in columns]),
            "context_texts": torch.tensor([text_identity(context) for context in contexts]),
            "texts": torch.tensor([text_identity(text) for text in rows]),
        }
        if self.log_frequencies is not None:
            known = self.log_frequencies  # dev data have texts that are not in the training set
            made["log_frequencies"] = torch.tensor([known.get(text, self.rarest) for text in rows])
        if self.teachers is not None:
            made |= self.teachers.prepare(contexts, columns, own)
        return made

    def negatives(self, item: Item) -> list[str]:
        """The example's own wrong responses, then drawn ones."""
        example: Example = item.example
        own = list(example.negatives)
        if self.pool is None or self.extra_negatives == 0:
            return own
        taken = self.pool.wrong(example, own)
        draw = item.draw(self.seed)
        return own + self.pool.draw(example, self.extra_negatives, draw, taken)


def log_frequencies(
    examples: Sequence[Example], num_responses: int, extra_negatives: int
) -> dict[str, float]:
    """The log q of every text: how many columns of it an example brings to a step on average.

    As a response, as a negative, and as one drawn from `num_responses` different ones; without
    negatives, q is a response's share of the training set.
    """
    counts = Counter(example.response for example in examples)
    counts.update(text for example in examples for text in example.negatives)
    drawn = extra_negatives / num_responses if num_responses else 0.0
    return {text: math.log(count / len(examples) + drawn) for text, count in counts.items()}


def scores_of_responses(
    module: Any, encoded: dict[str, Tensor], step: dict[str, Any], scores: Tensor
) -> Tensor:
    """This process's responses against the contexts of all processes: (B, R).

    `scores` (B, N) are those of its contexts.
    """
    from polyrank.training.gather import gather_rows, num_processes

    count = len(scores)
    if num_processes() == 1:
        return scores[:, :count].T
    own = encoded["candidates"][step["identities"][:count]]
    turned: Tensor = module.score_all(gather_rows(encoded["contexts"]), own)  # (R, B)
    return turned.T


def texts_of_all(
    step: dict[str, Any], count: int, *, logq: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What is known of the texts of all processes, this one's `count` first.

    The identities of the candidates (N,), of the contexts that the responses answer (R,) and, if
    asked, the log frequencies of the candidates (N,).
    """
    from polyrank.training.gather import gather_rows
    from polyrank.training.module import columns_of_all

    places = step["identities"]
    texts = columns_of_all(step["texts"][places], count)
    answered = gather_rows(step["context_texts"])
    frequencies = columns_of_all(step["log_frequencies"][places], count) if logq else None
    return texts, answered, frequencies


def in_batch_softmax(
    scores: Tensor,
    identities: Tensor,
    *,
    contexts: Tensor | None = None,
    log_frequencies: Tensor | None = None,
    hits: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of each context's own response among all candidates of the batch: ().

    scores (B, N): column i < B is the response of context i, further columns are more negatives.
    identities (N,): equal numbers mark equal texts; a column whose text is context i's response
    is not a negative for it and is left out of row i. contexts (R,), B ≤ R ≤ N: the same for the
    contexts that the first R columns are responses of; a column that answers an equal context is
    left out as well. log_frequencies (N,): log q of each column, which is subtracted from the
    scores (logQ correction). hits (B, N): further columns to leave out, accidental hits; a row's
    own response stays in.

    Without duplicates it equals sentence-transformers' MultipleNegativesRankingLoss with scale =
    1 / temperature. Of responses against contexts, scores transposed and `identities` and
    `contexts` exchanged, it is the other half of the symmetric loss. Needs B + negatives ≥ 2 to
    have a gradient. Returns the mean over B.
    """
    import torch
    from torch.nn import functional

    count = len(scores)
    known = known_answers(count, identities, contexts, hits)
    if log_frequencies is not None:
        scores = scores - log_frequencies[None, :]
    masked = scores.masked_fill(known, -torch.inf)
    return functional.cross_entropy(masked, torch.arange(count, device=scores.device))


def known_answers(
    count: int, identities: Tensor, contexts: Tensor | None = None, hits: Tensor | None = None
) -> Tensor:
    """Which columns are not negatives of a row, other than its own response: (B, N) booleans.

    `count` rows; `identities`, `contexts` and `hits` as for `in_batch_softmax`.
    """
    import torch

    known = identities[:count, None] == identities[None, :]
    if contexts is not None:
        known[:, : len(contexts)] |= contexts[:count, None] == contexts[None, :]
    if hits is not None:
        known |= hits
    own = torch.eye(count, len(identities), dtype=torch.bool, device=known.device)
    return known & ~own


def right_columns(right: Tensor | None, contexts: Tensor, texts: Tensor) -> Tensor | None:
    """Which texts are right for which contexts: (B, N) booleans; None where nothing is known.

    contexts (B,) and texts (N,) are identities; right (k,): the known pairs, sorted.
    """
    import torch

    from polyrank.data.answers import MULTIPLIER

    if right is None:
        return None
    pairs = contexts[:, None] * MULTIPLIER + texts[None, :]  # as `paired` has it
    places = torch.searchsorted(right, pairs).clamp(max=len(right) - 1)
    return right[places] == pairs

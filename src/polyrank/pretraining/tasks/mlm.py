"""Texts for masked language modelling: two consecutive texts, read as one input.

Humeau et al.: Poly-encoders (ICLR 2020) mask the words of a context and its reply together. What is
masked is drawn where the tokens are.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyrank.config import require
from polyrank.pretraining.pairs import Pair
from polyrank.pretraining.rng import Random
from polyrank.pretraining.split import SplitName
from polyrank.pretraining.tables import CorpusTables
from polyrank.pretraining.task import PretrainingTask


@dataclass(frozen=True, kw_only=True)
class MlmSettings:
    """Raises UsageError for a value out of range."""

    mlm_turns: int = 6
    """The maximum number of turns before a reply, in conversations."""

    def __post_init__(self) -> None:
        require(self.mlm_turns >= 1, "mlm_turns", "at least 1", self.mlm_turns)


class Mlm(PretrainingTask[MlmSettings]):
    """One pair per passage, cut between two sentences; or per reply, with its context.

    The second text is empty if a passage has one sentence.
    """

    name = "mlm"
    settings_type = MlmSettings
    kinds = ("articles", "conversations")
    lacking = "texts (conversations need at least two turns)"

    def __init__(
        self,
        tables: CorpusTables,
        split: SplitName = "train",
        seed: int = 0,
        settings: MlmSettings | None = None,
    ) -> None:
        super().__init__(tables, split, seed, settings)
        self._articles = tables.articles(split) if tables.kind == "articles" else None
        self._conversations = None if self._articles else tables.conversations(split)

    @classmethod
    def joins(cls, settings: MlmSettings) -> bool:
        """Whether the two texts are read as one: always."""
        return True

    def __len__(self) -> int:
        if self._articles is not None:
            return len(self._articles.passages)
        assert self._conversations is not None
        return len(self._conversations.replies)

    def pair(self, item: int, rng: Random) -> Pair:
        """The two texts."""
        if self._articles is not None:
            text, spans = self._articles.passages[item], self._articles.spans(item)
            if len(spans) < 2:
                return Pair(task=self.name, first=text, second="", is_joined=True)
            before = rng.below(len(spans) - 1)
            end, start = spans[before][1], spans[before + 1][0]
            return Pair(task=self.name, first=text[:end], second=text[start:], is_joined=True)
        assert self._conversations is not None
        turn = self._conversations.replies[item]
        return Pair(
            task=self.name,
            first=self._conversations.turns_before(turn, self.settings.mlm_turns),
            second=self._conversations.turns[turn],
            is_joined=True,
        )

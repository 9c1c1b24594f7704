"""Texts for masked language modelling: two consecutive texts, read as one input.

Humeau et al.: Poly-encoders (ICLR 2020) mask the words of a context and its reply together. What is
masked is drawn where the tokens are.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyrank.config import require
from polyrank.pretraining.article_tables import ArticleTables
from polyrank.pretraining.pairs import Pair, Reading
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
    def reading_of(cls, settings: MlmSettings) -> Reading:
        """How the two texts are read: always as one."""
        return "joined"

    def __len__(self) -> int:
        if self._articles is not None:
            return len(self._articles.passages)
        assert self._conversations is not None
        return len(self._conversations.replies)

    def pair(self, item: int, rng: Random) -> Pair:
        """The two texts."""
        if self._articles is not None:
            first, second = two_parts(self._articles, item, rng)
            return Pair(task=self.name, first=first, second=second, reading=self.reading)
        assert self._conversations is not None
        turn = self._conversations.replies[item]
        return Pair(
            task=self.name,
            first=self._conversations.turns_before(turn, self.settings.mlm_turns),
            second=self._conversations.turns[turn],
            reading=self.reading,
        )


def two_parts(articles: ArticleTables, passage: int, rng: Random) -> tuple[str, str]:
    """A passage cut between two sentences; the second part of a single one is empty."""
    text, spans = articles.passages[passage], articles.spans(passage)
    if len(spans) < 2:
        return text, ""
    before = rng.below(len(spans) - 1)
    return text[: spans[before][1]], text[spans[before + 1][0] :]

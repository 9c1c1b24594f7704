"""Contextual masked auto-encoding: a decoder fills in what comes next from the vector of what came
before.

Su et al.: Dial-MAE (NAACL 2024) for conversations; Wu et al.: CoT-MAE (AAAI 2023) for passages.
What is masked is drawn where the tokens are.
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
from polyrank.pretraining.tasks.mlm import two_parts


@dataclass(frozen=True, kw_only=True)
class CmaeSettings:
    """Raises UsageError for a value out of range."""

    cmae_turns: int = 6
    """The maximum number of turns before a response, in conversations."""

    def __post_init__(self) -> None:
        require(self.cmae_turns >= 1, "cmae_turns", "at least 1", self.cmae_turns)


class Cmae(PretrainingTask[CmaeSettings]):
    """One pair per reply, with its context; or per passage, with the one before or after it.

    A passage that is alone in its article is cut between two sentences. The second text is empty if
    it has only one.
    """

    name = "cmae"
    settings_type = CmaeSettings
    kinds = ("articles", "conversations")
    lacking = (
        "conversations of at least two turns, or articles of at least two passages or sentences"
    )

    def __init__(
        self,
        tables: CorpusTables,
        split: SplitName = "train",
        seed: int = 0,
        settings: CmaeSettings | None = None,
    ) -> None:
        super().__init__(tables, split, seed, settings)
        self._articles = tables.articles(split) if tables.kind == "articles" else None
        self._conversations = None if self._articles else tables.conversations(split)

    @classmethod
    def reading_of(cls, settings: CmaeSettings) -> Reading:
        """How the two texts are read: the second is always decoded."""
        return "decoded"

    def __len__(self) -> int:
        if self._articles is None:
            assert self._conversations is not None
            return len(self._conversations.replies)
        passages = len(self._articles.passages)
        has_more = passages > len(self._articles.titles) or len(self._articles.following) > 0
        return passages if has_more else 0

    def pair(self, item: int, rng: Random) -> Pair:
        """The two texts."""
        first: str | tuple[str, ...]
        if self._articles is not None:
            first, second = neighbours(self._articles, item, rng)
        else:
            assert self._conversations is not None
            turn = self._conversations.replies[item]
            first = self._conversations.turns_before(turn, self.settings.cmae_turns)
            second = self._conversations.turns[turn]
        return Pair(task=self.name, first=first, second=second, reading=self.reading)


def neighbours(articles: ArticleTables, passage: int, rng: Random) -> tuple[str, str]:
    """A passage and the one before or after it in its article, or both parts of one alone."""
    own = articles.passages_of(articles.article[passage])
    others = [other for other in (passage - 1, passage + 1) if other in own]
    if not others:
        return two_parts(articles, passage, rng)
    return articles.passages[passage], articles.passages[others[rng.below(len(others))]]

"""Next utterance prediction: what was said so far → what was said next, or elsewhere.

Humeau et al.: Poly-encoders (ICLR 2020), where the next utterance may have several sentences.
Unrelated utterances are drawn from replies, not openings, so a text alone reveals nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyrank.config import require
from polyrank.pretraining.pairs import Pair, Reading, text_key
from polyrank.pretraining.rng import Random
from polyrank.pretraining.task import ConversationTask

TRIES = 20


@dataclass(frozen=True, kw_only=True)
class NextUtteranceSettings:
    """Raises UsageError for a value out of range."""

    context_turns: int = 6
    """The maximum number of turns of a context; the newest are kept."""
    unrelated_utterances: float = 0.5
    """The share of pairs whose second text does not follow; with 0, pairs have no label."""

    def __post_init__(self) -> None:
        require(self.context_turns >= 1, "context_turns", "at least 1", self.context_turns)
        require(
            0 <= self.unrelated_utterances < 1,
            "unrelated_utterances",
            "from 0 to below 1",
            self.unrelated_utterances,
        )


class NextUtterance(ConversationTask[NextUtteranceSettings]):
    """One pair per turn but the first of a conversation."""

    name = "next_utterance"
    settings_type = NextUtteranceSettings
    lacking = "conversations of at least two turns"

    @classmethod
    def reading_of(cls, settings: NextUtteranceSettings) -> Reading:
        """How the two texts are read: as one if pairs have labels, else apart."""
        return "joined" if settings.unrelated_utterances > 0 else "apart"

    def __len__(self) -> int:
        return len(self.conversations.replies)

    def pair(self, item: int, rng: Random) -> Pair:
        """The turns before a reply, and the reply or another one."""
        conversations = self.conversations
        turn = conversations.replies[item]
        second = conversations.turns[turn]
        true = text_key(second)
        other = None
        if rng.happens(self.settings.unrelated_utterances):
            other = self._other(conversations.conversation_of(turn), true, rng)
        return Pair(
            task=self.name,
            first=conversations.turns_before(turn, self.settings.context_turns),
            second=second if other is None else other,
            label=int(other is None) if self.reading == "joined" else None,
            wanted=frozenset((true,)),
            answers=frozenset((true if other is None else text_key(other),)),
            reading=self.reading,
        )

    def _other(self, conversation: int, true: int, rng: Random) -> str | None:
        """A different reply from another conversation, or None if none is found."""
        conversations = self.conversations
        for _ in range(TRIES):
            turn = conversations.replies[rng.below(len(self))]
            text = conversations.turns[turn]
            if conversations.conversation_of(turn) != conversation and text_key(text) != true:
                return text
        return None

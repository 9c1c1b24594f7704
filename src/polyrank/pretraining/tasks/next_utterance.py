"""Next utterance prediction: what was said so far → what was said next, or elsewhere.

Humeau et al.: Poly-encoders (ICLR 2020), where the next utterance may have several sentences.
Unrelated utterances are drawn from replies, not openings, so a text alone reveals nothing.

Han et al.: BERT-FP (NAACL 2021) has a third class, other utterances of the same dialogue, and short
contexts cut from it.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyrank.config import require
from polyrank.pretraining.pairs import (
    FOLLOWS,
    RELATED,
    UNRELATED,
    Pair,
    Reading,
    text_key,
)
from polyrank.pretraining.rng import Random
from polyrank.pretraining.task import ConversationTask

TRIES = 20


@dataclass(frozen=True, kw_only=True)
class NextUtteranceSettings:
    """Raises UsageError for a value out of range."""

    context_turns: int = 6
    """The maximum number of turns of a context; the newest are kept."""
    unrelated_utterances: float = 0.5
    """The share of pairs whose second text is from another conversation; if related_utterances is 0
    too, pairs have no label."""
    related_utterances: float = 0.0
    """The share of pairs whose second text is another turn of the same conversation. It is a class
    of its own: what is to be told is then one of three."""

    def __post_init__(self) -> None:
        require(self.context_turns >= 1, "context_turns", "at least 1", self.context_turns)
        for name in ("unrelated_utterances", "related_utterances"):
            require(0 <= getattr(self, name) < 1, name, "from 0 to below 1", getattr(self, name))
        require(self.wrong < 1, "unrelated_utterances + related_utterances", "below 1", self.wrong)

    @property
    def wrong(self) -> float:
        """The share of pairs whose second text does not follow."""
        return self.unrelated_utterances + self.related_utterances


class NextUtterance(ConversationTask[NextUtteranceSettings]):
    """One pair per turn but the first of a conversation."""

    name = "next_utterance"
    settings_type = NextUtteranceSettings
    lacking = "conversations of at least two turns"

    @classmethod
    def reading_of(cls, settings: NextUtteranceSettings) -> Reading:
        """How the two texts are read: as one if pairs have labels, else apart."""
        return "joined" if settings.wrong > 0 else "apart"

    @property
    def num_answers(self) -> int:
        """How many classes the labels of pairs have."""
        return 3 if self.settings.related_utterances > 0 else 2

    def __len__(self) -> int:
        return len(self.conversations.replies)

    def pair(self, item: int, rng: Random) -> Pair:
        """The turns before a reply, and the reply or another utterance."""
        conversations, settings = self.conversations, self.settings
        turn = conversations.replies[item]
        first = conversations.turns_before(turn, settings.context_turns)
        second = conversations.turns[turn]
        true = text_key(second)
        shown, label = None, FOLLOWS
        if rng.happens(settings.unrelated_utterances):
            shown, label = self._other(conversations.conversation_of(turn), true, rng), UNRELATED
        elif rng.happens(settings.related_utterances / (1 - settings.unrelated_utterances)):
            shown, label = self._related(turn, first, true, rng), RELATED
        if shown is None:
            shown, label = second, FOLLOWS
        return Pair(
            task=self.name,
            first=first,
            second=shown,
            label=label if self.reading == "joined" else None,
            wanted=frozenset((true,)),
            answers=frozenset((text_key(shown),)),
            reading=self.reading,
        )

    def _related(self, turn: int, context: tuple[str, ...], true: int, rng: Random) -> str | None:
        """A turn of the same conversation that is neither in the context nor like the right one, or
        None if there is none.
        """
        conversations = self.conversations
        own = conversations.conversation_of(turn)
        start, stop = conversations.turns_start[own], conversations.turns_stop[own]
        others = [n for n in range(start, stop) if not turn - len(context) <= n <= turn]
        known = {true, *map(text_key, context)}
        while others:
            text = conversations.turns[others.pop(rng.below(len(others)))]
            if text_key(text) not in known:
                return text
        return None

    def _other(self, conversation: int, true: int, rng: Random) -> str | None:
        """A different reply from another conversation, or None if none is found."""
        conversations = self.conversations
        for _ in range(TRIES):
            turn = conversations.replies[rng.below(len(self))]
            text = conversations.turns[turn]
            if conversations.conversation_of(turn) != conversation and text_key(text) != true:
                return text
        return None

"""Next sentence prediction: whether one segment follows another, or is from another article.

Devlin et al.: BERT (NAACL 2019). Here unrelated segments are drawn from those that follow
elsewhere, so that a segment alone does not reveal its label.
"""

from __future__ import annotations

from dataclasses import dataclass

from polyrank.config import require
from polyrank.pretraining.article_tables import ArticleTables
from polyrank.pretraining.pairs import Pair, Reading, text_key
from polyrank.pretraining.passages import count_words
from polyrank.pretraining.rng import Random
from polyrank.pretraining.task import ArticleTask

TRIES = 20


@dataclass(frozen=True, kw_only=True)
class NextSentenceSettings:
    """Raises UsageError for a value out of range."""

    segment_words: int = 100
    """The maximum words of a segment, which has at least one sentence."""
    unrelated_sentences: float = 0.5
    """The share of pairs whose second text does not follow; with 0, pairs have no label."""

    def __post_init__(self) -> None:
        require(self.segment_words >= 1, "segment_words", "at least 1", self.segment_words)
        require(
            0 <= self.unrelated_sentences < 1,
            "unrelated_sentences",
            "from 0 to below 1",
            self.unrelated_sentences,
        )


class NextSentence(ArticleTask[NextSentenceSettings]):
    """One pair per sentence but the first of a passage: the text before it and from it on."""

    name = "next_sentence"
    settings_type = NextSentenceSettings
    lacking = "passages of at least two sentences"

    @classmethod
    def reading_of(cls, settings: NextSentenceSettings) -> Reading:
        """How the two texts are read: as one if pairs have labels, else apart."""
        return "joined" if settings.unrelated_sentences > 0 else "apart"

    def __len__(self) -> int:
        return len(self.articles.following)

    def pair(self, item: int, rng: Random) -> Pair:
        """The segments around a place between two sentences, or the second from elsewhere."""
        articles, most = self.articles, self.settings.segment_words
        number = articles.following[item]
        passage = articles.passage_of(number)
        first, second = segments(articles, passage, number, most)
        true = text_key(second)
        other = None
        if rng.happens(self.settings.unrelated_sentences):
            other = self._other(articles.article[passage], true, rng)
        return Pair(
            task=self.name,
            first=first,
            second=second if other is None else other,
            label=int(other is None) if self.reading == "joined" else None,
            wanted=frozenset((true,)),
            answers=frozenset((true if other is None else text_key(other),)),
            reading=self.reading,
        )

    def _other(self, article: int, true: int, rng: Random) -> str | None:
        """A different text that follows somewhere in another article, or None if none is found."""
        articles = self.articles
        for _ in range(TRIES):
            number = articles.following[rng.below(len(self))]
            passage = articles.passage_of(number)
            if articles.article[passage] != article:
                _, text = segments(articles, passage, number, self.settings.segment_words)
                if text_key(text) != true:
                    return text
        return None


def segments(articles: ArticleTables, passage: int, number: int, most: int) -> tuple[str, str]:
    """The text before a sentence of a passage and from it on: at most `most` words each."""
    text, spans = articles.passages[passage], articles.spans(passage)
    place = number - articles.sentences_start[passage]
    first, last = place - 1, place
    words = count_words(text[slice(*spans[first])])
    while first and (words := words + count_words(text[slice(*spans[first - 1])])) <= most:
        first -= 1
    words = count_words(text[slice(*spans[last])])
    while last + 1 < len(spans):
        words += count_words(text[slice(*spans[last + 1])])
        if words > most:
            break
        last += 1
    return text[spans[first][0] : spans[place - 1][1]], text[spans[place][0] : spans[last][1]]

"""Inverse cloze task: a sentence → the rest of its passage.

Lee, Chang, Toutanova: Latent Retrieval for Weakly Supervised Open Domain Question Answering
(ACL 2019); Chang et al.: Pre-training Tasks for Embedding-based Large-scale Retrieval (ICLR 2020).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from polyrank.config import require
from polyrank.pretraining.pairs import Pair, passage_key
from polyrank.pretraining.passages import without
from polyrank.pretraining.rng import Random
from polyrank.pretraining.task import ArticleTask, PaperFigures


@dataclass(frozen=True, kw_only=True)
class IctSettings:
    """Raises UsageError for a value that is not a share."""

    keep_sentence: float = 0.1
    """The share of pairs whose passage keeps the sentence, so that the overlap of words is learnt
    too."""

    def __post_init__(self) -> None:
        require(0 <= self.keep_sentence <= 1, "keep_sentence", "from 0 to 1", self.keep_sentence)


class Ict(ArticleTask[IctSettings]):
    """One pair per sentence of passages with at least two different sentences."""

    name = "ict"
    settings_type = IctSettings
    has_passages = True
    lacking = "passages of at least two sentences"
    paper = PaperFigures(pairs=50.2e6, first_tokens=30.4, second_tokens=193.9)

    def __len__(self) -> int:
        return len(self.articles.ict)

    def pair(self, item: int, rng: Random) -> Pair:
        """The sentence, and its passage without it and its repetitions."""
        articles = self.articles
        number = articles.ict[item]
        passage = articles.passage_of(number)
        text = articles.passages[passage]
        start, stop = articles.starts[number], articles.stops[number]
        sentence = text[start:stop]
        kept = rng.happens(self.settings.keep_sentence)
        same = [span for span in articles.spans(passage) if text[span[0] : span[1]] == sentence]
        return Pair(
            task=self.name,
            first=sentence,
            second=text if kept else without(text, same),
            second_title=articles.title(passage),
            wanted=frozenset((passage_key(passage),)),
            answers=articles.answers(passage),
            frequency=self.frequency(passage),
            passage=passage,
        )

    def frequency(self, passage: int) -> float:
        """The number of its sentences."""
        articles, ict = self.articles, self.articles.ict
        start, stop = articles.sentences_start[passage], articles.sentences_stop[passage]
        first = bisect_left(ict, start)
        return float(bisect_left(ict, stop, first, min(len(ict), first + stop - start)) - first)

"""Body first selection: a sentence of an article's first section → a passage of the rest of it.

Chang et al.: Pre-training Tasks for Embedding-based Large-scale Retrieval (ICLR 2020). There the
passage may be any other of the page; here that is an option.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from polyrank.pretraining.pairs import Pair, page_key, rest_key
from polyrank.pretraining.rng import Random
from polyrank.pretraining.task import ArticleTask, PaperFigures


@dataclass(frozen=True, kw_only=True)
class BfsSettings:
    """Where the passage is from."""

    any_section: bool = False
    """Take any other passage of the article, even one of the first section."""


class Bfs(ArticleTask[BfsSettings]):
    """One pair per sentence of the first section; all passages are equally likely."""

    name = "bfs"
    settings_type = BfsSettings
    has_passages = True
    lacking = "articles with a first section and others after it"
    paper = PaperFigures(pairs=17.5e6, first_tokens=28.0, second_tokens=160.5)

    def __len__(self) -> int:
        return len(self.articles.bfs)

    def pair(self, item: int, rng: Random) -> Pair:
        """The sentence, and a passage drawn from the other sections, or from all of the article."""
        articles = self.articles
        number = articles.bfs[item]
        own = articles.passage_of(number)
        article = articles.article[own]
        if self.settings.any_section:
            others = articles.passages_of(article)
            passage = others[rng.below(len(others) - 1)]
            passage += passage >= own
        else:
            others = articles.rest_of(article)
            passage = others[rng.below(len(others))]
        return Pair(
            task=self.name,
            first=articles.sentence(number),
            second=articles.passages[passage],
            second_title=articles.titles[article],
            wanted=frozenset((self.wanted_key(article),)),
            answers=articles.answers(passage),
            frequency=self.frequency(passage),
            passage=passage,
        )

    def wanted_key(self, article: int) -> int:
        """What the lead sentences of an article want: every passage that one may draw."""
        return page_key(article) if self.settings.any_section else rest_key(article)

    def frequency(self, passage: int) -> float:
        """The lead sentences that may draw it, divided by the passages that each draws from."""
        articles = self.articles
        article = articles.article[passage]
        leads, rest = articles.leads_of(article), articles.rest_of(article)
        if not self.settings.any_section:
            return 0.0 if articles.is_lead(passage) else len(leads) / len(rest)
        if not leads or not rest:
            return 0.0
        start, stop = articles.sentences_start[passage], articles.sentences_stop[passage]
        first = bisect_left(articles.leads, start, leads.start, leads.stop)
        own = bisect_left(articles.leads, stop, first, leads.stop) - first
        return (len(leads) - own) / (len(articles.passages_of(article)) - 1)

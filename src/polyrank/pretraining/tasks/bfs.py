"""Body first selection: a sentence of an article's first section → a passage of the rest of it.

Chang et al.: Pre-training Tasks for Embedding-based Large-scale Retrieval (ICLR 2020).
"""

from __future__ import annotations

from polyrank.pretraining.pairs import Pair, rest_key
from polyrank.pretraining.rng import Random
from polyrank.pretraining.task import ArticleTask, NoSettings, PaperFigures


class Bfs(ArticleTask[NoSettings]):
    """One pair for each sentence of the first section; each passage of the rest is as likely."""

    name = "bfs"
    has_passages = True
    lacking = "articles with a first section and others behind it"
    paper = PaperFigures(pairs=17.5e6, first_tokens=28.0, second_tokens=160.5)

    def __len__(self) -> int:
        return len(self.articles.bfs)

    def pair(self, item: int, rng: Random) -> Pair:
        """The sentence, and a passage drawn from the other sections."""
        articles = self.articles
        number = articles.bfs[item]
        article = articles.article[articles.passage_of(number)]
        rest = articles.rest_of(article)
        passage = rest[rng.below(len(rest))]
        return Pair(
            task=self.name,
            first=articles.sentence(number),
            second=articles.passages[passage],
            second_title=articles.titles[article],
            wanted=frozenset((rest_key(article),)),
            answers=articles.answers(passage),
            frequency=self.frequency(passage),
            passage=passage,
        )

    def frequency(self, passage: int) -> float:
        """The lead sentences of its article, divided by the passages that they draw from."""
        articles = self.articles
        if articles.is_lead(passage):
            return 0.0
        article = articles.article[passage]
        return len(articles.leads_of(article)) / len(articles.rest_of(article))

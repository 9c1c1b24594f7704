"""Wiki link prediction: a sentence of a page's first section → a passage that links to the page.

Chang et al.: Pre-training Tasks for Embedding-based Large-scale Retrieval (ICLR 2020). There the
passage may be any of the page with the link; here that is an option.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from polyrank.pretraining.pairs import Pair, link_key
from polyrank.pretraining.rng import Random
from polyrank.pretraining.task import ArticleTask, PaperFigures


@dataclass(frozen=True, kw_only=True)
class WlpSettings:
    """Where the passage is from."""

    any_passage: bool = False
    """Take any passage of the page with the link, instead of the passage with the link."""


class Wlp(ArticleTask[WlpSettings]):
    """One pair per passage and page that it links to; all lead sentences are equally likely."""

    name = "wlp"
    settings_type = WlpSettings
    has_passages = True
    lacking = "links between its articles"
    paper = PaperFigures(pairs=24.9e6, first_tokens=29.4, second_tokens=82.1)

    def __len__(self) -> int:
        return len(self.articles.links)

    def pair(self, item: int, rng: Random) -> Pair:
        """A lead sentence of the linked page, and the passage."""
        articles = self.articles
        passage = bisect_right(articles.links_stop, item)
        target = articles.links[item]
        leads = articles.leads_of(target)
        query = articles.leads[leads[rng.below(len(leads))]]
        answers = articles.answers(passage)
        if self.settings.any_passage:
            own = self._page_of(passage)
            passage = own[rng.below(len(own))]
            answers = articles.answers(passage) | self._page_links(own)
        return Pair(
            task=self.name,
            first=articles.sentence(query),
            second=articles.passages[passage],
            second_title=articles.title(passage),
            wanted=frozenset((link_key(target),)),
            answers=answers,
            frequency=self.frequency(passage),
            passage=passage,
        )

    def frequency(self, passage: int) -> float:
        """The number of its links; with `any_passage`, the mean of its page's passages."""
        articles = self.articles
        if not self.settings.any_passage:
            return float(articles.links_stop[passage] - articles.links_start[passage])
        own = self._page_of(passage)
        links = articles.links_stop[own[-1]] - articles.links_start[own[0]]
        return links / len(own)

    def _page_of(self, passage: int) -> range:
        """The passages of the same page."""
        return self.articles.passages_of(self.articles.article[passage])

    def _page_links(self, own: range) -> frozenset[int]:
        """The keys of all that passages link to."""
        articles = self.articles
        links = articles.links[articles.links_start[own[0]] : articles.links_stop[own[-1]]]
        return frozenset(map(link_key, links))

"""ReQA (Ahmad et al., 2019): paragraphs and questions, to a set whose candidates are sentences.

A candidate's text is its sentence and then the whole paragraph: the sentence is what survives when
the text is cut. Knows nothing of the files that paragraphs and questions come from.
"""

from __future__ import annotations

from polyrank.data.formats.beir import RetrievalSet
from polyrank.data.sentences import Span, sentence_spans
from polyrank.records import Candidate


class Collection:
    """Paragraphs, cut into sentences, and the questions that one of these answers."""

    def __init__(self, split: str) -> None:
        self.split = split
        self.names: dict[str, str] = {}
        self.spans: dict[str, list[Span]] = {}
        self.corpus: list[Candidate] = []
        self.queries: dict[str, str] = {}
        self.judgements: dict[str, dict[str, int]] = {}

    def add_paragraph(self, name: str, text: str) -> str:
        """Add the sentences of a paragraph; give its name, of an equal one the first's."""
        if text in self.names:
            return self.names[text]
        spans = sentence_spans(text)
        self.names[text] = name
        self.spans[name] = spans
        for number, (start, end) in enumerate(spans):
            self.corpus.append(Candidate(f"{name}-{number}", f"{text[start:end]} {text.strip()}"))
        return name

    def add_question(self, identifier: str, text: str, paragraph: str, starts: list[int]) -> None:
        """Add a question, which the sentences around the places `starts` of a paragraph answer."""
        relevant = (
            number
            for start in starts
            for number, span in enumerate(self.spans[paragraph])
            if span.start <= start < span.end
        )
        self.queries[identifier] = text
        self.judgements[identifier] = {f"{paragraph}-{number}": 1 for number in relevant}

    def retrieval_set(self) -> RetrievalSet:
        """All that was added."""
        return RetrievalSet(
            corpus=self.corpus,
            queries=self.queries,
            judgements=self.judgements,
            split=self.split,
        )

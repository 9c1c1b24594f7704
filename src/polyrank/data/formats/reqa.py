"""Questions and the sentences that answer them, as ReQA (Ahmad et al., 2019) makes them.

The candidates are the sentences of the paragraphs. A candidate's text is its sentence and then the
whole paragraph: the sentence is what survives when the text is cut.

- `squad`: SQuAD 1.1 and 2.0, in JSON. The sentences in which an annotator's answer begins are
  relevant. Questions without an answer, as SQuAD 2.0 has, are skipped.
- `natural-questions`: Natural Questions, simplified JSONL. Questions with a short answer inside a
  long answer that is a paragraph are used; all others are skipped. The documents' words are
  joined by spaces, without the HTML tags among them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from polyrank.data.files import Blame, at_line, at_place
from polyrank.data.format import Beginning, Fit, Format
from polyrank.data.json_files import read_json, read_json_lines
from polyrank.data.sentences import Span, sentence_spans
from polyrank.data.source import Identifiers, Source
from polyrank.records import Candidate, RetrievalSet

UNANSWERABLE = "questions without an answer"
NO_SENTENCE = "questions without a short answer in a paragraph"
PARAGRAPH = "<P>"
SQUAD_REMEDY = "Give a file of SQuAD, version 1.1 or 2.0."
NQ_REMEDY = "Give a file of the simplified training set, v1.0-simplified…jsonl."


class Collection:
    """Paragraphs, split into sentences, and the questions that the sentences answer."""

    def __init__(self, split: str) -> None:
        self.split = split
        self.names: dict[str, str] = {}
        self.spans: dict[str, list[Span]] = {}
        self.corpus: list[Candidate] = []
        self.queries: dict[str, str | tuple[str, ...]] = {}
        self.judgements: dict[str, dict[str, int]] = {}

    def add_paragraph(self, name: str, text: str) -> str:
        """Add the sentences of a paragraph; returns its name, or that of an equal earlier one."""
        if text in self.names:
            return self.names[text]
        spans = sentence_spans(text)
        self.names[text] = name
        self.spans[name] = spans
        for number, (start, end) in enumerate(spans):
            self.corpus.append(Candidate(f"{name}-{number}", f"{text[start:end]} {text.strip()}"))
        return name

    def add_question(self, identifier: str, text: str, paragraph: str, starts: list[int]) -> None:
        """Add a question; the sentences around the places `starts` of a paragraph answer it."""
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


def read_squad(source: Source) -> RetrievalSet:
    """The questions of a file and the sentences of its paragraphs.

    Raises DataError, with the file and the place in the JSON.
    """
    path = source.path
    collection = Collection(path.name.partition(".")[0])
    identifiers = Identifiers()
    articles = items(path, read_json(path), "data", "$")
    for a, article in enumerate(articles):
        place = f"$.data[{a}]"
        for p, paragraph in enumerate(items(path, article, "paragraphs", place)):
            where = f"{place}.paragraphs[{p}]"
            add_paragraph(source, collection, paragraph, f"{a}-{p}", where, identifiers)
    return collection.retrieval_set()


def add_paragraph(
    source: Source,
    collection: Collection,
    paragraph: Any,
    name: str,
    place: str,
    identifiers: Identifiers,
) -> None:
    """Add a paragraph and its questions."""
    path = source.path
    context = text_at(path, paragraph, "context", place)
    name = collection.add_paragraph(name, context)
    for q, question in enumerate(items(path, paragraph, "qas", place)):
        where = f"{place}.qas[{q}]"
        identifier = text_at(path, question, "id", where)
        identifiers.add(identifier, where, at_place(path, where))
        answers = items(path, question, "answers", where)
        if not answers:
            source.passed_over[UNANSWERABLE] += 1
            continue
        starts = [
            answer_start(path, answer, context, f"{where}.answers[{n}]")
            for n, answer in enumerate(answers)
        ]
        text = text_at(path, question, "question", where).strip()
        collection.add_question(identifier, text, name, starts)


def answer_start(path: Path, answer: Any, context: str, place: str) -> int:
    """Where an answer begins, after any space. Raises DataError if it is not there."""
    text = text_at(path, answer, "text", place)
    start = answer.get("answer_start")
    if not isinstance(start, int) or start < 0 or not context.startswith(text, start):
        raise at_place(path, place)(
            f"The answer {text[:60]!r} is not at {start!r} of its paragraph.", SQUAD_REMEDY
        )
    if not text.strip():
        raise at_place(path, place)("The answer is empty.", SQUAD_REMEDY)
    return start + len(text) - len(text.lstrip())


def items(path: Path, record: Any, field: str, place: str) -> list[Any]:
    """The list that a field of an object holds. Raises DataError, with the place."""
    value = record.get(field) if isinstance(record, dict) else None
    if not isinstance(value, list):
        raise at_place(path, place)(f"There is no list {field!r}.", SQUAD_REMEDY)
    return value


def text_at(path: Path, record: Any, field: str, place: str) -> str:
    """The text that a field of an object holds. Raises DataError, with the place."""
    value = record.get(field) if isinstance(record, dict) else None
    if not isinstance(value, str):
        raise at_place(path, place)(f"There is no text {field!r}.", SQUAD_REMEDY)
    return value


class Answer(NamedTuple):
    """A paragraph, and where in its text the short answers begin."""

    paragraph: str
    starts: list[int]


def read_natural_questions(source: Source) -> RetrievalSet:
    """The questions of a file and the sentences of the paragraphs that answer them.

    Raises DataError, with file and line.
    """
    collection = Collection(source.path.name.partition(".")[0])
    identifiers = Identifiers()
    for number, record in read_json_lines(source.path):
        blame = at_line(source.path, number)
        for field, kind in (("question_text", str), ("document_text", str), ("annotations", list)):
            if not isinstance(record.get(field), kind):
                listed = ", ".join(map(repr, record))
                raise blame(
                    f"There is no {kind.__name__} {field!r}; the line has {listed}.", NQ_REMEDY
                )
        identifier = str(record.get("example_id", number))
        identifiers.add(identifier, f"line {number}", blame)
        answer = answer_of(record, blame)
        if answer is None:
            source.passed_over[NO_SENTENCE] += 1
            continue
        name = collection.add_paragraph(identifier, answer.paragraph)
        collection.add_question(identifier, record["question_text"], name, answer.starts)
    return collection.retrieval_set()


def answer_of(record: dict[str, Any], blame: Blame) -> Answer | None:
    """The answer of the first annotator who gave one, or None."""
    tokens = record["document_text"].split(" ")
    for annotation in record["annotations"]:
        given = annotation.get("short_answers", []) if isinstance(annotation, dict) else None
        if not isinstance(given, list):
            raise blame("An annotation has no list of 'short_answers'.", NQ_REMEDY)
        begin, end = span(annotation.get("long_answer"), tokens, blame)
        shorts = [span(short, tokens, blame) for short in given]
        inside = [start for start, stop in shorts if begin <= start < stop <= end]
        if begin >= 0 and tokens[begin] == PARAGRAPH and inside:
            words = [word for word in tokens[begin:end] if not is_tag(word)]
            places = [
                len(" ".join(word for word in tokens[begin:start] if not is_tag(word)))
                for start in inside
            ]
            return Answer(" ".join(words), [place + (place > 0) for place in places])
    return None


def span(value: Any, tokens: list[str], blame: Blame) -> tuple[int, int]:
    """The tokens of an answer, from its first to before its last; (-1, -1) if there is none."""
    ends = [
        value.get(name) if isinstance(value, dict) else None
        for name in ("start_token", "end_token")
    ]
    begin, end = ends
    if not isinstance(begin, int) or not isinstance(end, int) or end > len(tokens) or begin > end:
        raise blame(
            f"An answer spans the tokens {begin!r} to {end!r} of a document of {len(tokens)}.",
            NQ_REMEDY,
        )
    return begin, end


def is_tag(word: str) -> bool:
    """Whether a token is an HTML tag."""
    return word.startswith("<") and word.endswith(">") and len(word) > 2


def fit_natural_questions(beginning: Beginning) -> Fit:
    """The fields of the simplified set."""
    fits = {"question_text", "document_text"} <= beginning.names
    return Fit.COLUMNS if fits else Fit.NOT


FORMATS = (
    Format(
        name="squad",
        gives="retrieval",
        description="SQuAD as ReQA: questions, sentences",
        read=read_squad,
        has_mark=lambda beginning: (
            beginning.text.startswith("{") and '"paragraphs"' in beginning.text
        ),
    ),
    Format(
        name="natural-questions",
        gives="retrieval",
        description="Natural Questions, simplified, as ReQA",
        read=read_natural_questions,
        fit=fit_natural_questions,
    ),
)

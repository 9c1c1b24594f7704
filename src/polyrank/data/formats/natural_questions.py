"""Natural Questions, simplified JSONL, as ReQA: from a question to the sentence that answers it.

Used are questions with a short answer inside a long answer that is a paragraph; all others are
passed over. The candidates are the sentences of these paragraphs. The documents' words are joined
by spaces, without the HTML tags among them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from polyrank.data.files import read_json_lines
from polyrank.data.formats.beir import RetrievalSet
from polyrank.data.formats.reqa import Collection
from polyrank.data.formats.source import Blame, Identifiers, Source, at_line

NO_SENTENCE = "questions without a short answer in a paragraph"
PARAGRAPH = "<P>"
REMEDY = "Give a file of the simplified training set, v1.0-simplified…jsonl."


class Answer(NamedTuple):
    """A paragraph, and where in its text the short answers begin."""

    paragraph: str
    starts: list[int]


def read(source: Source) -> RetrievalSet:
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
                    f"There is no {kind.__name__} {field!r}; the line has {listed}.", REMEDY
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
    """The first annotator's answer that is one, or None."""
    tokens = record["document_text"].split(" ")
    for annotation in record["annotations"]:
        begin, end = span(annotation.get("long_answer"), tokens, blame)
        shorts = [span(short, tokens, blame) for short in annotation.get("short_answers", ())]
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
    """The tokens of an answer, from its first to before its last; (-1, -1) where there is none."""
    ends = [
        value.get(name) if isinstance(value, dict) else None
        for name in ("start_token", "end_token")
    ]
    begin, end = ends
    if not isinstance(begin, int) or not isinstance(end, int) or end > len(tokens) or begin > end:
        raise blame(
            f"An answer spans the tokens {begin!r} to {end!r} of a document of {len(tokens)}.",
            REMEDY,
        )
    return begin, end


def is_tag(word: str) -> bool:
    """Whether a token is an HTML tag."""
    return word.startswith("<") and word.endswith(">") and len(word) > 2

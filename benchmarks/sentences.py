"""A million real texts of a sentence or less, for measuring search: turns, sentences, clauses.

python -m benchmarks.sentences DATA --count 1000000 --output FILE

DATA is a folder of text data sets, JSONL and CSV, compressed or not. Whole turns and sentences come
first; where they do not suffice, sentences are split further, at commas and semicolons. Texts are
distinct, of 3 to 60 words, and shuffled.
"""

from __future__ import annotations

import argparse
import csv
import io
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polyrank.data.files import base_suffix, open_bytes
from polyrank.data.json_files import read_json_lines

SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^a-z])")
CLAUSE_END = re.compile(r"(?<=[,;:])\s+|\s+(?=\()|\s+(?=(?:and|which|who|when|where|because)\s)")
FEWEST_WORDS = 3
MOST_WORDS = 60


def strings_in(value: Any) -> Iterator[str]:
    """Every text of a record that is longer than a word."""
    if isinstance(value, str):
        if " " in value:
            yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from strings_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from strings_in(inner)


def texts_of(path: Path) -> Iterator[str]:
    """The texts of one file; of tables, the longest column."""
    suffix = base_suffix(path)
    if suffix == ".jsonl":
        for _, record in read_json_lines(path):
            yield from strings_in(record)
    elif suffix == ".csv":
        with open_bytes(path) as handle:
            for row in csv.reader(io.TextIOWrapper(handle, encoding="utf-8")):
                yield max(row, key=len)


def texts_below(data: Path) -> Iterator[str]:
    """The texts of every file below a folder."""
    for path in sorted(data.rglob("*")):
        if path.is_file():
            yield from texts_of(path)


def fits(text: str) -> bool:
    """Whether a text is neither a word nor a paragraph."""
    return FEWEST_WORDS <= len(text.split()) <= MOST_WORDS


def real_texts(data: Path, count: int) -> list[str]:
    """`count` distinct texts from every file below `data`."""
    sentences: dict[str, None] = {}
    for text in texts_below(data):
        pieces = (" ".join(piece.split()) for piece in SENTENCE_END.split(text))
        sentences.update((piece, None) for piece in pieces if fits(piece))
    print(f"{len(sentences):,} turns and sentences")
    draw = random.Random(0)
    if len(sentences) < count:
        clauses: dict[str, None] = {}
        for sentence in sentences:
            pieces = CLAUSE_END.split(sentence)
            clauses.update((piece, None) for piece in pieces if fits(piece))
        fresh = [clause for clause in clauses if clause not in sentences]
        missing = count - len(sentences)
        print(f"{len(fresh):,} clauses, of which {missing:,} are needed")
        sentences.update((clause, None) for clause in draw.sample(fresh, missing))
    return draw.sample(list(sentences), count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with open(options.output, "w", encoding="utf-8") as handle:
        for text in real_texts(options.data, options.count):
            handle.write(f"{text}\n")


if __name__ == "__main__":
    main()

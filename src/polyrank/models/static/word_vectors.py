"""Files of word vectors: GloVe's, word2vec's and fastText's text format, plain or compressed.

A line holds a word and its numbers, separated by spaces; word2vec and fastText begin with a line of
two numbers, of words and of dimensions. Knows nothing of models.

Letters: V words, h numbers of each.
"""

from __future__ import annotations

import re
import warnings
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from polyrank.data.files import at_line, read_lines
from polyrank.errors import DataError

UNKNOWN = "[UNK]"
BLOCK = 4096
"""Lines that are turned into numbers at once."""
NUMBER = re.compile("[0-9]{1,12}")
"""A number of words or of dimensions."""
CASED = 0.01
"""Above this share of words with capital letters, case matters."""

Numbered = tuple[int, str]
"""A line and its number."""


def read_word_vectors(path: Path, most: int | None = None) -> tuple[list[str], np.ndarray]:
    """The words of a file, or its first `most`, and their vectors: (V, h), float32.

    For a repeated word the first line counts. Raises DataError, with the line, for anything other
    than a word and as many numbers as in the lines before.
    """
    lines = ((number, line) for number, line in read_lines(path) if line.strip())
    beginning = list(islice(lines, 1))
    if not beginning:
        raise no_vectors(path)
    fields = beginning[0][1].rstrip().split(" ")
    has_header = len(fields) == 2 and all(NUMBER.fullmatch(field) for field in fields)
    width = int(fields[1]) if has_header else len(fields) - 1
    if width < 1:
        raise not_vectors(path, beginning[0])
    numbered = chain([] if has_header else beginning, lines)
    known: set[str] = {UNKNOWN}
    words: list[str] = []
    blocks = []
    while (most is None or len(words) < most) and (block := list(islice(numbered, BLOCK))):
        found, vectors = parse(path, block, width)
        rows = {word: row for row, word in reversed(list(enumerate(found))) if word not in known}
        rows = dict(sorted(rows.items(), key=lambda item: item[1]))
        blocks.append(vectors[list(rows.values())])
        words += rows
        known |= rows.keys()
    if not words:
        raise no_vectors(path)
    return words[:most], np.concatenate(blocks)[:most]


def parse(path: Path, block: list[Numbered], width: int) -> tuple[list[str], np.ndarray]:
    """The words and the numbers (V, h) of some lines. Raises DataError, with the line."""
    words, tails = [], []
    for number, line in block:
        word, *numbers = line.rstrip().rsplit(" ", width)
        if len(numbers) != width:
            raise not_vectors(path, (number, line), width)
        words.append(word)
        tails.append(" ".join(numbers))
    vectors = numbers_of(" ".join(tails))
    if len(vectors) == len(block) * width and np.isfinite(vectors).all():
        return words, vectors.reshape(len(block), width)
    wrong = next(
        line
        for line, tail in zip(block, tails, strict=True)
        if len(found := numbers_of(tail)) != width or not np.isfinite(found).all()
    )
    raise not_vectors(path, wrong, width)


def numbers_of(text: str) -> np.ndarray:
    """The numbers of a text, up to the first non-number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of what cannot be read
        try:
            return np.fromstring(text, dtype=np.float32, sep=" ")
        except ValueError:
            return np.empty(0, dtype=np.float32)


def no_vectors(path: Path) -> DataError:
    """The error for a file without words."""
    return DataError("The file holds no word vectors.", "Give a file of word vectors.", path=path)


def not_vectors(path: Path, line: Numbered, width: int | None = None) -> DataError:
    """The error for a line that is not a word with its numbers."""
    expected = "numbers" if width is None else f"{width} finite numbers"
    return at_line(path, line[0])(
        f"Expected a word and {expected}, separated by spaces, got {line[1][:60]!r}.",
        "Give word vectors in the text format of GloVe, word2vec or fastText, or the folder of a "
        "model.",
    )


def word_tokenizer(words: list[str]) -> Any:
    """A tokeniser of whole words and single punctuation marks; any other word is `[UNK]`, which
    has the last number.

    Letters become lower case unless words of the list have capitals.
    """
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: number for number, word in enumerate([*words, UNKNOWN])}
    made: Any = Tokenizer(models.WordLevel(vocabulary, UNKNOWN))
    if sum(word != word.lower() for word in words) <= CASED * len(words):
        made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token=UNKNOWN)

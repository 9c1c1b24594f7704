import subprocess
import sys

import pytest

from polyrank.errors import DataError, UsageError
from polyrank.tokens.tokenizer import TextTokenizer
from polyrank.tokens.vocabulary import SPECIAL, train_tokenizer

TEXTS = [
    "The poly-encoder keeps several vectors of a context.",
    "Candidates attend over the vectors of the context.",
    "안녕하세요, 오늘 날씨가 좋네요.",
    "Ångström wrote about the Sun's spectrum.",
] * 5


def test_it_reads_what_it_was_trained_on():
    tokenizer = train_tokenizer(TEXTS, 600)
    assert tokenizer.convert_tokens_to_ids(list(SPECIAL)) == [0, 1, 2, 3, 4]
    assert len(tokenizer) <= 600
    for text in TEXTS[:4]:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.unk_token_id not in ids
    words = tokenizer.tokenize("candidates 날씨가 ångström")
    assert words == ["candidates", "날씨가", "ångström"]
    texts = TextTokenizer(tokenizer)
    ids, segments = texts.join([7], [8, 9])
    assert ids == [2, 7, 3, 8, 9, 3]
    assert segments == [0, 0, 0, 1, 1, 1]


def test_letters_keep_their_case_if_asked():
    assert train_tokenizer(TEXTS, 600, lower_case=False).tokenize("Sun sun")[0] == "Sun"
    assert train_tokenizer(TEXTS, 600).tokenize("Sun") == ["sun"]


def test_it_is_the_same_in_every_process():
    program = (
        "from polyrank.tokens.vocabulary import train_tokenizer\n"
        f"print(sorted(train_tokenizer({TEXTS!r}, 300).get_vocab().items()))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            env={"PYTHONHASHSEED": seed, "PYTHONUTF8": "1"},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


def test_rare_characters_are_unknown():
    texts = [*TEXTS * 20, "".join(map(chr, range(0x4E00, 0x4F00)))]
    tokenizer = train_tokenizer(texts, 400)
    assert len(tokenizer) <= 400
    assert tokenizer.tokenize(chr(0x4E50)) == ["[UNK]"]


def test_bad_sizes_and_empty_texts_are_refused():
    with pytest.raises(UsageError, match="vocabulary must be at least 50, got 10"):
        train_tokenizer(TEXTS, 10)
    with pytest.raises(DataError, match="no text to make a vocabulary from"):
        train_tokenizer(["", " "], 300)

"""BM25: against its formula, against itself, and in any script."""

import math
import random
import sys
import types
from collections import Counter

import numpy as np
import pytest
import torch

from polyrank.errors import DataError, MissingExtraError, UsageError
from polyrank.evaluation.ranking import evaluate_examples
from polyrank.records import Example
from polyrank.retrieval.bm25.config import ASCII_WORD, BM25Config, word_pattern, words
from polyrank.retrieval.bm25.index import BM25Index

VOCABULARY = ["disk", "boot", "Wifi", "größe", "файл", "kernel", "x", "sound"]


def some_texts(count=60, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices(VOCABULARY, k=draw.randint(0, 9))) for _ in range(count)]


def formula(context, text, texts, k1=1.5, b=0.75):
    bags = [Counter(words(each)) for each in texts]
    mean = sum(bag.total() for bag in bags) / len(bags)
    bag = Counter(words(text))
    score = 0.0
    for word in words(context):
        holders = sum(word in other for other in bags)
        idf = math.log(1 + (len(bags) - holders + 0.5) / (holders + 0.5))
        score += idf * bag[word] / (bag[word] + k1 * (1 - b + b * bag.total() / mean))
    return score


@pytest.mark.parametrize("settings", [{}, {"k1": 0.9, "b": 0.4}, {"k1": 0.1, "b": 0.0}])
def test_search_and_pairs_are_the_formula(settings):
    texts = some_texts()
    index = BM25Index.build(texts, BM25Config(**settings))
    contexts = ["disk boot boot größe", "nothing of it", "", ["wifi", "ФАЙЛ x"]]
    for context in contexts:
        joined = context if isinstance(context, str) else " ".join(context)
        expected = [formula(joined, text, texts, **settings) for text in texts]
        pairs = index.score_pairs([(context, text) for text in texts])
        np.testing.assert_allclose(pairs.numpy(), expected, rtol=1e-5)
        [hits] = index.search([context], top_k=len(texts))
        ranked = sorted(
            ((score, str(row)) for row, score in enumerate(expected) if score > 0),
            key=lambda pair: (np.float32(pair[0]), pair[1]),
            reverse=True,
        )
        assert len(hits) == len(ranked)
        np.testing.assert_allclose([hit.score for hit in hits], [pair[0] for pair in ranked], 1e-5)


def test_ties_go_to_the_larger_id_however_the_candidates_come():
    named = [(f"c{number}", "the same text") for number in range(20)] + [("d", "the same")]
    expected = sorted((name for name, text in named if text == "the same text"), reverse=True)
    for seed in range(4):
        random.Random(seed).shuffle(named)
        [hits] = BM25Index.build(named).search(["text"], top_k=5)
        assert [hit.id for hit in hits] == expected[:5]
        [hits] = BM25Index.build(named).search(["same"], top_k=21)
        assert [hit.id for hit in hits] == ["d", *expected]


def test_a_larger_top_k_only_adds():
    index = BM25Index.build(some_texts(200))
    [everything] = index.search(["disk boot wifi"], top_k=200)
    for top_k in (1, 7, 50):
        [hits] = index.search(["disk boot wifi"], top_k=top_k)
        assert hits == everything[:top_k]
    report = index.search(["disk"], top_k=3).reports[0]
    assert report.num_candidates == 200
    assert report.num_scored == sum("disk" in text for text in some_texts(200))


def test_texts_that_the_index_has_not_are_scored():
    index = BM25Index.build(["a disk", "a kernel"])
    rare, common, none = index.score_pairs([("zebra", "zebra"), ("a", "a"), ("zebra", "disk")])
    assert rare > common > 0
    assert none == 0


def test_it_ranks_examples():
    examples = [
        Example(
            context=["hello", f"my {word} is broken"],
            response=f"which {word} is it",
            candidates=tuple(f"which {other} is it" for other in VOCABULARY),
            gold=place,
        )
        for place, word in enumerate(VOCABULARY)
    ]
    index = BM25Index.build([f"which {word} is it" for word in VOCABULARY])
    assert evaluate_examples(index, examples).recall[1] == 1
    assert index.score_pairs([]).shape == (0,)
    assert index.score_pairs([("x", "x")]).dtype == torch.float32


def test_words_of_any_script():
    assert words("Hello, wor\u00adld: foo_bar 42!") == ["hello", "world", "foo", "bar", "42"]
    assert words("हिन्दी में") == ["हिन्दी", "में"]
    assert words("Straße ﬁne ÉTÉ") == ["strasse", "fine", "été"]
    assert words("東京都 に") == ["東京", "京都", "に"]
    assert words("안녕하세요 나") == ["안녕", "녕하", "하세", "세요", "나"]
    assert words("ภาษา") == ["ภา", "าษ", "ษา"]
    assert words("") == words("… !?") == []
    text = "The quick brown_fox, jumps2 over; the LAZY dog's x-ray"
    assert ASCII_WORD.findall(text.lower()) == [
        match.group() for match in word_pattern().finditer(text.casefold())
    ]


def test_letters_in_the_place_of_words():
    index = BM25Index.build(["kernels", "disk"], BM25Config(letters=4))
    assert [hit.text for hit in index.search(["the kernel"], top_k=2)[0]] == ["kernels"]
    assert BM25Index.build(["kernels", "disk"]).search(["the kernel"], top_k=2) == [[]]


def test_a_stemmer_is_used_or_named(monkeypatch):
    class Stemmer:
        def __init__(self, language):
            assert language == "english"

        def stemWords(self, found):  # noqa: N802 - PyStemmer's name
            return [word.rstrip("s") for word in found]

    module = types.SimpleNamespace(algorithms=lambda: ["english", "german"], Stemmer=Stemmer)
    monkeypatch.setitem(sys.modules, "Stemmer", module)
    index = BM25Index.build(["kernels", "disk"], BM25Config(stemmer="english"))
    assert [hit.text for hit in index.search(["kernel"], top_k=1)[0]] == ["kernels"]
    with pytest.raises(UsageError, match="Did you mean 'german'"):
        BM25Index.build(["a"], BM25Config(stemmer="germann"))
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    with pytest.raises(UsageError, match="pip install PyStemmer"):
        BM25Index.build(["a"], BM25Config(stemmer="english"))


def test_what_it_refuses(monkeypatch):
    with pytest.raises(DataError, match="no candidates"):
        BM25Index.build([])
    with pytest.raises(DataError, match="'x' is given twice"):
        BM25Index.build([("x", "one"), ("y", "two"), ("x", "three")])
    index = BM25Index.build(["", "…"])
    assert index.search(["a word"], top_k=2) == [[]]
    with pytest.raises(UsageError, match="top_k must be a whole number of at least 1, got 0"):
        index.search(["a"], top_k=0)
    with pytest.raises(UsageError, match="contexts must be a text or a list"):
        index.search(3)
    for wrong in ({"k1": -1.0}, {"b": 2.0}, {"letters": 0}, {"letters": 3, "stemmer": "english"}):
        with pytest.raises(UsageError):
            BM25Config(**wrong)
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingExtraError, match=r'pip install "polyrank\[bm25\]"'):
        BM25Index.build(["a"])


def test_one_text_and_one_pair_give_one_result():
    index = BM25Index.build(["a red disk", "a blue disk", "nothing"])
    found = index.search(["red disk", "blue"], top_k=1000)
    assert index.search("red disk", top_k=1000) == found[0]
    assert index.search("red disk").report == found.reports[0]
    scores = index.score_pairs([("red disk", "a red disk"), ("blue", "a red disk")])
    assert torch.equal(index.score_pairs(("red disk", "a red disk")), scores[0])

"""Negatives: what is never one, ranks and limits, the cross-encoder's filter, the sources."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from polyrank.data.answers import folded
from polyrank.data.loading import load_examples
from polyrank.errors import DataError, ModelError, UsageError
from polyrank.records import Candidate, Example, RetrievalSet
from polyrank.retrieval.index import Index
from polyrank.training.negatives.config import Limits, NegativesConfig
from polyrank.training.negatives.filtering import choose
from polyrank.training.negatives.methods import (
    DialogueNegatives,
    bm25_method,
    dialogue_method,
    model_method,
    random_method,
)
from polyrank.training.negatives.mining import mine_to_file
from polyrank.training.negatives.pool import Numbered, Pool, Proposals
from polyrank.training.teaching.teacher import Teacher
from tiny_encoders import load_variant

WORDS = ["disk", "boot", "wifi", "sound", "screen", "kernel"]


class FakeCross:
    """Scores a pair by a table or, beyond it, by the length of the candidate; counts the calls."""

    class config:  # noqa: N801 - the name of a model's attribute
        architecture = "cross"
        task = "rank"

    def __init__(self, table=()):
        self.table = dict(table)
        self.calls = []

    def fingerprint(self):
        return f"fake {sorted(self.table.items())}"

    def score_pairs(self, pairs, *, show_progress_bar=False):
        assert len(set(pairs)) == len(pairs)
        self.calls.append(len(pairs))
        return torch.tensor([float(self.table.get(text, len(text))) for _, text in pairs])


@pytest.fixture(scope="module")
def bi(bert):
    return load_variant("bi", bert)


def dialogues(count=30, turns=4):
    """Every prefix of some dialogues with the turn after it."""
    examples = []
    for number in range(count):
        said = [f"turn {turn} of {number} on {WORDS[(number + turn) % 6]}" for turn in range(turns)]
        examples += [
            Example(context=tuple(said[:end]), response=said[end], id=f"{number}.{end}")
            for end in range(1, turns)
        ]
    return examples


def single(count=40):
    return [
        Example(context=f"what about {WORDS[n % 6]} {n}", response=f"the {WORDS[n % 6]} answer {n}")
        for n in range(count)
    ]


def method_of(name, bi):
    made = {"random": random_method, "dialogue": dialogue_method, "bm25": bm25_method}
    return model_method(bi) if name == "model" else made[name]()


METHODS = ["random", "dialogue", "bm25", "model"]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.mark.parametrize("name", METHODS)
def test_no_negative_is_right_and_none_comes_twice(name, bi, tmp_path):
    examples = dialogues()
    twice = [
        *examples,
        *(Example(context=e.context, response=e.response.upper() + " ") for e in examples[:20]),
        Example(context=examples[0].context, response="another reply"),
    ]
    pool = Pool.of_examples(twice)
    method = method_of(name, bi)
    mine_to_file(
        pool, method, tmp_path / "out.jsonl", NegativesConfig(num_negatives=3), block_size=7
    )
    written = load_examples(tmp_path / "out.jsonl")
    assert [(e.id, e.context, e.response) for e in written] == [
        (e.id, e.context, e.response) for e in twice
    ]
    right = {}
    for example in twice:
        right.setdefault(example.context, set()).add(folded(example.response))
    texts = {folded(candidate.text) for candidate in pool.candidates}
    for example in written:
        found = [folded(text) for text in example.negatives]
        assert len(found) == len(set(found)) <= 3
        assert not right[example.context] & set(found)
        if method.name != "dialogue":
            assert set(found) <= texts
    assert sum(len(e.negatives) for e in written) > len(twice)


@pytest.mark.parametrize("name", METHODS)
def test_blocks_change_nothing_and_the_seed_does(name, bi, tmp_path):
    pool = Pool.of_examples(dialogues())

    def run(seed, block_size):
        config = NegativesConfig(num_negatives=2, seed=seed)
        output = tmp_path / f"{seed}-{block_size}.jsonl"
        mine_to_file(pool, method_of(name, bi), output, config, block_size=block_size)
        return output.read_text()

    first = run(0, 5)
    assert first == run(0, 90) == run(0, 1024)
    if name != "dialogue":
        assert first != run(1, 5)


def proposals(count=20):
    texts = [f"text {place}" for place in range(count)]
    return Proposals(
        texts=texts, scores=[float(count - place) for place in range(count)], positive=16.0
    )


def chosen(config, proposed=None, response="text 2", cross=None, ranked=True):
    example = Example(context="a question", response=response)
    pool = Pool([example], [Candidate(str(n), f"text {n}") for n in range(40)])
    cross = None if cross is None else Teacher(cross)
    [found], counts = choose(
        [Numbered(0, example)], [proposed or proposals()], pool, config, ranked=ranked, cross=cross
    )
    return found, counts


def test_ranks_leave_out_what_is_right():
    config = NegativesConfig(num_negatives=3, from_rank=2, to_rank=4, pick="top")
    found, counts = chosen(config)
    assert found.negatives == ("text 1", "text 3", "text 4")  # text 2 is right and has no rank
    assert counts["right"] == 1
    assert counts["outside_window"] == 16
    assert counts["kept"] == counts["proposed"] - counts["right"] - counts["outside_window"]


@pytest.mark.parametrize(
    ("limits", "highest"),
    [
        ({"max_score": 12.0}, 12),
        ({"margin": 3.0}, 13),
        ({"margin": 0.0}, 16),
        ({"relative_margin": 0.25}, 12),
        ({"max_score": 12.0, "margin": 6.0}, 10),
    ],
)
def test_margins(limits, highest):
    config = NegativesConfig(num_negatives=1, pick="top", **limits)
    found, counts = chosen(config)
    assert found.negatives == (f"text {20 - highest}",)
    assert counts["too_close"] == 20 - highest - (1 if highest < 18 else 0)


def test_a_relative_margin_is_below_a_negative_score_too():
    assert Limits(relative_margin=0.1).ceiling(-10.0) == pytest.approx(-11.0)
    assert Limits(relative_margin=0.1).ceiling(10.0) == pytest.approx(9.0)
    assert not Limits()
    assert Limits(margin=0.0)


def test_the_draw_is_within_the_window():
    config = NegativesConfig(num_negatives=5, from_rank=3, to_rank=10)
    seen = Counter()
    for seed in range(30):
        found, _ = chosen(NegativesConfig(num_negatives=5, from_rank=3, to_rank=10, seed=seed))
        assert len(found.negatives) == 5
        seen.update(found.negatives)
    assert set(seen) == {f"text {place}" for place in range(3, 11)}
    assert chosen(config)[0] == chosen(config)[0]


def test_the_cross_encoder_leaves_out_what_it_finds_right():
    table = {"text 2": 10.0, **{f"text {n}": float(n % 12) for n in range(20) if n != 2}}
    config = NegativesConfig(num_negatives=4, pick="top", reranker_margin=8.0)
    found, counts = chosen(config, cross=FakeCross(table))
    assert found.negatives == ("text 0", "text 1", "text 12", "text 13")
    assert found.scores == (10.0, 0.0, 1.0, 0.0, 1.0)
    assert counts["false_negatives"] == 9  # text 3 … 11; nothing was scored beyond need
    config = NegativesConfig(num_negatives=4, pick="top", reranker_max_score=3.0)
    found, _ = chosen(config, cross=FakeCross(table))
    assert found.negatives == ("text 0", "text 1", "text 3", "text 12")
    config = NegativesConfig(num_negatives=2, pick="top")
    found, counts = chosen(config, cross=FakeCross(table))
    assert (found.negatives, counts["false_negatives"]) == (("text 0", "text 1"), 0)


def test_pairs_of_all_examples_go_to_the_cross_encoder_together():
    examples = single(50)
    pool = Pool.of_examples(examples)
    block = [Numbered(place, example) for place, example in enumerate(examples)]
    proposer = random_method().make(pool, NegativesConfig(), Path())
    cross = FakeCross()
    choose(
        block, proposer.propose(block), pool, NegativesConfig(), ranked=False, cross=Teacher(cross)
    )
    assert cross.calls == [50, 200]


@pytest.mark.parametrize(("missing", "count"), [("keep", 2), ("fill", 5), ("drop", None)])
def test_too_few(missing, count):
    config = NegativesConfig(num_negatives=5, to_rank=2, missing=missing)
    example = Example(context="a question", response="text 2")
    pool = Pool([example], [Candidate(str(n), f"text {n}") for n in range(40)])
    found, counts = choose([Numbered(0, example)], [proposals()], pool, config, ranked=True)
    assert [len(set(each.negatives)) for each in found] == ([] if count is None else [count])
    assert counts["short"] == (missing != "fill")
    assert counts["filled"] == (3 if missing == "fill" else 0)
    assert counts["left_out"] == (missing == "drop")


def test_dialogue_negatives_are_the_other_turns():
    said = ("hi", "my disk is full", "which disk", "the second", "clean it")
    examples = [Example(context=said[:end], response=said[end]) for end in range(1, 5)]
    source = DialogueNegatives(examples)
    found = source.propose([Numbered(n, example) for n, example in enumerate(examples)])
    assert list(found[0].texts) == ["hi", "which disk", "the second", "clean it"]
    assert list(found[2].texts) == ["which disk", "my disk is full", "hi", "clean it"]
    text = Example(context="hi", response="hello")
    assert list(source.propose([Numbered(0, text)])[0].texts) == []


def test_bm25_negatives_share_words():
    pool = Pool.of_examples(single())
    config = NegativesConfig(num_negatives=2, pick="top", to_rank=5)
    block = [Numbered(0, pool.examples[1])]
    found = bm25_method().make(pool, config, Path()).propose(block)
    chosen_, _ = choose(block, found, pool, config, ranked=True)
    assert all("boot" in text for text in chosen_[0].negatives)


@pytest.mark.parametrize("variant", ["bi", "poly-learnt"])
def test_model_negatives_are_those_of_brute_force(variant, bert, tmp_path):
    examples = single()
    pool = Pool.of_examples(examples)
    model = load_variant(variant, bert)
    config = NegativesConfig(num_negatives=4, from_rank=3, to_rank=36, pick="top", margin=1e-4)
    mine_to_file(pool, model_method(model), tmp_path / "out.jsonl", config, block_size=16)
    scores = model.score(
        model.encode_contexts([example.context for example in examples]),
        model.encode_candidates([candidate.text for candidate in pool.candidates]),
    )
    written = load_examples(tmp_path / "out.jsonl")
    for example, row in zip(written, scores.tolist(), strict=True):
        positive = row[examples.index(replace(example, negatives=()))]
        ranked = sorted(zip(row, pool.candidates, strict=True), reverse=True)
        others = [(s, c.text) for s, c in ranked if c.text != example.response][2:36]
        expected = [text for score, text in others if score <= positive - 1e-4][:4]
        assert list(example.negatives) == expected
    assert sum(len(example.negatives) for example in written) > 20
    assert not list(tmp_path.glob(".*"))


def test_margins_of_a_real_model(bert, tmp_path):
    examples = single(12)
    pool = Pool.of_examples(examples)
    for variant in ("bi", "poly-learnt"):
        model = load_variant(variant, bert)
        index = Index.build(model, pool.candidates, tmp_path / variant)
        method = model_method(model, index)
        source = method.make(pool, NegativesConfig(margin=0.0), tmp_path)
        found = source.propose([Numbered(n, example) for n, example in enumerate(examples)])
        for example, proposed in zip(examples, found, strict=True):
            place = list(proposed.texts).index(example.response)
            assert proposed.positive == pytest.approx(proposed.scores[place], rel=1e-4, abs=1e-5)


def test_a_retrieval_set(tmp_path):
    corpus = [Candidate(f"d{n}", f"{WORDS[n % 6]} text {n}") for n in range(30)]
    data = RetrievalSet(
        corpus=corpus,
        queries={"q0": "disk text", "q1": "wifi text"},
        judgements={"q0": {"d0": 1, "d6": 2, "d12": 0}, "q1": {"d2": 1}},
        split="train",
    )
    pool = Pool(list(data.examples()), data.corpus)
    result = mine_to_file(pool, bm25_method(), tmp_path / "out.jsonl", NegativesConfig(pick="top"))
    first, second, third = load_examples(tmp_path / "out.jsonl")
    assert first.negatives == second.negatives
    assert first.negatives[0] in {"disk text 12", "disk text 18", "disk text 24"}
    assert not {"disk text 0", "disk text 6"} & set(first.negatives)
    assert third.response == "wifi text 2"
    assert result.counts["examples"] == 3


def test_what_is_refused(bert, tmp_path):
    examples = single()
    pool = Pool.of_examples(examples)
    output = tmp_path / "out.jsonl"
    with pytest.raises(DataError, match="no examples"):
        Pool.of_examples([])
    with pytest.raises(DataError, match="at least 2 different candidates"):
        Pool.of_examples([Example(context="a", response="b"), Example(context="c", response=" B")])
    with pytest.raises(UsageError, match="to_rank must be at least from_rank, 9"):
        NegativesConfig(from_rank=9, to_rank=8)
    with pytest.raises(DataError, match="first rank to take is 50, but there are only 40"):
        mine_to_file(pool, bm25_method(), output, NegativesConfig(from_rank=50, to_rank=60))
    with pytest.raises(DataError, match="No negatives were found for any example") as caught:
        mine_to_file(pool, bm25_method(), output, NegativesConfig(max_score=-1.0))
    assert "scored too close" in str(caught.value)
    with pytest.raises(DataError, match="several turns"):
        mine_to_file(pool, dialogue_method(), output, NegativesConfig())
    with pytest.raises(UsageError, match="but no cross-encoder"):
        mine_to_file(pool, random_method(), output, NegativesConfig(reranker_margin=1.0))
    with pytest.raises(UsageError, match="must be a cross-encoder, got a bi-encoder"):
        mine_to_file(
            pool, random_method(), output, NegativesConfig(), reranker=load_variant("bi", bert)
        )
    with pytest.raises(UsageError, match="no candidate vectors"):
        model_method(load_variant("cross", bert))
    cross = FakeCross({examples[0].response: float("nan")})
    with pytest.raises(ModelError, match="not all finite"):
        mine_to_file(pool, random_method(), output, NegativesConfig(), reranker=cross)
    with pytest.raises(UsageError, match="is a folder"):
        mine_to_file(pool, random_method(), tmp_path, NegativesConfig())
    assert not output.exists()


def test_it_resumes_after_an_interruption(bi, tmp_path, monkeypatch):
    pool = Pool.of_examples(single())
    whole = tmp_path / "whole.jsonl"
    config = NegativesConfig(num_negatives=2)
    expected = mine_to_file(pool, model_method(bi), whole, config, block_size=8)
    encode, blocks = bi.encode_for_scoring, []

    def interrupted(contexts):
        blocks.append(contexts)
        if len(blocks) == 4:
            raise KeyboardInterrupt
        return encode(contexts)

    output = tmp_path / "out.jsonl"
    output.write_text("what stood here\n")
    with monkeypatch.context() as patch:
        patch.setattr(bi, "encode_for_scoring", interrupted)
        with pytest.raises(KeyboardInterrupt):
            mine_to_file(pool, model_method(bi), output, config, block_size=8)
    assert output.read_text() == "what stood here\n"
    journal = tmp_path / ".out.jsonl.mining"
    with open(journal / "lines.jsonl", "a") as lines, open(journal / "journal.jsonl", "a") as notes:
        lines.write('{"context": "cut o')  # a block that was not written whole
        notes.write('{"read": 8, "en')
    with pytest.raises(
        UsageError, match=r"unfinished mining with other settings \(num_negatives = 2\)"
    ):
        mine_to_file(pool, model_method(bi), output, NegativesConfig(), block_size=8)
    said = []
    encoded = []
    monkeypatch.setattr(bi, "encode_candidates", encoded.append)
    result = mine_to_file(pool, model_method(bi), output, config, block_size=8, say=said.append)
    assert said == ["Resuming after 24 of 40 examples."]
    assert not encoded  # the index was there
    assert output.read_bytes() == whole.read_bytes()
    assert result.counts == expected.counts
    assert not list(tmp_path.glob(".*"))


def test_restart_discards(tmp_path):
    pool = Pool.of_examples(single())
    output = tmp_path / "out.jsonl"
    (tmp_path / ".out.jsonl.mining").mkdir()
    other = '{"identity": {"method": "another"}, "described": {}}'
    (tmp_path / ".out.jsonl.mining" / "job.json").write_text(other)
    with pytest.raises(UsageError, match="--restart"):
        mine_to_file(pool, random_method(), output, NegativesConfig())
    mine_to_file(pool, random_method(), output, NegativesConfig(), restart=True)
    assert output.is_file()


def test_random_negatives_are_spread_evenly():
    pool = Pool.of_examples(single())
    seen = Counter()
    for seed in range(40):
        config = NegativesConfig(num_negatives=1, seed=seed)
        source = random_method().make(pool, config, Path())
        block = [Numbered(n, example) for n, example in enumerate(pool.examples)]
        found, _ = choose(block, source.propose(block), pool, config, ranked=False)
        seen.update(text for example in found for text in example.negatives)
    assert len(seen) == 40
    assert max(seen.values()) < 40 + 5 * 40**0.5

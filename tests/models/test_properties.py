"""What never changes a score, for every architecture and every kind of encoder."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrank.errors import UsageError
from tiny_encoders import FAMILIES, LONG, TEXTS, VARIANTS, load_variant, scores_of

CONTEXTS = ["how do i read a file", "", ["hello", "no sound", "old kernel"], "yes"]
TOLERANCE = {"atol": 1e-5, "rtol": 0}


def assert_same(scores, expected):
    torch.testing.assert_close(scores, expected, **TOLERANCE)


@pytest.fixture(scope="module", params=VARIANTS)
def model(request, encoder_folder):
    return load_variant(request.param, encoder_folder("bert"))


@pytest.fixture(scope="module", params=FAMILIES[1:])
def family_model(request, encoder_folder):
    folder = encoder_folder(request.param)
    return {name: load_variant(name, folder) for name in ("bi", "poly-learnt", "cross")}


@pytest.fixture(params=[16, 64, 4096])
def budget(request):
    return request.param


def test_scores_differ(model):
    """Else the properties below would hold of a constant."""
    scores = scores_of(model, CONTEXTS, TEXTS)
    assert (scores.max(dim=1).values - scores.min(dim=1).values > 0.05).all()
    assert len(torch.unique(scores)) > 0.9 * scores.numel()  # a text against itself scores alike


def test_the_order_of_candidates_is_no_matter(model):
    order = torch.randperm(len(TEXTS), generator=torch.Generator().manual_seed(0))
    shuffled = scores_of(model, CONTEXTS, [TEXTS[place] for place in order])
    assert_same(shuffled, scores_of(model, CONTEXTS, TEXTS)[:, order])


def test_the_order_of_contexts_is_no_matter(model):
    expected = scores_of(model, CONTEXTS, TEXTS)
    assert_same(scores_of(model, CONTEXTS[::-1], TEXTS), expected.flip(0))


def test_the_split_into_batches_is_no_matter(model, budget, monkeypatch):
    expected = scores_of(model, CONTEXTS, TEXTS)
    monkeypatch.setattr(model, "batch_tokens", budget)
    assert_same(scores_of(model, CONTEXTS, TEXTS), expected)


def test_a_batch_of_one_and_one_candidate(model):
    expected = scores_of(model, CONTEXTS, TEXTS)
    for row, context in enumerate(CONTEXTS):
        for column, text in enumerate(TEXTS):
            alone = scores_of(model, [context], [text])
            assert_same(alone, expected[row : row + 1, column : column + 1])


@pytest.mark.parametrize("company", ["", LONG, "yes"])
def test_company_is_no_matter(model, company):
    expected = scores_of(model, CONTEXTS, TEXTS)
    together = scores_of(model, [company, *CONTEXTS], [*TEXTS, company])
    assert_same(together[1:, :-1], expected)


@settings(max_examples=10, deadline=None)
@given(
    places=st.lists(st.integers(0, len(TEXTS) - 1), min_size=1, max_size=12),
    budget=st.integers(1, 200),
)
def test_any_choice_in_any_batches(model, places, budget):
    expected = scores_of(model, CONTEXTS[:2], TEXTS)[:, places]
    model.batch_tokens = budget
    try:
        assert_same(scores_of(model, CONTEXTS[:2], [TEXTS[place] for place in places]), expected)
    finally:
        model.batch_tokens = 4096


def test_texts_beyond_the_maximum_length_score(model):
    scores = scores_of(model, [LONG, "yes"], [LONG, "yes"])
    assert scores.isfinite().all()
    assert_same(scores[1:, 1:], scores_of(model, ["yes"], ["yes"]))


@pytest.mark.parametrize("architecture", ["bi", "poly-learnt", "cross"])
def test_every_family_of_encoders(family_model, architecture):
    model = family_model[architecture]
    expected = scores_of(model, CONTEXTS, TEXTS)
    assert (expected.max(dim=1).values - expected.min(dim=1).values > 0.02).all()
    together = scores_of(model, [LONG, *CONTEXTS], [LONG, *TEXTS[::-1]])
    assert_same(together[1:, 1:], expected.flip(1))
    model.batch_tokens = 20
    assert_same(scores_of(model, CONTEXTS, TEXTS), expected)
    assert_same(scores_of(model, CONTEXTS[2:3], TEXTS[4:5]), expected[2:3, 4:5])


def test_rank_gives_the_best_first(model):
    scores = scores_of(model, [CONTEXTS[2]], TEXTS)[0]
    ranked = model.rank(CONTEXTS[2], TEXTS)
    assert [int(hit.id) for hit in ranked] == scores.argsort(descending=True).tolist()
    assert [hit.text for hit in ranked] == [TEXTS[int(hit.id)] for hit in ranked]
    assert model.rank(CONTEXTS[2], TEXTS, top_k=4) == ranked[:4]
    assert model.rank(CONTEXTS[2], TEXTS[:1])[0].score == pytest.approx(float(scores[0]), abs=1e-5)


def test_equal_candidates_tie_and_the_greater_id_stands_first(model):
    candidates = ["no", *["yes"] * 11, "a", "yes", *TEXTS, "yes"]
    ranked = model.rank("hello", candidates)
    equal = [hit for hit in ranked if hit.text == "yes"]
    assert len(equal) == 14
    assert len({hit.score for hit in equal}) == 1
    assert [hit.id for hit in equal] == sorted((hit.id for hit in equal), reverse=True)
    places = [ranked.index(hit) for hit in equal]
    assert places == list(range(places[0], places[0] + 14))


@pytest.mark.parametrize("top_k", [0, -1, 2.5, "3", True])
def test_a_top_k_below_one_is_refused(model, top_k):
    with pytest.raises(UsageError, match=f"whole number of at least 1, got {top_k!r}"):
        model.rank("hello", TEXTS, top_k=top_k)


def test_a_top_k_above_the_number_of_candidates_gives_all(model):
    assert model.rank("hello", TEXTS, top_k=1000) == model.rank("hello", TEXTS)


def test_no_candidates_are_refused_and_one_may_be_a_text(model):
    with pytest.raises(UsageError, match="no candidates to rank"):
        model.rank("hello", [])
    assert model.rank("hello", "yes") == model.rank("hello", ["yes"])

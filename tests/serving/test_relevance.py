"""Scores as numbers in [0, 1]: in the order of the scores, whatever made them."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrank.serving.relevance import best_first, cosines, relevance

KINDS = {
    "cross": ("cross", {"task": "rank"}),
    "regression": ("cross", {"task": "regress"}),
    "bi": ("bi", {"similarity": "cosine", "temperature": 0.05}),
    "poly": ("poly", {"similarity": "cosine", "temperature": 0.05}),
    "bi, inner products": ("bi", {"similarity": "dot", "temperature": 1.0}),
    "poly, inner products": ("poly", {"similarity": "dot", "temperature": 0.1}),
}
ANY = st.floats(allow_nan=False, width=32)


def served(kind):
    architecture, config = KINDS[kind]
    model = SimpleNamespace(config=SimpleNamespace(**config))
    return SimpleNamespace(architecture=architecture, model=model)


@pytest.mark.parametrize("kind", KINDS)
@given(scores=st.lists(ANY, min_size=1, max_size=20))
def test_relevance_is_in_the_unit_interval_and_keeps_the_order(kind, scores):
    values = relevance(served(kind), scores)
    assert ((values >= 0) & (values <= 1)).all()
    assert (np.diff(values[np.argsort(scores)]) >= 0).all()


def test_the_values_are_those_that_are_documented():
    np.testing.assert_allclose(
        relevance(served("cross"), [-2, 0, 3]), 1 / (1 + np.exp([2, 0, -3])), rtol=1e-12
    )
    np.testing.assert_array_equal(relevance(served("bi"), [-1, 0, 0.5, 1]), [0, 0.5, 0.75, 1])
    np.testing.assert_allclose(relevance(served("poly"), [-20, 0, 10, 20]), [0, 0.5, 0.75, 1])
    np.testing.assert_array_equal(relevance(served("regression"), [-0.1, 0.3, 1.2]), [0, 0.3, 1])
    np.testing.assert_allclose(relevance(served("bi, inner products"), [0, 30]), [0.5, 1])


def test_rounding_does_not_leave_the_unit_interval():
    assert relevance(served("bi"), [1.0000001, -1.0000001]).tolist() == [1, 0]


def test_a_poly_encoders_scores_without_temperature_are_averages_of_cosines(poly):
    model = SimpleNamespace(architecture="poly", model=poly)
    texts = ["print", "yes", "sort a list in python"]
    found = cosines(model, poly.score("how do i read a file", texts).tolist())
    assert (np.abs(found) <= 1).all()
    alike = cosines(model, poly.score_pairs([("print", "print")]).tolist())
    assert alike <= 1


@given(st.lists(st.sampled_from([-1.0, 0.0, 2.0]), min_size=1, max_size=12), st.integers(1, 15))
def test_of_equal_scores_the_first_comes_first(scores, top_n):
    order = best_first(scores, top_n)
    assert order == sorted(range(len(scores)), key=lambda place: (-scores[place], place))[:top_n]

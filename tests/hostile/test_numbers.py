"""Vectors and texts at the edge: NaN, infinity, zeros, ties, nothing, a million characters."""

import numpy as np
import pytest
import torch

from polyrank.errors import ModelError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.retrieval.index import Index

CPU = {"device": "cpu", "dtype": "float32"}
KINDS = {
    "bi": (BiEncoder, {}),
    "poly": (PolyEncoder, {"num_codes": 4}),
    "cross": (CrossEncoder, {}),
}
ODD = ["", " ", "\n\t", "a", "\u200b", "☃", "\u0301", "word " * 900, "\0"]
LONG = ["a" * 1_000_000, "word " * 200_000]


@pytest.fixture(scope="module", params=KINDS)
def model(request, bert):
    kind, settings = KINDS[request.param]
    torch.manual_seed(0)
    return kind.from_pretrained(bert, **settings, **CPU)


@pytest.fixture(scope="module", params=["bi", "poly"])
def vectors(request, bert):
    kind, settings = KINDS[request.param]
    torch.manual_seed(0)
    return kind.from_pretrained(bert, **settings, **CPU)


def test_odd_texts_have_scores_that_do_not_depend_on_their_company(model):
    together = model.score(ODD, ODD)
    assert together.isfinite().all()
    for row, text in enumerate(ODD):
        assert torch.allclose(model.score([text], ODD)[0], together[row], atol=1e-4)


def test_texts_of_a_million_characters_are_cut(model):
    scores = model.score([LONG], [LONG[1], "word " * 900, "a"])
    assert scores.isfinite().all()
    assert torch.allclose(scores[0, 0], scores[0, 1], atol=1e-5)


@pytest.mark.parametrize("context", [[], [""], [" ", ""], ["a"] * 3000])
def test_odd_dialogues(model, context):
    assert model.score([context], ["a", "b"]).isfinite().all()


def test_equal_candidates_have_equal_scores(model):
    scores = model.score(["how do i read a file", "b"], ["the same"] * 300)
    assert torch.allclose(scores, scores[:, :1].expand_as(scores), atol=1e-6)


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
@pytest.mark.parametrize("exact", [True, False])
def test_ties_at_the_last_place_are_those_of_brute_force(vectors, storage, exact, tmp_path):
    texts = ["the same"] * 40 + ["file"] * 3 + ["disk kernel"] * 7
    candidates = [(f"{number:03}", text) for number, text in enumerate(texts)]
    with Index.build(vectors, candidates, tmp_path / "index", storage=storage) as index:
        for top_k in (1, 2, 5, 44, 49, 50, 1000):
            hits = index.search(["file", "the same thing"], top_k=top_k, exact=exact)
            whole = index.search(["file", "the same thing"], top_k=len(texts), exact=True)
            for few, every in zip(hits, whole, strict=True):
                assert [hit.id for hit in few] == [hit.id for hit in every][:top_k]
                assert len(few) == min(top_k, len(texts))


def test_one_candidate(vectors, tmp_path):
    with Index.build(vectors, [("a", "")], tmp_path / "index") as index:
        (hit,) = index.search("", top_k=10)
        assert (hit.id, np.isfinite(hit.score)) == ("a", True)


class Broken:
    """A model that gives a candidate's vector with numbers that are none."""

    def __init__(self, model, value):
        self.model, self.value = model, value

    def __getattr__(self, name):
        return getattr(self.model, name)

    def encode_candidates_for_scoring(self, texts, **options):
        vectors = self.model.encode_candidates_for_scoring(texts, **options).clone()
        vectors[texts.index("broken"), -1] = self.value
        return vectors


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
def test_vectors_that_are_not_finite_are_never_stored(vectors, value, storage, tmp_path):
    candidates = [("a", "fine"), ("b", "broken"), ("c", "file")]
    with pytest.raises(ModelError, match="candidate 'b' is not finite"):
        Index.build(Broken(vectors, value), candidates, tmp_path / "index", storage=storage)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
@pytest.mark.parametrize("size", [1e-30, 1e30, 0.0])
def test_extreme_vectors_are_found_or_refused(vectors, size, storage, tmp_path):
    class Scaled(Broken):
        def encode_candidates_for_scoring(self, texts, **options):
            return self.model.encode_candidates_for_scoring(texts, **options) * self.value

    candidates = [(str(number), f"file {number}") for number in range(20)]
    scaled = Scaled(vectors, size)
    if (size, storage) == (1e30, "float16"):
        with pytest.raises(ModelError, match="too large for float16"):
            Index.build(scaled, candidates, tmp_path / "index", storage=storage)
        return
    with Index.build(scaled, candidates, tmp_path / "index", storage=storage) as index:
        hits = index.search("file 3", top_k=20, exact=True)
        assert {hit.id for hit in hits} == {number for number, _ in candidates}
        assert all(np.isfinite(hit.score) for hit in hits)

import numpy as np
import pytest
import torch

from polyrank.errors import UsageError
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.models.pooling import attend, reduce, select
from polyrank.scoring.poly import poly_scores
from polyrank.tokens.batching import batches
from tiny_encoders import TEXTS, load_variant

SELECTING = ["poly-first", "poly-last", "poly-last-and-first"]


def scores_of_texts(model, contexts=TEXTS, candidates=TEXTS):
    return model.score(contexts, candidates)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
@pytest.mark.parametrize("reduction", ["first", "mean"])
def test_one_vector_is_the_bi_encoder(similarity, reduction, bert):
    kinds = {"first": "first", "mean": "learnt"}
    settings = {"reduction": reduction, "similarity": similarity, "projection": None}
    bi = load_variant("bi", bert, **settings)
    poly = load_variant(
        "poly-learnt", bert, num_codes=1, context_vectors=kinds[reduction], **settings
    )
    poly.candidate_tower.load_state_dict(bi.candidate_tower.state_dict())
    if poly.codes is not None:
        with torch.no_grad():
            poly.codes.zero_()
    torch.testing.assert_close(scores_of_texts(poly), scores_of_texts(bi), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("attention", ["basic", "sqrt"])
def test_one_vector_has_the_bi_encoders_gradient(attention, bert):
    gradients = []
    for variant in ("bi", "poly-first"):
        settings = {} if variant == "bi" else {"num_codes": 1, "attention": attention}
        model = load_variant(variant, bert, reduction="first", shared_towers=True, **settings)
        steps = batches(model.tokenizer.contexts(TEXTS, 64), 0)
        loss = model.score_all(*model(steps, steps)).logsumexp(dim=1).sum()
        parameters = dict(model.named_parameters())
        found = torch.autograd.grad(loss, parameters.values(), allow_unused=True)
        gradients.append(dict(zip(parameters, found, strict=True)))
    bi, poly = gradients
    assert bi.keys() == poly.keys()
    for name, gradient in bi.items():
        torch.testing.assert_close(poly[name], gradient)
    assert sum(bool(gradient.abs().max() > 1e-4) for gradient in bi.values()) > len(bi) / 2


@pytest.mark.parametrize("share", [0.0, 0.6])
@pytest.mark.parametrize("recency", [0.0, 0.3])
@pytest.mark.parametrize("attention", ["basic", "sqrt"])
def test_learnt_codes_by_hand(attention, recency, share, bert):
    settings = {"attention": attention, "code_recency": recency, "code_mean": share}
    model = load_variant("poly-learnt", bert, similarity="dot", **settings)
    scale = 1 / np.sqrt(32) if attention == "sqrt" else 1.0
    codes = model.codes.detach().numpy()
    encoded = model.encode_contexts(TEXTS)
    for row, sequence in enumerate(model.tokenizer.contexts(TEXTS, 64)):
        with torch.no_grad():
            outputs = model.context_tower({"input_ids": torch.tensor([sequence])})[0].numpy()
        after = np.arange(len(sequence))[::-1]
        slopes = np.linspace(0, recency, 5)
        weights = np.exp(scale * codes @ outputs.T - np.outer(slopes, after))  # (m, T)
        weights = (1 - share) * weights / weights.sum(axis=1, keepdims=True)
        expected = (weights + share / len(sequence)) @ outputs
        np.testing.assert_allclose(encoded[row].numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("variant", SELECTING)
def test_short_contexts_score_by_the_vectors_they_have(variant, bert):
    model = load_variant(variant, bert, num_codes=9)
    candidates = model.encode_candidates(TEXTS)
    counts = []
    for context in TEXTS:
        [vectors] = model.encode_contexts([context])
        there = vectors[(vectors != 0).any(dim=-1)]
        counts.append(len(there))
        assert len(there) < len(vectors) or len(there) == model.num_vectors
        alone = poly_scores(there[None], candidates, model.attention)
        torch.testing.assert_close(model.score(vectors[None], candidates), alone)
    tokens = [len(ids) for ids in model.tokenizer.contexts(TEXTS, 64)]
    most = 10 if variant == "poly-last-and-first" else 9
    assert counts == [min(count, most) for count in tokens]
    assert min(counts) == 2


def test_the_first_output_is_not_counted_twice(bert):
    both = load_variant("poly-last-and-first", bert, num_codes=4)
    last = load_variant("poly-last", bert, num_codes=4, attention="basic")
    short, long = "yes", "how do i read a file"
    torch.testing.assert_close(scores_of_texts(both, [short]), scores_of_texts(last, [short]))
    vectors = both.encode_contexts([long])[0]
    assert len(torch.unique(vectors, dim=0)) == 5
    torch.testing.assert_close(vectors[1:], last.encode_contexts([long])[0])


@pytest.mark.parametrize(
    ("variant", "count"), [("poly-learnt", 5), ("poly-first", 5), ("poly-last-and-first", 6)]
)
def test_the_number_of_vectors(variant, count, bert):
    model = load_variant(variant, bert)
    assert model.num_vectors == count
    assert model.encode_contexts(["hello"]).shape[1] == count


def test_the_architectures_method_is_pooling_alone(bert):
    outputs = torch.randn(2, 4, 32, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    learnt = load_variant("poly-learnt", bert)
    assert torch.equal(
        learnt.context_vectors(outputs, mask),
        attend(learnt.codes, outputs, mask, 1.0, learnt.recency, learnt.config.code_mean),
    )
    last = load_variant("poly-last", bert)
    assert torch.equal(last.context_vectors(outputs, mask), select(outputs, mask, "last", 5))
    bi = load_variant("bi", bert)
    assert torch.equal(bi.context_vectors(outputs, mask)[:, 0], reduce(outputs, mask, "mean"))


def test_sqrt_attention_changes_scores_but_not_those_of_one_vector(bert):
    basic, root = (load_variant("poly-first", bert, attention=kind) for kind in ("basic", "sqrt"))
    assert torch.equal(basic.encode_contexts(TEXTS), root.encode_contexts(TEXTS))
    assert (scores_of_texts(basic) - scores_of_texts(root)).abs().max() > 1e-4
    one = [
        load_variant("poly-first", bert, attention=kind, num_codes=1) for kind in ("basic", "sqrt")
    ]
    assert torch.equal(scores_of_texts(one[0]), scores_of_texts(one[1]))


@pytest.mark.parametrize("attention", ["basic", "sqrt"])
@pytest.mark.parametrize("code_scale", [0.5, 2.0])
def test_codes_start_with_the_spread_that_was_asked_for(attention, code_scale, bert):
    torch.manual_seed(0)
    model = PolyEncoder.from_pretrained(
        bert, num_codes=400, attention=attention, code_scale=code_scale
    )
    ids = torch.randint(5, 150, (8, 30), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        outputs = model.context_tower({"input_ids": ids})
        logits = torch.einsum("mh,bth->bmt", model.codes, outputs)
    logits = logits / np.sqrt(32) if attention == "sqrt" else logits
    assert float(logits.std()) == pytest.approx(code_scale, rel=0.2)


def test_codes_are_drawn_from_the_seed(bert):
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(PolyEncoder.from_pretrained(bert, num_codes=4).codes)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_no_codes_are_refused(bert):
    with pytest.raises(UsageError, match="num_codes must be at least 1, got 0"):
        PolyEncoder.from_pretrained(bert, num_codes=0)

"""The attention that is shown is the one that scores are made with."""

import pytest
import torch

from polyrank.models.attention import attention_map
from polyrank.tokens.batching import mask_of
from tiny_encoders import TEXTS, load_variant

CONTEXTS = ["how do i read a file", ["old screen", "sound and boot", "print the last line"], ""]
KINDS = ["poly-learnt", "poly-first", "poly-last", "poly-last-and-first"]


def mapped(model, context, texts=TEXTS):
    vectors = model.encode_candidates_for_scoring(texts)
    return attention_map(model, context, vectors)


@pytest.mark.parametrize("context", CONTEXTS, ids=["question", "dialogue", "empty"])
@pytest.mark.parametrize("kind", KINDS)
def test_weights_make_the_models_vectors_and_scores(kind, context, bert):
    settings = {"code_mean": 0.4, "code_recency": 0.2} if kind == "poly-learnt" else {}
    model = load_variant(kind, bert, num_codes=6, **settings)
    found = mapped(model, context)
    assert found.ids == model.context_ids([context])[0]
    torch.testing.assert_close(found.scores, model.score([context], TEXTS)[0])

    _, batch = next(model.batched([found.ids]))
    with torch.no_grad():
        outputs = model.for_inference("context_tower")(batch).float()
        expected = model.context_vectors(outputs, mask_of(batch))[0]
    torch.testing.assert_close(found.tokens @ outputs[0, : len(found.ids)], expected)

    present = found.tokens.sum(dim=1) > 0
    ones = torch.ones(int(present.sum()))
    torch.testing.assert_close(found.tokens.sum(dim=1)[present], ones)
    torch.testing.assert_close(found.weights.sum(dim=1), torch.ones(len(TEXTS)))
    assert not found.weights[:, ~present].any()
    if kind != "poly-learnt":
        assert set(found.tokens.unique().tolist()) <= {0.0, 1.0}
        assert int(present.sum()) == min(len(found.ids), model.num_vectors)


@pytest.mark.parametrize("attention", ["basic", "sqrt"])
def test_a_candidate_attends_by_the_formula(attention, bert):
    settings = {"code_scale": 20.0, "temperature": 0.02}  # far apart
    model = load_variant("poly-learnt", bert, num_codes=5, attention=attention, **settings)
    found = mapped(model, CONTEXTS[0])
    codes = model.encode_for_scoring([CONTEXTS[0]])[0]
    logits = model.encode_candidates_for_scoring(TEXTS) @ codes.T
    scale = codes.shape[1] ** -0.5 if attention == "sqrt" else 1.0
    torch.testing.assert_close(found.weights, (logits * scale).softmax(dim=1))
    assert found.weights.std() > 0.01


def test_a_prompt_gets_no_attention(bert):
    model = load_variant(
        "poly-learnt", bert, num_codes=3, context_prompt="search: ", pool_prompt=False
    )
    found = mapped(model, "read a file")
    assert model.context_unpooled > 1
    assert not found.tokens[:, : model.context_unpooled].any()
    assert (found.tokens[:, model.context_unpooled :] > 0).all()

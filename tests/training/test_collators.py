import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrank.records import Example
from polyrank.training.batches import (
    CrossDrawnCandidatesCollator,
    Item,
    TrainingSet,
)
from polyrank.training.objectives.in_batch_softmax import InBatchCollator, in_batch_softmax
from tiny_encoders import LONG, TEXTS, WORDS, load_variant

EXAMPLES = [Example(context=f"how do i {word}", response=word) for word in WORDS[15:35]]
WITH_NEGATIVES = [
    Example(context="hello", response="yes", negatives=("no", "no sound")),
    Example(context=("hello", "old kernel"), response="thanks", negatives=("yes",)),
    Example(context="print", response="yes"),
    Example(context=LONG, response=LONG, candidates=("a", LONG, "b", "c"), gold=1),
]


@pytest.fixture(scope="module")
def bi(bert):
    return load_variant("bi", bert, max_context_length=20, max_candidate_length=10)


@pytest.fixture(scope="module")
def cross(bert):
    return load_variant("cross", bert)


def numbered(examples, places=None):
    dataset = TrainingSet(examples)
    return [dataset[place] for place in (range(len(dataset)) if places is None else places)]


def rows_of(batches):
    """The rows of all batches without padding, in the caller's order."""
    rows = {}
    for batch in batches:
        masks = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()
        for row, ids, mask in zip(batch["rows"].tolist(), batch["input_ids"], masks, strict=True):
            rows[row] = ids[mask].tolist()
    assert sorted(rows) == list(range(len(rows)))
    return [rows[row] for row in range(len(rows))]


def test_examples_know_their_places():
    dataset = TrainingSet(EXAMPLES)
    assert len(dataset) == 20
    assert dataset[7] == Item(7, EXAMPLES[7])


def test_each_text_of_a_step_is_encoded_once(bi):
    step = InBatchCollator(bi, 60)(numbered(WITH_NEGATIVES))
    columns = ["yes", "thanks", "yes", LONG, "no", "no sound", "yes"]
    unique = ["yes", "thanks", LONG, "no", "no sound"]
    assert step["identities"].tolist() == [unique.index(text) for text in columns]
    assert rows_of(step["candidates"]) == bi.tokenizer.candidates(unique, 10)
    contexts = [example.context for example in WITH_NEGATIVES]
    assert rows_of(step["contexts"]) == bi.tokenizer.contexts(contexts, 20)


def test_a_step_keeps_to_the_token_budget(bi):
    step = InBatchCollator(bi, 24)(numbered(EXAMPLES))
    sizes = [batch["input_ids"].numel() for batch in step["contexts"] + step["candidates"]]
    assert max(sizes) <= 24
    assert len(step["contexts"]) > 1


@pytest.mark.parametrize("variant", ["bi", "poly-learnt", "poly-last"])
def test_the_budget_changes_neither_loss_nor_gradient(variant, bert):
    model = load_variant(variant, bert)
    results = []
    for budget in (16, 4096):
        step = InBatchCollator(model, budget)(numbered(WITH_NEGATIVES))
        contexts, candidates = model(step["contexts"], step["candidates"])
        scores = model.score(contexts, candidates[step["identities"]])
        loss = in_batch_softmax(scores, step["identities"])
        model.zero_grad()
        loss.backward()
        gradients = {
            name: parameter.grad.clone()
            for name, parameter in model.named_parameters()
            if parameter.grad is not None
        }
        results.append((loss.detach(), gradients))
    (loss, gradients), (other_loss, other_gradients) = results
    torch.testing.assert_close(loss, other_loss, atol=1e-5, rtol=0)
    assert gradients.keys() == other_gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(other_gradients[name], gradient, atol=1e-4, rtol=1e-3)
    assert sum(bool(gradient.any()) for gradient in gradients.values()) > 0.9 * len(gradients)


def test_scores_of_a_step_are_those_of_its_texts(bi):
    step = InBatchCollator(bi, 60)(numbered(WITH_NEGATIVES))
    contexts, candidates = bi(step["contexts"], step["candidates"])
    scores = bi.score(contexts, candidates[step["identities"]])
    texts = [example.response for example in WITH_NEGATIVES] + ["no", "no sound", "yes"]
    expected = bi.score(
        bi.encode_contexts([example.context for example in WITH_NEGATIVES]),
        bi.encode_candidates(texts),
    )
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=0)


def pairs_of(collator, step):
    """What the collator puts together, as ids: a list of C pairs for each example."""
    made = collator(step)
    rows, count = rows_of(made["pairs"]), made["num_candidates"]
    return [rows[start : start + count] for start in range(0, len(rows), count)]


def collate_cross(cross, examples, *, num_negatives=3, budget=200, seed=0):
    return CrossDrawnCandidatesCollator(cross, examples, num_negatives, budget, seed)


def test_the_response_stands_first(cross):
    groups = pairs_of(collate_cross(cross, EXAMPLES), numbered(EXAMPLES))
    assert [len(group) for group in groups] == [4] * len(EXAMPLES)
    for group, example in zip(groups, EXAMPLES, strict=True):
        assert group[0] == cross.encode_pairs([example.context], [example.response])[0][0]
        assert group[0] not in group[1:]


def test_segments_come_along(cross):
    made = collate_cross(cross, EXAMPLES, budget=4096)(numbered(EXAMPLES))
    assert all("token_type_ids" in batch for batch in made["pairs"])


@settings(deadline=None, max_examples=30)
@given(
    responses=st.lists(st.sampled_from(TEXTS), min_size=2, max_size=8).filter(
        lambda texts: len(set(texts)) > 1
    ),
    own=st.lists(st.sampled_from(TEXTS), max_size=4),
    num_negatives=st.integers(1, 6),
)
def test_no_negative_is_the_response(cross, responses, own, num_negatives):
    examples = [
        Example(context="a", response=text, negatives=tuple(own), candidates=(text, *own), gold=0)
        for text in responses
    ]
    collator = collate_cross(cross, examples, num_negatives=num_negatives)
    draw = random.Random(0)
    for example in examples:
        chosen = collator.negatives(example, draw)
        assert len(chosen) == num_negatives
        assert example.response not in chosen
        assert set(chosen) <= set(own) | set(responses)


def test_an_examples_own_negatives_come_first(cross):
    collator = collate_cross(cross, WITH_NEGATIVES, num_negatives=3)
    draw = random.Random(0)
    assert collator.negatives(WITH_NEGATIVES[0], draw)[:2] == ["no", "no sound"]
    assert set(collator.negatives(WITH_NEGATIVES[3], draw)) == {"a", "b", "c"}
    one = collate_cross(cross, WITH_NEGATIVES, num_negatives=1)
    assert one.negatives(WITH_NEGATIVES[0], draw) == ["no"]


def test_the_same_step_draws_the_same_negatives(cross):
    """So that a resumed run, and one that was never interrupted, train on the same."""
    steps = [numbered(EXAMPLES, places) for places in ([3, 1, 2], [9, 8], [4, 5, 6])]
    whole = collate_cross(cross, EXAMPLES)
    drawn = [pairs_of(whole, step) for step in steps]
    resumed = collate_cross(cross, EXAMPLES)
    assert [pairs_of(resumed, step) for step in steps[1:]] == drawn[1:]
    assert pairs_of(whole, steps[0]) == drawn[0]


def test_seeds_and_epochs_draw_differently(cross):
    step = numbered(EXAMPLES, range(6))
    drawn = pairs_of(collate_cross(cross, EXAMPLES), step)
    assert pairs_of(collate_cross(cross, EXAMPLES, seed=1), step) != drawn
    dataset = TrainingSet(EXAMPLES)
    dataset.set_epoch(1)
    later = pairs_of(collate_cross(cross, EXAMPLES), [dataset[place] for place in range(6)])
    assert [group[0] for group in later] == [group[0] for group in drawn]
    assert all(one[1:] != other[1:] for one, other in zip(later, drawn, strict=True))


def test_what_is_drawn_does_not_depend_on_the_rest_of_the_step(cross, bi):
    """So that two processes draw what one would."""
    whole, parts = numbered(EXAMPLES, range(6)), [numbered(EXAMPLES, p) for p in ((0, 1), (2, 3))]
    collator = collate_cross(cross, EXAMPLES)
    drawn = pairs_of(collator, whole)
    assert [group for part in parts for group in pairs_of(collator, part)] == drawn[:4]
    pool = [example.response for example in EXAMPLES]
    towers = InBatchCollator(bi, 60, pool=pool, extra_negatives=2)
    negatives = [towers.negatives(one) for one in whole]
    assert [towers.negatives(one) for part in parts for one in part] == negatives[:4]
    assert all(len(texts) == 2 for texts in negatives)
    assert all(
        one.example.response not in texts for one, texts in zip(whole, negatives, strict=True)
    )


def test_the_global_random_state_is_left_alone(cross):
    state = random.getstate()
    collate_cross(cross, EXAMPLES)(numbered(EXAMPLES))
    assert random.getstate() == state


def test_scores_of_pairs_are_those_of_the_model(cross):
    collator = collate_cross(cross, EXAMPLES, budget=60)
    step = numbered(EXAMPLES)
    scores = cross(collator(step)["pairs"]).view(-1, 4)
    expected = cross.score_pairs([(example.context, example.response) for example in EXAMPLES])
    torch.testing.assert_close(scores[:, 0], expected, atol=1e-5, rtol=0)

import random
from collections import Counter
from itertools import islice

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from polyrank.data.answers import KnownAnswers, folded
from polyrank.records import Candidate, Example, RetrievalSet
from polyrank.training.batches import (
    CrossDrawnCandidatesCollator,
    Item,
    TrainingSet,
)
from polyrank.training.drawn_negatives import DrawnNegatives, shuffled
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
        scores = model.score_all(contexts, candidates[step["identities"]])
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
    scores = bi.score_all(contexts, candidates[step["identities"]])
    texts = [example.response for example in WITH_NEGATIVES] + ["no", "no sound", "yes"]
    expected = bi.score(
        bi.encode_contexts([example.context for example in WITH_NEGATIVES]),
        bi.encode_candidates(texts),
    )
    torch.testing.assert_close(scores, expected, atol=1e-5, rtol=0)


def pairs_of(collator, step):
    """What the collator puts together, as ids: a list of C pairs for each example."""
    made = collator(step)
    rows = rows_of(made["pairs"])
    return [[rows[row] for row in own if row >= 0] for own in made["own"].tolist()]


def drawn_from(examples):
    return DrawnNegatives(examples, KnownAnswers(examples))


def collate_cross(cross, examples, *, num_negatives=3, budget=200, seed=0):
    pool = drawn_from(examples)
    return CrossDrawnCandidatesCollator(cross, pool, num_negatives, budget, seed)


def right_texts(examples):
    """For each context, all that some example says is right, and itself; case does not matter."""
    right = {}
    for example in examples:
        known = right.setdefault(folded(str(example.context)), set())
        known |= {folded(example.response), folded(str(example.context))}
    return right


def test_the_response_stands_first(cross):
    groups = pairs_of(collate_cross(cross, EXAMPLES), numbered(EXAMPLES))
    assert [len(group) for group in groups] == [4] * len(EXAMPLES)
    for group, example in zip(groups, EXAMPLES, strict=True):
        assert group[0] == cross.encode_pairs([example.context], [example.response])[0][0]
        assert group[0] not in group[1:]


def test_segments_come_along(cross):
    made = collate_cross(cross, EXAMPLES, budget=4096)(numbered(EXAMPLES))
    assert all("token_type_ids" in batch for batch in made["pairs"])


RECORDS = st.lists(
    st.builds(
        Example,
        context=st.sampled_from(["a", "A ", "print", "b", "yes"]),
        response=st.sampled_from([*TEXTS, "Yes", "print  "]),
        negatives=st.lists(st.sampled_from([*TEXTS, "No"]), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=200)
@given(examples=RECORDS, num_negatives=st.integers(1, 8), seed=st.integers(0, 3))
def test_drawn_negatives_are_wrong_and_different_and_as_many_as_there_are(
    cross, examples, num_negatives, seed
):
    collator = collate_cross(cross, examples, num_negatives=num_negatives, seed=seed)
    right = right_texts(examples)
    for place, example in enumerate(examples):
        chosen = [folded(text) for text in collator.negatives(Item(place, example))]
        known = right[folded(str(example.context))]
        own = {folded(text) for text in example.negatives} - known
        others = {folded(one.response) for one in examples} - known
        assert not set(chosen) & known
        assert len(set(chosen)) == len(chosen) == min(num_negatives, len(own | others))
        assert set(chosen) <= own | others
        assert own <= set(chosen) or set(chosen) <= own, "the example's own come first"


def test_an_example_that_the_training_set_does_not_know_keeps_its_own_response(cross):
    """As dev examples do, whose loss is computed with drawn negatives too."""
    collator = collate_cross(cross, EXAMPLES[:4], num_negatives=9)
    known = [example.response for example in EXAMPLES[:4]]
    new = Example(context=known[1], response=known[0], candidates=(known[0], "new"), gold=0)
    assert set(collator.negatives(Item(0, new))) == {known[2], known[3], "new"}


def test_every_wrong_response_is_drawn_as_often_as_any_other(cross):
    collator = collate_cross(cross, EXAMPLES, num_negatives=4)
    counts = Counter(
        text for seed in range(500) for text in collator.negatives(Item(0, EXAMPLES[0], seed))
    )
    assert set(counts) == {example.response for example in EXAMPLES[1:]}
    assert max(abs(count - 2000 / 19) for count in counts.values()) < 40  # 4 standard deviations


def test_other_relevant_documents_of_a_query_are_never_drawn(cross):
    """Those of a corpus with judgements, whichever of its examples is read."""
    corpus = [Candidate(f"d{n}", f"text {n}") for n in range(8)] + [Candidate("d9", "Text 0")]
    judgements = {"q1": {"d0": 1, "d1": 2, "d2": 1, "d3": 0}, "q2": {"d4": 1, "d9": 1}, "q3": {}}
    judgements["q3"] = {"d3": 1}
    data = RetrievalSet(
        corpus=corpus,
        queries={"q1": "one", "q2": "two", "q3": "ONE"},
        judgements=judgements,
        split="train",
    )
    examples = list(data.examples())
    collator = collate_cross(cross, examples, num_negatives=5)
    for place, example in enumerate(examples):
        drawn = set(collator.negatives(Item(place, example)))
        right = {"one": {"text 4"}, "two": {"text 1", "text 2", "text 3"}}
        assert drawn == right[example.context.lower()]


def test_a_step_of_few_candidates_is_filled_up(cross):
    examples = [
        Example(context="a", response="yes"),
        Example(context="b", response="no"),
        Example(context="b", response="print"),
    ]
    made = collate_cross(cross, examples, num_negatives=7)(numbered(examples))
    assert [[row >= 0 for row in own] for own in made["own"].tolist()] == [
        [True, True, True],
        [True, True, False],
        [True, True, False],
    ]


def test_a_million_examples_take_little_memory():
    examples = [Example(context=f"c {n // 2}", response=f"r {n % 700}") for n in range(2000)]
    answers = KnownAnswers(examples)
    assert answers.pairs.nbytes + answers._contexts.nbytes <= 24 * len(examples)


def test_drawing_takes_time_only_for_what_is_taken():
    assert len(list(islice(shuffled(10**12, random.Random(0)), 15))) == 15
    assert sorted(shuffled(9, random.Random(0))) == list(range(9))


def test_an_examples_own_negatives_come_first(cross):
    collator = collate_cross(cross, WITH_NEGATIVES, num_negatives=3)
    items = numbered(WITH_NEGATIVES)
    assert collator.negatives(items[0])[:2] == ["no", "no sound"]
    assert set(collator.negatives(items[3])) == {"a", "b", "c"}
    one = collate_cross(cross, WITH_NEGATIVES, num_negatives=1)
    assert one.negatives(items[0]) == ["no"]


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
    towers = InBatchCollator(bi, 60, pool=drawn_from(EXAMPLES), extra_negatives=2)
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
    step = collator(numbered(EXAMPLES))
    scores = cross(step["pairs"])[step["own"]]
    expected = cross.score_pairs([(example.context, example.response) for example in EXAMPLES])
    torch.testing.assert_close(scores[:, 0], expected, atol=1e-5, rtol=0)

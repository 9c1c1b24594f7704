"""How turns are joined, how many are read, and whether a cut takes the end: part of a model."""

import json

import pytest
import torch

from polyrank.errors import UsageError
from polyrank.models.checkpoint import load_model
from polyrank.models.description import DESCRIPTION
from tiny_encoders import LONG, TEXTS, load_variant, scores_of

CPU = {"device": "cpu", "dtype": "float32"}
SHORT = {"max_context_length": 12, "max_candidate_length": 12}
DIALOGUE = ["hello", "no sound", "yes"]
CHANGES = {"turn_separator": "how is", "max_turns": 2, "cut_candidate_end": True}
VARIANTS = ["bi", "poly-learnt", "cross", "cross-interaction"]


def contexts_of(model, contexts):
    """The ids of contexts, without those of a candidate."""
    if model.architecture == "cross" and not model.reads_texts_apart:
        return [ids[:-2] for ids in model.encode_pairs(contexts, [""] * len(contexts))[0]]
    return model.context_ids(contexts)


@pytest.mark.parametrize("variant", VARIANTS)
def test_turns_are_joined_by_the_text_that_the_model_names(bert, variant):
    model = load_variant(variant, bert, turn_separator="how is")
    plain = load_variant(variant, bert)
    [joined] = contexts_of(model, [DIALOGUE])
    assert [joined] == contexts_of(plain, ["hello how is no sound how is yes"])
    assert [joined] != contexts_of(plain, [DIALOGUE])
    nothing = load_variant(variant, bert, turn_separator="")
    assert contexts_of(nothing, [DIALOGUE]) == contexts_of(plain, ["hello no sound yes"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_the_newest_turns_are_read(bert, variant):
    model = load_variant(variant, bert, max_turns=2)
    plain = load_variant(variant, bert)
    assert contexts_of(model, [DIALOGUE]) == contexts_of(plain, [DIALOGUE[1:]])
    assert contexts_of(model, [DIALOGUE[:1], "hello"]) == contexts_of(plain, ["hello"] * 2)


@pytest.mark.parametrize("variant", ["bi", "cross-interaction"])
def test_a_cut_may_take_the_end_of_a_candidate(bert, variant):
    model = load_variant(variant, bert, cut_candidate_end=True, **SHORT)
    plain = load_variant(variant, bert, **SHORT)
    [cut], [kept] = model.candidate_ids([LONG]), plain.candidate_ids([LONG])
    assert len(cut) == len(kept) == 12
    assert cut[:-1] == kept[:-1]
    assert cut[-1] == model.tokenizer.encode([LONG])[0][10] != kept[-1]
    assert model.candidate_ids(["no sound"]) == plain.candidate_ids(["no sound"])
    assert model.context_ids([LONG]) == plain.context_ids([LONG])


def test_a_cut_may_take_the_end_of_a_pair(bert):
    model = load_variant("cross", bert, cut_candidate_end=True, **SHORT)
    plain = load_variant("cross", bert, **SHORT)
    ids, segments = model.encode_pairs(["hello"] * 2, [LONG, "no"])
    theirs, kinds = plain.encode_pairs(["hello"] * 2, [LONG, "no"])
    assert (ids[1], segments[1]) == (theirs[1], kinds[1])
    assert (ids[0][:-1], segments[0]) == (theirs[0][:-1], kinds[0])
    assert ids[0][-1] == model.tokenizer.encode([LONG])[0][12]


@pytest.mark.parametrize("variant", ["bi", "cross"])
@pytest.mark.parametrize("name", CHANGES)
def test_each_changes_the_scores_and_the_fingerprint_and_is_saved(bert, variant, name, tmp_path):
    plain = load_variant(variant, bert, **SHORT)
    model = load_variant(variant, bert, **SHORT, **{name: CHANGES[name]})
    scores = scores_of(model, [DIALOGUE], [LONG, *TEXTS])
    assert (scores - scores_of(plain, [DIALOGUE], [LONG, *TEXTS])).abs().max() > 1e-4
    assert model.fingerprint() != plain.fingerprint()
    assert name not in plain.identity()
    model.save_pretrained(tmp_path / "model")
    saved = json.loads((tmp_path / "model" / DESCRIPTION).read_text())["settings"]
    assert saved[name] == CHANGES[name]
    again = load_model(tmp_path / "model", trainable=False, **CPU)
    assert torch.equal(scores_of(again, [DIALOGUE], [LONG, *TEXTS]), scores)


def test_a_model_of_another_architecture_joins_alike(bert, tmp_path):
    load_variant("bi", bert, **CHANGES).save_pretrained(tmp_path / "model")
    for variant in ("poly-learnt", "cross"):
        config = load_variant(variant, tmp_path / "model").config
        assert {name: getattr(config, name) for name in CHANGES} == CHANGES


@pytest.mark.parametrize("variant", ["bi", "cross"])
def test_no_turns_at_all_are_refused(bert, variant):
    with pytest.raises(UsageError, match="max_turns must be at least 1"):
        load_variant(variant, bert, max_turns=0)

"""The sides on which long texts are cut: part of a model, and right for texts and dialogues."""

import json

import pytest
import torch

from polyrank.errors import UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.description import DESCRIPTION
from tiny_encoders import LONG, TEXTS, load_variant, scores_of

CPU = {"device": "cpu", "dtype": "float32"}
SHORT = {"max_context_length": 12, "max_candidate_length": 12}
SIDES = {"context_truncation": "left", "candidate_truncation": "right"}
DIALOGUE = ["hello", LONG, "thanks"]


def test_a_long_text_is_most_similar_to_itself(bert):
    model = BiEncoder.from_pretrained(bert, shared_towers=True, temperature=1.0, **SHORT, **CPU)
    scores = scores_of(model, [LONG, *TEXTS], [LONG, *TEXTS])
    torch.testing.assert_close(scores.diagonal(), torch.ones(1 + len(TEXTS)))


@pytest.mark.parametrize("variant", ["bi", "poly-learnt", "cross", "cross-interaction"])
def test_of_a_dialogue_the_newest_tokens_survive(bert, variant):
    model = load_variant(variant, bert, **SHORT)
    newer = [f"old {LONG}", *DIALOGUE[1:]]
    scores = scores_of(model, [DIALOGUE, newer], TEXTS)
    torch.testing.assert_close(scores[0], scores[1])
    other = scores_of(model, [[*DIALOGUE, "print"]], TEXTS)[0]
    assert (scores[0] - other).abs().max() > 1e-3


@pytest.mark.parametrize("variant", ["bi", "cross", "cross-interaction"])
def test_the_sides_change_the_scores_and_the_fingerprint(bert, variant, tmp_path):
    fingerprints = set()
    for side in ("by_kind", "left"):
        for other in ("right", "left"):
            sides = {"context_truncation": side, "candidate_truncation": other}
            model = load_variant(variant, bert, **SHORT, **sides)
            fingerprints.add(model.fingerprint())
            model.save_pretrained(tmp_path / "model")
            saved = json.loads((tmp_path / "model" / DESCRIPTION).read_text())["settings"]
            assert saved.items() >= sides.items()
            again = load_model(tmp_path / "model", **CPU)
            assert again.fingerprint() == model.fingerprint()
            torch.testing.assert_close(
                scores_of(again, [LONG], TEXTS), scores_of(model, [LONG], TEXTS)
            )
    assert len(fingerprints) == 4


@pytest.mark.parametrize("variant", ["bi", "cross"])
def test_a_folder_that_names_no_side_means_left_and_right(bert, variant, tmp_path):
    model = load_variant(variant, bert, **SHORT, **SIDES)
    model.save_pretrained(tmp_path / "model")
    path = tmp_path / "model" / DESCRIPTION
    description = json.loads(path.read_text())
    for name in SIDES:
        del description["settings"][name]
    path.write_text(json.dumps(description))
    older = load_model(tmp_path / "model", **CPU)
    assert (older.config.context_truncation, older.config.candidate_truncation) == ("left", "right")
    contexts = [LONG, DIALOGUE, *TEXTS]
    assert torch.equal(scores_of(older, contexts, [LONG]), scores_of(model, contexts, [LONG]))
    assert older.fingerprint() == model.fingerprint()
    assert not SIDES.keys() & older.identity().keys()


def test_a_model_of_another_architecture_reads_on_the_same_sides(bert, tmp_path):
    sides = {"context_truncation": "right", "candidate_truncation": "left"}
    load_variant("bi", bert, **SHORT, **sides).save_pretrained(tmp_path / "model")
    for variant in ("poly-learnt", "cross"):
        config = load_variant(variant, tmp_path / "model").config
        assert {name: getattr(config, name) for name in sides} == sides


def test_another_side_is_refused(bert):
    with pytest.raises(UsageError, match=r"context_truncation is 'lef'"):
        load_variant("bi", bert, context_truncation="lef")
    with pytest.raises(UsageError, match=r"candidate_truncation is 'by_kind'"):
        load_variant("bi", bert, candidate_truncation="by_kind")

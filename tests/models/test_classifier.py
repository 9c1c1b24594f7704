"""A classifier is kept with its model, tells classes by their names, and changes no score."""

import json

import pytest
import torch

from polyrank.errors import ModelError, UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.config import ClassifierConfig
from polyrank.models.description import DESCRIPTION
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.records import LabelledPair
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.run import train
from tiny_encoders import TEXTS, WORDS, load_variant, scores_of

NAMES = ("contradiction", "entailment", "neutral")
PAIRS = [
    LabelledPair(first=f"is it {word}", second=other, label=number, class_name=NAMES[number])
    for word in WORDS[20:26]
    for number, other in enumerate(("no", f"the {word}", "thanks"))
]
TEXT_PAIRS = [(pair.first, pair.second) for pair in PAIRS] + [(["hello", "no sound"], "yes")]


def trained(variant, bert, output, **settings):
    """A tiny model that was trained on classes, as `train` leaves it."""
    if variant == "cross":
        settings |= {"task": "classify", "num_labels": 3}
    model = load_variant(variant, bert, **settings)
    config = TrainingConfig(max_steps=4, batch_size=6, new_learning_rate=0.1)
    train(model, PAIRS, output, config, objective=ObjectiveConfig(objective="classification"))
    return model


@pytest.mark.parametrize(
    ("variant", "settings"), [("bi", {}), ("bi", {"projection": 5}), ("cross", {})]
)
def test_a_trained_classifier_comes_back_bit_by_bit(variant, settings, bert, tmp_path):
    model = trained(variant, bert, tmp_path / "model", **settings)
    loaded = load_model(tmp_path / "model", device="cpu", dtype="float32")
    assert loaded.classes == model.classes == NAMES
    probabilities = loaded.class_probabilities(TEXT_PAIRS)
    assert probabilities.shape == (len(TEXT_PAIRS), 3)
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(len(TEXT_PAIRS)))
    assert torch.equal(probabilities, model.class_probabilities(TEXT_PAIRS))
    assert loaded.classify(TEXT_PAIRS) == [NAMES[place] for place in probabilities.argmax(dim=1)]
    assert loaded.classes_fingerprint() == model.classes_fingerprint()
    assert loaded.class_probabilities([]).shape == (0, 3)


def test_it_sees_the_vectors_before_they_are_normalised_and_scaled(bert):
    """W · (u, v, |u − v|) + b, u and v the raw reductions of the outputs."""
    model = load_variant("bi", bert, temperature=0.05)
    model.take_classifier(ClassifierConfig(classes=NAMES))
    raw = load_variant("bi", bert, similarity="dot", temperature=1.0)
    u = raw.encode_contexts([first for first, _ in TEXT_PAIRS])
    v = raw.encode_candidates([second for _, second in TEXT_PAIRS])
    with torch.no_grad():
        expected = model.classifier.out(torch.cat([u, v, (u - v).abs()], dim=1))
    torch.testing.assert_close(model.class_logits(TEXT_PAIRS), expected, rtol=1e-4, atol=1e-5)


def test_it_changes_neither_vectors_nor_the_fingerprint_that_indexes_know(bert, tmp_path):
    model = trained("bi", bert, tmp_path / "model")
    before, scores = model.fingerprint(), scores_of(model, ["a b"], TEXTS)
    classes = model.classes_fingerprint()
    with torch.no_grad():
        model.classifier.out.weight.add_(1.0)
    assert model.fingerprint() == before
    assert model.classes_fingerprint() != classes
    model.drop_classifier()
    assert model.fingerprint() == model.classes_fingerprint() == before
    assert torch.equal(scores_of(model, ["a b"], TEXTS), scores)


def test_only_a_model_of_the_same_architecture_keeps_it(bert, tmp_path):
    trained("bi", bert, tmp_path / "bi")
    trained("cross", bert, tmp_path / "cross")
    assert PolyEncoder.from_pretrained(tmp_path / "bi", device="cpu").classes is None
    assert BiEncoder.from_pretrained(tmp_path / "cross", device="cpu").classes is None
    reopened = BiEncoder.from_pretrained(tmp_path / "bi", device="cpu", shared_towers=False)
    assert reopened.classes == NAMES


@pytest.mark.parametrize("variant", ["bi", "poly-learnt", "cross"])
def test_a_model_without_one_says_how_to_get_one(variant, bert):
    model = load_variant(variant, bert)
    assert model.classes is None
    for ask in (model.classify, model.class_probabilities):
        with pytest.raises(UsageError, match=r"has no classes\. Train one"):
            ask(TEXT_PAIRS)


@pytest.mark.parametrize("variant", ["bi", "cross"])
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"classes": ["a", "b"], "concatenation": "u,v,|u-v|"}, "misshapen|has 3 classes"),
        ({"classes": ["a", "a", "b"]}, "at least two different names"),
        ({"classes": ["a", "b", "c"], "concatenation": "v"}, "concatenation"),
        ({}, "'classes' is required"),
        ("classes", "not a description"),
    ],
)
def test_a_damaged_description_is_refused(variant, damage, message, bert, tmp_path):
    trained(variant, bert, tmp_path / "model")
    file = tmp_path / "model" / DESCRIPTION
    described = json.loads(file.read_text())
    file.write_text(json.dumps({**described, "classifier": damage}))
    with pytest.raises(ModelError, match=message):
        load_model(tmp_path / "model", device="cpu")

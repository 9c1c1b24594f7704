import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from polyrank.errors import DataError, ModelError, UsageError
from polyrank.evaluation.pairs import (
    PairResults,
    evaluate_pairs,
    finite,
    mean_ranks,
    measure_pairs,
    pearson,
    spearman,
)
from polyrank.models.config import ClassifierConfig
from polyrank.records import LabelledPair
from tiny_encoders import VARIANTS, load_variant

PAIRS = [
    LabelledPair(first=f"how do i {one}", second=two, label=number / 5)
    for number, (one, two) in enumerate(
        [("read a file", "open it"), ("boot", "open it"), ("sort", "a list"), ("boot", "kernel")]
    )
]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 3)), min_size=2, max_size=30))
def test_correlations_equal_those_of_scipy_also_with_ties(numbers):
    one, other = np.array(numbers, dtype=float).T
    assert mean_ranks(one) == pytest.approx(stats.rankdata(one))
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert pearson(one, other) == spearman(one, other) == 0.0
        return
    assert pearson(one, other) == pytest.approx(stats.pearsonr(one, other).statistic, abs=1e-12)
    assert spearman(one, other) == pytest.approx(stats.spearmanr(one, other).statistic, abs=1e-12)


def test_a_monotone_map_leaves_spearman_as_it_is():
    values = np.random.default_rng(0).normal(size=50)
    assert spearman(values, np.exp(values)) == pytest.approx(1)
    assert spearman(values, -(values**3)) == pytest.approx(-1)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=30))
def test_the_figures_of_classes_equal_those_of_scikit_learn(numbers):
    labels, predicted = np.array(numbers, dtype=float).T
    results = PairResults(
        ids=("x",) * len(labels), gold=labels, predicted=predicted, classes=("a", "b", "c", "d")
    )
    found, classes = results.figures(), results.by_class()
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(labels, predicted))
    precision, recall, f1, counts = metrics.precision_recall_fscore_support(
        labels, predicted, zero_division=0
    )
    assert found["macro_f1"] == pytest.approx(f1.mean())
    assert list(classes) == ["abcd"[int(place)] for place in np.unique(numbers)]
    for row, each in enumerate(classes.values()):
        expected = (precision[row], recall[row], f1[row], counts[row])
        assert (each.precision, each.recall, each.f1, each.count) == pytest.approx(expected)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_pair_scores_what_it_scores_alone(variant, bert):
    model = load_variant(variant, bert)
    found = model.score_pairs([(pair.first, pair.second) for pair in PAIRS])
    alone = [model.score_pairs((pair.first, pair.second)) for pair in PAIRS]
    torch.testing.assert_close(found, torch.stack(alone), rtol=1e-4, atol=1e-4)
    result = evaluate_pairs(model, PAIRS)
    labels = [pair.label for pair in PAIRS]
    expected = stats.spearmanr(found.numpy(), labels).statistic
    assert result["spearman"] == pytest.approx(expected, abs=1e-9)


def classifying(variant, folder, classes):
    """A model with random weights that tells these classes."""
    own = {"task": "classify", "num_labels": len(classes)} if variant == "cross" else {}
    model = load_variant(variant, folder, **own)
    model.take_classifier(ClassifierConfig(classes=classes))
    return model


NAMES = ("contradiction", "entailment", "neutral")


def class_pairs(names=NAMES, numbers=(0, 1, 2)):
    return [
        LabelledPair(first=pair.first, second=pair.second, label=number, class_name=name)
        for pair, number, name in zip(PAIRS, numbers, names, strict=False)
    ]


@pytest.mark.parametrize("variant", ["bi", "cross"])
def test_classes_meet_a_model_with_classes(variant, bert):
    model = classifying(variant, bert, NAMES)
    pairs = class_pairs()
    results = measure_pairs(model, pairs)
    right = [model.classify([(one.first, one.second)]) == [one.class_name] for one in pairs]
    assert results.figures()["accuracy"] == sum(right) / 3
    told = model.classify([(pair.first, pair.second) for pair in pairs])
    agreed = class_pairs(told, [NAMES.index(name) for name in told])
    assert evaluate_pairs(model, agreed) == {"accuracy": 1.0, "macro_f1": 1.0}
    elsewhere = class_pairs(told, [(NAMES.index(name) + 1) % 3 for name in told])
    assert evaluate_pairs(model, elsewhere)["accuracy"] == 1.0  # the name decides, not the number


@pytest.mark.parametrize("variant", ["bi", "poly-learnt", "cross"])
def test_a_model_without_a_classifier_is_not_judged_by_classes(variant, bert):
    """A correlation of scores with the numbers of classes says nothing."""
    model = load_variant(variant, bert)
    for pairs in (class_pairs(), class_pairs((None, None, None)), class_pairs(NAMES, (0, 1, 1))):
        with pytest.raises(UsageError, match=r"are classes \(.*has no classifier"):
            evaluate_pairs(model, pairs)


@pytest.mark.parametrize("variant", ["bi", "cross"])
def test_other_classes_than_the_models_are_refused(variant, bert):
    model = classifying(variant, bert, NAMES)
    with pytest.raises(UsageError, match="pair 2 has the class yes, but the model predicts contra"):
        evaluate_pairs(model, class_pairs(("neutral", "yes", "neutral")))
    with pytest.raises(UsageError, match="classes differ: pair 1 has the class 0"):
        evaluate_pairs(model, class_pairs((None, None, None)))
    numbered = classifying(variant, bert, ("0", "1", "2"))
    assert set(evaluate_pairs(numbered, class_pairs((None,) * 3))) == {"accuracy", "macro_f1"}
    with pytest.raises(UsageError, match="pair 1 has the class contradiction"):
        evaluate_pairs(numbered, class_pairs())


def test_scores_are_refused_by_a_model_that_has_only_classes(bert):
    with pytest.raises(UsageError, match="scores as labels"):
        evaluate_pairs(classifying("cross", bert, NAMES), PAIRS)
    assert set(evaluate_pairs(classifying("bi", bert, NAMES), PAIRS)) == {"spearman", "pearson"}


def test_labels_of_0_and_1_are_scores_too(bert):
    pairs = class_pairs((None, None, None), (0, 1, 1))
    for model in (load_variant("bi", bert), classifying("bi", bert, NAMES)):
        assert set(evaluate_pairs(model, pairs)) == {"spearman", "pearson"}
    for variant in ("bi", "cross"):
        model = classifying(variant, bert, ("0", "1"))
        assert set(evaluate_pairs(model, pairs)) == {"accuracy", "macro_f1"}


def test_what_is_no_number_is_refused():
    with pytest.raises(ModelError, match="not a number"):
        finite(torch.tensor([0.5, torch.nan, 1.0, 2.0]))
    with pytest.raises(DataError, match="no pairs"):
        evaluate_pairs(None, [])

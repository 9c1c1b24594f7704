"""What is built for which model and records, what is refused, and what each objective minimises."""

import math
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
from objective_cases import CASES, CLASSES, EXAMPLES, GRADED, run_step, setup_of

from polyrank.config import field_types
from polyrank.errors import DataError, UsageError
from polyrank.records import Example, LabelledPair
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.kl import kl_divergence
from polyrank.training.objectives.objective import ARCHITECTURES
from polyrank.training.objectives.registry import (
    OBJECTIVES,
    ObjectiveConfig,
    build,
    choose_objective,
    default_objective,
    without_effect,
)
from polyrank.training.objectives.regression import regression
from polyrank.training.step import uses_cache
from tiny_encoders import VARIANTS, load_variant

DOCS = Path(__file__).parents[2] / "docs" / "losses.md"
TRAINING = TrainingConfig(train_batch_tokens=48, num_negatives=3)
FITTING = [
    (variant, case)
    for variant in ("bi", "poly-learnt", "cross")
    for case, (name, _, _) in CASES.items()
    if variant.partition("-")[0] in OBJECTIVES[name].architectures
    if (variant, name) != ("cross", "in_batch_softmax")  # which needs head = interaction
]
FITTING += [("cross-interaction", case) for case in ("softmax", "extra", "listwise", "kl")]


def build_for(variant, folder, records, *, training=TRAINING, own=None, **settings):
    model = load_variant(variant, folder, **(own or {}))
    return build(model, records, training, ObjectiveConfig(**settings))


@pytest.mark.parametrize(("variant", "case"), FITTING)
def test_every_objective_trains_every_parameter_and_its_loss_falls(variant, case, bert):
    module, collator, dataset = setup_of(variant, bert, case)
    loss, gradients = run_step(module, collator, dataset)
    untrained = {name for name, _ in module.named_parameters()} - gradients.keys()
    gate = {"model.head.gate"} if variant == "cross-interaction" else set()
    assert untrained <= gate  # read apart, the texts do not meet
    assert sum(bool(gradient.any()) for gradient in gradients.values()) > 0.9 * len(gradients)
    if not variant.startswith("cross"):  # its head has dropout of its own, which is off here
        assert loss.dtype == torch.float64
    with torch.no_grad():
        length = torch.stack([gradient.norm() for gradient in gradients.values()]).norm()
        for name, gradient in gradients.items():
            parameter = module.get_parameter(name)
            parameter -= 1e-3 / length * gradient
    after, _ = run_step(module, collator, dataset)
    assert after < loss


@pytest.mark.parametrize(("variant", "case"), FITTING)
def test_the_order_of_a_step_is_no_matter(variant, case, bert):
    module, collator, dataset = setup_of(variant, bert, case)
    loss, _ = run_step(module, collator, dataset)
    turned, _ = run_step(module, collator, dataset, reversed(range(len(dataset))))
    torch.testing.assert_close(loss, turned, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("variant", ["bi", "poly-learnt"])
def test_similarities_are_scores_times_the_temperature(variant, bert):
    module, collator, dataset = setup_of(variant, bert, "regression", temperature=0.05)
    module.float()
    loss, _ = run_step(module, collator, dataset)
    model = module.model.eval()
    scale = 1 if variant == "bi" else 0.05
    similarities = scale * model.score_pairs([(pair.first, pair.second) for pair in GRADED])
    assert similarities.abs().max() <= 1.001
    labels = torch.tensor([pair.label for pair in GRADED])
    torch.testing.assert_close(loss, regression(similarities, labels), rtol=0, atol=1e-5)


def test_the_teachers_candidates_are_scored_in_their_order(bert):
    module, collator, dataset = setup_of("poly-learnt", bert, "kl")
    loss, _ = run_step(module.float(), collator, dataset)
    model = module.model.eval()
    total = 0.0
    for example in EXAMPLES:
        texts = [example.response, *example.negatives]
        scores = model.score([example.context], texts)
        there = torch.ones_like(scores, dtype=torch.bool)
        total += kl_divergence(scores, torch.tensor([example.scores]), there, 2.0)
    torch.testing.assert_close(loss, total / len(EXAMPLES), rtol=1e-4, atol=1e-4)


def test_triplets_are_distances_of_vectors_that_are_not_normalised(bert):
    module, collator, dataset = setup_of("bi", bert, "triplet")
    loss, _ = run_step(module.float(), collator, dataset)
    plain = load_variant("bi", bert, similarity="dot", max_context_length=20)
    total, count = 0.0, 0
    for example in EXAMPLES:
        context = plain.encode_contexts([example.context])[0]
        near, *far = (
            context - plain.encode_candidates([example.response, *example.negatives])
        ).norm(dim=1)
        total += sum(max(near - one + 5.0, torch.tensor(0.0)) for one in far)
        count += len(far)
    torch.testing.assert_close(loss, total / count, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("own", [{}, {"symmetric": True}], ids=["plain", "symmetric"])
@pytest.mark.parametrize("taught", [False, True])
def test_no_candidate_of_a_step_that_another_example_calls_right_is_a_negative(own, taught, bert):
    """Whichever examples stand in the step, and whatever their case."""
    step = [
        Example(context="a", response="yes"),
        Example(context="b", response="no", negatives=("Print",)),
        Example(context="print", response="the disk"),
    ]
    elsewhere = [Example(context="A", response="No"), Example(context="b", response="the  DISK")]
    model = load_variant("bi", bert)
    teachers = [load_variant("bi", bert)] if taught else []
    config = ObjectiveConfig(objective="in_batch_softmax", **own)
    setup = build(model, [*step, *elsewhere], TRAINING, config, teachers)
    made = setup.collator([setup.dataset[place] for place in range(3)])
    draw = torch.Generator().manual_seed(0)
    encoded = {  # small, so that no softmax rounds to 1, which has no gradient
        "contexts": torch.randn(3, 1, 32, generator=draw).mul(0.3).requires_grad_(),
        "candidates": torch.randn(4, 32, generator=draw).mul(0.3).requires_grad_(),
    }
    scores = []
    score_step = setup.module.score_step
    with pytest.MonkeyPatch.context() as patch:

        def kept(*given):
            scores.append(score_step(*given))
            scores[-1].retain_grad()
            return scores[-1]

        patch.setattr(setup.module, "score_step", kept)
        setup.module.loss(encoded, made).backward()
    met = (scores[0].grad != 0).tolist()
    #            yes    no    the disk  Print
    assert met == [
        [True, False, True, True],
        [True, True, False, True],
        [True, True, True, False],
    ]


@pytest.mark.parametrize("objective", ["listwise", "binary"])
def test_fewer_negatives_than_asked_for_are_said_and_trained_on(objective, bert):
    examples = [Example(context=f"c {n}", response=word) for n, word in enumerate("abc")]
    many = replace(TRAINING, num_negatives=5)
    setup = build_for("cross", bert, examples, training=many, objective=objective)
    [note] = setup.notes
    assert "3 different responses" in note
    assert "at most 2" in note
    assert "num_negatives = 5" in note
    fitting = build_for("cross", bert, examples, training=replace(many, num_negatives=2))
    assert fitting.notes == []
    losses = []
    for one in (setup, fitting):
        step = one.collator([one.dataset[place] for place in range(3)])
        assert sorted(step["own"].shape) == [3, 3]
        losses.append(one.module.eval().loss(one.module.encode_step(step), step))
    if objective == "listwise":
        torch.testing.assert_close(*losses, atol=1e-5, rtol=0)


def test_examples_without_a_wrong_response_are_refused(bert):
    examples = [Example(context=f"c {n % 2}", response=f"r {n // 2}") for n in range(4)]
    for variant in ("cross", "bi"):
        with pytest.raises(DataError, match="right for every context"):
            build_for(variant, bert, examples)
    build_for("cross", bert, [*examples, Example(context="c 0", response="another")])
    build_for("cross", bert, [replace(examples[0], negatives=("wrong",)), *examples[1:]])


def test_negatives_are_everyones(bert):
    """Another example's negative changes the loss of a context."""
    few = [replace(example, negatives=()) for example in EXAMPLES[3:6]]
    more = [replace(few[0], negatives=("sound and screen",)), *few[1:]]
    results = []
    for examples in (few, more):
        setup = build_for("bi", bert, examples)
        step = setup.collator([setup.dataset[place] for place in range(3)])
        encoded = {
            "contexts": torch.eye(3)[:, None, :],
            "candidates": torch.ones(len(step["texts"]), 3),
        }
        results.append(setup.module.loss(encoded, step).item())
    assert results == pytest.approx([math.log(3), math.log(4)])


def test_equal_contexts_are_not_each_others_negatives(bert):
    examples = [Example(context="print", response=text) for text in ("yes", "no", "thanks")]
    examples.append(Example(context="boot", response="wifi"))
    setup = build_for("bi", bert, examples)
    step = setup.collator([setup.dataset[place] for place in range(4)])
    encoded = {"contexts": torch.ones(4, 1, 2), "candidates": torch.ones(4, 2)}
    expected = (3 * math.log(2) + math.log(4)) / 4
    assert setup.module.loss(encoded, step).item() == pytest.approx(expected)


def test_logq_knows_how_often_a_text_is_a_candidate(bert):
    examples = [
        Example(context="a", response="yes"),
        Example(context="b", response="yes"),
        Example(context="c", response="no", negatives=("thanks", "yes")),
        Example(context="d", response="boot"),
    ]
    setup = build_for("bi", bert, examples, logq=True)
    step = setup.collator([setup.dataset[place] for place in range(4)])
    frequencies = step["log_frequencies"][step["identities"]].exp().tolist()
    assert frequencies == pytest.approx([0.75, 0.75, 0.25, 0.25, 0.25, 0.75])
    drawing = build_for("bi", bert, examples, logq=True, extra_negatives=3)
    step = drawing.collator([drawing.dataset[place] for place in range(4)])
    assert step["log_frequencies"].exp()[:2].tolist() == pytest.approx([1.75, 1.25])


def test_a_bi_encoder_gets_a_classifier_which_is_drawn_from_the_seed(bert):
    setup = build_for("bi", bert, CLASSES, concatenation="|u-v|")
    assert setup.objective.name == "classification"
    classifier = setup.module.model.classifier
    assert classifier.out.weight.shape == (3, 32)
    assert setup.module.model.classes == ("0", "1", "2")
    again = build_for("bi", bert, CLASSES, concatenation="|u-v|").module.model.classifier
    assert torch.equal(classifier.out.weight, again.out.weight)


@pytest.mark.parametrize("variant", ["bi", "cross"])
def test_the_classes_get_the_names_of_the_data(variant, bert):
    own = {"task": "classify", "num_labels": 4} if variant == "cross" else {}
    names = ["contradiction", "entailment", "neutral"]
    pairs = [replace(pair, class_name=names[pair.label]) for pair in CLASSES]
    model = build_for(variant, bert, pairs, own=own).module.model
    assert model.classes == (*names, "3")[: 4 if variant == "cross" else 3]
    with pytest.raises(DataError, match="The class 0 is called contradiction, and in pair 4 no"):
        build_for(variant, bert, [*pairs[:3], replace(pairs[3], class_name="no")], own=own)


def test_training_goes_on_with_the_classifier_of_the_same_classes_alone(bert):
    model = build_for("bi", bert, CLASSES).module.model
    with torch.no_grad():
        model.classifier.out.weight.fill_(1.0)
    config = TrainingConfig()
    build(model, CLASSES, config, ObjectiveConfig())
    assert bool((model.classifier.out.weight == 1.0).all())
    build(model, CLASSES, config, ObjectiveConfig(concatenation="u,v"))
    assert model.classifier.out.weight.shape == (3, 64)
    build(
        model,
        [replace(one, class_name=f"c{one.label}") for one in CLASSES],
        config,
        ObjectiveConfig(),
    )
    assert model.classes == ("c0", "c1", "c2")
    build(model, GRADED, config, ObjectiveConfig())
    assert model.classes is None  # trained for something else, it would no longer fit


@pytest.mark.parametrize(
    ("architecture", "records", "task", "name"),
    [
        ("bi", EXAMPLES, None, "in_batch_softmax"),
        ("poly", EXAMPLES, None, "in_batch_softmax"),
        ("cross", EXAMPLES, "rank", "listwise"),
        ("bi", GRADED, None, "cosent"),
        ("poly", GRADED, None, "cosent"),
        ("bi", CLASSES, None, "classification"),
        ("cross", GRADED, "rank", "binary"),
        ("cross", GRADED, "regress", "regression"),
        ("cross", CLASSES, "classify", "classification"),
        ("cross", CLASSES, None, "classification"),
        ("cross", GRADED, None, "regression"),
    ],
)
def test_what_auto_stands_for(architecture, records, task, name):
    assert default_objective(architecture, records, task).name == name


@pytest.mark.parametrize(
    ("architecture", "records", "settings", "words"),
    [
        ("poly", CLASSES, {"objective": "classification"}, "cannot train the architecture poly"),
        ("cross", GRADED, {"objective": "cosent"}, "cannot train the architecture cross"),
        ("bi", EXAMPLES, {"objective": "cosent"}, "needs labelled pairs, got examples"),
        ("bi", GRADED, {"objective": "kl"}, "needs examples .* got labelled pairs"),
        ("poly", CLASSES, {}, "cannot train the architecture poly"),
    ],
)
def test_an_objective_that_does_not_suit_is_refused(architecture, records, settings, words):
    with pytest.raises(UsageError, match=words):
        choose_objective(ObjectiveConfig(**settings), architecture, records)


def test_a_cross_encoder_with_another_task_is_refused(bert):
    with pytest.raises(UsageError, match="task = rank, not classify"):
        build_for("cross", bert, EXAMPLES, own={"task": "classify"})


@pytest.mark.parametrize(
    ("variant", "records", "settings", "words"),
    [
        ("bi", EXAMPLES[:1], {}, "at least 2 examples with different responses, got 1"),
        (
            "bi",
            [replace(EXAMPLES[0], negatives=())],
            {"objective": "triplet"},
            "example 1 has none",
        ),
        ("bi", [replace(EXAMPLES[0], scores=None)], {"objective": "kl"}, "example 1 has 0 scores"),
        (
            "poly-learnt",
            [EXAMPLES[0], replace(EXAMPLES[1], scores=(1.0, 2.0))],
            {"objective": "margin_mse"},
            "each of the 2 negatives, and example 2 has 2 scores",
        ),
        (
            "bi",
            [replace(EXAMPLES[0], scores=(1.0, math.nan, 0.0))],
            {"objective": "kl"},
            "must be finite",
        ),
        ("bi", [*GRADED, replace(GRADED[0], label=3.5)], {}, "from 0 to 1, but pair 12 has 3.5"),
        ("bi", [*GRADED, replace(GRADED[0], label=math.nan)], {}, "pair 12 has nan"),
        ("bi", [replace(pair, label=0.5) for pair in GRADED], {}, "the same label"),
        ("bi", GRADED, {"objective": "classification"}, "whole numbers from 0 up"),
        ("bi", [replace(CLASSES[0], label=-1)], {}, "whole numbers from 0 up"),
        ("bi", [CLASSES[0]], {}, "the same class"),
    ],
)
def test_records_that_cannot_be_learnt_from_are_refused(variant, records, settings, words, bert):
    with pytest.raises(DataError, match=words):
        build_for(variant, bert, records, **settings)


def test_more_classes_than_the_cross_encoder_has_are_refused(bert):
    pairs = [*CLASSES, LabelledPair(first="a", second="b", label=3)]
    with pytest.raises(DataError, match="3 classes, 0 to 2, and pair 12 has the label 3"):
        build_for("cross", bert, pairs, own={"task": "classify"})


def test_a_batch_of_one_needs_negatives_of_its_own(bert):
    training = TrainingConfig(batch_size=1)
    without = [replace(example, negatives=()) for example in EXAMPLES]
    with pytest.raises(UsageError, match="batch_size of 1"):
        build_for("bi", bert, without, training=training)
    build_for("bi", bert, EXAMPLES, training=training)
    build_for("bi", bert, without, training=training, extra_negatives=1)


def idle(objective, name, architecture):
    return set(without_effect(objective, OBJECTIVES[name], architecture))


def test_settings_without_effect_are_named():
    assert idle(ObjectiveConfig(), "triplet", "bi") == set()
    changed = ObjectiveConfig(
        symmetric=True, logq=True, triplet_margin=2.0, cosent_scale=5.0, gradient_cache="always"
    )
    assert idle(changed, "in_batch_softmax", "bi") == {"triplet_margin", "cosent_scale"}
    assert idle(changed, "triplet", "bi") == {"symmetric", "logq", "cosent_scale"}
    other = ObjectiveConfig(concatenation="u,v", distillation_temperature=2.0, extra_negatives=1)
    assert idle(other, "classification", "cross") == {
        "extra_negatives",
        "concatenation",
        "distillation_temperature",
    }
    assert "concatenation" not in idle(other, "classification", "bi")
    assert idle(changed, "in_batch_softmax", "cross") == {
        "symmetric",
        "triplet_margin",
        "cosent_scale",
    }


@pytest.mark.parametrize(
    "name", ["extra_negatives", "triplet_margin", "cosent_scale", "distillation_temperature"]
)
def test_settings_out_of_range_are_refused(name):
    with pytest.raises(UsageError, match=name):
        ObjectiveConfig(**{name: -1})


@pytest.mark.parametrize(("cache", "used"), [("always", True), ("never", False), ("auto", False)])
def test_the_gradient_cache_as_it_is_set(cache, used, bert):
    module, collator, dataset = setup_of("bi", bert, "softmax", cache=cache)
    step = collator([dataset[0], dataset[1]])
    assert uses_cache(module, step, nullcontext) is used


def test_an_objective_is_one_module():
    for name, objective in OBJECTIVES.items():
        assert type(objective).__module__.rpartition(".")[2] == name
        assert set(objective.architectures) <= set(ARCHITECTURES)
    assert set(get_args(field_types(ObjectiveConfig)["objective"])) == {"auto", *OBJECTIVES}
    assert {variant.partition("-")[0] for variant in VARIANTS} == set(ARCHITECTURES)


ADDED = """
from dataclasses import dataclass
from polyrank.training.objectives.objective import Settings
from polyrank.training.objectives.triplet import Triplet

@dataclass(frozen=True, kw_only=True)
class AngleSettings(Settings):
    angle: float = 20.0

class Angle(Triplet):
    name = "angle"
    settings = (AngleSettings,)
"""


def test_a_module_that_is_added_is_an_objective_with_its_settings(tmp_path):
    """In a process of its own: registry, settings and the flags of the command line."""
    (tmp_path / "angle.py").write_text(ADDED)
    code = (
        "import sys; from polyrank.training import objectives\n"
        f"objectives.__path__.append({str(tmp_path)!r})\n"
        "from polyrank.cli.flags import flags_of; from polyrank.cli.train import TrainOptions\n"
        "flags = {flag.name: flag for flag in flags_of(TrainOptions)}\n"
        "assert flags['angle'].default == 20.0\n"
        "assert 'angle' in flags['objective'].metavar.split('|')\n"
        "from polyrank.training.objectives.registry import ObjectiveConfig, OBJECTIVES\n"
        "assert ObjectiveConfig(objective='angle', angle=3.0).angle == 3.0\n"
        "assert OBJECTIVES['angle'].uses('angle', 'bi') and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_objective_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match=r"no objective 'triplett'.*'triplet'"):
        ObjectiveConfig(objective="triplett")


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_objective_is_documented(name):
    text = DOCS.read_text(encoding="utf-8")
    assert f"\n## `{name}`" in text, f"docs/losses.md has no section on {name}"
    section = text.split(f"\n## `{name}`")[1].split("\n## ")[0]
    for word in ("**Formula.**", "**For.**", "**Equal to.**", "**Paper.**"):
        assert word in section, f"docs/losses.md does not say {word} of {name}"


def test_every_setting_of_objectives_is_documented():
    text = DOCS.read_text(encoding="utf-8")
    for name in ObjectiveConfig.__dataclass_fields__:
        assert f"`{name}`" in text, f"docs/losses.md says nothing of {name}"

"""Records for every objective, and models that they can train."""

import contextlib

import torch
from corpus_cases import pretraining_of

from polyrank.models.adapters.layers import adapter_parameters, attach
from polyrank.records import Example, LabelledPair
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig, build
from polyrank.training.step import gradient_step
from tiny_encoders import LONG, WORDS, load_variant

EXAMPLES = [
    Example(
        context=("hello", f"how do i {word}") if place % 3 else f"what is {word}",
        response=f"the {word}" if place % 4 else "yes",
        negatives=(f"no {word}", WORDS[place]),
        scores=(5.0 + place % 3, 1.0 - place % 2, 0.5 * place),
    )
    for place, word in enumerate(WORDS[15:26])
]
EXAMPLES[2] = Example(context="hello", response=LONG, negatives=("no",), scores=(3.0, 2.0))
GRADED = [
    LabelledPair(first=f"how do i {word}", second=WORDS[place], label=(place % 4) / 3)
    for place, word in enumerate(WORDS[15:26])
]
CLASSES = [
    LabelledPair(first=f"how do i {word}", second=WORDS[place], label=place % 3)
    for place, word in enumerate(WORDS[15:26])
]
PLAIN_TWO_TOWER = {"in_batch_softmax", "regression", "cosent", "margin_mse", "kl"}
CASES = {
    "softmax": ("in_batch_softmax", EXAMPLES, {}),
    "symmetric": ("in_batch_softmax", EXAMPLES, {"symmetric": True, "logq": True}),
    "extra": ("in_batch_softmax", EXAMPLES, {"extra_negatives": 2}),
    "taught-by-bi": ("in_batch_softmax", EXAMPLES, {"teacher_share": 0.7}),
    "taught-by-cross": ("in_batch_softmax", EXAMPLES, {"teacher_share": 0.7}),
    "taught-by-pairs": ("in_batch_softmax", EXAMPLES, {"teacher_candidates": 3}),
    "taught-by-once": ("in_batch_softmax", EXAMPLES, {"teacher_candidates": 3}),
    "taught-by-several": ("in_batch_softmax", EXAMPLES, {"distillation_temperature": 2.0}),
    "triplet": ("triplet", EXAMPLES, {"triplet_margin": 5.0}),
    "regression": ("regression", GRADED, {}),
    "cosent": ("cosent", GRADED, {}),
    "classification": ("classification", CLASSES, {}),
    "listwise": ("listwise", EXAMPLES, {}),
    "binary": ("binary", EXAMPLES, {}),
    "binary-pairs": ("binary", GRADED, {}),
    "margin_mse": ("margin_mse", EXAMPLES, {}),
    "kl": ("kl", EXAMPLES, {"distillation_temperature": 2.0}),
}
TEACHERS = {
    "taught-by-bi": ("bi",),
    "taught-by-cross": ("cross-interaction",),
    "taught-by-pairs": ("cross",),
    "taught-by-once": ("cross-interaction",),
    "taught-by-several": ("bi", "poly-learnt", "cross"),
}
TASKS = {"classification": {"task": "classify"}, "regression": {"task": "regress"}}


def setup_of(variant, folder, case, *, cache="never", batch_tokens=48, lora_rank=None, **settings):
    """What trains a tiny model on a case, in float64 where the model can, without dropout.

    With `lora_rank`, it has adapters, whose weights are far from their start.
    """
    if case == "corpus":
        setup = pretraining_of(folder, cache=cache, **settings)
        set_dropout(setup.module, 0.0)
        return setup.module.train(), setup.collator, setup.dataset
    name, records, own = CASES[case]
    if variant.startswith("cross"):
        settings = TASKS.get(name, {}) | settings
    model = load_variant(variant, folder, max_context_length=20, **settings)
    if lora_rank is not None:
        add_adapters(model, lora_rank)
    config = TrainingConfig(train_batch_tokens=batch_tokens, num_negatives=3)
    objective = ObjectiveConfig(objective=name, gradient_cache=cache, **own)
    setup = build(model, records, config, objective, teachers_of(case, folder))
    if not variant.startswith("cross"):  # its scores are always float32
        setup.module.double()
    set_dropout(setup.module, 0.0)
    return setup.module.train(), setup.collator, setup.dataset


def add_adapters(model, rank):
    """Give a model adapters that change its outputs."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(2)
        attach(model, rank=rank, alpha=2 * rank)
        for tower in model.towers:
            for parameter in adapter_parameters(tower):
                parameter.normal_(std=0.1)


def teachers_of(case, folder):
    """The teachers of a case that has some, with other lengths than their student."""
    own = {"max_context_length": 24, "max_candidate_length": 30}
    own |= {"reading": "once"} if case == "taught-by-once" else {}
    teachers = [load_variant(variant, folder, **own) for variant in TEACHERS.get(case, ())]
    if case == "taught-by-cross":  # whose texts do not meet, so it encodes a step as a whole
        teachers[0].head.gate.data.fill_(-1e4)
    return teachers


def set_dropout(module, share):
    for one in module.modules():
        if isinstance(one, torch.nn.Dropout):
            one.p = share


def run_step(module, collator, dataset, places=None, *, autocast=contextlib.nullcontext):
    """Loss and gradients of one step on some records: (loss, {name: gradient})."""
    places = range(len(dataset)) if places is None else places
    module.zero_grad()
    loss = gradient_step(module, collator([dataset[place] for place in places]), autocast=autocast)
    gradients = {
        name: parameter.grad.clone()
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }
    return loss, gradients


def assert_equal_steps(one, other, *, rtol=1e-7, atol=1e-9):
    """Equal in loss and in every gradient, which are not zero."""
    (loss, gradients), (other_loss, other_gradients) = one, other
    torch.testing.assert_close(loss, other_loss, rtol=rtol, atol=atol)
    assert gradients.keys() == other_gradients.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(
            other_gradients[name], gradient, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}"
        )
    assert loss > 0
    assert sum(bool(gradient.any()) for gradient in gradients.values()) > 0.9 * len(gradients)

"""The models that the tests of exports share: each kind of graph on some family of encoders.

An export to ONNX takes seconds, so every kind of encoder, architecture, context vectors and head is
in one of a few models, not in all combinations.
"""

from dataclasses import replace

import torch

import polyrank
from polyrank.config import from_mapping
from polyrank.folder_files import file_records
from polyrank.models.config import CONFIGS, ClassifierConfig, DenseLayer
from polyrank.models.description import identity_of, read_description
from polyrank.models.engines.record import (
    export_fingerprint,
    read_record,
    write_record,
)
from tiny_encoders import load_variant


def of(family, variant, **settings):
    """A model on a tiny encoder of a family."""
    return lambda folder: load_variant(variant, folder(family), **settings)


def classifying(folder):
    """Encoders of different kinds, and a classifier of pairs."""
    model = load_variant("bi", folder("bert"), projection=12, candidate_base=folder("electra"))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model.take_classifier(ClassifierConfig(classes=("no", "maybe", "yes")))
    return model


ONE = {"shared_towers": True}
DENSE = (DenseLayer(dimension=24, activation="tanh"), DenseLayer(dimension=20, bias=False))
PROMPTS = {"context_prompt": "how do i ", "candidate_prompt": "the "}
CASES = {
    "poly": of("bert", "poly-learnt", projection=16, **ONE),
    "classes of two towers": classifying,
    "cross": of("roberta", "cross"),
    "electra": of("electra", "cross-interaction"),
    "once": of("bert", "cross-interaction", reading="once"),
    "distilbert": of("distilbert", "poly-last-and-first", **ONE),
    "modernbert": of("modernbert", "bi", dense=DENSE, truncate_dim=10, **PROMPTS, **ONE),
    "xlm-roberta": of("xlm-roberta", "poly-first", **ONE),
    "mpnet": of("mpnet", "poly-last", **ONE),
    "deberta-v2": of("deberta-v2", "cross", task="regress", reduction="mean"),
    "qwen3": of(
        "qwen3", "bi", reduction="last", truncate_dim=16, pool_prompt=False, **PROMPTS, **ONE
    ),
    "gemma3": of("gemma3", "bi", reduction="weighted_mean", candidate_reduction="mean_sqrt", **ONE),
}
"""How each model is made, from a function that gives the encoder of a family."""


def export_case(model, folder, to="onnx"):
    polyrank.export(model.eval(), folder, to=to)


def reseal(folder, change=lambda record: record):
    """Change the record of an export, and make its checksums and its fingerprint fit again."""
    record = read_record(folder)
    record = change(
        replace(record, files=file_records(folder, [folder / name for name in record.files]))
    )
    described = read_description(folder)
    config = from_mapping(CONFIGS[described.architecture], described.settings, where="a test")
    fingerprint = export_fingerprint(identity_of(config), record)
    write_record(folder, replace(record, fingerprint=fingerprint))

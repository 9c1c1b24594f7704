"""The models that the tests of exports share: each kind of graph on some family of encoders."""

import torch

from polyrank.interop.graph_folder import prepared, write_graphs
from polyrank.interop.onnx import versions, write_graph
from polyrank.models.config import ClassifierConfig
from tiny_encoders import load_variant


def classifying(encoder_folder):
    """Two towers, and a classifier of pairs."""
    model = load_variant("bi", encoder_folder("bert"), projection=12)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model.take_classifier(ClassifierConfig(classes=("no", "maybe", "yes")))
    return model.eval()


CASES = {
    "poly": lambda folder: load_variant(
        "poly-learnt", folder("bert"), shared_towers=True, projection=16
    ),
    "classes of two towers": classifying,
    "cross": lambda folder: load_variant("cross", folder("bert")),
}
"""How each model is made, from a function that gives the encoder of a family."""


def export_case(model, folder):
    folder.mkdir()
    write_graphs(prepared(model.eval()), folder, "onnx", write_graph, versions=versions())

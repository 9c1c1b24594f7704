"""Exported models, each made once a session: an export to ONNX takes seconds."""

import pytest

LAYERED = ("modernbert", "qwen3", "gemma3")
"""Families whose layers differ from each other; of others, one layer tells as much as two."""


@pytest.fixture(scope="session")
def shallow_folder(encoder_folder, tmp_path_factory):
    """The folder of the tiny encoder of a family, with one layer: half the time to export."""
    from tiny_encoders import build_encoder_folder

    made = {}

    def folder(family):
        if family in LAYERED:
            return encoder_folder(family)
        if family not in made:
            place = tmp_path_factory.mktemp("shallow") / family
            layers = "n_layers" if family == "distilbert" else "num_hidden_layers"
            made[family] = build_encoder_folder(family, place, **{layers: 1})
        return made[family]

    return folder


@pytest.fixture(scope="session")
def exported(shallow_folder, tmp_path_factory):
    """A function: the name of a case → (the model, the folder of its export)."""
    from exported_models import CASES, export_case

    made = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("exported") / name
            model = CASES[name](shallow_folder)
            export_case(model, folder)
            made[name] = model, folder
        return made[name]

    return get

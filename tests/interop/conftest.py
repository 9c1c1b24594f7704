"""Exported models, each made once a session: an export to ONNX takes seconds."""

import pytest


@pytest.fixture(scope="session")
def exported(encoder_folder, tmp_path_factory):
    """A function: the name of a case → (the model, the folder of its export)."""
    from exported_models import CASES, export_case

    made = {}

    def get(name):
        if name not in made:
            folder = tmp_path_factory.mktemp("exported") / name
            model = CASES[name](encoder_folder)
            export_case(model, folder)
            made[name] = model, folder
        return made[name]

    return get

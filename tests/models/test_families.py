"""Models of each family, saved by the installed sentence-transformers: our vectors are theirs.

Prompts, cut texts and padding are in play everywhere.
"""

import pytest
import torch
from torch import nn

from packaged_models import PROMPTS, require_equal_vectors, save_packaged
from tiny_encoders import DECODERS, FAMILIES, OTHER_FAMILIES

pytest.importorskip("sentence_transformers")
LAYERS = [(24, True, nn.Tanh()), (12, False, nn.Identity())]
MODES = ("cls", "mean", "max", "lasttoken", "mean_sqrt_len_tokens", "weightedmean")


@pytest.mark.parametrize("family", [*FAMILIES, *OTHER_FAMILIES])
def test_a_family_gives_the_vectors_of_the_package(encoder_folder, tmp_path, family):
    mode = "lasttoken" if family in DECODERS else "mean"
    folder = save_packaged(encoder_folder(family), tmp_path / "model", mode=mode, prompts=PROMPTS)
    require_equal_vectors(folder)


@pytest.mark.parametrize("family", [*FAMILIES, *OTHER_FAMILIES])
def test_with_every_setting_at_once(encoder_folder, tmp_path, family):
    folder = save_packaged(
        encoder_folder(family),
        tmp_path / "model",
        mode="weightedmean",
        layers=LAYERS,
        include_prompt=False,
        length=23,
        prompts=PROMPTS,
        truncate_dim=7,
    )
    require_equal_vectors(folder)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("layers", [(), LAYERS])
@pytest.mark.parametrize("normalise", [True, False])
def test_pooling_with_layers_and_normalisation(bert, tmp_path, mode, layers, normalise):
    folder = save_packaged(bert, tmp_path / "model", mode=mode, layers=layers, normalise=normalise)
    require_equal_vectors(folder)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_prompt_outside_of_the_pooling(encoder_folder, tmp_path, mode, family):
    folder = save_packaged(
        encoder_folder(family),
        tmp_path / "model",
        mode=mode,
        include_prompt=False,
        prompts=PROMPTS,
        similarity_fn_name="dot",
        normalise=False,
    )
    require_equal_vectors(folder)


def test_these_models_differ(bert, tmp_path):
    """So that the comparisons above could fail."""
    from packaged_models import vectors_of_both

    plain = save_packaged(bert, tmp_path / "plain")
    seen = []
    for number, settings in enumerate(
        (
            {"prompts": PROMPTS},
            {"prompts": PROMPTS, "include_prompt": False},
            {"mode": "weightedmean"},
            {"mode": "mean_sqrt_len_tokens", "normalise": False},
            {"mode": "lasttoken"},
            {"layers": [(32, True, nn.Tanh())]},
            {"length": 9},
        )
    ):
        seen.append(save_packaged(bert, tmp_path / str(number), **settings))
    vectors = [vectors_of_both(folder)[0][1] for folder in [plain, *seen]]
    for place, one in enumerate(vectors):
        for other in vectors[:place]:
            assert (one - other).abs().max() > 1e-2
    assert torch.isfinite(torch.stack(vectors)).all()

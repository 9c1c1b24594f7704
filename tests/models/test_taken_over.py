"""A model of one architecture that starts from a saved one of another."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from polyrank.errors import ModelError, UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder
from tiny_encoders import TEXTS, load_variant

CPU = {"device": "cpu", "dtype": "float32"}


def weights_of(model, part):
    return model.get_submodule(part).state_dict()


def assert_equal(one, other):
    assert one.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.fixture
def bi(bert, tmp_path):
    model = load_variant("bi", bert, projection=7, reduction="max", max_context_length=33)
    model.save_pretrained(tmp_path / "bi")
    return model


def test_poly_from_bi_takes_its_towers_and_settings(bi, tmp_path):
    poly = PolyEncoder.from_pretrained(tmp_path / "bi", num_codes=3, **CPU)
    for part in ("context_tower", "candidate_tower", "context_projection", "candidate_projection"):
        assert_equal(weights_of(poly, part), weights_of(bi, part))
    assert (poly.config.reduction, poly.config.max_context_length) == ("max", 33)
    assert poly.config.temperature == 1.0
    assert torch.equal(poly.encode_candidates(TEXTS), bi.encode_candidates(TEXTS))
    assert poly.codes.shape == (3, 32)
    assert poly.codes.std() > 0


def test_bi_from_poly_takes_its_towers(bert, tmp_path):
    poly = load_variant("poly-learnt", bert, projection=7)
    poly.save_pretrained(tmp_path / "poly")
    bi = BiEncoder.from_pretrained(tmp_path / "poly", **CPU)
    assert torch.equal(bi.encode_candidates(TEXTS), poly.encode_candidates(TEXTS))
    assert_equal(weights_of(bi, "context_tower"), weights_of(poly, "context_tower"))


@pytest.mark.parametrize("shared", [True, False])
def test_cross_from_bi_takes_the_context_tower(shared, bert, tmp_path):
    bi = load_variant("bi", bert, shared_towers=shared, max_candidate_length=20)
    bi.save_pretrained(tmp_path / "bi")
    cross = CrossEncoder.from_pretrained(tmp_path / "bi", head="linear", **CPU)
    assert_equal(weights_of(cross, "tower"), weights_of(bi, "context_tower"))
    assert cross.config.max_candidate_length <= 20
    pair = CrossEncoder.from_pretrained(tmp_path / "bi", **CPU)
    assert pair.config.head == "interaction"
    assert_equal(weights_of(pair, "tower"), weights_of(bi, "context_tower"))
    second = "context_tower" if shared else "candidate_tower"
    assert_equal(weights_of(pair, "candidate_tower"), weights_of(bi, second))
    assert cross.config.max_context_length + cross.config.max_candidate_length <= 60
    assert cross.config.reduction == CrossEncoder.from_pretrained(bert, **CPU).config.reduction
    assert cross.score("hello", TEXTS).isfinite().all()


def test_both_towers_from_cross(bert, tmp_path):
    cross = load_variant("cross", bert)
    cross.save_pretrained(tmp_path / "cross")
    poly = PolyEncoder.from_pretrained(tmp_path / "cross", num_codes=3, **CPU)
    assert_equal(weights_of(poly, "context_tower"), weights_of(cross, "tower"))
    assert_equal(weights_of(poly, "candidate_tower"), weights_of(cross, "tower"))
    tensors = [*poly.context_tower.parameters(), *poly.candidate_tower.parameters()]
    assert len({tensor.data_ptr() for tensor in tensors}) == len(tensors)


def assert_both_sides(model, shared):
    """Both sides of a model are the one of another."""
    for side in ("context", "candidate"):
        for part in ("tower", "projection"):
            expected = weights_of(shared, f"context_{part}")
            assert_equal(weights_of(model, f"{side}_{part}"), expected)


def test_separate_towers_from_a_shared_one(bert, tmp_path):
    shared = load_variant("bi", bert, shared_towers=True, projection=7)
    shared.save_pretrained(tmp_path / "bi")
    poly = PolyEncoder.from_pretrained(tmp_path / "bi", shared_towers=False, **CPU)
    assert_both_sides(poly, shared)


def test_one_tower_becomes_two_of_the_same_model(bert, tmp_path):
    shared = load_variant("poly-learnt", bert, shared_towers=True, projection=7)
    shared.save_pretrained(tmp_path / "one")
    two = PolyEncoder.from_pretrained(tmp_path / "one", shared_towers=False, **CPU)
    assert_both_sides(two, shared)
    assert torch.equal(two.codes, shared.codes)
    assert torch.equal(two.encode_candidates(TEXTS), shared.encode_candidates(TEXTS))
    two.save_pretrained(tmp_path / "two")
    again = PolyEncoder.from_pretrained(tmp_path / "two", **CPU)
    assert again.config.shared_towers is False


def test_another_projection_is_made_anew(bi, tmp_path):
    poly = PolyEncoder.from_pretrained(tmp_path / "bi", projection=5, **CPU)
    assert_equal(weights_of(poly, "context_tower"), weights_of(bi, "context_tower"))
    assert poly.encode_candidates(TEXTS).shape == (len(TEXTS), 5)
    assert torch.equal(poly.context_projection.weight, poly.candidate_projection.weight)
    none = PolyEncoder.from_pretrained(tmp_path / "bi", projection=None, **CPU)
    assert none.encode_candidates(TEXTS).shape == (len(TEXTS), 32)


def test_new_parts_follow_the_seed(bi, tmp_path):
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        model = CrossEncoder.from_pretrained(tmp_path / "bi", head="linear", **CPU)
        drawn.append(model.head.out.weight)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_damaged_towers_are_refused(bi, tmp_path):
    file = tmp_path / "bi" / "model.safetensors"
    weights = load_file(file)
    name = "context_tower.encoder.embeddings.LayerNorm.weight"
    save_file({**weights, name: torch.zeros(3)}, file)
    with pytest.raises(ModelError, match=f"misshapen: {name}"):
        PolyEncoder.from_pretrained(tmp_path / "bi")
    save_file({key: value for key, value in weights.items() if key != name}, file)
    with pytest.raises(ModelError, match=r"missing: tower\.encoder\.embeddings\.LayerNorm\.weight"):
        CrossEncoder.from_pretrained(tmp_path / "bi")


def test_settings_of_the_new_architecture_are_checked(bi, tmp_path):
    with pytest.raises(UsageError, match="no setting 'num_code'"):
        PolyEncoder.from_pretrained(tmp_path / "bi", num_code=3)


def test_a_cross_encoder_does_not_take_the_pooling_of_single_texts(bert, tmp_path):
    folder = tmp_path / "sentence_transformers"
    shutil.copytree(bert, folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode": "mean"}')
    modules = [
        {"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    assert BiEncoder.from_pretrained(folder, reduction="max").config.reduction == "max"
    assert BiEncoder.from_pretrained(folder).config.reduction == "mean"
    assert CrossEncoder.from_pretrained(folder).config.reduction == "first"

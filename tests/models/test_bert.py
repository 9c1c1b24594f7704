"""BERT's encoder in torch alone gives what that of transformers gives, bit for bit."""

import json

import pytest
import torch

from polyrank.errors import ModelError
from polyrank.models.bert import BERTS, Bert
from polyrank.models.checkpoint import load_model
from polyrank.models.config import ClassifierConfig
from tiny_encoders import FAMILIES, LONG, TEXTS, VARIANTS, load_variant, scores_of

CONTEXTS = ["how do i read a file", ["hello", "no sound", LONG], "", "<pad> [PAD] new"]
FEW = ["how do i read a file", "no sound"]
SAME_NETWORK = ("bert", "electra", "roberta")


def both(path, dtype="float32"):
    """A saved model with the encoder of transformers, and with ours."""
    return [
        load_model(path, device="cpu", dtype=dtype, trainable=trainable)
        for trainable in (True, False)
    ]


@pytest.fixture
def saved(encoder_folder, tmp_path):
    def save(variant, family):
        model = load_variant(variant, encoder_folder(family))
        model.save_pretrained(tmp_path / "model")
        return tmp_path / "model"

    return save


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", SAME_NETWORK)
@pytest.mark.parametrize("variant", ["bi", "poly-learnt", "cross", "cross-interaction"])
def test_scores_are_bit_equal(variant, family, dtype, saved):
    theirs, ours = both(saved(variant, family), dtype)
    assert {type(tower.encoder) for tower in ours.towers} == {Bert}
    assert Bert not in {type(tower.encoder) for tower in theirs.towers}
    assert type(ours) is type(theirs)
    expected = scores_of(theirs, CONTEXTS, [*TEXTS, LONG])
    assert torch.equal(scores_of(ours, CONTEXTS, [*TEXTS, LONG]), expected)
    assert expected.std() > 0
    assert ours.fingerprint() == theirs.fingerprint()


@pytest.mark.parametrize("family", SAME_NETWORK)
def test_tokenisers_agree(family, saved):
    theirs, ours = (model.tokenizer for model in both(saved("bi", family)))
    texts = [*TEXTS, LONG, "ünïcödé 漢字 [MASK] <mask> [SEP]"]
    assert ours.encode(texts) == theirs.encode(texts)
    assert (ours.single, ours.pair) == (theirs.single, theirs.pair)
    assert (ours.pad_id, ours.separator) == (theirs.pad_id, theirs.separator)


def test_a_copy_is_the_same_model(saved, tmp_path):
    ours = both(saved("poly-learnt", "electra"))[1]
    ours.save_copy(tmp_path / "copy")
    for copy in both(tmp_path / "copy"):
        assert copy.fingerprint() == ours.fingerprint()
        assert torch.equal(copy.encode_contexts(CONTEXTS), ours.encode_contexts(CONTEXTS))


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - set(BERTS)))
def test_other_networks_are_those_of_transformers(family, saved):
    theirs, ours = both(saved("bi", family))
    assert type(ours.context_tower.encoder) is type(theirs.context_tower.encoder)
    assert torch.equal(ours.encode_contexts(CONTEXTS), theirs.encode_contexts(CONTEXTS))


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_act": "gelu_new"},
        {"is_decoder": True},
        {"layer_norm_eps": None},
        {"num_attention_heads": None},
    ],
)
def test_what_it_does_not_know_is_left_to_transformers(change, saved):
    path = saved("bi", "bert")
    file = path / "backbone" / "config.json"
    described = json.loads(file.read_text()) | change
    file.write_text(json.dumps({k: v for k, v in described.items() if v is not None}))
    try:
        model = load_model(path, device="cpu", dtype="float32", trainable=False)
    except ModelError:
        return
    assert type(model.context_tower.encoder) is not Bert


def test_a_weight_of_another_shape_is_refused(saved):
    path = saved("bi", "bert")
    file = path / "backbone" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"intermediate_size": 40}))
    with pytest.raises(ModelError, match=r"misshapen: .*intermediate\.dense"):
        load_model(path, device="cpu", trainable=False)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "config.json"])
def test_a_damaged_file_is_an_error(name, saved):
    path = saved("bi", "bert")
    (path / "backbone" / name).write_text("{")
    with pytest.raises(ModelError, match="backbone"):
        load_model(path, device="cpu", trainable=False)


def test_a_classifier_comes_along(bert, tmp_path):
    model = load_variant("bi", bert)
    model.take_classifier(ClassifierConfig(classes=("no", "yes")))
    model.save_pretrained(tmp_path / "model")
    theirs, ours = both(tmp_path / "model")
    pairs = [("no sound", "print"), ("a", "b")]
    assert torch.equal(ours.class_logits(pairs), theirs.class_logits(pairs))
    assert ours.device == torch.device("cpu")


def test_every_variant_is_loaded(saved):
    for variant in VARIANTS:
        theirs, ours = both(saved(variant, "bert"))
        assert torch.equal(scores_of(ours, FEW, FEW), scores_of(theirs, FEW, FEW))

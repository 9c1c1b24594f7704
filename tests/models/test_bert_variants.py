"""BERTs that transformers does not have: values, gradients, dropout, saving."""

import pytest
import torch
from torch import nn

from polyrank.models.backbone import Backbone
from polyrank.models.bert import VARIANT, Bert, BertConfig
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.config import BiEncoderConfig
from polyrank.tokens.tokenizer import TextTokenizer
from tiny_encoders import TEXTS, tokenizer_of

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
FURTHER = {"num_attention_heads": 2, "max_position_embeddings": 40, "type_vocab_size": 2}
LAYER = {
    "self_attn.out_proj": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "linear1": "intermediate.dense",
    "linear2": "output.dense",
    "norm2": "output.LayerNorm",
}


def encoder_of(vocab_size, *, norm_first, norm_embeddings=False, dropout=0.0):
    """An encoder with weights that are far from those of a beginning."""
    config = BertConfig(
        model_type=VARIANT,
        vocab_size=vocab_size,
        **SIZES,
        **FURTHER,
        hidden_act="gelu",
        hidden_dropout_prob=dropout,
        layer_norm_eps=1e-5,
        pad_token_id=0,
        norm_first=norm_first,
        norm_embeddings=norm_embeddings,
    )
    torch.manual_seed(0)
    encoder = Bert(config)
    for parameter in encoder.parameters():
        nn.init.normal_(parameter, std=0.5)
    return encoder.eval()


def layer_of_torch(layer, *, norm_first):
    """torch's own layer with the weights of ours."""
    made = nn.TransformerEncoderLayer(
        16, 2, 24, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first
    )
    ours = dict(layer.named_parameters())
    with torch.no_grad():
        for part in ("weight", "bias"):
            three = [ours[f"attention.self.{name}.{part}"] for name in ("query", "key", "value")]
            getattr(made.self_attn, f"in_proj_{part}").copy_(torch.cat(three))
            for theirs, name in LAYER.items():
                getattr(made.get_submodule(theirs), part).copy_(ours[f"{name}.{part}"])
    return made.eval()


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("norm_embeddings", [False, True])
def test_values_and_gradients_are_those_of_torchs_layers(norm_first, norm_embeddings):
    encoder = encoder_of(30, norm_first=norm_first, norm_embeddings=norm_embeddings)
    ids = torch.randint(1, 30, (3, 7))
    mask = torch.arange(7)[None] < torch.tensor([[7], [4], [2]])
    kinds = torch.randint(0, 2, (3, 7))
    outputs = encoder(ids, mask, kinds).last_hidden_state

    tables = encoder.embeddings
    hidden = (
        tables.word_embeddings(ids)
        + tables.position_embeddings.weight[:7]
        + tables.token_type_embeddings(kinds)
    )
    if norm_embeddings:
        hidden = nn.functional.layer_norm(hidden, (16,), *tables.LayerNorm.parameters())
    for layer in encoder.encoder.layer:
        reference = layer_of_torch(layer, norm_first=norm_first)
        hidden = reference(hidden, src_key_padding_mask=~mask)
    if norm_first:
        hidden = nn.functional.layer_norm(hidden, (16,), *encoder.final_norm.parameters())

    torch.testing.assert_close(outputs[mask], hidden[mask], rtol=1e-4, atol=1e-5)
    table = tables.word_embeddings.weight
    weights = torch.randn_like(hidden)
    gradients = [
        torch.autograd.grad((one * weights)[mask].sum(), table)[0] for one in (outputs, hidden)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-4)
    assert gradients[0].abs().max() > 0


def test_dropout_changes_training_alone():
    encoder = encoder_of(30, norm_first=True, dropout=0.5)
    ids = torch.randint(1, 30, (2, 5))
    first, second = (encoder(ids).last_hidden_state for _ in range(2))
    assert torch.equal(first, second)
    encoder.train()
    first, second = (encoder(ids).last_hidden_state for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_model_of_a_variant_is_saved_and_loaded(norm_first, tmp_path):
    tokenizer = tokenizer_of("bert")
    encoder = encoder_of(len(tokenizer), norm_first=norm_first)
    config = BiEncoderConfig(max_context_length=40, max_candidate_length=40)
    model = BiEncoder(Backbone(encoder), TextTokenizer(tokenizer), config)
    model.eval().save_pretrained(tmp_path / "model")
    expected = model.encode_contexts(TEXTS)
    assert expected.std() > 0.05
    for trainable in (True, False):
        again = load_model(tmp_path / "model", device="cpu", dtype="float32", trainable=trainable)
        assert type(again.context_tower.encoder) is Bert
        assert torch.equal(again.encode_contexts(TEXTS), expected)
        assert again.fingerprint() == model.fingerprint()
        assert all(parameter.requires_grad for parameter in again.parameters())

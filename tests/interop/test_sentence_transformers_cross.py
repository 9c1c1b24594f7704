"""Cross- and poly-encoders as CrossEncoder loads them: the same scores, and back again."""

import json

import numpy as np
import pytest
import torch

import polyrank
from polyrank.cli.main import commands, run
from polyrank.errors import UsageError
from polyrank.models.checkpoint import load_model
from polyrank.models.config import ClassifierConfig
from polyrank.models.heads import PoolerHead
from tiny_encoders import LONG, TEXTS, load_variant

sentence_transformers = pytest.importorskip("sentence_transformers")
CPU = {"device": "cpu", "dtype": "float32"}
CONTEXT = "how do i install the driver"
PAIRS = [(CONTEXT, text) for text in TEXTS if len(text) < 50]
LENGTHS = {"max_context_length": 16, "max_candidate_length": 32}
TARGET = "sentence-transformers"


def exported(model, path, **arguments):
    made = polyrank.export(model, path, to=TARGET)
    theirs = sentence_transformers.CrossEncoder(str(path), device="cpu", **arguments)
    return theirs, made


def scores_of(model, pairs=PAIRS):
    scored = model.score_pairs(pairs) if model.classes is None else model.class_logits(pairs)
    return scored.numpy()


def require_equal(theirs, model, pairs=PAIRS):
    expected = scores_of(model, pairs)
    found = theirs.predict(pairs)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.shape == expected.shape
    assert np.ptp(expected, axis=0).min() > 1e-3


@pytest.mark.parametrize(
    ("family", "settings", "is_plain"),
    [
        ("bert", {"head": "pooler"}, True),
        ("roberta", {"head": "pooler"}, True),
        ("electra", {"head": "pooler", "head_activation": "gelu"}, True),
        ("distilbert", {"head": "pooler", "head_activation": "relu"}, True),
        ("modernbert", {"head": "pooler", "head_norm": True, "reduction": "mean"}, True),
        ("bert", {"head": "pooler", "task": "classify", "num_labels": 4}, True),
        ("bert", {"head": "pooler", "reduction": "mean"}, False),
        ("electra", {"head": "pooler"}, False),
        ("bert", {"head": "pooler", "head_norm": True}, False),
        ("bert", {"head": "linear"}, False),
        ("bert", {"head": "linear", "reduction": "max"}, False),
        ("distilbert", {"head": "linear", "reduction": "mean"}, False),
        ("roberta", {"task": "classify"}, False),
        ("bert", {"task": "regress"}, False),
        ("bert", {"head": "linear", "context_prompt": "what is "}, False),
        ("bert", {"head": "pooler", "context_prompt": "what is "}, False),
    ],
    ids=str,
)
def test_scores_are_equal_without_our_code(family, settings, is_plain, encoder_folder, tmp_path):
    model = load_variant("cross", encoder_folder(family), **LENGTHS, **settings)
    if getattr(model.head, "norm", None) is not None:
        with torch.no_grad():
            model.head.norm.bias.zero_()
    theirs, made = exported(model, tmp_path / "out")
    assert (tmp_path / "out" / "modules.json").exists() is not is_plain
    assert made.load == f'CrossEncoder("{tmp_path / "out"}")'
    require_equal(theirs, model)
    again = load_model(tmp_path / "out", **CPU, **LENGTHS)
    np.testing.assert_allclose(scores_of(again), scores_of(model), atol=1e-5)


def test_the_norm_of_a_head_keeps_its_bias(encoder_folder, tmp_path):
    model = load_variant(
        "cross", encoder_folder("modernbert"), head="pooler", head_norm=True, **LENGTHS
    )
    assert isinstance(model.head, PoolerHead)
    assert model.head.norm.bias.any()
    theirs, _ = exported(model, tmp_path / "out")
    require_equal(theirs, model)


@pytest.mark.parametrize("head", ["pooler", "linear", "interaction"])
def test_weights_stay_in_bfloat16(head, bert, tmp_path):
    model = load_variant("cross", bert, head=head, weights_dtype="bfloat16", **LENGTHS)
    trusting = {"trust_remote_code": True} if head == "interaction" else {}
    theirs, made = exported(
        model, tmp_path / "out", model_kwargs={"dtype": torch.float32}, **trusting
    )
    assert ("The encoder's weights are bfloat16" in made.notes[-1]) is not bool(trusting)
    require_equal(theirs, model)


def test_classes_keep_their_names(bert, tmp_path):
    names = ("no", "perhaps", "yes")
    for head in ("linear", "pooler"):
        model = load_variant("cross", bert, task="classify", head=head)
        model.take_classifier(ClassifierConfig(classes=names))
        theirs, _ = exported(model, tmp_path / head)
        assert theirs.config.id2label == dict(enumerate(names))
        assert load_model(tmp_path / head, **CPU).classes == names


@pytest.mark.parametrize(
    ("variant", "settings"),
    [
        ("poly-learnt", {}),
        ("poly-learnt", {"projection": 7, "shared_towers": True, "context_prompt": "what is "}),
        ("poly-last", {"similarity": "dot"}),
        ("poly-last-and-first", {"truncate_dim": 9}),
        ("cross-interaction", {}),
        ("cross-interaction", {"shared_towers": True}),
        ("cross-interaction", {"reading": "once"}),
        ("cross", {"reading": "once"}),
        ("cross", {"candidate_prompt": "a sign of "}),
    ],
    ids=str,
)
def test_scores_are_equal_with_our_module(variant, settings, bert, tmp_path):
    model = load_variant(variant, bert, **settings)
    with pytest.raises(ValueError, match="trust_remote_code"):
        exported(model, tmp_path / "out")
    theirs, made = exported(model, tmp_path / "out", trust_remote_code=True)
    assert made.load.endswith(", trust_remote_code=True)")
    pairs = [*PAIRS, (LONG, LONG), (TEXTS[4], LONG)]  # cut as here
    require_equal(theirs, model, pairs)
    again = load_model(tmp_path / "out", **CPU)
    assert again.fingerprint() == model.fingerprint()
    theirs.save_pretrained(str(tmp_path / "saved"))
    saved = sentence_transformers.CrossEncoder(
        str(tmp_path / "saved"), device="cpu", trust_remote_code=True
    )
    require_equal(saved, model, pairs)


def test_our_module_learns(bert, tmp_path):
    model = load_variant("poly-learnt", bert)
    theirs, _ = exported(model, tmp_path / "out", trust_remote_code=True)
    theirs(theirs.preprocess(PAIRS))["scores"].sum().backward()
    assert theirs[0].model.codes.grad.abs().max() > 1e-4


def test_a_prompt_and_turns_in_our_module(bert, tmp_path):
    model = load_variant("cross-interaction", bert)
    theirs, _ = exported(model, tmp_path / "out", trust_remote_code=True)
    found = theirs.predict(PAIRS, prompt="what is ")
    expected = model.score_pairs([(f"what is {context}", text) for context, text in PAIRS])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    module = theirs[0]
    turns = module(module.preprocess([(["hello", "yes"], "no")]))["scores"]
    expected = model.score_pairs([(["hello", "yes"], "no")])
    torch.testing.assert_close(turns[:, 0], expected)


def test_what_is_cut_otherwise_is_said(bert, tmp_path):
    model = load_variant("cross", bert, head="pooler", **LENGTHS)
    theirs, made = exported(model, tmp_path / "out")
    assert theirs.max_seq_length == 16 + 32 + 3
    assert "cuts a context at 16 tokens and a candidate at 32" in made.notes[0]
    assert made.notes[0] in (tmp_path / "out" / "README.md").read_text()


def test_the_command_says_which_call_to_use(bert, tmp_path, capsys):
    load_variant("poly-learnt", bert).save_pretrained(tmp_path / "poly")
    out = tmp_path / "out"
    code = run(["export", f"{tmp_path / 'poly'}", "--to", TARGET, "--output", str(out)], commands())
    said = capsys.readouterr().out
    assert code == 0
    assert said.splitlines()[-1] == f'Load it with: CrossEncoder("{out}", trust_remote_code=True)'
    assert "--only-candidates" in said
    requirements = json.loads((out / "config_sentence_transformers.json").read_text())
    assert requirements["requirements"]["polyrank"] == f">={polyrank.__version__}"
    card = (out / "README.md").read_text()
    assert 'CrossEncoder("path/to/this/folder", trust_remote_code=True)' in card
    assert "library_name: sentence-transformers" in card


def test_a_context_that_sees_its_candidates_is_refused(bert, tmp_path):
    model = load_variant("cross", bert, reading="once", context_sees_candidates=True)
    with pytest.raises(UsageError, match="in batches of its own"):
        polyrank.export(model, tmp_path / "output", to=TARGET)


def test_a_cross_encoder_has_no_candidates(bert, tmp_path):
    with pytest.raises(UsageError, match="its candidates have no vectors"):
        polyrank.export(
            load_variant("cross", bert), tmp_path / "out", to=TARGET, only_candidates=True
        )

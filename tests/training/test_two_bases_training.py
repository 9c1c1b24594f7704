"""Training of models whose two sides have encoders of different size, kind and vocabulary."""

import json

import pytest
import torch
from corpus_cases import pretraining_of

import polyrank
from polyrank import BiEncoder
from polyrank.cli.main import commands, run
from polyrank.errors import ModelError, UsageError
from polyrank.models.checkpoint import load_model


def made(context, candidate):
    torch.manual_seed(3)
    return BiEncoder.from_pretrained(
        context, candidate_base=candidate, projection=24, device="cpu", dtype="float32"
    )


@pytest.mark.parametrize("cache", ["never", "always"])
def test_both_encoders_are_trained_on_their_own_tokens(bert, wide, tmp_path, cache):
    model = made(bert, wide)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rows = [{"question": f"what is file {row}", "answer": f"a list {row}"} for row in range(12)]
    options = {"batch_size": 4, "max_steps": 2, "evaluations": 1, "gradient_cache": cache}
    polyrank.train(model, rows, tmp_path / "out", dev=rows, show_progress_bar=False, **options)
    after = model.state_dict()
    moved = {name for name, value in before.items() if not torch.equal(value, after[name])}
    for tower in ("context_tower", "candidate_tower"):
        own = {name for name in before if name.startswith(tower)}
        assert len(own & moved) > 0.9 * len(own)
        assert f"{tower.removesuffix('tower')}projection.weight" in moved
    saved = load_model(tmp_path / "out", device="cpu", dtype="float32")
    assert saved.fingerprint() == model.fingerprint()


def test_the_command_trains_two_encoders(bert, wide, tmp_path, capsys):
    rows = [{"context": f"what is file {row}", "response": f"a list {row}"} for row in range(12)]
    data = tmp_path / "data.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    arguments = ["train", "--arch", "bi", "--base", str(bert), "--candidate-base", str(wide)]
    arguments += ["--projection", "8", "--train", str(data), "--output", str(tmp_path / "out")]
    arguments += ["--max-steps", "1", "--device", "cpu"]
    assert run(arguments, commands()) == 0
    model = load_model(tmp_path / "out", device="cpu")
    assert model.candidate_tower.width == 48
    assert f"from `{bert}` for contexts and from `{wide}` for\ncandidates" in (
        tmp_path / "out/README.md"
    ).read_text("utf-8")
    capsys.readouterr()
    arguments[2] = "cross"
    assert run(arguments, commands()) == 2
    assert "--candidate-base" in capsys.readouterr().err


def test_pairs_read_as_one_text_need_one_encoder(bert, wide, tmp_path):
    made(bert, wide).save_pretrained(tmp_path / "base")
    given = {"shared_towers": False, "projection": 24}
    with pytest.raises(UsageError, match="two encoders with their own vocabularies"):
        pretraining_of(tmp_path / "base", tasks="mlm", **given)


@pytest.mark.parametrize("family", ["qwen3", "gemma3"])
def test_pairs_read_as_one_text_need_an_encoder_that_reads_both_ways(family, encoder_folder):
    reason = "reads forwards" if family == "qwen3" else "no mask token"
    with pytest.raises((UsageError, ModelError), match=reason):
        pretraining_of(encoder_folder(family), tasks="mlm")
    assert pretraining_of(encoder_folder(family), tasks="ict").module.parts

"""Training with LoRA: what is trained, resumed, cached, saved and refused."""

import json
from dataclasses import replace

import pytest
import torch
from corpus_cases import records_of
from objective_cases import assert_equal_steps, run_step, setup_of
from safetensors.torch import load_file
from test_run import CONFIG, dev, equal_weights, examples, fresh

from polyrank import BiEncoder, CrossEncoder, load_model, train
from polyrank.cli.main import commands, run
from polyrank.data.examples import write_examples
from polyrank.errors import UsageError
from polyrank.models.adapters.layers import adapter_parameters, attach, is_adapted
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.encoders import prepare
from polyrank.training.optimisers import parameter_groups

LORA = replace(CONFIG, lora_rank=3, lora_learning_rate=1e-2, lora_dropout=0.1)
SHORT = replace(LORA, max_steps=2)


def fresh_interaction(folder):
    set_seed(0)
    return CrossEncoder.from_pretrained(folder, dtype="float32", device="cpu", head="interaction")


@pytest.mark.parametrize("kind", ["poly", "cross", "interaction"])
def test_training_changes_adapters_and_what_is_above_the_encoders_alone(kind, bert, tmp_path):
    made = fresh_interaction if kind == "interaction" else lambda folder: fresh(kind, folder)
    base, model = made(bert), made(bert)
    train(model, examples(), tmp_path / "out", SHORT, show_progress_bar=False)
    assert not is_adapted(model)
    assert model.bases == {}
    opened = load_model(tmp_path / "out", device="cpu", dtype="float32")
    assert equal_weights(opened, model)
    assert opened.fingerprint() == model.fingerprint()
    before = base.state_dict()
    changed = {n for n, one in model.state_dict().items() if not torch.equal(one, before[n])}
    inside = {name for name in changed if ".encoder." in name}
    assert len(inside) == 12 * len(model.towers), "the linear layers of two layers"
    assert all(name.endswith(".weight") and ".layer." in name for name in inside)
    assert kind == "bi" or changed - inside
    record = json.loads((tmp_path / "out" / "training.json").read_text())["parameters"]
    above = sum(p.numel() for n, p in model.named_parameters() if ".encoder." not in n)
    adapters = len(model.towers) * 2 * 3 * (4 * 2 * 32 + 2 * (32 + 48))
    assert record["trained"] == adapters + above
    one_encoder = sum(p.numel() for p in base.towers[0].parameters())
    assert record["total"] == one_encoder + adapters + above, "the base is there once"
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert ("adapter_config.json" in files) == (len(model.towers) == 1)
    assert {"context", "candidate"} <= files or len(model.towers) == 1


@pytest.mark.parametrize("kind", ["bi"])
def test_a_resumed_run_equals_an_uninterrupted_one(kind, bert, tmp_path):
    whole = fresh(kind, bert)
    train(whole, examples(), tmp_path / "whole", LORA, dev=dev(), show_progress_bar=False)

    class StopError(Exception):
        pass

    def stop(words):
        if words.startswith("step 4/"):
            raise StopError

    cut = fresh(kind, bert)
    with pytest.raises(StopError):
        train(cut, examples(), tmp_path / "cut", LORA, dev=dev(), say=stop)
    assert not is_adapted(cut), "an ordinary model, however the run ends"
    checkpoint = tmp_path / ".cut.training" / "checkpoint-2" / "model.safetensors"
    kept = load_file(checkpoint)
    assert not [name for name in kept if "base_layer" in name or "embeddings" in name]
    assert sum("lora_" in name for name in kept) == 24 * len(cut.towers)
    said, resumed = [], fresh(kind, bert)
    train(resumed, examples(), tmp_path / "cut", LORA, dev=dev(), say=said.append)
    assert said[0].startswith("Resuming after step")
    assert equal_weights(whole, resumed)
    assert equal_weights(load_model(tmp_path / "cut", device="cpu", dtype="float32"), whole)


@pytest.mark.parametrize("variant", ["poly-learnt", "cross"])
def test_the_gradient_cache_gives_the_gradients_of_the_plain_step(variant, bert):
    case = "listwise" if variant == "cross" else "softmax"
    plain, cached = (
        run_step(*setup_of(variant, bert, case, cache=cache, lora_rank=3))
        for cache in ("never", "always")
    )
    names = [name for name in plain[1] if ".encoder." in name]
    assert names
    assert all("lora_" in name for name in names)
    single = {"rtol": 1e-4, "atol": 1e-5} if variant == "cross" else {}
    assert_equal_steps(cached, plain, **single)


def test_adapters_have_a_learning_rate_and_a_dropout_of_their_own(bert):
    model = fresh("poly", bert)
    config = replace(LORA, dropout=0.2)
    attach(model, rank=3, alpha=6, dropout=0.1)
    prepare(model, config)
    trained = {id(p) for p in model.parameters() if p.requires_grad}
    own = {id(p) for tower in model.towers for p in adapter_parameters(tower)}
    assert own < trained
    holder = torch.nn.Module()
    holder.model = model
    groups = {group["setting"]: group for group in parameter_groups(holder, model, config)}
    assert {id(p) for p in groups["learning_rate"]["params"]} == own
    assert groups["learning_rate"]["lr"] == 1e-2
    shares = {
        ("lora_dropout" in name): module.p
        for name, module in model.context_tower.named_modules()
        if isinstance(module, torch.nn.Dropout) and "attention.self.dropout" not in name
    }
    assert shares == {True: 0.1, False: 0.2}


def test_merged_adapters_are_saved_as_a_whole_model(bert, tmp_path):
    model = fresh("bi", bert)
    merged = replace(SHORT, lora_merge=True)
    train(model, examples(), tmp_path / "full", merged, show_progress_bar=False)
    assert "adapters" not in json.loads((tmp_path / "full" / "polyrank.json").read_text())
    assert not (tmp_path / "full" / "context").exists()
    assert equal_weights(load_model(tmp_path / "full", device="cpu", dtype="float32"), model)
    alone = fresh("bi", bert)
    train(alone, examples(), tmp_path / "alone", SHORT, show_progress_bar=False)
    assert equal_weights(alone, model), "whether merged or not"
    size = sum(path.stat().st_size for path in (tmp_path / "alone").rglob("*.safetensors"))
    assert size < 0.6 * (tmp_path / "full" / "model.safetensors").stat().st_size


def test_adapters_train_on_a_model_that_polyrank_saved(bert, tmp_path):
    first = fresh("bi", bert, projection=6)
    train(
        first, examples(), tmp_path / "first", replace(CONFIG, max_steps=2), show_progress_bar=False
    )
    model = BiEncoder.from_pretrained(tmp_path / "first", dtype="float32", device="cpu")
    train(model, examples(), tmp_path / "second", SHORT, show_progress_bar=False)
    assert equal_weights(load_model(tmp_path / "second", device="cpu", dtype="float32"), model)
    with pytest.raises(UsageError, match="holds the base of the adapter"):
        train(
            load_model(tmp_path / "second", device="cpu", dtype="float32"),
            examples(),
            tmp_path / "second",
            SHORT,
        )
    train(
        first,
        examples(),
        tmp_path / "first",
        replace(SHORT, lora_merge=True),
        show_progress_bar=False,
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lora_rank": 0}, "lora_rank must be at least 1, got 0"),
        ({"lora_rank": 2, "lora_alpha": 0.0}, "lora_alpha must be positive"),
        ({"lora_rank": 2, "lora_dropout": 1.0}, "lora_dropout must be from 0 to below 1"),
        ({"lora_rank": 2, "trainable": "top"}, "trainable must be all or all_but_embeddings"),
        ({"lora_rank": 2, "rescale_last_layer": 2.0}, "rescale_last_layer must be 1"),
    ],
)
def test_settings_that_lora_cannot_have_are_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        TrainingConfig(**settings)


def test_what_has_no_layers_or_no_base_is_refused_before_anything_is_written(bert, tmp_path):
    model = fresh("bi", bert)
    with pytest.raises(UsageError, match="lora_targets names 'nothing'"):
        train(model, examples(), tmp_path / "out", LORA, lora_targets=("nothing",))
    assert not is_adapted(model)
    with torch.no_grad():
        model.context_tower.encoder.embeddings.word_embeddings.weight.add_(1)
    with pytest.raises(UsageError, match=r"context_tower is not that of .*--lora-merge"):
        train(model, examples(), tmp_path / "out", LORA)
    assert list(tmp_path.iterdir()) == []


def test_static_embeddings_cannot_have_adapters(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("".join(f"{word} {n} 1.5\n" for n, word in enumerate(("disk", "file", "my"))))
    model = BiEncoder.from_pretrained(words, dtype="float32", device="cpu")
    with pytest.raises(UsageError, match="needs an encoder with linear layers"):
        train(model, examples(), tmp_path / "out", LORA, lora_merge=True)


def test_the_command_line_trains_adapters_and_warns_of_idle_settings(bert, tmp_path, capsys):
    data = tmp_path / "data.jsonl"
    write_examples(data, examples())
    arguments = ["train", "--arch", "bi", "--base", bert, "--train", data, "--device", "cpu"]
    arguments += ["--max-steps", "2", "--batch-size", "8", "--shared-towers"]
    lora = ["--lora-rank", "2", "--lora-targets", "query,value", "--learning-rate", "1e-3"]
    output = tmp_path / "lora"
    assert run([*map(str, [*arguments, *lora, "--output", output])], commands()) == 0
    assert "--learning-rate has no effect with --lora-rank 2" in capsys.readouterr().err
    described = json.loads((output / "adapter_config.json").read_text())
    assert (described["r"], described["lora_alpha"]) == (2, 4.0)
    assert described["target_modules"] == ["query", "value"]
    assert described["base_model_name_or_path"] == str(bert)
    idle = ["--lora-alpha", "3", "--output", tmp_path / "plain"]
    assert run([*map(str, [*arguments, *idle])], commands()) == 0
    assert "--lora-alpha has no effect without --lora-rank" in capsys.readouterr().err
    assert not (tmp_path / "plain" / "adapter_config.json").exists()
    bad = ["--lora-rank", "0", "--output", tmp_path / "bad"]
    assert run([*map(str, [*arguments, *bad])], commands()) == 2
    assert "must be at least 1, got 0" in capsys.readouterr().err


def test_pre_training_refuses_adapters(bert, tmp_path):
    with pytest.raises(UsageError, match="lora_rank cannot be used to pre-train"):
        train(fresh("bi", bert), records_of(), tmp_path / "out", lora_rank=2, max_steps=1)


def test_adapters_are_trained_over_weights_that_are_kept_in_16_bits(bert, tmp_path):
    kept = {"device": "cpu", "dtype": "float32", "weights_dtype": "bfloat16"}
    set_seed(0)
    model = BiEncoder.from_pretrained(bert, **kept)
    train(model, examples(), tmp_path / "out", SHORT, show_progress_bar=False)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    opened = BiEncoder.from_pretrained(tmp_path / "out", **kept)
    assert equal_weights(opened, model)
    assert opened.fingerprint() == model.fingerprint()
    with pytest.raises(UsageError, match="cannot be trained"):
        train(BiEncoder.from_pretrained(bert, **kept), examples(), tmp_path / "full", CONFIG)

"""Contextual masked auto-encoding: what the decoder sees, what is masked, and whole runs."""

import contextlib
from dataclasses import replace
from functools import partial

import pytest
import torch
from corpus_cases import pair_of, records_of
from objective_cases import run_step, set_dropout
from safetensors.torch import load_file

from polyrank.errors import UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.heads import sines
from polyrank.pretraining.pairs import Pair
from polyrank.tokens.masking_config import MaskingConfig
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig, build
from polyrank.training.pretraining.module import embeddings_of
from polyrank.training.run import train
from tiny_encoders import LONG, WORDS, build_encoder_folder, load_variant

FAMILIES = ("bert", "roberta", "electra", "modernbert")


def setup_of(folder, pairs, *, seed=0, masking=None, batch_tokens=60, **settings):
    """What trains a bi-encoder without a projection on some pairs."""
    records = records_of(len(pairs), tasks="cmae")
    records.pairs, records.masking = pairs, masking or MaskingConfig()
    settings = {"shared_towers": True, "max_context_length": 20, **settings}
    model = load_variant("bi", folder, **settings)
    config = TrainingConfig(train_batch_tokens=batch_tokens, seed=seed)
    setup = build(model, records, config, ObjectiveConfig())
    set_dropout(setup.module, 0.0)
    return setup


def talks(count=6):
    """Pairs of different lengths; the response of the third is longer than a batch."""
    pairs = [pair_of(7 * number + 6) for number in range(count)]
    pairs[2] = pairs[2]._replace(second=LONG)
    return pairs


def step_of(setup):
    return setup.collator([setup.dataset[place] for place in range(len(setup.dataset))])


def rows_of(step, name):
    """Each row of a tensor of the batches with its place in the step."""
    return {
        int(place): batch[name][row]
        for batch in step["decoded"]
        for row, place in enumerate(batch["rows"])
    }


def test_the_decoder_reads_nothing_of_what_is_masked(bert):
    setup = setup_of(bert, talks())
    module, step = setup.module, step_of(setup)
    mask_id = setup.module.model.tokenizer.pretrained.mask_token_id
    words = embeddings_of(module.readers[0])
    for batch in step["decoded"]:
        labels = step["response_labels"][batch["rows"]]
        found = batch["response_ids"].gather(1, batch["response_positions"])
        assert (found[labels >= 0] == mask_id).all()
        vectors = torch.randn(len(labels), words.shape[1])
        decoded = module.decode(batch, vectors)[labels >= 0]
        (gradient,) = torch.autograd.grad(decoded.square().sum(), words)
        read = set(batch["response_ids"][batch["response_mask"]].tolist())
        assert set(gradient.abs().sum(dim=1).nonzero()[:, 0].tolist()) == read
        hidden = set(labels[labels >= 0].tolist()) - read
        assert hidden, "else this says nothing"
        assert not gradient[sorted(hidden)].any()
        filled = batch["response_ids"].masked_fill(~batch["response_mask"], 7)
        again = module.decode({**batch, "response_ids": filled}, vectors)[labels >= 0]
        torch.testing.assert_close(again, decoded)
        other = module.decode(batch, vectors.flip(1))[labels >= 0]
        assert not torch.isclose(other, decoded).all(dim=1).any(), "the vector reaches every token"


def test_the_shares_that_are_masked(bert):
    setup = setup_of(bert, talks())
    step = step_of(setup)
    contexts = setup.module.model.context_ids([pair.first for pair in talks()])
    special = {0, 1, 2, 3, 4}
    for place, ids in rows_of(step, "response_ids").items():
        length = int(rows_of(step, "response_mask")[place].sum())
        masked = int((step["response_labels"][place] >= 0).sum())
        assert masked == round(0.75 * length) == int((ids[:length] == 4).sum())
    assert max(int(mask.sum()) for mask in rows_of(step, "response_mask").values()) > 40
    for place, ids in enumerate(contexts):
        masked = int((step["context_labels"][place] >= 0).sum())
        assert masked == round(0.3 * sum(token not in special for token in ids))
    only = setup_of(
        bert, talks(), masking=MaskingConfig(context_masked_share=0, response_masked_share=0.5)
    )
    step = step_of(only)
    assert step["context_labels"].shape == (6, 0)
    read = only.module.model.context_ids([pair.first for pair in talks()])
    for place, ids in rows_of(step, "input_ids").items():
        assert ids[: len(read[place])].tolist() == read[place]
        length = int(rows_of(step, "response_mask")[place].sum())
        assert int((step["response_labels"][place] >= 0).sum()) == round(0.5 * length)
    assert run_step(only.module, only.collator, only.dataset)[0] > 0


def test_what_is_masked_depends_on_seed_and_place_alone(bert):
    setup = setup_of(bert, talks())
    items = [setup.dataset[place] for place in range(6)]
    together, alone = setup.collator(items), setup.collator(items[4:5])
    for name in ("input_ids", "response_ids"):
        one, other = rows_of(alone, name)[0], rows_of(together, name)[4]
        assert torch.equal(one, other[: len(one)])
    for name in ("context_labels", "response_labels"):
        assert torch.equal(alone[name][0], together[name][4][together[name][4] >= 0])
    moved = setup.collator([items[4]._replace(place=3)])
    seeded = setup_of(bert, talks(), seed=1).collator(items[4:5])
    for changed in (moved, seeded):
        assert not torch.equal(changed["response_labels"], alone["response_labels"])


@pytest.mark.parametrize("reduction", ["mean", "first", "max"])
def test_the_vector_is_the_models_own(bert, reduction):
    whole = MaskingConfig(context_masked_share=0)
    setup = setup_of(bert, talks(), masking=whole, reduction=reduction, similarity="dot")
    model, step = setup.module.model, step_of(setup)
    expected = model.encode_contexts([pair.first for pair in talks()])
    for batch in step["decoded"]:
        _, vectors = setup.module.read(batch)
        torch.testing.assert_close(vectors, expected[batch["rows"]])


def test_a_passage_is_read_as_candidates_are(bert):
    pairs = [pair._replace(first=f"{LONG} {n}") for n, pair in enumerate(talks())]
    whole = MaskingConfig(context_masked_share=0)
    settings = {"candidate_reduction": "first", "max_candidate_length": 40, "similarity": "dot"}
    setup = setup_of(bert, pairs, masking=whole, candidate_prompt="the index:", **settings)
    expected = setup.module.model.encode_candidates([pair.first for pair in pairs])
    for batch in step_of(setup)["decoded"]:
        _, vectors = setup.module.read(batch)
        torch.testing.assert_close(vectors, expected[batch["rows"]])
        assert batch["input_ids"].shape[1] == 40
        assert batch["response_ids"].shape[1] <= 40


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_encoder_and_decoder(family, tmp_path):
    folder = build_encoder_folder(family, tmp_path / family)
    setup = setup_of(folder, talks())
    loss, gradients = run_step(setup.module, setup.collator, setup.dataset)
    assert loss > 0
    unmoved = {name for name, gradient in gradients.items() if not gradient.any()}
    assert not {name for name in unmoved if name.startswith("decoders")}
    words = embeddings_of(setup.module.readers[0])
    assert words.grad.abs().max() > 1e-6
    with torch.no_grad():
        for batch in step_of(setup)["decoded"]:
            _, vectors = setup.module.read(batch)
            assert setup.module.decode(batch, vectors).isfinite().all()


def test_the_vector_may_be_added_at_every_token(bert):
    records = records_of(6, tasks="cmae")
    records.config = replace(records.config, decoder_vector="every")
    model = load_variant("bi", bert, shared_towers=True)
    setup = build(model, records, TrainingConfig(), ObjectiveConfig())
    plain = build(model, records_of(6, tasks="cmae"), TrainingConfig(), ObjectiveConfig())
    decoder, first = setup.module.decoders[0], plain.module.decoders[0]
    words, ids = embeddings_of(setup.module.readers[0]), torch.tensor([[9, 8, 7, 6]])
    mask, vector = torch.ones_like(ids).bool(), torch.randn(1, words.shape[1])
    inputs = torch.cat([torch.zeros_like(vector), decoder.word_norm(words[ids[0]])])
    inputs[1:] += sines(4, vector)
    found = decoder(vector, ids, mask, words)
    expected = decoder.layer((inputs + decoder.vector_norm(vector))[None])[:, 1:]
    torch.testing.assert_close(found, expected)
    assert not torch.isclose(first(vector, ids, mask, words), found).all(dim=2).any()
    assert all(
        torch.equal(*pair) for pair in zip(first.parameters(), decoder.parameters(), strict=True)
    )


def test_how_batches_are_cut_changes_nothing(bert):
    steps = []
    for budget in (4096, 30):
        setup = setup_of(bert, talks(), batch_tokens=budget)
        setup.module.double()
        steps.append(run_step(setup.module, setup.collator, setup.dataset))
        assert (len(step_of(setup)["decoded"]) > 1) == (budget == 30)
    (loss, gradients), (other_loss, other) = steps
    torch.testing.assert_close(loss, other_loss)
    for name, gradient in gradients.items():
        torch.testing.assert_close(other[name], gradient, rtol=1e-6, atol=1e-9, msg=name)


def test_in_bfloat16(bert):
    losses, gradients = [], []
    half = partial(torch.autocast, "cpu", dtype=torch.bfloat16)
    for autocast in (contextlib.nullcontext, half):
        setup = setup_of(bert, talks())
        loss, found = run_step(setup.module, setup.collator, setup.dataset, autocast=autocast)
        losses.append(loss)
        gradients.append(found["decoders.0.layer.self_attn.in_proj_weight"])
    torch.testing.assert_close(*losses, rtol=0.02, atol=0)
    assert losses[0] != losses[1]
    assert torch.cosine_similarity(*(each.ravel() for each in gradients), dim=0) > 0.98


def test_an_empty_response_trains_the_encoder_alone(bert):
    setup = setup_of(bert, [pair._replace(second="") for pair in talks()])
    loss, gradients = run_step(setup.module, setup.collator, setup.dataset)
    assert loss > 0
    assert not gradients.get("decoders.0.head.dense.weight", torch.zeros(1)).any()
    whole = MaskingConfig(context_masked_share=0)
    nothing = setup_of(bert, [pair_of(6)._replace(second="")], masking=whole)
    loss, gradients = run_step(nothing.module, nothing.collator, nothing.dataset)
    assert loss == 0
    assert not any(gradient.any() for gradient in gradients.values())


class Echoes:
    """Pairs whose response says what the context says."""

    def __getitem__(self, number):
        word, other = WORDS[15 + number % 7], WORDS[25 + number % 5]
        first = ("hello", f"no {word} {other} here")
        return Pair("cmae", first, f"{word} {other}", reading="decoded")


def echo_run(folder, output, steps, **settings):
    records = records_of(12 * steps, tasks="cmae")
    records.pairs = Echoes()
    records.held_out = {"cmae": [records.pairs[place] for place in range(1000, 1035)]}
    model = BiEncoder.from_pretrained(folder, device="cpu", dtype="float32", shared_towers=True)
    config = TrainingConfig(
        batch_size=12, max_steps=steps, learning_rate=2e-3, evaluations=2, new_learning_rate=5e-3
    )
    return model, train(model, records, output, config, **settings)


def test_the_vector_learns_what_the_response_says_and_the_decoder_is_not_saved(bert, tmp_path):
    _, result = echo_run(bert, tmp_path / "out", 80)
    figures = result.figures
    assert figures["cmae_decoder_loss"] < 0.75 * figures["cmae_shuffled_decoder_loss"], figures
    assert figures["held_out"] == figures["cmae_decoded"] > 0.5, figures
    saved = load_file(tmp_path / "out" / "model.safetensors")
    plain = load_variant("bi", bert, shared_towers=True).state_dict()
    assert saved.keys() <= plain.keys(), "neither decoder nor heads"
    assert not any("decoder" in name for name in saved)


def test_a_resumed_run_makes_the_same_weights(bert, tmp_path):
    whole, _ = echo_run(bert, tmp_path / "whole", 8)

    def stop(line):
        if line.startswith("step 6/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        echo_run(bert, tmp_path / "cut", 8, say=stop)
    said = []
    resumed, _ = echo_run(bert, tmp_path / "cut", 8, say=said.append)
    assert "Resuming after step 4 of 8." in said
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


@pytest.mark.parametrize(
    ("name", "value"),
    [("context_masked_share", 1.0), ("context_masked_share", -0.1), ("response_masked_share", 0.0)],
)
def test_shares_out_of_range_are_refused(name, value):
    with pytest.raises(UsageError, match=name):
        MaskingConfig(**{name: value})

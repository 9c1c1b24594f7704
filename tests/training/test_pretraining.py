"""The losses of pre-training, against what is written out, cached, and on a whole run."""

import json
import math

import pytest
import torch
from corpus_cases import pair_of, pretraining_of, records_of
from objective_cases import run_step, set_dropout
from torch.nn import functional

from polyrank.errors import ModelError, UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.tokens.batching import batches, mask_of
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig, build
from polyrank.training.pretraining import objective as objective_module
from polyrank.training.pretraining.collator import document, fitted
from polyrank.training.pretraining.config import PretrainingConfig
from polyrank.training.pretraining.module import embeddings_of
from polyrank.training.pretraining.objective import accidental
from polyrank.training.run import train
from tiny_encoders import load_variant


def vectors_of(tower, projection, texts):
    rows = [tower(batches([ids], 0)[0])[0].mean(dim=0) for ids in texts]
    return functional.normalize(projection(torch.stack(rows)), dim=-1)


def softmax_by_hand(model, pairs):
    """The sum of the cross-entropies of the pairs of the in-batch softmax."""
    config = model.config
    firsts = model.tokenizer.contexts([pair.first for pair in pairs], 20)
    left = vectors_of(model.context_tower, model.context_projection, firsts)
    seconds = [document(pair) for pair in pairs]
    read = model.tokenizer.candidates(seconds, config.max_candidate_length)
    tower = model.candidate_tower or model.context_tower
    right = vectors_of(tower, model.candidate_projection or model.context_projection, read)
    total = 0.0
    for i, pair in enumerate(pairs):
        terms = {}
        for j, other in enumerate(pairs):
            same = seconds[i] == seconds[j] or other.first == pair.first
            if j == i or not (same or pair.wanted & other.answers):
                score = left[i] @ right[j] / config.temperature
                terms[j] = score.exp() / other.frequency
        total = total - (terms[i] / sum(terms.values())).log()
    return total


def joined_by_hand(module, step):
    """The mean cross-entropy of masked tokens, and the sum of that of what follows."""
    tokens, follows = [], []
    for batch in step["joined"]:
        reader = int(batch["reader"])
        tower = (module.model.context_tower, module.model.candidate_tower)[reader]
        masked_head, follows_head = module.masked_heads[reader], module.follows_heads[reader]
        outputs = tower(batch)
        for row, place in enumerate(batch["rows"].tolist()):
            labels = step["labels"][place]
            for position, label in zip(batch["positions"][row], labels, strict=True):
                if label < 0:
                    continue
                inner = masked_head.norm(functional.gelu(masked_head.dense(outputs[row, position])))
                logits = embeddings_of(tower) @ inner + masked_head.bias
                tokens.append(-logits.log_softmax(dim=0)[label])
            asked = step["follows"][place]
            if asked >= 0:
                logits = follows_head.out(follows_head.dense(outputs[row, 0]).tanh())
                follows.append(-logits.log_softmax(dim=0)[asked])
    return torch.stack(tokens).mean(), torch.stack(follows).sum()


def decoded_by_hand(module, step):
    """The mean cross-entropies of the masked tokens of contexts and of responses."""
    contexts, responses = [], []
    for batch in step["decoded"]:
        reader = int(batch["reader"])
        tower = (module.model.context_tower, module.model.candidate_tower)[reader]
        decoder, words = module.decoders[reader], embeddings_of(tower)
        outputs = tower(batch)
        for row, place in enumerate(batch["rows"].tolist()):
            length = int(mask_of(batch)[row].sum())
            vector = outputs[row, :length].mean(dim=0)
            count = int(batch["response_mask"][row].sum())
            inputs = decoder.word_norm(words[batch["response_ids"][row, :count]])
            inputs = inputs + positions_by_hand(count, inputs.shape[1])
            inputs = torch.cat([decoder.vector_norm(vector)[None], inputs])
            read = layer_by_hand(decoder.layer, inputs)[1:]
            masked_head = module.masked_heads[reader]
            for found, labels, positions, head, losses in (
                (outputs[row], "context_labels", "positions", masked_head, contexts),
                (read, "response_labels", "response_positions", decoder.head, responses),
            ):
                for position, label in zip(batch[positions][row], step[labels][place], strict=True):
                    if label >= 0:
                        inner = head.norm(functional.gelu(head.dense(found[position])))
                        logits = words @ inner + head.bias
                        losses.append(-logits.log_softmax(dim=0)[label])
    return torch.stack(contexts).mean(), torch.stack(responses).mean()


def positions_by_hand(count, width):
    rates = [10000 ** (-2 * place / width) for place in range(width // 2)]
    rows = [
        [math.sin(n * rate) for rate in rates] + [math.cos(n * rate) for rate in rates]
        for n in range(count)
    ]
    return torch.tensor(rows, dtype=torch.float64).view(count, width)


def layer_by_hand(layer, inputs):
    """A transformer layer with one head that normalises first."""
    inner = layer.norm1(inputs)
    own = layer.self_attn
    assert own.num_heads == 1
    queries, keys, values = functional.linear(inner, own.in_proj_weight, own.in_proj_bias).chunk(
        3, dim=1
    )
    weights = (queries @ keys.T / queries.shape[1] ** 0.5).softmax(dim=1)
    inputs = inputs + own.out_proj(weights @ values)
    return inputs + layer.linear2(functional.gelu(layer.linear1(layer.norm2(inputs))))


@pytest.mark.parametrize("shared_towers", [True, False])
def test_the_loss_and_its_gradients_are_those_written_out(bert, shared_towers):
    setup = pretraining_of(bert, shared_towers=shared_towers)
    module, dataset = setup.module, setup.dataset
    set_dropout(module, 0.0)
    loss, gradients = run_step(module, setup.collator, dataset)
    step = setup.collator([dataset[place] for place in range(24)])
    apart = [pair_of(n) for n in range(24) if n % 7 < 3]
    tokens, follows = joined_by_hand(module, step)
    contexts, responses = decoded_by_hand(module, step)
    expected = (softmax_by_hand(module.model, apart) + follows) / 24 + tokens * 9 / 24
    expected = expected + (contexts + responses) * 3 / 24
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=1e-7)
    module.zero_grad()
    expected.backward()
    for name, parameter in module.named_parameters():
        wanted = parameter.grad
        if wanted is None:
            assert name not in gradients or not gradients[name].any()
            continue
        torch.testing.assert_close(gradients[name], wanted, rtol=1e-5, atol=1e-7, msg=name)
    assert gradients["model.context_projection.weight"].abs().max() > 1e-5
    assert len(module.readers) == (1 if shared_towers else 2)
    for reader in range(len(module.readers)):
        assert gradients[f"masked_heads.{reader}.dense.weight"].abs().max() > 1e-5
        assert gradients[f"follows_heads.{reader}.out.weight"].abs().max() > 1e-5
        assert gradients[f"decoders.{reader}.layer.self_attn.in_proj_weight"].abs().max() > 1e-5
        assert gradients[f"decoders.{reader}.head.dense.weight"].abs().max() > 1e-5


def test_three_answers_to_whether_a_text_follows(bert):
    records = records_of(12, tasks="next_utterance")
    records.pairs = [records[place]._replace(label=place % 3) for place in range(12)]
    model = load_variant("bi", bert, shared_towers=True)
    records.num_answers = 3
    setup = build(model, records, TrainingConfig(), ObjectiveConfig())
    module = setup.module.double()
    set_dropout(module, 0.0)
    loss, gradients = run_step(module, setup.collator, setup.dataset)
    step = setup.collator([setup.dataset[place] for place in range(12)])
    tokens, follows = joined_by_hand(module, step)
    expected = tokens + follows / 12
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=1e-7)
    module.zero_grad()
    expected.backward()
    head = module.follows_heads[0].out.weight
    assert head.shape[0] == 3
    torch.testing.assert_close(gradients["follows_heads.0.out.weight"], head.grad)
    assert (head.grad.abs().sum(dim=1) > 1e-4).all()


def test_predictions_begin_with_how_often_tokens_occur(bert):
    setup = pretraining_of(bert)
    (tower,) = setup.module.readers
    counts = torch.ones(len(embeddings_of(tower)), dtype=torch.float64)
    for pair in map(pair_of, range(24)):
        for ids in setup.module.model.tokenizer.encode_turns([pair.first, document(pair)]):
            for token in ids:
                counts[token] += 1
    begun = setup.module.masked_heads[0].bias.detach().exp()
    torch.testing.assert_close(begun, counts / counts.sum(), rtol=1e-5, atol=0)
    assert counts.max() > 10


@pytest.mark.parametrize(
    ("tasks", "shared_towers"),
    [
        ("ict", True),
        ("mlm", True),
        ("next_sentence", True),
        ("ict,mlm", True),
        ("ict,bfs,wlp,mlm,next_sentence,cmae", True),
        ("ict,mlm,next_sentence,cmae", False),
        ("cmae", True),
    ],
)
def test_the_gradient_cache_gives_the_plain_step(bert, tasks, shared_towers):
    steps = []
    for cache in ("never", "always"):
        setup = pretraining_of(bert, cache=cache, tasks=tasks, shared_towers=shared_towers)
        set_dropout(setup.module, 0.2)
        torch.manual_seed(3)
        steps.append(run_step(setup.module, setup.collator, setup.dataset))
    (loss, gradients), (other_loss, other) = steps
    torch.testing.assert_close(loss, other_loss)
    assert loss > 0
    for name, gradient in gradients.items():
        if gradient.any():
            torch.testing.assert_close(other[name], gradient, rtol=1e-6, atol=1e-9, msg=name)


def test_how_batches_are_cut_and_logits_are_chunked_changes_nothing(bert, monkeypatch):
    def step(budget):
        setup = pretraining_of(bert, batch_tokens=budget)
        set_dropout(setup.module, 0.0)
        return run_step(setup.module, setup.collator, setup.dataset)

    whole = step(4096)
    monkeypatch.setattr(objective_module, "LOGITS_AT_ONCE", 1)
    cut = step(30)
    torch.testing.assert_close(whole[0], cut[0])
    for name, gradient in whole[1].items():
        torch.testing.assert_close(cut[1][name], gradient, rtol=1e-6, atol=1e-9, msg=name)


def test_what_is_masked_depends_on_the_pair_alone(bert):
    setup = pretraining_of(bert)
    numbered = [setup.dataset[place] for place in range(24)]
    together = setup.collator(numbered)
    alone = setup.collator(numbered[10:11])  # the fourth to be read as one text
    (batch,) = alone["joined"]
    rows = [(row, one) for one in together["joined"] for row in range(len(one["rows"]))]
    row, found = next((row, one) for row, one in rows if one["rows"][row] == 3)
    assert numbered[10].example == pair_of(10)
    length = batch["input_ids"].shape[1]
    assert torch.equal(found["input_ids"][row, :length], batch["input_ids"][0])
    assert torch.equal(together["labels"][3][together["labels"][3] >= 0], alone["labels"][0])


def test_accidental_hits():
    wanted = torch.tensor([[1, -1], [2, 3], [-1, -1]])
    answers = torch.tensor([[1, -2], [3, 1], [-2, -2], [5, 2]])
    expected = [[True, True, False, False], [False, True, False, True], [False] * 4]
    assert accidental(wanted, answers).tolist() == expected


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [((3, 3), (3, 3)), ((9, 3), (7, 3)), ((3, 9), (3, 7)), ((9, 9), (5, 5)), ((0, 12), (0, 10))],
)
def test_two_texts_share_the_room(lengths, expected):
    first, second = (list(range(length)) for length in lengths)
    left, right = fitted(first, second, 10)
    assert (len(left), len(right)) == expected
    assert left == first[len(first) - len(left) :]
    assert right == second[: len(right)]


def run(folder, output, records, *, shared_towers=True, projection=8, **settings):
    model = BiEncoder.from_pretrained(
        folder,
        device="cpu",
        dtype="float32",
        shared_towers=shared_towers,
        projection=projection,
    )
    config = TrainingConfig(
        batch_size=12, max_steps=settings.pop("steps", 8), learning_rate=1e-3, evaluations=2
    )
    objective = ObjectiveConfig(logq=records.config.logq)
    return model, train(model, records, output, config, objective=objective, **settings)


def test_a_run_learns_every_task_and_is_a_base_for_all(bert, tmp_path):
    records = records_of(12 * 60)
    said = []
    _, result = run(bert, tmp_path / "out", records, steps=60, say=said.append)
    names = {"ict_recall@1", "bfs_mrr", "wlp_recall@100", "mlm_masked", "next_sentence_follows"}
    names |= {"cmae_decoder_loss", "cmae_shuffled_decoder_loss", "cmae_decoded", "cmae_masked"}
    assert names <= result.figures.keys()
    losses = [entry["loss"] for entry in result.history if "loss" in entry]
    assert losses[-1] < 0.8 * losses[0]
    assert any("held out" in line for line in said)
    for architecture in (BiEncoder, CrossEncoder):
        base = architecture.from_pretrained(tmp_path / "out", device="cpu")
        assert base.tokenizer.pretrained.mask_token == "[MASK]"
    assert BiEncoder.from_pretrained(tmp_path / "out").config.projection == 8
    card = (tmp_path / "out" / "README.md").read_text()
    assert "pairs drawn from it" in card
    record = json.loads((tmp_path / "out" / "training.json").read_text())
    assert record["identity"]["examples"] == "corpus of 720"


def towers_of(folder):
    model = BiEncoder.from_pretrained(folder, device="cpu", shared_towers=False)
    return model.context_tower.state_dict(), model.candidate_tower.state_dict()


def moved(before, after):
    """The parameters that are others than before."""
    return {name for name, value in after.items() if not torch.equal(value, before[name])}


@pytest.mark.parametrize("tasks", ["mlm", "next_utterance", "cmae", "mlm,next_sentence,cmae"])
def test_where_no_task_tells_the_sides_apart_both_towers_are_one_encoder(bert, tmp_path, tasks):
    begun, _ = towers_of(bert)
    records = records_of(12 * 8, tasks=tasks)
    run(bert, tmp_path / "out", records, shared_towers=False, projection=None)
    one, other = towers_of(tmp_path / "out")
    assert not moved(one, other)
    assert len(moved(begun, one)) > 0.9 * len(one)
    alone, _ = run(bert, tmp_path / "alone", records, projection=None)
    assert not moved(one, alone.context_tower.state_dict()), "each pair trains the one encoder"


@pytest.mark.parametrize("tasks", ["ict,mlm", "mlm", "cmae"])
def test_two_towers_that_differ_are_both_trained_by_pairs_read_as_one(bert, tmp_path, tasks):
    base = BiEncoder.from_pretrained(bert, device="cpu", shared_towers=False, projection=8)
    with torch.no_grad():
        for parameter in base.candidate_tower.parameters():
            parameter.mul_(1.01)
    base.save_pretrained(tmp_path / "base")
    begun = towers_of(tmp_path / "base")
    setup = pretraining_of(tmp_path / "base", tasks=tasks, shared_towers=False)
    places = [n for n in range(24) if setup.dataset[n].example.reading != "apart"]
    _, gradients = run_step(setup.module, setup.collator, setup.dataset, places)
    records = records_of(12 * 8, tasks=tasks)
    run(tmp_path / "base", tmp_path / "out", records, shared_towers=False)
    for number, tower in enumerate(("context_tower", "candidate_tower")):
        assert gradients[f"model.{tower}.encoder.embeddings.word_embeddings.weight"].any()
        before, after = begun[number], towers_of(tmp_path / "out")[number]
        assert len(moved(before, after)) > 0.9 * len(after), tower


def test_the_two_towers_share_the_pairs_that_are_read_as_one(bert):
    setup = pretraining_of(bert, shared_towers=False)
    numbered = [setup.dataset[place] for place in range(24)]
    step = setup.collator(numbered)
    joined = [item for item in numbered if item.example.reading == "joined"]
    assert set(step["readers"].tolist()) == {0, 1}
    for batch in step["joined"]:
        assert {int(step["readers"][row]) for row in batch["rows"]} == {int(batch["reader"])}
    assert sorted(torch.cat([batch["rows"] for batch in step["joined"]]).tolist()) == list(
        range(len(joined))
    )
    for place, item in enumerate(joined):
        assert setup.collator([item])["readers"].tolist() == [step["readers"][place]]


def test_a_resumed_run_makes_the_same_weights(bert, tmp_path):
    records = records_of(12 * 8)
    whole, _ = run(bert, tmp_path / "whole", records)

    def stop(line):
        if line.startswith("step 6/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(bert, tmp_path / "cut", records, say=stop)
    said = []
    resumed, _ = run(bert, tmp_path / "cut", records, say=said.append)
    assert "Resuming after step 4 of 8." in said
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


def test_pairs_without_the_question_are_ranked_in_the_batch(bert):
    setup = pretraining_of(bert)
    numbered = [setup.dataset[place] for place in (5, 11, 3)]
    apart = numbered[0].example._replace(label=None, reading="apart")
    numbered[0] = numbered[0]._replace(example=apart)
    step = setup.collator(numbered)
    assert len(step["identities"]) == 1
    assert step["follows"].tolist() == [1, -100]


def test_bad_settings_are_refused(bert):
    with pytest.raises(UsageError, match=r"no task 'itc'.*'ict'"):
        PretrainingConfig(tasks="itc")
    with pytest.raises(UsageError, match="each task once"):
        PretrainingConfig(tasks="ict,ict")
    with pytest.raises(UsageError, match="share of mlm must be a positive number, got x"):
        PretrainingConfig(tasks="mlm:x")
    assert PretrainingConfig(tasks="ict:2, mlm").weights == {"ict": 2.0, "mlm": 1.0}
    objective = ObjectiveConfig()
    with pytest.raises(UsageError, match=r"pretraining cannot train the architecture poly.*bi"):
        build(load_variant("poly-learnt", bert), records_of(), TrainingConfig(), objective)
    model = load_variant("bi", bert, shared_towers=True)
    model.tokenizer.pretrained.mask_token = None
    with pytest.raises(ModelError, match="has no mask token"):
        build(model, records_of(), TrainingConfig(), objective)

"""Static embeddings: folders of model2vec and sentence-transformers, and files of word vectors."""

import bz2
import gzip
import json
import lzma

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from polyrank.errors import DataError, ModelError, UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.models.static.distilled import (
    distil_static,
    principal_components,
    sif_weights,
    static_from_file,
)
from polyrank.models.static.word_vectors import BLOCK, read_word_vectors
from polyrank.records import Example
from polyrank.retrieval.index import Index
from polyrank.training.config import TrainingConfig
from polyrank.training.objectives.registry import ObjectiveConfig, build
from polyrank.training.optimisers import parameter_groups
from polyrank.training.run import train
from polyrank.training.step import gradient_step
from tiny_encoders import LONG, TEXTS, WORDS, load_variant, tokenizer_of

CPU = {"device": "cpu", "dtype": "float32"}
UNKNOWN_ALONE = "☃ ☃"
EVERY_TEXT = [*TEXTS, LONG, UNKNOWN_ALONE, f"hello {UNKNOWN_ALONE} disk", ""]
WIDTH = 12


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def write_model2vec(folder, *, is_weighted=False, is_mapped=False, **config):
    """A folder as model2vec saves it; returns the folder."""
    folder.mkdir()
    tokenizer_of("bert").save_pretrained(folder.parent / "tokenizer")
    text = (folder.parent / "tokenizer" / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    count = Tokenizer.from_str(text).get_vocab_size()
    tensors = {"embeddings": draw(20 if is_mapped else count, WIDTH)}
    if is_weighted:
        tensors["weights"] = draw(count, seed=1).abs()
    if is_mapped:
        tensors["mapping"] = torch.arange(count) % 20
    save_file(tensors, folder / "model.safetensors")
    described = {"model_type": "model2vec", "normalize": True, **config}
    (folder / "config.json").write_text(json.dumps(described))
    modules = [{"idx": 0, "name": "0", "path": ".", "type": "elsewhere.StaticEmbedding"}]
    modules += [{"idx": 1, "name": "1", "path": "1_Normalize", "type": "elsewhere.Normalize"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_model2vec(tmp_path / "model2vec", is_weighted=True, is_mapped=True)


def write_vectors(path, words=WORDS, *, header=False, opened=open):
    """A file of word vectors; returns the vectors."""
    vectors = draw(len(words), WIDTH).numpy().round(4)
    lines = [f"{len(words)} {WIDTH}"] if header else []
    for word, vector in zip(words, vectors, strict=True):
        lines.append(" ".join([word, *map(str, vector.tolist())]) + (" " if header else ""))
    with opened(path, "wt", encoding="utf-8") as handle:
        handle.write("\n".join(lines) + "\n")
    return vectors


@pytest.fixture
def glove(tmp_path):
    write_vectors(tmp_path / "glove.txt")
    return tmp_path / "glove.txt"


def averages(folder, tensors):
    """What model2vec computes of each text: the mean of its tokens' weighted vectors, of norm 1."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    unknown = tokenizer.token_to_id("[UNK]")
    rows = []
    for text in EVERY_TEXT:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        ids = torch.tensor([token for token in ids if token != unknown][:512], dtype=torch.long)
        vectors = tensors["embeddings"][tensors["mapping"][ids] if "mapping" in tensors else ids]
        if "weights" in tensors:
            vectors = vectors * tensors["weights"][ids][:, None]
        mean = vectors.mean(dim=0) if len(ids) else torch.zeros(WIDTH)
        rows.append(mean / (mean.norm() + 1e-32))
    return torch.stack(rows)


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("is_mapped", [False, True])
def test_vectors_are_those_of_model2vec(tmp_path, is_weighted, is_mapped):
    folder = write_model2vec(tmp_path / "m", is_weighted=is_weighted, is_mapped=is_mapped)
    model = load_model(folder, **CPU)
    vectors = model.encode_candidates(EVERY_TEXT)
    expected = averages(folder, load_file(folder / "model.safetensors"))
    torch.testing.assert_close(vectors, expected, atol=1e-5, rtol=0)
    contexts = model.encode_contexts(EVERY_TEXT)
    torch.testing.assert_close(contexts, expected, atol=1e-5, rtol=0)
    assert model.config.max_context_length == model.config.max_candidate_length == 512
    assert sum(row.any() for row in expected) == len(EVERY_TEXT) - 3


def test_vectors_are_those_of_the_package(folder):
    package = pytest.importorskip("model2vec")
    expected = package.StaticModel.from_pretrained(folder).encode(EVERY_TEXT)
    vectors = load_model(folder, **CPU).encode_candidates(EVERY_TEXT)
    np.testing.assert_allclose(vectors.numpy(), expected, atol=1e-5)


def test_a_sentence_transformers_folder_gives_its_vectors(tmp_path):
    package = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    tokenizer = tokenizer_of("bert").backend_tokenizer
    weights = draw(tokenizer.get_vocab_size(), WIDTH).numpy()
    static = StaticEmbedding(tokenizer, embedding_weights=weights)
    for modules in ([static], [static, Normalize()]):
        theirs = package.SentenceTransformer(modules=modules, device="cpu")
        theirs.save(str(tmp_path / "saved"))
        ours = load_model(tmp_path / "saved", **CPU)
        texts = [text for text in EVERY_TEXT if text]
        expected = theirs.encode(texts)  # unknown words count here
        np.testing.assert_allclose(ours.encode_candidates(texts).numpy(), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "opened"),
    [
        ("glove.6B.12d.txt", open),
        ("words.vec", open),
        ("words.vec.gz", gzip.open),
        ("words.txt.xz", lzma.open),
        ("words.txt.bz2", bz2.open),
    ],
)
def test_word_vectors_are_averaged(tmp_path, name, opened):
    vectors = write_vectors(tmp_path / name, header=".vec" in name, opened=opened)
    model = load_model(tmp_path / name, similarity="dot", **CPU)
    found = model.encode_candidates(["How do I READ, a xyzzy file?", "file"])
    known = [WORDS.index(word) for word in ["how", "do", "i", "read", "a", "file"]]
    np.testing.assert_allclose(found[0].numpy(), vectors[known].mean(axis=0), atol=1e-6)
    np.testing.assert_allclose(found[1].numpy(), vectors[WORDS.index("file")], atol=1e-6)


def test_capital_letters_count_where_words_have_some(tmp_path):
    vectors = write_vectors(tmp_path / "cased.txt", ["Boot", "boot", "the", "New"])
    model = load_model(tmp_path / "cased.txt", similarity="dot", **CPU)
    found = model.encode_candidates(["Boot", "boot", "BOOT"]).numpy()
    np.testing.assert_allclose(found, [vectors[0], vectors[1], np.zeros(WIDTH)], atol=1e-6)


def test_words_with_spaces_are_read_and_repeated_ones_are_not(tmp_path):
    (tmp_path / "v.txt").write_text(
        "the 1 2\n. . . 3 4\nthe 5 6\n[UNK] 9 9\n\nnon\u00a0breaking 7 8\n", encoding="utf-8"
    )
    words, vectors = read_word_vectors(tmp_path / "v.txt")
    assert words == ["the", ". . .", "non\u00a0breaking"]
    assert vectors.tolist() == [[1, 2], [3, 4], [7, 8]]
    assert read_word_vectors(tmp_path / "v.txt", 2)[0] == words[:2]


def test_a_repeated_word_far_away_is_not_read_again(tmp_path):
    lines = [f"w{n % (BLOCK + 3)} {n} 0" for n in range(2 * BLOCK)]
    (tmp_path / "v.txt").write_text("\n".join(lines))
    words, vectors = read_word_vectors(tmp_path / "v.txt")
    assert words == [f"w{n}" for n in range(BLOCK + 3)]
    assert vectors[:, 0].tolist() == list(range(BLOCK + 3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no word vectors"),
        ("3 2\n", "holds no word vectors"),
        ('{"context": "a", "response": "b"}\n', "line 1: Expected a word and .*numbers"),
        ("the\n", "line 1: Expected a word and numbers"),
        ("the 1 2\nof 3\n", "line 2: Expected a word and 2 finite numbers"),
        ("the 1 2\nof 3 x\n", "line 2: Expected a word and 2 finite numbers"),
        ("the 1 2\nto 3 4\nof nan 4\n", "line 3: Expected a word and 2 finite numbers"),
        ("the 1 2\n\nof 1 2,5\n", "line 3: Expected a word and 2 finite numbers"),
    ],
)
def test_other_files_are_refused_with_the_line(tmp_path, text, message):
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(DataError, match=message):
        load_model(tmp_path / "v.txt", **CPU)


def test_texts_without_a_known_word_score_nothing(glove):
    model = load_model(glove, **CPU)
    nothing = ["", UNKNOWN_ALONE, "xyzzy"]
    assert not model.encode_candidates(nothing).any()
    scores = model.score(model.encode_contexts([*nothing, "disk"]), model.encode_candidates(TEXTS))
    assert torch.isfinite(scores).all()
    assert not scores[:3].any()
    assert scores[3].any()
    assert [hit.score for hit in model.rank("xyzzy", ["disk", "wifi"])] == [0.0, 0.0]


@pytest.mark.parametrize("shared", [True, False])
def test_a_saved_model_is_the_same(folder, tmp_path, shared):
    model = BiEncoder.from_pretrained(folder, shared_towers=shared, projection=5, **CPU)
    if not shared:
        with torch.no_grad():
            model.candidate_tower.encoder.embeddings.weight.mul_(2)
            model.candidate_tower.encoder.token_weights.add_(1)
    model.save_pretrained(tmp_path / "saved")
    again = load_model(tmp_path / "saved", **CPU)
    assert again.fingerprint() == model.fingerprint()
    assert torch.equal(again.encode_contexts(EVERY_TEXT), model.encode_contexts(EVERY_TEXT))
    assert torch.equal(again.encode_candidates(EVERY_TEXT), model.encode_candidates(EVERY_TEXT))
    other = BiEncoder.from_pretrained(tmp_path / "saved", **CPU)
    assert other.config == model.config


def test_two_towers_can_be_made_of_a_saved_one(folder, tmp_path):
    model = load_model(folder, **CPU)
    model.save_pretrained(tmp_path / "saved")
    two = BiEncoder.from_pretrained(tmp_path / "saved", shared_towers=False, **CPU)
    assert torch.equal(two.encode_candidates(TEXTS), model.encode_candidates(TEXTS))
    assert two.candidate_tower is not None


def test_neither_the_batches_nor_the_order_change_a_vector(folder):
    model = load_model(folder, **CPU)
    vectors = model.encode_candidates(EVERY_TEXT * 3)
    model.batch_tokens = 1
    some = model.encode_candidates(EVERY_TEXT[::-1] * 3)
    torch.testing.assert_close(vectors.flip(0), some)
    assert model.encode_candidates([]).shape == (0, WIDTH)


def test_bfloat16_is_close(folder):
    vectors = load_model(folder, **CPU).encode_candidates(TEXTS)
    half = load_model(folder, device="cpu", dtype="bfloat16")
    torch.testing.assert_close(half.encode_candidates(TEXTS), vectors, atol=0.02, rtol=0)


def test_long_dialogues_keep_their_newest_words(glove):
    model = load_model(glove, max_context_length=3, **CPU)
    newest = model.encode_contexts([["the a of to", "disk full error"]])
    torch.testing.assert_close(newest, model.encode_contexts(["disk full error"]))


@pytest.mark.parametrize("model_class", [PolyEncoder, CrossEncoder])
def test_only_a_bi_encoder_can_be_made_of_them(folder, glove, tmp_path, model_class):
    load_model(folder, **CPU).save_pretrained(tmp_path / "saved")
    for source in (folder, glove, tmp_path / "saved"):
        with pytest.raises(UsageError, match=r"static embeddings.*one vector per text.*bi"):
            model_class.from_pretrained(source, **CPU)
    with pytest.raises(UsageError, match="reduction must be mean, got first"):
        BiEncoder.from_pretrained(folder, reduction="first", **CPU)


def test_tensors_that_do_not_fit_are_refused(folder, tmp_path):
    whole = {"embeddings": draw(20, WIDTH), "mapping": torch.zeros(3, dtype=torch.int64)}
    for tensors, message in (
        (whole, r"do not fit a vocabulary of [\d,]+ tokens: embeddings \(20, 12\), mapping \(3,\)"),
        ({"other": draw(2, 2)}, r"do not fit .* other \(2, 2\)"),
    ):
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(ModelError, match=message):
            load_model(folder, **CPU)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"tokeniser in .* could not be loaded"):
        load_model(folder, **CPU)


def examples_of(count=24):
    words = WORDS[:count]
    made = [Example(context=f"what is {word}", response=f"{word} {word}") for word in words]
    return [*made, Example(context="", response="xyzzy"), Example(context="☃", response="yes")]


def test_training_learns_and_leaves_other_words_alone(tmp_path):
    words = [*WORDS, "unseen"]
    write_vectors(tmp_path / "v.txt", words)
    model = load_model(tmp_path / "v.txt", **CPU)
    before = model.context_tower.encoder.embeddings.weight.detach().clone()
    config = TrainingConfig(batch_size=13, max_steps=12, weight_decay=0.1)
    result = train(model, examples_of(), tmp_path / "out", config)
    losses = [
        entry["loss"]
        for entry in map(json.loads, (tmp_path / "out" / "log.jsonl").read_text().splitlines())
        if "loss" in entry
    ]
    assert result.steps == 12
    assert losses[-1] < losses[0]
    after = model.context_tower.encoder.embeddings.weight.detach()
    assert torch.isfinite(after).all()
    assert torch.equal(after[len(words) - 1 :], before[len(words) - 1 :])
    assert not torch.equal(after[: len(words) - 1], before[: len(words) - 1])
    again = load_model(tmp_path / "out", **CPU)
    assert torch.equal(again.encode_candidates(TEXTS), model.encode_candidates(TEXTS))


def test_vectors_and_weights_are_trained_at_their_own_rate(folder):
    model = BiEncoder.from_pretrained(folder, projection=4, **CPU)
    config = TrainingConfig(learning_rate=1.0, new_learning_rate=2.0, static_learning_rate=3.0)
    groups = parameter_groups(torch.nn.ModuleDict({"model": model}), model, config)
    encoder = model.context_tower.encoder
    rates = {id(one): group["lr"] for group in groups for one in group["params"]}
    assert rates[id(encoder.embeddings.weight)] == rates[id(encoder.token_weights)] == 3.0
    assert rates[id(model.context_projection.weight)] == 2.0
    assert not any(group["weight_decay"] for group in groups)


def test_the_gradient_cache_gives_the_gradients_of_the_plain_step(folder):
    found = []
    for cache in ("never", "always"):
        model = BiEncoder.from_pretrained(folder, **CPU).double()
        config = TrainingConfig(train_batch_tokens=1)
        objective = ObjectiveConfig(gradient_cache=cache)
        setup = build(model, examples_of(), config, objective)
        step = setup.collator([setup.dataset[place] for place in range(26)])
        loss = gradient_step(
            setup.module, step, autocast=lambda: torch.autocast("cpu", enabled=False)
        )
        found.append((loss, {n: p.grad for n, p in model.named_parameters()}))
    torch.testing.assert_close(found[0], found[1])
    assert all(gradient.any() for gradient in found[0][1].values())


def test_they_are_indexed_and_searched(folder, tmp_path):
    model = load_model(folder, **CPU)
    texts = [text for text in TEXTS if text]
    with Index.build(model, texts, tmp_path / "index") as index:
        [hits] = index.search(["sound and screen"], top_k=2)
    assert hits[0].text == "sound and screen"
    assert hits[0].score == pytest.approx(1, abs=1e-4)


def test_components_keep_distances_and_order():
    vectors = draw(40, 8)
    whole = principal_components(vectors, 8)
    distances = torch.cdist(vectors.double(), vectors.double())
    torch.testing.assert_close(
        torch.cdist(whole.double(), whole.double()), distances, atol=1e-5, rtol=0
    )
    assert whole.var(dim=0).diff().max() < 0
    torch.testing.assert_close(principal_components(vectors, 3), whole[:, :3])
    with pytest.raises(UsageError, match="dimension must be from 1 to 8"):
        principal_components(vectors, 9)


def test_frequent_words_weigh_less():
    weights = sif_weights(3, 0.1)
    expected = [0.1 / (0.1 + p) for p in (6 / 13, 4 / 13, 3 / 13)]
    torch.testing.assert_close(weights, torch.tensor(expected))
    assert sif_weights(3, None).tolist() == [1, 1, 1]


def test_static_embeddings_are_distilled_from_the_outputs_of_an_encoder(bert, tmp_path):
    model = distil_static(bert, sif=None, device="cpu", dtype="float32")
    teacher = load_variant("bi", bert, similarity="dot", shared_towers=True)
    words = ["disk", "kernel", "wifi", "the", "7"]
    vectors = model.encode_candidates(words)
    rows = model.context_tower.encoder.embeddings.weight.detach()
    ids = model.tokenizer.pretrained.convert_tokens_to_ids(words)
    distances = torch.cdist(teacher.encode_candidates(words), teacher.encode_candidates(words))
    torch.testing.assert_close(torch.cdist(rows[ids], rows[ids]), distances, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(vectors, torch.nn.functional.normalize(rows[ids], dim=-1))
    assert not rows[model.tokenizer.pretrained.all_special_ids].any()
    weighted = distil_static(bert, dimension=7, device="cpu", dtype="float32")
    assert weighted.dimension == 7
    weighted.save_pretrained(tmp_path / "static")
    with pytest.raises(UsageError, match="holds static embeddings already"):
        distil_static(tmp_path / "static")


def test_a_file_is_weighed_and_reduced(glove):
    plain, weighed = static_from_file(glove), static_from_file(glove, sif=1e-2, dimension=5, most=9)
    rows = plain.context_tower.encoder.embeddings.weight.detach()
    expected = principal_components(rows[:9], 5) * sif_weights(9, 1e-2)[:, None]
    torch.testing.assert_close(
        weighed.context_tower.encoder.embeddings.weight[:9].detach(), expected
    )
    assert len(weighed.tokenizer.pretrained) == 10

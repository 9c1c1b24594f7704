"""What else a sentence-transformers folder says: prompts by name, lengths, sides, lower case."""

import json
import warnings

import pytest
import torch

from packaged_models import (
    ALL_TEXTS,
    CPU,
    PROMPTS,
    change_json,
    package,
    require_equal_vectors,
    save_packaged,
)
from polyrank import Index, export, train
from polyrank.cli.main import commands, run
from polyrank.config import to_mapping
from polyrank.errors import ModelError, UsageError
from polyrank.interop.graphs.tracing import graph_files
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.config import ClassifierConfig
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.engines.opening import require_same
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.records import Example
from tiny_encoders import TEXTS, tokenizer_of

pytest.importorskip("sentence_transformers")
DESCRIPTION = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"


@pytest.fixture
def folder(bert, tmp_path):
    return save_packaged(bert, tmp_path / "model", length=40)


def with_prompts(folder, prompts, default=None):
    change_json(folder / DESCRIPTION, prompts=prompts, default_prompt_name=default)


@pytest.mark.parametrize(
    ("prompts", "default"),
    [
        (PROMPTS, None),
        (PROMPTS, "query"),
        ({"query": "how: "}, None),
        ({"document": "text: "}, "document"),
        ({**PROMPTS, "clustering": "sort: ", "passage": "other: "}, None),
        ({"query": "how: ", "document": None}, None),
    ],
)
def test_prompts_by_their_names(folder, prompts, default):
    with_prompts(folder, prompts, default)
    require_equal_vectors(folder)
    config = load_model(folder, **CPU).config
    given = [prompts.get("query") or "", prompts.get("document") or ""]
    assert [config.context_prompt, config.candidate_prompt] == given
    for model_class in (PolyEncoder, CrossEncoder):
        config = model_class.from_pretrained(folder, **CPU).config
        assert [config.context_prompt, config.candidate_prompt] == given


def test_a_default_prompt_alone_is_for_both_sides(folder):
    with_prompts(folder, {"all": "how do i: "}, "all")
    theirs = package()[0].SentenceTransformer(str(folder), device="cpu")
    expected = torch.from_numpy(theirs.encode(ALL_TEXTS))
    ours = load_model(folder, **CPU)
    for encode in (ours.encode_contexts, ours.encode_candidates):
        torch.testing.assert_close(encode(ALL_TEXTS), expected, atol=1e-5, rtol=0)
    plain = theirs.encode(ALL_TEXTS, prompt="")
    assert abs(plain - expected.numpy()).max() > 1e-2


@pytest.mark.parametrize(
    ("prompts", "named"),
    [
        ({"query": "how: ", "passage": "text: "}, "passage"),
        ({"sorting": "sort: ", "search": "find: "}, "sorting, search"),
    ],
)
def test_prompts_that_nobody_gets_are_said(folder, prompts, named):
    with_prompts(folder, prompts)
    with pytest.warns(UserWarning, match=f"neither contexts nor candidates get: {named}"):
        require_equal_vectors(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load_model(folder, candidate_prompt="text: ", **CPU)
    assert model.config.candidate_prompt == "text: "


@pytest.mark.parametrize(("prompts", "default"), [(PROMPTS, "absent"), (["a"], None)])
def test_prompts_that_are_not_there_are_refused(folder, prompts, default):
    with_prompts(folder, prompts, default)
    with pytest.raises(ModelError, match="which is not among them"):
        load_model(folder)


@pytest.mark.parametrize(
    ("described", "lengths"),
    [
        ({"max_seq_length": 11}, (11, 11)),
        ({"max_seq_length": None}, (40, 40)),
        ({"query_length": 9, "document_length": 30}, (9, 30)),
        ({"max_seq_length": 30, "query_length": 12}, (12, 30)),
        ({"tokenizer_args": {"model_max_length": 13}}, (13, 13)),
        ({"processing_kwargs": {"text": {"max_length": 10}}}, (10, 10)),
        ({"max_seq_length": 500}, (64, 64)),
    ],
)
def test_lengths(folder, described, lengths):
    change_json(folder / TRANSFORMER, **described)
    config = load_model(folder, **CPU).config
    assert (config.max_context_length, config.max_candidate_length) == lengths
    texts = TEXTS if 500 in described.values() else ALL_TEXTS  # theirs fails beyond 64 positions
    require_equal_vectors(folder, texts)


@pytest.mark.parametrize(("tokens", "length"), [(10**30, 64), (21, 21), (None, 64)])
def test_lengths_of_the_tokeniser(folder, tokens, length):
    change_json(folder / "tokenizer_config.json", model_max_length=tokens)
    assert load_model(folder, **CPU).config.max_candidate_length == length
    require_equal_vectors(folder)


def test_texts_that_are_cut_on_the_left(folder):
    change_json(folder / "tokenizer_config.json", truncation_side="left", model_max_length=12)
    config = load_model(folder, **CPU).config
    assert (config.context_truncation, config.candidate_truncation) == ("left", "left")
    require_equal_vectors(folder)


def test_lower_case(encoder_folder, tmp_path):
    folder = save_packaged(encoder_folder("roberta"), tmp_path / "model")
    plain = load_model(folder, **CPU).encode_candidates(TEXTS)
    change_json(folder / TRANSFORMER, do_lower_case=True)
    require_equal_vectors(folder)
    model = load_model(folder, **CPU)
    assert not torch.allclose(model.encode_candidates(TEXTS), plain)
    model.save_pretrained(tmp_path / "saved")
    again = load_model(tmp_path / "saved", **CPU)
    assert torch.equal(again.encode_candidates(TEXTS), model.encode_candidates(TEXTS))


@pytest.mark.parametrize("dimension", [5, 32])
@pytest.mark.parametrize("normalise", [True, False])
def test_cut_vectors(bert, tmp_path, dimension, normalise):
    folder = save_packaged(bert, tmp_path / "model", truncate_dim=dimension, normalise=normalise)
    require_equal_vectors(folder)
    assert load_model(folder, **CPU).dimension == dimension


def test_a_dot_product_of_what_was_cut_after_normalising_is_refused(bert, tmp_path):
    folder = save_packaged(bert, tmp_path / "model", truncate_dim=5, similarity_fn_name="dot")
    with pytest.raises(ModelError, match="cuts vectors to 5 numbers after Normalize"):
        load_model(folder)


def test_vectors_without_unit_length_are_scored_by_their_cosine(bert, tmp_path):
    folder = save_packaged(bert, tmp_path / "model", normalise=False, prompts=PROMPTS)
    theirs = package()[0].SentenceTransformer(str(folder), device="cpu")
    queries, documents = theirs.encode_query(TEXTS), theirs.encode_document(TEXTS)
    expected = theirs.similarity(queries, documents)
    model = load_model(folder, **CPU)
    vectors = model.encode_contexts(TEXTS), model.encode_candidates(TEXTS)
    assert (vectors[0].norm(dim=-1) - 1).abs().min() > 0.1
    for scores in (
        model.score(TEXTS, TEXTS),
        model.score(*vectors),
        model.score(TEXTS, vectors[1]),
    ):
        torch.testing.assert_close(scores, expected, atol=1e-5, rtol=0)
    index = Index.build(model, TEXTS, tmp_path / "index")
    hits = index.search(TEXTS[0], top_k=3)
    best = expected[0].topk(3).values
    torch.testing.assert_close(torch.tensor([hit.score for hit in hits]), best, atol=1e-5, rtol=0)
    model.save_pretrained(tmp_path / "saved")
    again = load_model(tmp_path / "saved", **CPU)
    assert torch.equal(again.encode_candidates(TEXTS), vectors[1])


def test_an_index_has_the_dimension_of_its_model(folder, tmp_path):
    load_model(folder, **CPU).save_pretrained(tmp_path / "saved")
    model = load_model(tmp_path / "saved", truncate_dim=6, **CPU)
    index = Index.build(model, TEXTS, tmp_path / "index")
    manifest = json.loads((tmp_path / "index" / "manifest.json").read_text())
    assert manifest["dimension"] == 6
    opened = Index.open(tmp_path / "index")
    assert opened.model.dimension == 6
    assert opened.search(TEXTS[0])[0].id == index.search(TEXTS[0])[0].id == "0"


def test_a_classifier_has_vectors_of_one_length(bert, tmp_path):
    model = BiEncoder.from_pretrained(bert, **CPU)
    model.take_classifier(ClassifierConfig(classes=("a", "b")))
    model.save_pretrained(tmp_path / "model")
    with pytest.raises(UsageError, match="a classifier of vectors with truncate_dim = None, not 4"):
        load_model(tmp_path / "model", truncate_dim=4)


def test_training_goes_through_layers_and_prompts(bert, tmp_path):
    layers = [(12, True, torch.nn.Tanh()), (8, False, torch.nn.Identity())]
    folder = save_packaged(bert, tmp_path / "model", layers=layers, prompts=PROMPTS, truncate_dim=6)
    examples = [
        Example(context=f"how do i read a {w}", response=f"open the {w}", negatives=())
        for w in ("file", "disk", "index", "list")
    ]
    before = load_model(folder, **CPU)
    train(
        load_model(folder, **CPU),
        examples,
        output=tmp_path / "out",
        epochs=2,
        learning_rate=1e-2,
        trainable="top",
    )
    after = load_model(tmp_path / "out", **CPU)
    assert after.config == before.config
    for name in ("context_dense", "candidate_dense"):
        pairs = zip(
            getattr(before, name).named_parameters(),
            getattr(after, name).named_parameters(),
            strict=True,
        )
        for (part, old), (_, new) in pairs:
            assert not torch.equal(old, new), f"{name}.{part} was not trained"
    assert after.encode_contexts(TEXTS).shape == (len(TEXTS), 6)


def test_the_command_line_shows_what_a_base_brings(bert, tmp_path, capsys):
    layers = [(12, True, torch.nn.Tanh())]
    folder = save_packaged(bert, tmp_path / "model", layers=layers, prompts=PROMPTS)
    data = tmp_path / "data.jsonl"
    data.write_text('{"context": "a", "response": "b"}\n')
    given = ["train", "--arch", "bi", "--base", folder, "--train", data, "--output", tmp_path / "o"]
    assert run([*map(str, given), "--show-config"], commands()) == 0
    shown = capsys.readouterr().out
    assert "# context_prompt: 'how do i search: '" in shown
    assert "dense" not in shown  # no flag changes it


def test_exporting_again_gives_the_same_vectors(bert, tmp_path):
    for number, normalise in enumerate((True, False)):
        folder = save_packaged(
            bert, tmp_path / f"theirs{number}", normalise=normalise, prompts=PROMPTS
        )
        model = load_model(folder, **CPU)
        exported = tmp_path / f"ours{number}"
        export(model, exported, "sentence-transformers")
        theirs = package()[0].SentenceTransformer(str(exported), device="cpu")
        for encode, ours in (
            (theirs.encode_query, model.encode_contexts),
            (theirs.encode_document, model.encode_candidates),
        ):
            expected = torch.from_numpy(encode(TEXTS))
            torch.testing.assert_close(ours(TEXTS), expected, atol=1e-5, rtol=1e-5)


def test_static_embeddings_have_prompts_and_are_cut(tmp_path):
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    tokenizer = tokenizer_of("bert").backend_tokenizer
    vectors = torch.randn(
        tokenizer.get_vocab_size(), 16, generator=torch.Generator().manual_seed(0)
    )
    static = StaticEmbedding(tokenizer, embedding_weights=vectors.numpy())
    made = package()[0].SentenceTransformer(
        modules=[static], device="cpu", prompts=PROMPTS, truncate_dim=7
    )
    made.save(str(tmp_path / "model"), create_model_card=False)
    require_equal_vectors(tmp_path / "model")
    with pytest.raises(UsageError, match="pool_prompt must be true"):
        load_model(tmp_path / "model", pool_prompt=False)


def test_the_graphs_of_an_export_have_what_the_calls_need(bert, tmp_path):
    folder = save_packaged(bert, tmp_path / "model", normalise=False, include_prompt=False)
    (file,) = graph_files(load_model(folder, shared_towers=True, **CPU))
    assert {"context_projected", "candidate_projected"} <= set(file.outputs)
    saved = load_model(folder, **CPU).config
    require_same(folder, {"pool_prompt": True, "context_prompt": ""}, {"context_prompt": "a"})
    with pytest.raises(UsageError, match="were made with context_prompt = , not a"):
        require_same(folder, to_mapping(saved), {"context_prompt": "a"})

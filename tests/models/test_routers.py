"""Folders of sentence-transformers with a route for queries and one for documents."""

import json
import shutil

import pytest
import torch

from packaged_models import (
    CPU,
    PROMPTS,
    change_json,
    dense_modules,
    package,
    require_equal_vectors,
)
from polyrank.errors import ModelError, UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder
from tiny_encoders import TEXTS, WIDTH, build_encoder_folder

pytest.importorskip("sentence_transformers")
TANH = torch.nn.Tanh()
KINDS = ("two encoders", "two families", "two heads", "one route each")


@pytest.fixture(scope="module")
def encoders(tmp_path_factory, encoder_folder):
    place = tmp_path_factory.mktemp("encoders")
    return {
        "bert": encoder_folder("bert"),
        "other": build_encoder_folder("bert", place / "other", seed=5),
        "roberta": encoder_folder("roberta"),
    }


def save_router(encoders, folder, kind, *, mappings=None, **settings):
    """Save a model with a router; a Normalize follows it."""
    sentence_transformers, models = package()

    def modules(name, length, mode, layers):
        transformer = models.Transformer(str(encoders[name]))
        transformer.max_seq_length = length
        return [transformer, models.Pooling(WIDTH, mode), *dense_modules(models, layers)]

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        layer = [(12, True, TANH)]
        if kind == "two heads":
            first = modules("bert", 40, "mean", layer)
            routes = first, [*first[:2], *dense_modules(models, layer)]
        else:
            layers = layer if kind == "two families" else []
            second = {"two encoders": "other", "two families": "roberta"}.get(kind, "bert")
            routes = (
                modules("bert", 17, "mean", layers),
                modules(second, 40, "cls", layers),
            )
        router = models.Router(
            {"query": routes[0], "document": routes[1]}, "document", route_mappings=mappings
        )
        made = sentence_transformers.SentenceTransformer(
            modules=[router, models.Normalize()], device="cpu", prompts=PROMPTS, **settings
        )
    made.save(str(folder), create_model_card=False)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_both_routes_give_the_vectors_of_the_package(encoders, tmp_path, kind):
    folder = save_router(encoders, tmp_path / "model", kind)
    require_equal_vectors(folder)
    model = load_model(folder, **CPU)
    assert not torch.allclose(model.encode_contexts(TEXTS), model.encode_candidates(TEXTS))
    model.save_pretrained(tmp_path / "saved")
    again = load_model(tmp_path / "saved", **CPU)
    assert torch.equal(again.score(TEXTS, TEXTS), model.score(TEXTS, TEXTS))
    with pytest.raises(UsageError, match="shared_towers cannot be true"):
        load_model(folder, shared_towers=True)


@pytest.mark.parametrize(
    "mappings",
    [
        {("query", None): "query", ("document", "text"): "document"},
        {("query", "text"): "document", (None, None): "query"},
        {(None, "text"): "document"},
    ],
)
def test_route_mappings_are_followed(encoders, tmp_path, mappings):
    folder = save_router(encoders, tmp_path / "model", "two encoders", mappings=mappings)
    require_equal_vectors(folder)


def test_the_old_form_of_a_router(encoders, tmp_path):
    folder = save_router(encoders, tmp_path / "model", "two encoders")
    expected = load_model(folder, **CPU).score(TEXTS, TEXTS)
    file = folder / "router_config.json"
    described = json.loads(file.read_text())
    described["types"] = {
        name: "sentence_transformers.models." + kind.rsplit(".", 1)[-1]
        for name, kind in described["types"].items()
    }
    del described["parameters"]["route_mappings"]
    (folder / "config.json").write_text(json.dumps(described))
    file.unlink()
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["type"] = "sentence_transformers.models.Asym"
    (folder / "modules.json").write_text(json.dumps(modules))
    assert torch.equal(load_model(folder, **CPU).score(TEXTS, TEXTS), expected)
    require_equal_vectors(folder)


def test_other_architectures_on_a_router(encoders, tmp_path):
    folder = save_router(encoders, tmp_path / "model", "two families")
    plain = load_model(folder, **CPU)
    poly = PolyEncoder.from_pretrained(folder, **CPU)
    assert torch.equal(poly.encode_candidates(TEXTS), plain.encode_candidates(TEXTS))
    assert poly.config.context_prompt == PROMPTS["query"]
    cross = CrossEncoder.from_pretrained(folder, **CPU)
    assert cross.config.candidate_prompt == PROMPTS["document"]
    assert cross.score_pairs([("a", "b")]).isfinite().all()


def test_what_routes_may_not_differ_in(encoders, tmp_path):
    folder = save_router(encoders, tmp_path / "model", "two families")
    change_json(folder / "document_1_Pooling" / "config.json", include_prompt=False)
    with pytest.raises(ModelError, match="differ in their include_prompt"):
        load_model(folder)
    change_json(folder / "document_1_Pooling" / "config.json", include_prompt=True)
    router = json.loads((folder / "router_config.json").read_text())
    for names, words in (
        (["document_0_Transformer", "document_1_Pooling"], "differ in their dense layers"),
        (["document_1_Pooling"], "has the modules Pooling, Normalize in this order"),
        (["elsewhere"], "does not describe a router: KeyError"),
    ):
        changed = {**router, "structure": {**router["structure"], "document": names}}
        (folder / "router_config.json").write_text(json.dumps(changed))
        with pytest.raises(ModelError, match=words):
            load_model(folder)


def test_a_router_without_a_route_for_documents_is_refused(encoders, tmp_path):
    folder = save_router(encoders, tmp_path / "model", "two encoders")
    router = json.loads((folder / "router_config.json").read_text())
    router["structure"] = {"query": router["structure"]["query"], "doc": []}
    (folder / "router_config.json").write_text(json.dumps(router))
    with pytest.raises(ModelError, match="no route for the task 'document', only 'query', 'doc'"):
        load_model(folder)
    shutil.rmtree(folder)


def test_a_router_with_static_embeddings_is_refused(encoders, tmp_path):
    folder = save_router(encoders, tmp_path / "model", "two encoders")
    router = json.loads((folder / "router_config.json").read_text())
    router["types"]["query_0_Transformer"] = "sentence_transformers.models.StaticEmbedding"
    (folder / "router_config.json").write_text(json.dumps(router))
    with pytest.raises(ModelError, match="has a module StaticEmbedding, which polyrank does not"):
        BiEncoder.from_pretrained(folder)

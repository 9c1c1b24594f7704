"""What is served, and under which names."""

import asyncio

import numpy as np
import pytest

from polyrank.errors import IndexFolderError, ModelError, UsageError
from polyrank.models.adapters.folders import find_bases
from polyrank.models.adapters.layers import attach
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.retrieval.index import Index
from polyrank.serving.config import PipelineConfig, ServerConfig
from polyrank.serving.pipeline import Pipeline, load_pipeline
from polyrank.serving.runtime import Runtime
from polyrank.serving.scheduling.flow import Flow

TEXTS = ["read a file", "sort"]
OPTIONS = {"device": "cpu", "dtype": "float32"}


@pytest.fixture(scope="session")
def saved(folders, poly, cross):
    """Folders of all three architectures and of an index of the poly-encoder."""
    cross.save_pretrained(folders / "cross")
    Index.build(poly, [("a", "read a file"), ("b", "sort a list")], folders / "found").close()
    return folders


def load(saved, *models, index=None, reranker=None):
    given = tuple(f"{saved}/{each}" if "=" not in each else each for each in models)
    return load_pipeline(
        PipelineConfig(
            models=given, index=None if index is None else saved / index, reranker=reranker
        ),
        **OPTIONS,
    )


def test_models_are_called_by_their_folders_or_by_the_name_given(saved):
    pipeline = load(saved, "bi", f"ranker={saved}/cross", index="found", reranker="ranker")
    assert list(pipeline.models) == ["bi", "ranker", "found"]
    assert pipeline.reranker is pipeline.models["ranker"]
    assert pipeline.index_model is pipeline.models["found"]
    assert pipeline.index_model.architecture == "poly"


def test_the_model_of_an_index_is_loaded_once_if_it_is_given_too(saved):
    pipeline = load(saved, "poly", index="found")
    assert list(pipeline.models) == ["poly"]
    assert pipeline.index.model is pipeline.models["poly"].model
    assert pipeline.index_model is pipeline.models["poly"]


def test_a_folder_that_is_given_twice_is_loaded_once(saved):
    pipeline = load(saved, f"one={saved}/bi", f"two={saved}/bi")
    assert pipeline.models["one"].model is pipeline.models["two"].model


def test_another_model_of_the_name_of_the_index_is_refused(saved):
    with pytest.raises(UsageError, match="are called 'found'"):
        load(saved, f"found={saved}/bi", index="found")


def test_a_reranker_is_a_cross_encoder_by_folder_or_by_name(saved):
    assert load(saved, index="found", reranker=f"{saved}/cross").reranker.name == "cross"
    assert load(saved, index="found", reranker=f"x={saved}/cross").reranker.name == "x"
    with pytest.raises(UsageError, match="A reranker must be a cross-encoder"):
        load(saved, "bi", reranker="bi")


def test_what_cannot_be_loaded_is_named(saved, tmp_path):
    with pytest.raises(ModelError, match="none"):
        load(saved, "none")
    with pytest.raises(IndexFolderError, match="is not an index"):
        load(saved, index="bi")
    with pytest.raises(UsageError, match="nothing to serve"):
        load(saved)


def test_a_cross_encoder_of_classes_has_no_scores_to_serve(bert):
    classes = CrossEncoder.from_pretrained(bert, task="classify", num_labels=3, device="cpu")
    with pytest.raises(UsageError, match="'c' gives classes, not scores"):
        Pipeline({"c": classes})
    Pipeline({"c": CrossEncoder.from_pretrained(bert, task="regress", device="cpu")})


def test_names_from_python_are_checked(bi, cross):
    for name in ("", "a/b", "a\nb", " a"):
        with pytest.raises(UsageError, match="cannot be the name"):
            Pipeline({name: bi})
    with pytest.raises(UsageError, match=r"'cros' is not among the models\. Did you mean 'cross'"):
        Pipeline({"bi": bi, "cross": cross}, reranker="cros")
    with pytest.raises(UsageError, match="nothing to serve"):
        Pipeline({})


async def served_embedding(pipeline, name):
    runtime = Runtime(pipeline, ServerConfig())
    try:
        await runtime.start()
        flow = Flow.lasting(60)
        return (await runtime.embed(pipeline.models[name], TEXTS, "candidate", flow)).vectors
    finally:
        runtime.close()


@pytest.mark.parametrize("kind", ["lora", "static"])
def test_adapters_and_word_vectors_are_served(saved, bert, tmp_path, kind):
    path = tmp_path / "given"
    if kind == "lora":
        model = BiEncoder.from_pretrained(bert, device="cpu", dtype="float32")
        model.bases = find_bases(model)
        attach(model, rank=2, alpha=4.0)
        model.save_pretrained(path)
    else:
        path = tmp_path / "vectors.txt"
        path.write_text("read 1.0 0.5\nfile 0.5 1.0\nsort 0.1 0.3\n", "utf-8")
    pipeline = load(saved, f"given={path}")
    expected = load_model(path, **OPTIONS).encode_candidates(TEXTS, convert_to_numpy=True)
    got = asyncio.run(served_embedding(pipeline, "given"))
    np.testing.assert_allclose(got, expected, atol=1e-5)

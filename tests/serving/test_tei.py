"""The calls of text-embeddings-inference, as its clients send them."""

import httpx2 as httpx
import numpy as np
import pytest
from running import running

from polyrank._version import __version__
from polyrank.models.bi_encoder import BiEncoder
from polyrank.serving.app import create_app
from polyrank.serving.pipeline import Pipeline

TEXTS = ["open the file and read the first line", "sound and screen", "", "yes"]
QUERY = "how do i read a file"


@pytest.fixture
def client(models):
    with httpx.Client(base_url=models.url) as opened:
        yield opened


def posted(client, path, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("path", ["/embed", "/"])
def test_embeddings_are_those_of_the_python_call(client, path, bi):
    expected = bi.encode_candidates(TEXTS, convert_to_numpy=True)
    found = posted(client, path, inputs=TEXTS, truncate=True)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(posted(client, path, inputs=TEXTS[0]), expected[:1], atol=1e-6)
    sent = {"normalize": False, "truncate": None, "truncation_direction": "Right"}
    np.testing.assert_allclose(posted(client, path, inputs=TEXTS, **sent), expected, atol=1e-6)


@pytest.mark.parametrize("path", ["/embed", "/"])
def test_the_prompt_query_means_contexts_in_the_body_and_the_address(client, path, bi):
    expected = bi.encode_contexts(TEXTS, convert_to_numpy=True)
    for found in (
        posted(client, path, inputs=TEXTS, prompt_name="query"),
        posted(client, f"{path}?prompt_name=query", inputs=TEXTS),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_fewer_dimensions(client):
    found = np.array(posted(client, "/embed", inputs=TEXTS, dimensions=7))
    assert found.shape == (len(TEXTS), 7)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("path", ["/rerank", "/"])
@pytest.mark.parametrize("name", ["bi", "poly", "cross"])
def test_every_architecture_ranks_as_in_python(client, path, name, bi, poly, cross):
    model = {"bi": bi, "poly": poly, "cross": cross}[name]
    ranked = model.rank(QUERY, TEXTS)
    found = posted(client, path, query=QUERY, texts=TEXTS, model=name, raw_scores=True)
    assert [each["index"] for each in found] == [int(hit.id) for hit in ranked]
    scores = [each["score"] for each in found]
    np.testing.assert_allclose(scores, [hit.score for hit in ranked], atol=1e-5)
    found = posted(client, path, query=QUERY, texts=TEXTS, model=name, return_text=True)
    assert [each["text"] for each in found] == [hit.text for hit in ranked]
    assert all(0 <= each["score"] <= 1 for each in found)


def test_rerank_takes_what_clients_add(client):
    plain = posted(client, "/rerank", query=QUERY, texts=TEXTS)
    assert [set(each) for each in plain] == [{"index", "score"}] * len(TEXTS)
    added = {"raw_scores": False, "truncate": False, "truncation_direction": "Right"}
    assert posted(client, "/rerank", query=QUERY, texts=TEXTS, **added) == plain
    assert posted(client, "/rerank", query=QUERY, texts=TEXTS, top_n=2) == plain[:2]


def test_similarity_is_the_cosine(client, bi, poly):
    sent = {"source_sentence": QUERY, "sentences": TEXTS}
    found = posted(client, "/similarity", inputs=sent, parameters={})
    np.testing.assert_allclose(found, bi.score(QUERY, TEXTS), atol=1e-6)
    found = posted(client, "/similarity", inputs=sent, model="poly")
    expected = poly.score(QUERY, TEXTS) * poly.config.temperature
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_model_of_inner_products_keeps_its_lengths_where_that_is_asked_for(bert):
    model = BiEncoder.from_pretrained(bert, similarity="dot", device="cpu", dtype="float32")
    own = model.encode_candidates(TEXTS, convert_to_numpy=True)
    assert (np.abs(np.linalg.norm(own, axis=1) - 1) > 0.1).all()
    app = create_app(Pipeline({"dot": model}))
    with running(app) as server, httpx.Client(base_url=server.url) as client:
        plain = posted(client, "/embed", inputs=TEXTS)
        kept = posted(client, "/embed", inputs=TEXTS, normalize=False)
        cut = posted(client, "/v1/embeddings", model="dot", input=TEXTS[:2], dimensions=5)
        ranked = posted(client, "/rerank", query=QUERY, texts=TEXTS)
    np.testing.assert_allclose(plain, own / np.linalg.norm(own, axis=1, keepdims=True), atol=1e-5)
    np.testing.assert_allclose(kept, own, atol=1e-5)
    vectors = [each["embedding"] for each in cut["data"]]
    np.testing.assert_allclose(vectors, own[:2, :5], atol=1e-5)
    scores = model.score(QUERY, TEXTS).sigmoid()
    for each in ranked:
        assert each["score"] == pytest.approx(float(scores[each["index"]]), abs=1e-5)


def test_info_says_what_is_served(client, bi):
    info = client.get("/info").json()
    assert (info["model_id"], info["model_sha"]) == ("bi", bi.fingerprint())
    assert info["model_type"] == {"embedding": {"pooling": "mean"}}
    assert info["max_input_length"] == bi.config.max_candidate_length
    assert (info["auto_truncate"], info["version"]) == (True, __version__)


@pytest.mark.parametrize(
    ("path", "sent", "status", "kind", "said"),
    [
        ("/embed", {"inputs": []}, 400, "Empty", "inputs is empty"),
        ("/embed", {"inputs": 5}, 422, "Validation", "inputs must be a text or a list, got"),
        ("/embed", {"inputs": ["a", 5]}, 422, "Validation", "inputs[1] must be a text, got"),
        ("/embed", {}, 422, "Validation", "inputs is missing"),
        ("/embed", {"inputs": "a", "prompt_name": "sts"}, 422, "Validation", "prompt_name must be"),
        ("/embed?prompt_name=sts", {"inputs": "a"}, 422, "Validation", "prompt_name must be"),
        ("/embed", {"inputs": "a", "model": "nix"}, 404, "NotFound", "'nix' is not served"),
        ("/embed", {"inputs": ["a"] * 2001}, 413, "Validation", "2001 items"),
        ("/", {"inputs": None}, 422, "Validation", "inputs must be a text or a list, got null"),
        ("/rerank", {"query": QUERY, "texts": []}, 400, "Empty", "texts is empty"),
        ("/rerank", {"query": "", "texts": TEXTS}, 400, "Empty", "query is empty"),
        ("/rerank", {"texts": TEXTS}, 422, "Validation", "query is missing"),
        ("/rerank", {"query": QUERY, "texts": "a"}, 422, "Validation", "texts must be a list"),
        ("/similarity", {"inputs": {"sentences": []}}, 422, "Validation", "inputs.source_sentence"),
        (
            "/similarity",
            {"inputs": {"source_sentence": "a", "sentences": []}},
            400,
            "Empty",
            "inputs.sentences is empty",
        ),
    ],
)
def test_errors_have_the_shape_that_these_clients_read(client, path, sent, status, kind, said):
    answer = client.post(path, json=sent)
    assert answer.status_code == status, answer.text
    assert set(answer.json()) == {"error", "error_type"}
    assert answer.json()["error_type"] == kind
    assert said in answer.json()["error"]

"""OpenAI's own client against a running server."""

import base64
import threading

import httpx2 as httpx
import numpy as np
import openai
import pytest

from polyrank.serving.bodies import number_rows

TEXTS = ["how do i read a file", "print the last line", "sound and screen", "yes", "print"]


@pytest.fixture
def client(models):
    with openai.OpenAI(base_url=f"{models.url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


def embedded(client, texts, **options):
    answer = client.embeddings.create(model="bi", input=texts, **options)
    assert [item.index for item in answer.data] == list(range(len(answer.data)))
    return np.array([item.embedding for item in answer.data], dtype=np.float32)


def test_embeddings_are_those_of_the_python_call(client, bi):
    expected = bi.encode_candidates(TEXTS, convert_to_numpy=True)
    np.testing.assert_allclose(embedded(client, TEXTS), expected, atol=1e-6)
    np.testing.assert_allclose(embedded(client, TEXTS[0]), expected[:1], atol=1e-6)
    floats = embedded(client, TEXTS, encoding_format="float")
    np.testing.assert_allclose(floats, expected, atol=1e-6)


def test_queries_are_encoded_as_contexts(client, bi):
    expected = bi.encode_contexts(TEXTS, convert_to_numpy=True)
    for field in (
        {"input_type": "query"},
        {"input_type": "search_query"},
        {"task": "retrieval.query"},  # Jina's
    ):
        found = embedded(client, TEXTS, extra_body=field)
        np.testing.assert_allclose(found, expected, atol=1e-6)
    documents = embedded(client, TEXTS, extra_body={"task": "retrieval.passage"})
    np.testing.assert_allclose(documents, embedded(client, TEXTS), atol=1e-6)


def test_a_poly_encoder_embeds_documents_alone(client, poly):
    answer = client.embeddings.create(model="poly", input=TEXTS)
    expected = poly.encode_candidates(TEXTS, convert_to_numpy=True)
    np.testing.assert_allclose([each.embedding for each in answer.data], expected, atol=1e-6)
    with pytest.raises(openai.BadRequestError, match=r"4 vectors for a query.*/search"):
        client.embeddings.create(model="poly", input="yes", extra_body={"input_type": "query"})


def test_base64_is_little_endian_float32(models, bi):
    body = {"model": "bi", "input": TEXTS, "encoding_format": "base64"}
    answer = httpx.post(f"{models.url}/v1/embeddings", json=body)
    assert answer.headers["content-type"] == "application/json"
    data = answer.json()["data"]
    found = [np.frombuffer(base64.b64decode(each["embedding"]), "<f4") for each in data]
    np.testing.assert_allclose(found, bi.encode_candidates(TEXTS, convert_to_numpy=True), atol=1e-6)


def test_fewer_dimensions_have_unit_length_again(client, bi):
    whole = bi.encode_candidates(TEXTS, convert_to_numpy=True)
    found = embedded(client, TEXTS, dimensions=8)
    assert found.shape == (len(TEXTS), 8)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    cut = whole[:, :8] / np.linalg.norm(whole[:, :8], axis=1, keepdims=True)
    np.testing.assert_allclose(found, cut, atol=1e-5)
    assert embedded(client, TEXTS, extra_body={"output_dimension": 8}).tolist() == found.tolist()
    width = whole.shape[1]
    np.testing.assert_allclose(embedded(client, TEXTS, dimensions=width), whole, atol=1e-6)
    with pytest.raises(openai.BadRequestError, match=f"{width + 1}.* have {width} numbers") as got:
        embedded(client, TEXTS, dimensions=width + 1)
    assert got.value.param == "dimensions"


def test_usage_counts_tokens(client, bi):
    answer = client.embeddings.create(model="bi", input=TEXTS)
    count = sum(map(len, bi.candidate_ids(TEXTS)))
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (count, count)
    assert answer.model == "bi"


def test_a_large_answer_is_written_outside_of_the_loop(client, bi, monkeypatch):
    threads = []

    def recorded(vectors):
        threads.append(threading.current_thread())
        return number_rows(vectors)

    monkeypatch.setattr("polyrank.serving.routes.openai.number_rows", recorded)
    for count in (1, 1200):
        embedded(client, ["print"] * count, encoding_format="float")
    small, large = threads
    assert small is not large


def test_a_large_answer_is_whole(client, bi):
    texts = [f"print line {number}" for number in range(1200)]  # more than MANY_NUMBERS
    for options in ({}, {"encoding_format": "float"}):
        found = embedded(client, texts, **options)
        np.testing.assert_allclose(
            found, bi.encode_candidates(texts, convert_to_numpy=True), atol=1e-5
        )


def test_models_are_listed_and_described(client):
    listed = client.models.list().data
    assert [model.id for model in listed] == ["bi", "poly", "cross"]
    assert [model.architecture for model in listed] == ["bi", "poly", "cross"]
    assert client.models.retrieve("cross") == listed[2]
    with pytest.raises(openai.NotFoundError, match="Did you mean 'cross'"):
        client.models.retrieve("crosss")


def test_a_model_that_is_not_served_is_not_found(client):
    with pytest.raises(
        openai.NotFoundError, match=r"'poli' is not served.*Did you mean 'poly'"
    ) as e:
        client.embeddings.create(model="poli", input="yes")
    assert (e.value.code, e.value.param) == ("model_not_found", "model")
    assert e.value.type == "not_found_error"


@pytest.mark.parametrize(
    ("sent", "said", "param"),
    [
        ({"input": [1, 2, 3]}, "check_embedding_ctx_length=False", "input"),
        ({"input": [[1, 2, 3]]}, "check_embedding_ctx_length=False", "input"),
        ({"input": []}, "input is empty", "input"),
        ({"input": ""}, "input is empty", "input"),
        ({"input": ["a", ""]}, r"input\[1\] is empty", "input[1]"),
        ({"input": ["a", 3.5]}, r"input\[1\] must be a text, got the number 3.5", "input[1]"),
        ({"input": 3.5}, "input must be a text or a list, got the number 3.5", "input"),
        ({"input": {"text": "a"}}, "input must be a text or a list, got an object", "input"),
        ({"dimensions": "3"}, "dimensions must be a whole number, got the text '3'", "dimensions"),
        ({"dimensions": 0}, "dimensions must be at least 1, got the number 0", "dimensions"),
        ({"dimensions": True}, "dimensions must be a whole number, got true", "dimensions"),
        ({"encoding_format": "hex"}, "must be 'float' or 'base64', got the text 'hex'", None),
        ({"late_chunking": True}, "late_chunking is not served", "late_chunking"),
        ({"model": None}, "model must be a text, got null", "model"),
        ({"model": "cross"}, "has no embeddings.*/v1/rerank.*use 'bi'", "model"),
    ],
)
def test_bad_input_says_which_field(client, sent, said, param):
    body = {"input": "yes", "model": "bi", **sent}
    with pytest.raises(openai.BadRequestError, match=said) as caught:
        client.post("/embeddings", body=body, cast_to=object)
    assert caught.value.type == "invalid_request_error"
    assert param is None or caught.value.param == param


def test_unknown_fields_and_nulls_are_ignored(client):
    fields = {"priority": 3, "truncate": None, "dimensions": None, "user": "somebody"}
    assert len(embedded(client, "yes", extra_body=fields)) == 1

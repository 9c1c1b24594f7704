"""Cohere's and Jina's calls, as their clients send them."""

import base64

import httpx2 as httpx
import numpy as np
import pytest

QUERY = "how do i read a file"
DOCUMENTS = [
    "the wifi driver is not in the kernel",
    "open the file and read the first line",
    "sound and screen",
    "print the last line",
    "yes",
]
RERANK = ("/rerank", "/v1/rerank", "/v2/rerank", "/v1/v2/rerank", "/v1/v1/rerank")
EMBED = ("/v1/embed", "/v2/embed", "/v1/v2/embed", "/v1/v1/embed")


@pytest.fixture
def client(models):
    with httpx.Client(base_url=models.url) as opened:
        yield opened


def rerank(client, path="/v1/rerank", **fields):
    body = {"model": "cross", "query": QUERY, "documents": DOCUMENTS, **fields}
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def embed(client, path="/v2/embed", **fields):
    body = {"model": "bi", "texts": DOCUMENTS, "input_type": "search_document", **fields}
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("name", ["bi", "poly", "cross"])
def test_every_architecture_ranks_as_in_python(client, name, bi, poly, cross):
    model = {"bi": bi, "poly": poly, "cross": cross}[name]
    ranked = model.rank(QUERY, DOCUMENTS)
    answer = rerank(client, model=name, raw_scores=True)
    assert [each["index"] for each in answer["results"]] == [int(hit.id) for hit in ranked]
    found = [each["relevance_score"] for each in answer["results"]]
    np.testing.assert_allclose(found, [hit.score for hit in ranked], atol=1e-5)
    relevant = rerank(client, model=name)["results"]
    assert [each["index"] for each in relevant] == [int(hit.id) for hit in ranked]
    values = [each["relevance_score"] for each in relevant]
    assert values == sorted(values, reverse=True)
    assert all(0 <= value <= 1 for value in values)


@pytest.mark.parametrize("path", RERANK)
def test_each_path_gives_one_answer_that_all_clients_read(client, path, cross):
    answer = rerank(client, path, top_n=2)
    assert [set(each) for each in answer["results"]] == [{"index", "relevance_score"}] * 2
    read = [*cross.context_ids([QUERY]), *cross.candidate_ids(DOCUMENTS)]  # the query is read once
    tokens = sum(map(len, read))
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert answer["meta"]["billed_units"] == {"input_tokens": tokens, "search_units": 1}
    assert answer["model"] == "cross"
    assert answer["object"] == "rerank"
    assert answer["id"]


def test_a_dialogue_is_a_query(client, poly):
    turns = ["hello", "the disk is full", "which file"]
    answer = rerank(client, model="poly", query=turns, raw_scores=True)
    expected = poly.score([turns], DOCUMENTS)[0]
    for each in answer["results"]:
        assert each["relevance_score"] == pytest.approx(float(expected[each["index"]]), abs=1e-5)


def test_documents_are_returned_as_they_were_sent(client):
    objects = [{"title": text[:3], "text": text, "year": 2020} for text in DOCUMENTS]
    for sent, returned in ((DOCUMENTS, [{"text": text} for text in DOCUMENTS]), (objects, objects)):
        answer = rerank(client, documents=sent, return_documents=True)
        assert len(answer["results"]) == len(DOCUMENTS)
        for each in answer["results"]:
            assert each["document"] == returned[each["index"]]


def test_rank_fields_are_joined_in_their_order(client):
    objects = [{"title": text.split()[0], "body": text} for text in DOCUMENTS]
    joined = [f"{each['body']} {each['title']}" for each in objects]
    found = rerank(client, documents=objects, rank_fields=["body", "title"])
    assert found["results"] == rerank(client, documents=joined)["results"]


def test_what_clients_send_as_null_or_for_other_services_is_ignored(client):
    extra = {"top_n": None, "max_tokens_per_doc": None, "rank_fields": None, "priority": 0}
    extra |= {"return_documents": None, "max_chunks_per_doc": 10, "relevant_spans": True}
    assert rerank(client, **extra)["results"] == rerank(client)["results"]
    assert len(rerank(client, top_n=100)["results"]) == len(DOCUMENTS)
    assert rerank(client, max_tokens_per_doc=4096)["results"] == rerank(client)["results"]


def test_the_first_able_model_answers_where_none_is_named(client):
    body = {"query": QUERY, "documents": DOCUMENTS}
    for path in ("/rerank", "/v1/rerank"):
        assert client.post(path, json=body).json()["model"] == "cross"  # the reranker
    assert client.post("/v1/embed", json={"texts": ["yes"]}).status_code == 200
    answer = client.post("/v2/rerank", json=body)
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        "model is missing. Send it; /docs describes the fields.",
    )


def test_documents_are_cut_after_some_tokens(client):
    short = [" ".join(text.split()[:2]) for text in DOCUMENTS]  # each word is a token
    cut = rerank(client, max_tokens_per_doc=2, return_documents=True)
    assert [(e["index"], e["relevance_score"]) for e in cut["results"]] == [
        (e["index"], e["relevance_score"]) for e in rerank(client, documents=short)["results"]
    ]
    assert {each["document"]["text"] for each in cut["results"]} == set(DOCUMENTS)


@pytest.mark.parametrize("path", EMBED)
def test_embeddings_are_those_of_the_python_call(client, path, bi):
    expected = bi.encode_candidates(DOCUMENTS, convert_to_numpy=True)
    answer = embed(client, path, embedding_types=["float"])
    np.testing.assert_allclose(answer["embeddings"]["float"], expected, atol=1e-6)
    assert answer["response_type"] == "embeddings_by_type"
    assert answer["texts"] == DOCUMENTS
    assert answer["id"]
    tokens = sum(map(len, bi.candidate_ids(DOCUMENTS)))
    assert answer["meta"]["billed_units"] == {"input_tokens": tokens}


def test_without_types_version_1_gives_lists_and_version_2_floats(client):
    first, second = embed(client, "/v1/embed"), embed(client, "/v2/embed")
    assert first["response_type"] == "embeddings_floats"
    assert second["response_type"] == "embeddings_by_type"
    assert first["embeddings"] == second["embeddings"]["float"]


def test_search_queries_are_contexts(client, bi):
    answer = embed(client, input_type="search_query")
    expected = bi.encode_contexts(DOCUMENTS, convert_to_numpy=True)
    np.testing.assert_allclose(answer["embeddings"]["float"], expected, atol=1e-6)


def test_every_form_of_embeddings(client):
    kinds = ["float", "base64", "ubinary", "binary"]
    found = embed(client, embedding_types=kinds)["embeddings"]
    assert list(found) == kinds
    floats = np.array(found["float"], dtype=np.float32)
    decoded = [np.frombuffer(base64.b64decode(each), "<f4") for each in found["base64"]]
    np.testing.assert_array_equal(decoded, floats)
    bits = np.unpackbits(np.array(found["ubinary"], dtype=np.uint8), axis=1)
    np.testing.assert_array_equal(bits, floats > 0)
    np.testing.assert_array_equal(np.array(found["binary"]) + 128, found["ubinary"])


def test_inputs_of_texts_and_fewer_dimensions(client):
    inputs = [{"content": [{"type": "text", "text": text}]} for text in DOCUMENTS]
    assert embed(client, texts=None, inputs=inputs)["embeddings"] == embed(client)["embeddings"]
    assert len(embed(client, output_dimension=5)["embeddings"]["float"][0]) == 5


BAD = [
    ("/v1/rerank", {"query": ""}, "query is empty"),
    ("/v1/rerank", {"query": []}, "query is empty"),
    ("/v1/rerank", {"query": 5}, "query must be a text or a list, got the number 5"),
    ("/v1/rerank", {"documents": []}, "documents is empty"),
    ("/v1/rerank", {"documents": "yes"}, "documents must be a list, got the text 'yes'"),
    ("/v1/rerank", {"documents": ["a", 5]}, "documents[1] must be a text or an object, got"),
    ("/v1/rerank", {"documents": [{"title": "a"}]}, "documents[0] has no text in the field 'text'"),
    ("/v1/rerank", {"documents": [{"text": 5}]}, "documents[0] has no text in the field 'text'"),
    ("/v1/rerank", {"top_n": 0}, "top_n must be at least 1, got the number 0"),
    ("/v1/rerank", {"top_n": "3"}, "top_n must be a whole number, got the text '3'"),
    ("/v1/rerank", {"return_documents": "yes"}, "return_documents must be true or false"),
    ("/v2/embed", {"embedding_types": ["int8"]}, "embedding_types[0] must be 'float',"),
    ("/v2/embed", {"images": ["data:"]}, "The models read texts only, got images"),
    ("/v2/embed", {"texts": None}, "texts is missing"),
    ("/v2/embed", {"texts": ["a", None]}, "texts[1] must be a text, got null"),
    (
        "/v2/embed",
        {"inputs": [{"content": [{"type": "image_url", "image_url": {}}]}]},
        "got an input of the type 'image_url'",
    ),
    ("/v2/embed", {"output_dimension": 4000}, "output_dimension is 4000, but the vectors of 'bi'"),
    ("/v2/embed", {"model": "poly", "input_type": "search_query"}, "4 vectors for a query"),
    ("/v2/embed", {"model": "cross"}, "has no embeddings"),
    ("/v2/embed", {"truncate": "MIDDLE"}, "got the text 'MIDDLE'"),
]


@pytest.mark.parametrize(("path", "sent", "said"), BAD)
def test_bad_input_says_which_field(client, path, sent, said):
    known = {
        "/v1/rerank": {"model": "cross", "query": QUERY, "documents": DOCUMENTS},
        "/v2/embed": {"model": "bi", "texts": DOCUMENTS},
    }
    answer = client.post(path, json=known[path] | sent)
    assert answer.status_code == 400, answer.text
    body = answer.json()
    assert said in body["message"]
    assert body["detail"] == body["message"] == body["error"]["message"]


def test_a_model_that_is_not_served_is_not_found(client):
    body = {"model": "rerank-v3.5", "query": QUERY, "documents": DOCUMENTS}
    answer = client.post("/v2/rerank", json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")

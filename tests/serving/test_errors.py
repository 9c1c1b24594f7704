"""Every source of errors: its status, its shape, and that the server answers the next request."""

import json
import time

import httpx2 as httpx
import openai
import pytest
from running import running

from polyrank.errors import (
    DataError,
    IndexFolderError,
    MissingExtraError,
    ModelError,
    PolyrankError,
    StorageError,
    UsageError,
)
from polyrank.serving.app import create_app
from polyrank.serving.config import ServerConfig
from polyrank.serving.failures import TYPES, RequestError
from polyrank.serving.pipeline import Pipeline

OWN = {
    "/v1/embeddings": {"model": "bi", "input": "yes"},
    "/v2/rerank": {"model": "cross", "query": "yes", "documents": ["no"]},
    "/rerank": {"query": "yes", "documents": ["no"]},
    "/v1/score": {"text_1": "yes", "text_2": "no"},
}
TEI = {
    "/embed": {"inputs": "yes"},
    "/similarity": {"inputs": {"source_sentence": "yes", "sentences": ["no"]}},
    "/": {"inputs": "yes"},
}
PATHS = {**OWN, **TEI}
JSON = {"content-type": "application/json"}


@pytest.fixture
def client(models):
    with httpx.Client(base_url=models.url) as opened:
        yield opened
        assert opened.post("/v1/embeddings", json=OWN["/v1/embeddings"]).status_code == 200


def error_of(answer, path):
    """The message of an error, whose shape must be the one that the clients of the path read."""
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-request-id"]
    body = answer.json()
    if path in TEI:
        assert set(body) == {"error", "error_type"}
        message = body["error"]
    else:
        assert set(body) == {"error", "message", "detail"}
        assert set(body["error"]) == {"message", "type", "param", "code"}
        assert body["error"]["type"] == TYPES[answer.status_code]
        message = body["error"]["message"]
        assert body["message"] == body["detail"] == message
    assert "Traceback" not in message
    assert "polyrank/" not in message
    assert message.endswith((".", "?"))
    return message


NOT_JSON = {
    "cut short": (b'{"model": "bi",\n "input": "ye', "line 2, column"),
    "trailing comma": (b'{"model": "bi",}', "line 1, column"),
    "nothing": (b"", "The body is empty"),
    "blanks": (b" \n ", "The body is empty"),
    "NaN": (b'{"model": "bi", "input": "yes", "dimensions": NaN}', "line 1, column 47"),
    "infinity": (b'{"dimensions": -Infinity}', "line 1, column"),
    "a huge number": (b'{"dimensions": ' + b"9" * 10_000 + b"}", "line 1, column"),
    "deep": (b"[" * 100_000 + b"]" * 100_000, "line 1, column"),
    "deep objects": (b'{"input":' * 100_000, "line 1, column"),
    "half a surrogate": (b'{"model": "bi", "input": "\\ud83d"}', "line 1, column"),
    "latin-1": ('{"model": "bi",\n "input": "é"}'.encode("latin-1"), "not UTF-8: byte 28 (line 2)"),
    "utf-16": ('{"input": "yes"}'.encode("utf-16"), "not UTF-8: byte 1"),
    "a byte order mark": (b'\xef\xbb\xbf{"input": "yes"}', "byte order mark"),
    "two values": (b'{"input": "yes"} {"input": "no"}', "line 1, column"),
    "a form": (b"input=yes&model=bi", "line 1, column 1"),
}


@pytest.mark.parametrize("path", ["/v1/embeddings", "/rerank", "/embed"])
@pytest.mark.parametrize("kind", NOT_JSON)
def test_what_is_not_json_is_refused_with_its_place(client, path, kind):
    body, said = NOT_JSON[kind]
    answer = client.post(path, content=body, headers=JSON)
    assert answer.status_code == (422 if path in TEI else 400), answer.text
    assert said in error_of(answer, path)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("value", [[], "yes", 3, None, True, [[]], [{"input": "yes"}]])
def test_what_is_not_an_object_is_refused(client, path, value):
    answer = client.post(path, content=json.dumps(value).encode(), headers=JSON)
    assert answer.status_code == (422 if path in TEI else 400), answer.text
    assert "The body must be an object, got " in error_of(answer, path)


def test_a_request_without_a_body_is_told_so(client):
    for path in PATHS:
        answer = client.post(path)
        assert answer.status_code == (422 if path in TEI else 400)
        assert error_of(answer, path) == "The body is empty. Send a JSON object."


@pytest.mark.parametrize("depth", [500, 1000])
def test_deep_values_that_are_json_are_wrong_types(client, depth):
    nested = b"[" * depth + b"]" * depth
    for path, field in (("/v1/embeddings", b"input"), ("/rerank", b"documents")):
        content = b'{"model": "bi", "query": "yes", "%b": %b}' % (field, nested)
        answer = client.post(path, content=content, headers=JSON)
        assert answer.status_code == 400
        error_of(answer, path)
    sent = b'{"query": "yes", "documents": [{"text": "a", "more": %b}]}' % nested
    assert client.post("/rerank", content=sent, headers=JSON).status_code in (200, 400)


def test_of_equal_keys_the_last_counts(client):
    body = b'{"model": "poly", "input": "yes", "model": "bi"}'
    answer = client.post("/v1/embeddings", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["model"]) == (200, "bi")


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonl",
        "json",
        "a/b;" * 999,
    ],
)
def test_other_types_of_content_are_refused(client, kind):
    for path, body in PATHS.items():
        headers = {"content-type": kind} if kind else {}
        answer = client.post(path, content=json.dumps(body).encode(), headers=headers)
        assert answer.status_code == 415
        assert "Send the header Content-Type: application/json." in error_of(answer, path)


@pytest.mark.parametrize(
    "kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"]
)
def test_types_that_are_json_are_read(client, kind):
    body = json.dumps(OWN["/v1/embeddings"]).encode()
    answer = client.post("/v1/embeddings", content=body, headers={"content-type": kind})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "text",
    [
        "\x00",
        "a\x00b",
        "\u202e right to left",
        "\U0001f600" * 40,
        "\ufeff",
        "<script>alert(1)</script>",
        "'; DROP TABLE candidates; --",
        "{{7*7}}",
        "a" * 100_000,
        "z\u0351\u036b" * 300,
        " ",
    ],
)
def test_texts_of_any_kind_are_texts(client, text):
    for path, body in PATHS.items():
        sent = json.loads(json.dumps(body).replace('"yes"', json.dumps(text)))
        assert client.post(path, json=sent).status_code == 200, path
    answer = client.post(
        "/rerank", json={"query": "a", "documents": [text], "return_documents": True}
    )
    assert answer.json()["results"][0]["document"]["text"] == text
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/embedings", "Did you mean '/v1/embeddings'?"),
        ("/v1/chat/completions", "There is no path /v1/chat/completions."),
        ("/v2/rerank/x", "Did you mean '/v2/rerank'?"),
        ("/" + "x" * 5000, "…"),
        ("/%ff%fe", "There is no path"),
        ("/..%2f..%2fetc%2fpasswd", "There is no path"),
    ],
)
def test_a_path_that_is_not_there_names_the_nearest(client, path, said):
    answer = client.post(path, json={})
    assert answer.status_code == 404
    message = error_of(answer, path)
    assert said in message
    assert len(message) < 2000


@pytest.mark.parametrize("path", PATHS)
def test_another_method_names_those_that_are_allowed(client, path):
    answer = client.request("DELETE", path)
    assert answer.status_code == 405
    assert answer.headers["allow"] == ("GET, HEAD, POST" if path == "/" else "POST")
    assert "does not take DELETE" in error_of(answer, path)


def test_static_files_are_only_read(client):
    answer = client.post("/docs/static/swagger-ui.css", json={})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert "Use GET or HEAD." in error_of(answer, "/docs")


def test_the_name_of_a_model_may_be_anything(client):
    for name in ("%ff", "a/b", "bi%00", "x" * 3000):
        answer = client.get(f"/v1/models/{name}")
        assert answer.status_code == 404
        assert len(error_of(answer, "/v1/models")) < 500
    answer = client.post("/v1/embeddings", json={"model": "b" * 1_000_000, "input": "yes"})
    assert answer.status_code == 404
    assert len(error_of(answer, "/v1/embeddings")) < 500


MANY = ["yes"] * 2001


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/v1/embeddings", {"input": MANY}),
        ("/v2/rerank", {"documents": MANY}),
        ("/rerank", {"documents": MANY}),
        ("/v1/score", {"text_2": MANY}),
        ("/embed", {"inputs": MANY}),
        ("/similarity", {"inputs": {"source_sentence": "yes", "sentences": MANY}}),
    ],
)
def test_too_many_items_are_413(client, path, sent):
    answer = client.post(path, json=PATHS[path] | sent)
    assert answer.status_code == 413
    message = error_of(answer, path)
    assert "has 2001 items; one request may have 2000" in message
    assert "--max-items" in message


def test_a_million_wrong_items_end_at_the_first(client):
    body = b'{"model": "bi", "input": ["yes", ' + b"null, " * 1_000_000 + b'"no"]}'
    answer = client.post("/v1/embeddings", content=body, headers=JSON)
    assert answer.status_code == 400
    assert "input[1] must be a text, got null" in error_of(answer, "/v1/embeddings")


RAISED = {
    "bad usage": (UsageError("top_k must be 1.", "Change it."), 400, "top_k must be 1. Change it."),
    "bad data": (DataError("The id is known.", "Change it."), 400, "The id is known. Change it."),
    "data of a file": (DataError("Bad.", "Mend.", path="/srv/secret", line=3), 500, None),
    "a damaged model": (ModelError("/srv/secret is damaged.", "Copy it."), 500, None),
    "a damaged index": (IndexFolderError("/srv/secret is damaged.", "Copy it."), 500, None),
    "a full disk": (StorageError("/srv/secret is full.", "Make room."), 503, None),
    "no package": (MissingExtraError("faiss", "faiss", "Searching /srv/secret"), 501, None),
    "a full queue": (RequestError(429, "Full.", "Wait.", retry_after=7), 429, "Full. Wait."),
    "a late answer": (RequestError(504, "Late.", "Hurry."), 504, "Late. Hurry."),
    "a bug": (ValueError("secret"), 500, None),
    "another bug": (RecursionError("secret"), 500, None),
    "no memory": (MemoryError("secret"), 500, None),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", RAISED)
def test_what_the_runtime_raises(client, models, monkeypatch, path, kind, caplog):
    error, status, said = RAISED[kind]

    async def fail(*_, **__):
        raise error

    runtime = models.app.state.runtime
    with monkeypatch.context() as patched:
        for name in ("embed", "score", "score_pairs"):
            patched.setattr(runtime, name, fail)
        answer = client.post(path, json=PATHS[path])
    expected = 422 if status == 400 and path in TEI else status
    assert answer.status_code == expected
    message = error_of(answer, path)
    assert said is None or message == said
    assert "secret" not in message
    assert (status in (429, 503)) == ("retry-after" in answer.headers)
    if status in (500, 501, 503):  # the log says what failed, perhaps after the answer
        is_ours = isinstance(error, PolyrankError)
        logged = str(error) if is_ours else type(error).__name__
        until = time.monotonic() + 10
        while logged not in caplog.text:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert is_ours or "secret" not in caplog.text


@pytest.fixture(scope="module")
def guarded(bi, poly):
    """A server with a key, and a queue for very few tokens."""
    config = ServerConfig(api_key=("right-key",), max_body_mb=0.01)
    with running(create_app(Pipeline({"bi": bi, "poly": poly}), config)) as server:
        yield server


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("given", [None, "Bearer wrong", "Basic right-key", "Bearer"])
def test_no_or_a_wrong_key_is_401(guarded, path, given):
    headers = {} if given is None else {"authorization": given}
    answer = httpx.post(guarded.url + path, json=PATHS[path], headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    error_of(answer, path)


@pytest.mark.parametrize("path", PATHS)
def test_a_body_over_the_limit_is_413(guarded, path):
    headers = {"authorization": "Bearer right-key"}
    sent = {**PATHS[path], "padding": "x" * 20_000}
    answer = httpx.post(guarded.url + path, json=sent, headers=headers)
    assert answer.status_code == 413
    assert "0.01 MB" in error_of(answer, path)


def test_openais_client_raises_its_own_errors(guarded, models, monkeypatch):
    def failing(url, key, **options):
        with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
            client.embeddings.create(**({"model": "bi", "input": "yes"} | options))

    with pytest.raises(openai.AuthenticationError) as caught:
        failing(guarded.url, "wrong")
    assert caught.value.type == "authentication_error"
    failing(guarded.url, "right-key")
    with pytest.raises(openai.NotFoundError, match="Did you mean 'poly'"):
        failing(guarded.url, "right-key", model="polly")
    with pytest.raises(openai.BadRequestError, match="input is empty"):
        failing(guarded.url, "right-key", input=[])

    async def fail(*_, **__):
        raise RequestError(429, "Full.", "Wait.", retry_after=7)

    monkeypatch.setattr(models.app.state.runtime, "embed", fail)
    with pytest.raises(openai.RateLimitError, match="Full") as caught:
        failing(models.url, "any")
    assert caught.value.response.headers["retry-after"] == "7"

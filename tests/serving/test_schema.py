"""Requests made from the OpenAPI schema: no crash, no status or body that it does not name.

Valid ones, ones that the schema forbids, and the bytes of its examples, damaged.

POLYRANK_API_EXAMPLES sets how many random requests each call gets, valid ones and bad ones alike,
and POLYRANK_HOSTILE_SEED draws them.
"""

import json
import os

import httpx2 as httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from running import running
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from damage import damaged
from polyrank.retrieval.index import Index
from polyrank.serving.app import create_app
from polyrank.serving.config import ServerConfig
from polyrank.serving.pipeline import Pipeline

EXAMPLES = int(os.environ.get("POLYRANK_API_EXAMPLES", "6"))
SEED = int(os.environ.get("POLYRANK_HOSTILE_SEED", "16"))
CANDIDATES = [("a", "how do i read a file", {"year": 2020}), ("b", "yes", {"year": 2021})]
NAMES = ["bi", "poly", "cross", "unknown"]
FIELDS = "/docs describes the fields"
"""What every error says of a body that does not fit the schema."""


def schema_of_served_models():
    """The schema, in which the names of models are those that are served."""
    schema = create_app(None).openapi()
    for component in schema["components"]["schemas"].values():
        named = component.get("properties", {}).get("model")
        if named is not None and component["title"].endswith("Request"):
            is_optional = "anyOf" in named
            named.clear()
            named["enum"] = [*NAMES, None] if is_optional else NAMES
    return schema


OPERATIONS = {
    f"{operation.method.upper()} {operation.path}": operation
    for found in schemathesis.openapi.from_dict(schema_of_served_models()).get_all_operations()
    for operation in [found.ok()]
}


CASES = [
    pytest.param(name, mode, id=f"{name} {mode.value}")
    for name, operation in OPERATIONS.items()
    for mode in GenerationMode
    if mode is GenerationMode.POSITIVE or operation.body or operation.query  # paths take any text
]


@pytest.fixture(scope="module")
def url(bi, poly, cross, tmp_path_factory):
    """All three architectures and an index that the requests may change."""
    folder = tmp_path_factory.mktemp("served") / "index"
    with Index.build(poly, CANDIDATES, folder) as index:
        served = Pipeline({"bi": bi, "poly": poly, "cross": cross}, index=index, reranker="cross")
        with running(create_app(served)) as server:
            yield server.url


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_answers_are_as_the_schema_says(url, name, mode, record_property):
    operation = OPERATIONS[name]

    @seed(SEED)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def answers(case):
        answer = case.call(base_url=url)
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])
        if mode is GenerationMode.POSITIVE:  # it may ask for what no model does, but it is read
            assert FIELDS not in answer.text

    answers()
    record_property("cases", EXAMPLES)


SCHEMA = create_app(None).openapi()
EXAMPLE_MODELS = {"EmbeddingsRequest": "bi", "EmbedRequest": "bi", "NamedEmbedRequest": "bi"}


WITH_BODY = [name for name, each in OPERATIONS.items() if each.body]


def example_bodies(name):
    """The bodies that the schema gives as examples of a call, with a model that is served."""
    method, path = name.split()
    body = SCHEMA["paths"][path][method.lower()]["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    for reference in schema.get("oneOf", [schema]):
        title = reference["$ref"].rpartition("/")[2]
        (sent,) = SCHEMA["components"]["schemas"][title]["examples"]
        yield {**sent, "model": EXAMPLE_MODELS.get(title, "cross")} if "model" in sent else sent


@pytest.mark.parametrize("name", WITH_BODY)
def test_the_examples_of_the_schema_are_answered(url, name):
    method, path = name.split()
    for sent in example_bodies(name):
        answer = httpx.request(method, url + path, json=sent)
        assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("name", WITH_BODY)
def test_damaged_bodies_are_answered_or_refused(url, name, record_property):
    method, path = name.split()
    valid = [json.dumps(sent).encode() for sent in example_bodies(name)]

    with httpx.Client(headers={"content-type": "application/json"}) as client:

        @seed(SEED)
        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.sampled_from(valid).flatmap(damaged))
        def each(body):
            answer = client.request(method, url + path, content=body)
            assert answer.status_code < 500, answer.text
            assert answer.status_code == 200 or answer.json(), answer.text

        each()
    record_property("cases", EXAMPLES)


@pytest.mark.parametrize("keys", [(), ("a-key",)])
def test_the_schema_says_what_every_call_answers_and_whether_it_needs_a_key(keys):
    schema = create_app(None, ServerConfig(api_key=keys)).openapi()
    assert schema["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert schema["security"] == ([{"bearer": []}] if keys else [{}, {"bearer": []}])
    for name, operation in OPERATIONS.items():
        method, path = name.split()
        written = schema["paths"][path][method.lower()]
        assert written["summary"]
        assert written["description"], name
        assert "HTTPValidationError" not in str(written)
        assert {"200", "400", "500"} <= set(written["responses"]), name
        if path in ("/health", "/ready"):
            assert written["security"] == []
        else:
            assert "401" in written["responses"], name
        assert set(written["tags"]) <= {each["name"] for each in schema["tags"]}
        if operation.body:
            assert {"404", "413", "415", "429", "503", "504"} <= set(written["responses"]), name
    for component in schema["components"]["schemas"].values():
        if component["title"].endswith("Request"):
            assert component["description"]

"""OpenAI's own client against a running server."""

import openai


def test_models_are_listed(server):
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    assert [model.id for model in client.models.list()] == ["bi", "poly", "cross"]

"""vLLM's call for the scores of pairs."""

import httpx2 as httpx
import numpy as np
import pytest

FIRST = ["how do i read a file", "the wifi driver", "yes"]
SECOND = ["open the file and read it", "install the kernel", "no thanks"]


@pytest.fixture
def client(models):
    with httpx.Client(base_url=models.url) as opened:
        yield opened


def scores(client, path="/v1/score", **body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    data = answer.json()["data"]
    assert [each["index"] for each in data] == list(range(len(data)))
    assert all(each["object"] == "score" for each in data)
    return [each["score"] for each in data]


@pytest.mark.parametrize("name", ["bi", "poly", "cross"])
def test_every_architecture_scores_as_in_python(client, name, bi, poly, cross):
    model = {"bi": bi, "poly": poly, "cross": cross}[name]
    raw = {"model": name, "use_activation": False}
    one_to_many = scores(client, text_1=FIRST[0], text_2=SECOND, **raw)
    np.testing.assert_allclose(one_to_many, model.score(FIRST[0], SECOND), atol=1e-5)
    expected = model.score_pairs(list(zip(FIRST, SECOND, strict=True)))
    np.testing.assert_allclose(
        scores(client, text_1=FIRST, text_2=SECOND, **raw), expected, atol=1e-5
    )
    relevant = scores(client, text_1=FIRST, text_2=SECOND, model=name)
    assert all(0 <= value <= 1 for value in relevant)
    assert np.argsort(relevant).tolist() == expected.argsort().tolist()


def test_one_to_one_and_all_names_and_paths(client):
    expected = scores(client, text_1=FIRST[0], text_2=SECOND)
    assert scores(client, "/score", queries=FIRST[0], documents=SECOND) == expected
    assert scores(client, data_1=[FIRST[0]], data_2=SECOND) == expected
    assert scores(client, queries=FIRST[0], items=SECOND) == expected
    assert scores(client, text_1=FIRST[0], text_2=SECOND[0]) == pytest.approx(expected[:1])


def test_the_answer_has_what_clients_read(client, cross):
    answer = client.post("/score", json={"text_1": FIRST[0], "text_2": SECOND}).json()
    read = [*cross.context_ids(FIRST[:1]), *cross.candidate_ids(SECOND)]  # the first is read once
    tokens = sum(map(len, read))
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    assert (answer["object"], answer["model"]) == ("list", "cross")
    assert answer["id"].startswith("score-")
    assert answer["created"] > 0


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"text_1": FIRST, "text_2": SECOND[:2]}, "text_1 has 3 texts and text_2 has 2"),
        ({"text_1": [], "text_2": SECOND}, "text_1 is empty"),
        ({"text_1": FIRST, "text_2": []}, "text_2 is empty"),
        ({"text_1": FIRST}, "text_2 is missing"),
        ({"text_2": SECOND}, "text_1 is missing"),
        ({"text_1": "a", "queries": "a", "text_2": "b"}, "text_1 and queries are the same"),
        ({"text_1": 5, "text_2": "b"}, "text_1 must be a text or a list, got the number 5"),
    ],
)
def test_bad_input_says_which_field(client, sent, said):
    answer = client.post("/v1/score", json=sent)
    assert answer.status_code == 400, answer.text
    assert said in answer.json()["message"]

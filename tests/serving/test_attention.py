"""POST /attention: the weights of the model, and the tokens as people read them."""

import httpx2
import pytest
import torch

from polyrank.models.attention import attention_map
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.serving.attention import tokens_of

DIALOGUE = ["how do i open a file", "in python or shell", "python [SEP] xyzzy"]
TEXTS = ["read the file", "no"]


def asked(server, **body):
    return httpx2.post(f"{server.url}/attention", json=body)


@pytest.mark.parametrize("context", ["read a file", DIALOGUE], ids=["question", "dialogue"])
def test_the_answer_is_the_models_attention(context, models, poly):
    answer = asked(models, model="poly", context=context, candidates=TEXTS).json()
    found = attention_map(poly, context, poly.encode_candidates_for_scoring(TEXTS))
    close = {"atol": 1e-6, "rtol": 0}
    torch.testing.assert_close(torch.tensor(answer["codes"]), found.tokens, **close)
    weights = torch.tensor([each["weights"] for each in answer["candidates"]])
    torch.testing.assert_close(weights, found.weights, **close)
    scores = torch.tensor([each["score"] for each in answer["candidates"]])
    torch.testing.assert_close(scores, poly.score([context], TEXTS)[0])
    assert [each["text"] for each in answer["candidates"]] == TEXTS
    assert len(answer["tokens"]) == len(found.ids)
    assert answer["even_share"] == poly.config.code_mean
    assert answer["note"] is None


def test_tokens_have_their_turns(models):
    tokens = asked(models, context=DIALOGUE, candidates=TEXTS).json()["tokens"]
    words = [(each["text"], each["kind"], each["turn"]) for each in tokens]
    assert words[:4] == [
        ("[CLS]", "special", None),
        ("how", "text", 0),
        ("do", "text", 0),
        ("i", "text", 0),
    ]
    assert [each for each in words if each[1] == "separator"] == [("[SEP]", "separator", None)] * 2
    assert ("[SEP]", "special", 2) in words  # the user's own is not a boundary
    assert words[-1] == ("[SEP]", "special", None)
    pieces = [each for each in tokens if each["turn"] == 2 and each["kind"] == "text"]
    assert "".join(each["text"] for each in pieces) == "pythonxyzzy"
    assert [each["joined"] for each in pieces] == [False, False, True, True, True, True]


@pytest.mark.parametrize("context", [["", ""], ["", "print"], ["print", "", "yes"], [" "]])
def test_turns_without_tokens_have_their_separators(context, models, poly):
    answer = asked(models, context=context, candidates=TEXTS)
    assert answer.status_code == 200
    tokens = answer.json()["tokens"]
    assert len(tokens) == len(poly.context_ids([context])[0])
    assert sum(each["kind"] == "separator" for each in tokens) == len(context) - 1


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "qwen3"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_context_length": 12},
        {"max_context_length": 12, "context_truncation": "right"},
        {"max_turns": 2, "turn_separator": " / "},
        {"max_context_length": 14, "context_prompt": "search: "},
    ],
    ids=["whole", "left", "right", "turns", "prompt"],
)
def test_the_turns_of_a_cut_dialogue(family, settings, encoder_folder):
    model = PolyEncoder.from_pretrained(
        encoder_folder(family), num_codes=2, device="cpu", dtype="float32", **settings
    )
    ids = model.context_ids([DIALOGUE])[0]
    tokens = tokens_of(model, DIALOGUE, ids)
    assert len(tokens) == len(ids)
    turns = [each.turn for each in tokens if each.kind == "text"]
    assert turns == sorted(turns)
    whole = model.tokenizer.encode(DIALOGUE)
    for turn in set(turns):  # each turn's tokens are a run of that turn's own
        own = [number for number, each in zip(ids, tokens, strict=True) if each.turn == turn]
        if turn or "context_prompt" not in settings:
            assert str(own)[1:-1] in str(whole[turn])
    if settings.get("context_truncation") == "right":
        assert min(turns) == 0
    elif "max_context_length" in settings or "max_turns" in settings:
        assert max(turns) == 2
    if "context_prompt" in settings:
        assert "prompt" in {each.kind for each in tokens}


def test_texts_of_bytes_that_are_no_text_are_the_vocabularys(encoder_folder):
    model = PolyEncoder.from_pretrained(
        encoder_folder("roberta"), num_codes=2, device="cpu", dtype="float32"
    )
    tokens = tokens_of(model, "안녕", model.context_ids(["안녕"])[0])
    assert all(each.text and "\ufffd" not in each.text for each in tokens)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"model": "bi", "context": "a", "candidates": ["b"]}, 400, "not a poly-encoder"),
        ({"model": "polly", "context": "a", "candidates": ["b"]}, 404, "'poly'"),
        ({"context": "a", "candidates": []}, 400, "candidates is empty"),
        ({"context": [], "candidates": ["b"]}, 400, "context is empty"),
        ({"context": 7, "candidates": ["b"]}, 400, "context"),
        ({"context": "a", "candidates": ["b"] * 2001}, 413, "2001"),
    ],
)
def test_bad_requests(body, status, said, models):
    answer = asked(models, **body)
    assert answer.status_code == status
    assert said in answer.json()["error"]["message"]

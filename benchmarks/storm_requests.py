"""The requests of the storm, and what each must be answered with.

Right requests bring texts that no other has, and know the answer that the models give in Python, so
an answer that belongs to another request cannot pass. Malformed ones know the status and the body
that docs/serving.md names.
"""

from __future__ import annotations

import base64
import itertools
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.load import Answer, message, post
from benchmarks.texts import TextsOfLengths
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.retrieval.index import Index

KEY = "key-of-the-storm"
LENGTHS = 3, 30
"""How many tokens a text has."""
MAX_ITEMS = 64
MAX_BODY_MB = 1.0
CLOSE = 1e-3
"""How far a number may be from ours; numbers of different texts are much further apart."""
PATIENCE = 0.2
"""Seconds that a client which gives up waits, on average."""
Check = Callable[[Answer], "str | None"]
"""What is wrong with an answer; None for a right one."""


@dataclass(frozen=True)
class Shot:
    """A request, and how its answer is checked."""

    kind: str
    raw: bytes
    check: Check
    cancelled_after: float | None = None
    """Seconds after which the client goes away."""


@dataclass(frozen=True)
class Models:
    """What is served, as it is in Python: in float32, on the same weights."""

    bi: BiEncoder
    poly: PolyEncoder
    cross: CrossEncoder
    index: Index

    def relevance(self, name: str, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scores as numbers from 0 to 1."""
        if name == "cross":
            return 1 / (1 + np.exp(-scores))
        cosines = scores * self.poly.config.temperature if name == "poly" else scores
        return (1 + cosines) / 2


class RightRequests:
    """Right requests of every kind: drawn first, then answered in Python all at once."""

    def __init__(self, models: Models, data: Path | None, seed: int) -> None:
        self.models = models
        self.draw = random.Random(seed)
        self.texts = unique(TextsOfLengths(data, *LENGTHS, seed))

    def take(self, count: int) -> list[Shot]:
        """`count` shots in a random order."""
        makers = [self.embeddings, self.tei_embeddings, self.rerank, self.tei_rerank]
        makers += [self.scores, self.search]
        share = -(-count // len(makers))
        shots = [shot for maker in makers for shot in maker(share)]
        self.draw.shuffle(shots)
        return shots[:count]

    def lists(self, count: int, most: int) -> list[list[str]]:
        """Lists of one to `most` texts; some are much longer."""
        sizes = [self.draw.randint(1, most) for _ in range(count)]
        sizes = [size * 4 if self.draw.random() < 0.05 else size for size in sizes]
        return [list(itertools.islice(self.texts, size)) for size in sizes]

    def vectors(self, lists: Sequence[list[str]]) -> list[NDArray[Any]]:
        """The vectors of every list of texts."""
        flat = self.models.bi.encode_candidates([text for texts in lists for text in texts])
        ends = np.cumsum([len(texts) for texts in lists])[:-1]
        return np.split(np.asarray(flat), ends)

    def embeddings(self, count: int) -> Iterator[Shot]:
        """OpenAI's embeddings, as numbers and as base64."""
        lists = self.lists(count, 6)
        for texts, vectors in zip(lists, self.vectors(lists), strict=True):
            encoding = self.draw.choice(["float", "base64"])
            body = {"model": "bi", "input": texts, "encoding_format": encoding}
            yield right("embeddings", "/v1/embeddings", body, openai_check(vectors, encoding))

    def tei_embeddings(self, count: int) -> Iterator[Shot]:
        """The embeddings of text-embeddings-inference."""
        lists = self.lists(count, 6)
        for texts, vectors in zip(lists, self.vectors(lists), strict=True):
            body = {"model": "bi", "inputs": texts}
            yield right("embed", "/embed", body, lambda got, own=vectors: differs(own, got.json()))

    def scored(self, count: int, most: int) -> Iterator[tuple[str, str, list[str], NDArray[Any]]]:
        """Models with a query, documents and their scores."""
        for name in ("bi", "poly", "cross"):
            share = -(-count // 3)
            queries, lists = list(itertools.islice(self.texts, share)), self.lists(share, most)
            pairs = [(q, text) for q, texts in zip(queries, lists, strict=True) for text in texts]
            scores = getattr(self.models, name).score_pairs(pairs).double().numpy()
            ends = np.cumsum([len(texts) for texts in lists])[:-1]
            for query, texts, own in zip(queries, lists, np.split(scores, ends), strict=True):
                yield name, query, texts, own

    def rerank(self, count: int) -> Iterator[Shot]:
        """Cohere's and Jina's rerank by all three architectures."""
        for name, query, texts, scores in self.scored(count, 5):
            path = self.draw.choice(["/v1/rerank", "/v2/rerank", "/rerank"])
            is_raw = self.draw.random() < 0.5
            values = scores if is_raw else self.models.relevance(name, scores)
            body = {"model": name, "query": query, "documents": texts, "raw_scores": is_raw}

            def check(answer: Answer, values: NDArray[Any] = values) -> str | None:
                found = answer.json()["results"]
                return ranked(values, [(each["index"], each["relevance_score"]) for each in found])

            yield right(f"rerank by {name}", path, body, check)

    def tei_rerank(self, count: int) -> Iterator[Shot]:
        """The rerank of text-embeddings-inference."""
        for name, query, texts, scores in self.scored(count, 5):
            values = self.models.relevance(name, scores)
            body = {"model": name, "query": query, "texts": texts}

            def check(answer: Answer, values: NDArray[Any] = values) -> str | None:
                return ranked(values, [(each["index"], each["score"]) for each in answer.json()])

            yield right(f"rerank by {name}", "/rerank", body, check)

    def scores(self, count: int) -> Iterator[Shot]:
        """VLLM's scores of one text with several."""
        for name, query, texts, scores in self.scored(count, 5):
            values = self.models.relevance(name, scores)
            body = {"model": name, "text_1": query, "text_2": texts}

            def check(answer: Answer, values: NDArray[Any] = values) -> str | None:
                return differs(values, [each["score"] for each in answer.json()["data"]])

            yield right(f"score by {name}", "/v1/score", body, check)

    def search(self, count: int) -> Iterator[Shot]:
        """Searches of the index for texts and dialogues."""
        turns = [self.draw.randint(1, 4) for _ in range(count)]
        contexts = [list(itertools.islice(self.texts, number)) for number in turns]
        found = self.models.index.search(contexts, 20)
        for context, hits in zip(contexts, found, strict=True):
            body = {"context": context, "top_k": 5, "rerank": False}
            own = {hit.id: hit.score for hit in hits}
            worst = hits[4].score

            def check(
                answer: Answer, own: dict[str, float] = own, worst: float = worst
            ) -> str | None:
                [result] = answer.json()["results"]
                scores = [hit["score"] for hit in result["hits"]]
                if len(scores) != 5 or scores != sorted(scores, reverse=True):
                    return f"scores {scores}"
                if min(scores) < worst - CLOSE:
                    return f"the worst of {scores} is below {worst}"
                return differs([own.get(hit["id"], np.inf) for hit in result["hits"]], scores)

            yield right("search", "/search", body, check)


def unique(texts: TextsOfLengths) -> Iterator[str]:
    """Texts that did not come before."""
    seen: set[str] = set()
    while True:
        for text in texts.take(1000):
            if text.lower() not in seen:
                seen.add(text.lower())
                yield text


def right(kind: str, path: str, body: Any, check: Check) -> Shot:
    """A request that must be answered with 200 and what `check` accepts."""

    def whole(answer: Answer) -> str | None:
        if answer.status != 200:
            return f"{answer.status}: {answer.body[:300]!r}"
        return check(answer)

    return Shot(kind, post(path, body, KEY), whole)


def openai_check(vectors: NDArray[Any], encoding: str) -> Check:
    """What is wrong with the embeddings of an answer."""

    def check(answer: Answer) -> str | None:
        rows = [each["embedding"] for each in answer.json()["data"]]
        if encoding == "base64":
            rows = [np.frombuffer(base64.b64decode(row), "<f4") for row in rows]
        return differs(vectors, rows)

    return check


def differs(own: Any, got: Any) -> str | None:
    """How far numbers are from ours, if they are too far."""
    expected, found = np.asarray(own, np.float64), np.asarray(got, np.float64)
    if expected.shape != found.shape:
        return f"shape {found.shape}, expected {expected.shape}"
    furthest = float(np.abs(expected - found).max())
    return None if furthest < CLOSE else f"a number is {furthest:.4f} away from ours"


def ranked(own: NDArray[Any], results: Sequence[tuple[int, float]]) -> str | None:
    """What is wrong with a ranking of all documents: their scores, or their order."""
    if sorted(place for place, _ in results) != list(range(len(own))):
        return f"places {[place for place, _ in results]} of {len(own)}"
    scores = [score for _, score in results]
    if scores != sorted(scores, reverse=True):
        return f"scores {scores} do not fall"
    return differs([own[place] for place, _ in results], scores)


def given_up(draw: random.Random, shot: Shot) -> Shot:
    """A right request whose client goes away at a random moment."""
    return replace(shot, kind="given up", cancelled_after=draw.expovariate(1 / PATIENCE))


def malformed(draw: random.Random, texts: Iterator[str]) -> Shot:
    """A request that is wrong in one way."""
    kind, raw, statuses, code = draw.choice(list(wrong_requests(next(texts))))

    def check(answer: Answer) -> str | None:
        if answer.status not in statuses:
            return f"{answer.status}, expected {statuses}: {answer.body[:300]!r}"
        return None if code is None else wrong_shape(answer, code)

    return Shot(f"malformed: {kind}", raw, check)


OPENAI = "openai"
TEI = "tei"
Wrong = tuple[str, bytes, tuple[int, ...], "str | None"]


def wrong_requests(text: str) -> Iterator[Wrong]:
    """Every way to be wrong: its name, its bytes, the statuses allowed, whose error it is.

    What is not HTTP is answered before there is a body to speak of.
    """
    path, body = "/v1/embeddings", {"model": "bi", "input": text}

    def sent(raw: bytes, **changes: Any) -> bytes:
        return message("POST", path, raw, **{"key": KEY, **changes})

    good = json.dumps(body).encode()
    yield "not JSON", sent(good[:-1]), (400,), OPENAI
    yield "not UTF-8", sent(good.replace(b'"bi"', b'"b\xff"')), (400,), OPENAI
    yield "no body", sent(b"", headers=[("content-type", "application/json")]), (400,), OPENAI
    yield "a list as body", sent(json.dumps([body]).encode()), (400,), OPENAI
    for name, value in (
        ("a number", 5),
        ("an object", {"text": text}),
        ("null in the list", [text, None]),
        ("token ids", [[1, 2, 3]]),
        ("an empty list", []),
        ("too many", [text] * (MAX_ITEMS + 1)),
    ):
        status = 413 if name == "too many" else 400
        yield f"input: {name}", post(path, {**body, "input": value}, KEY), (status,), OPENAI
    yield "unknown model", post(path, {**body, "model": "bj"}, KEY), (404,), OPENAI
    yield "no model", post(path, {"input": text}, KEY), (400,), OPENAI
    yield "a model that cannot", post(path, {**body, "model": "cross"}, KEY), (400,), OPENAI
    yield "too large", sent(b" " * int(1.2e6 * MAX_BODY_MB) + good), (413,), OPENAI
    yield "no key", sent(good, key=None), (401,), OPENAI
    yield "a wrong key", sent(good, key="key-of-another"), (401,), OPENAI
    yield "not called JSON", sent(good, headers=[("content-type", "text/plain")]), (415,), OPENAI
    yield "unknown path", message("POST", "/v1/embedding", good, key=KEY), (404,), OPENAI
    yield "wrong method", message("GET", path, key=KEY), (405,), OPENAI
    rerank = {"query": text, "documents": [text]}
    yield "rerank: no documents", post("/v1/rerank", {"query": text}, KEY), (400,), OPENAI
    yield "rerank: top_n 0", post("/v1/rerank", {**rerank, "top_n": 0}, KEY), (400,), OPENAI
    yield "embed: a number", post("/embed", {"inputs": 5}, KEY), (422,), TEI
    yield "embed: not JSON", message("POST", "/embed", b"{", key=KEY), (422,), TEI
    uneven = {"text_1": [text, text], "text_2": [text, text, text]}
    yield "score: uneven lists", post("/v1/score", uneven, KEY), (400,), OPENAI
    yield "search: top_k 0", post("/search", {"context": text, "top_k": 0}, KEY), (400,), OPENAI
    yield "search: no context", post("/search", {"top_k": 5}, KEY), (400,), OPENAI
    bad_filter = {"context": text, "filter": "year >"}
    yield "search: a bad filter", post("/search", bad_filter, KEY), (400,), OPENAI
    yield "not HTTP", b"\x00\x01 hello\r\n\r\n", (400,), None
    bomb = [(f"x-{number}", "y" * 100) for number in range(2000)]
    yield "a header bomb", sent(good, headers=bomb), (400, 431), None


def wrong_shape(answer: Answer, whose: str) -> str | None:
    """What is wrong with the body of an error."""
    try:
        body = answer.json()
    except ValueError:
        return f"the error is not JSON: {answer.body[:300]!r}"
    if "x-request-id" not in answer.headers:
        return "the error has no x-request-id"
    if whose == TEI:
        is_right = set(body) == {"error", "error_type"} and isinstance(body["error"], str)
        return None if is_right else f"not an error of text-embeddings-inference: {body}"
    error = body.get("error")
    if not isinstance(error, dict) or set(error) != {"message", "type", "param", "code"}:
        return f"not an error: {body}"
    same = error["message"] == body.get("message") == body.get("detail")
    if not same or not error["message"] or "Traceback" in error["message"]:
        return f"its texts differ or say nothing: {body}"
    return None

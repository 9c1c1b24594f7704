"""What the scripts beside this one share: calls of a client, and their answers as plain JSON.

Each script runs in the environment of its client, which has no polyrank: it reads the server's
address and the texts from standard input, makes its calls, and prints one JSON line. What the
answers should be, `scripts/check_clients.py` asks the models themselves.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Server:
    """Where the server is, the key it wants, another server without keys, and what to ask."""

    url: str
    open_url: str
    key: str
    query: str
    texts: list[str]


Call = Callable[[Server], dict[str, Any]]


def vectors(found: Iterable[Iterable[float]], side: str, **expected: Any) -> dict[str, Any]:
    """One vector for the query, or one for each text: `side` is context or candidate."""
    plain = [[float(number) for number in vector] for vector in found]
    return {"kind": "vectors", "side": side, "got": plain, **expected}


def ranking(found: Iterable[tuple[int, float]], model: str, **expected: Any) -> dict[str, Any]:
    """Places of the texts with their scores, best first, as `model` ranks them."""
    plain = [(int(place), float(score)) for place, score in found]
    return {"kind": "ranking", "model": model, "got": plain, **expected}


def refusal(call: Callable[[], object], *words: str) -> dict[str, Any]:
    """The error that a call ends with; each of `words` must be in what the client shows."""
    try:
        answer = call()
    except Exception as error:  # whatever class this client has for it
        return {"kind": "refusal", "words": words, "got": f"{type(error).__name__}: {error}"}
    return {"kind": "refusal", "words": words, "got": None, "answer": str(answer)}


def run(versions: dict[str, str], calls: dict[str, Call]) -> None:
    """Make each call and print what it gave: `{"versions": …, "calls": {name: answer}}`."""
    server = Server(**json.load(sys.stdin))
    answers: dict[str, Any] = {}
    for name, call in calls.items():
        try:
            answers[name] = call(server)
        except Exception as error:  # the client could not read what the server sent
            answers[name] = {"kind": "failure", "got": f"{type(error).__name__}: {error}"}
    print(json.dumps({"versions": versions, "calls": answers}))

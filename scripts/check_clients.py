"""Call the server with the clients that teams already have: `make client-check`.

For each script of `scripts/clients` this makes an environment with the client in it, starts
`polyrank serve` with a bi-, a poly- and a cross-encoder, lets the script make its calls, and
compares every answer with what the models say in Python. It also runs what `docs/serving.md` shows
for the client. It prints each client with its versions and calls, and ends with exit code 1 if one
fails. It needs an index of packages; the environments stay in the work folder for the next time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from polyrank import BiEncoder, CrossEncoder, PolyEncoder, load_model
from polyrank.models.source import default_base

CLIENTS = Path(__file__).resolve().parent / "clients"
PAGE = CLIENTS.parents[1] / "docs" / "serving.md"
TITLES = {
    "openai": "OpenAI",
    "cohere": "Cohere",
    "llamaindex": "LlamaIndex",
    "haystack": "Haystack",
    "langchain": "LangChain",
    "litellm": "LiteLLM",
}
"""The section of the page that shows how to use a client."""
PACKAGES = {
    "openai": ["openai>=2"],
    "cohere": ["cohere>=7"],
    "llamaindex": [
        "llama-index-embeddings-openai-like",
        "llama-index-embeddings-text-embeddings-inference",
        "llama-index-postprocessor-cohere-rerank",
        "llama-index-postprocessor-jinaai-rerank",
        "llama-index-postprocessor-tei-rerank",
    ],
    "haystack": ["haystack-ai", "cohere-haystack", "huggingface-api-haystack", "jina-haystack"],
    "langchain": ["infinity_client", "langchain-cohere", "langchain-community", "langchain-openai"],
    "litellm": ["litellm"],
    "hub": ["huggingface_hub>=1", "numpy"],
}
"""What each script of `scripts/clients` needs, which is named after its key."""

KEY = "a-key-for-the-check"
QUERY = "How do I put a list in order?"
TEXTS = [
    "Call sorted() on it, or its method sort().",
    "Open it and call read().",
    "Run pip install with its name.",
    "A dictionary keeps the order in which its keys were added.",
    "정렬하려면 sorted()를 부르세요.",
]
CLOSE = 2e-5
"""How far a served number may be from Python's: texts share a batch there with others."""


def make_models(folder: Path) -> dict[str, Path]:
    """Save one model of each architecture, whose two sides encode a text differently."""
    base = default_base()
    made = {
        "bi": BiEncoder.from_pretrained(base, context_prompt="question: "),
        "poly": PolyEncoder.from_pretrained(base, num_codes=16),
        "cross": CrossEncoder.from_pretrained(base),
    }
    paths = {name: folder / name for name in made}
    for name, model in made.items():
        model.save_pretrained(paths[name])
    return paths


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def is_ready(url: str) -> bool:
    """Whether the server answers that it is ready."""
    try:
        with urllib.request.urlopen(f"{url}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


@contextlib.contextmanager
def serving(models: dict[str, Path], log: Path, *extra: str) -> Iterator[str]:
    """Run `polyrank serve` for as long as the block lasts."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "polyrank", "serve", "--port", str(port), "--device", "cpu"]
    command += ["--dtype", "float32", *extra]
    for name, path in models.items():
        command += ["--model", f"{name}={path}"]
    with log.open("w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            while not is_ready(url):
                if server.poll() is not None:
                    sys.exit(f"polyrank serve ended:\n{log.read_text()}")
                time.sleep(0.2)
            yield url
        finally:
            server.terminate()
            server.wait(timeout=60)


def environment(client: str, work: Path, constraints: list[str]) -> Path:
    """The Python of a client's environment, made unless it is there."""
    folder = work / client
    python = folder / "bin" / "python"
    made = folder / "made.json"
    if made.is_file() and json.loads(made.read_text()) == PACKAGES[client]:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    print(f"{client}: installing {', '.join(PACKAGES[client])}", flush=True)
    venv.create(folder, with_pip=True)
    command = [python, "-m", "pip", "install", "--quiet", *constraints, *PACKAGES[client]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{client}: pip ended with {done.returncode}:\n{done.stderr}")
    made.write_text(json.dumps(PACKAGES[client]))
    return python


def variables(python: Path) -> dict[str, str]:
    """The environment variables of a client: nothing is reported or fetched, and no warnings."""
    return {
        "PATH": os.defpath,
        "HOME": str(python.parent.parent),
        "PYTHONWARNINGS": "ignore",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }


def fault_of_snippet(client: str, python: Path, url: str) -> str | None:
    """What goes wrong with the code that the page shows for a client, or None."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n### {TITLES[client]}\n")[1]
    code = re.search(r"```python\n(.*?)```", section, flags=re.DOTALL)
    assert code, f"{PAGE.name} shows no code for {TITLES[client]}"
    shown = code[1].replace("http://127.0.0.1:8000", url).replace('"unused"', f'"{KEY}"')
    done = subprocess.run(
        [python, "-c", shown],
        capture_output=True, text=True, check=False, env=variables(python),
    )  # fmt: skip
    return done.stderr.strip().splitlines()[-1] if done.returncode else None


def call(client: str, python: Path, server: dict[str, Any]) -> dict[str, Any]:
    """What the script of a client prints: the versions, and the answer of each call."""
    done = subprocess.run(
        [python, CLIENTS / f"with_{client}.py"],
        input=json.dumps(server), capture_output=True, text=True, check=False,
        env=variables(python),
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"with_{client}.py ended with {done.returncode}:\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


class Judge:
    """What the answers should be, from the models in Python."""

    def __init__(self, models: dict[str, Path]) -> None:
        loaded: dict[str, Any] = {
            name: load_model(path, device="cpu", dtype="float32") for name, path in models.items()
        }
        bi = loaded["bi"]
        self.names = {*models, "my-model", "my-cross"}
        self.vectors = {
            "context": bi.encode_contexts([QUERY], convert_to_numpy=True),
            "candidate": bi.encode_candidates(TEXTS, convert_to_numpy=True),
        }
        self.similarities = np.asarray(bi.score_pairs([(TEXTS[0], text) for text in TEXTS]))
        """The first text, as a query, beside each."""
        pairs = [(QUERY, text) for text in TEXTS]
        raw = {name: model.score_pairs(pairs).tolist() for name, model in loaded.items()}
        temperature = loaded["poly"].config.temperature
        self.scores = {
            "bi": [(1 + score) / 2 for score in raw["bi"]],
            "poly": [(1 + score * temperature) / 2 for score in raw["poly"]],
            "cross": [1 / (1 + math.exp(-score)) for score in raw["cross"]],
        }

    def fault(self, answer: dict[str, Any]) -> str | None:
        """What is wrong with the answer of a call, or None."""
        kind, got = answer["kind"], answer["got"]
        if kind == "failure":
            return str(got)
        if kind == "refusal":
            missing = [word for word in answer["words"] if word not in (got or "")]
            problem = f"was answered with {answer.get('answer')}" if got is None else f"said {got}"
            return f"{problem}, without {missing}" if missing else None
        if kind == "names":
            return None if set(got) == self.names else f"{got} instead of {sorted(self.names)}"
        if kind == "ranking":
            return self.fault_of_ranking(answer)
        found = np.asarray(got)
        if kind == "vectors":
            expected = self.vectors[answer["side"]][: answer.get("first")]
            if "dimensions" in answer:
                expected = expected[:, : answer["dimensions"]]
                expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
        else:
            expected = self.similarities
        return difference(found, expected)

    def fault_of_ranking(self, answer: dict[str, Any]) -> str | None:
        """What is wrong with an order of the texts, or None."""
        scores = self.scores[answer["model"]]
        best = sorted(range(len(TEXTS)), key=lambda place: -scores[place])[: answer.get("top_n")]
        places = [place for place, _ in answer["got"]]
        if places != best:
            return f"the order {places} instead of {best}"
        return difference(
            np.asarray([score for _, score in answer["got"]]),
            np.asarray([scores[place] for place in best]),
        )


def difference(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> str | None:
    """How an array differs from the expected one, or None."""
    if found.shape != expected.shape:
        return f"the shape {found.shape} instead of {expected.shape}"
    largest = float(np.abs(found - expected).max())
    return None if largest <= CLOSE else f"numbers that differ by up to {largest:.2g}"


def main() -> int:
    """Make the environments, run the calls, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("clients", nargs="*", help=f"which to try: {', '.join(PACKAGES)}")
    parser.add_argument("--work", type=Path, required=True, help="a folder for environments")
    parser.add_argument("--constraints", type=Path, help="versions to install, as for pip")
    options = parser.parse_args()
    if unknown := set(options.clients) - set(PACKAGES):
        parser.error(f"no such client: {', '.join(sorted(unknown))}")
    work = options.work.absolute()
    work.mkdir(parents=True, exist_ok=True)
    constraints = []
    if options.constraints is not None:
        constraints = ["--constraint", str(options.constraints.absolute())]
    wanted = options.clients or list(PACKAGES)
    pythons = {client: environment(client, work, constraints) for client in wanted}
    models = make_models(work / "models")
    named_as_on_the_page = {"my-model": models["bi"], "my-cross": models["cross"]}
    judge = Judge(models)
    num_failed = 0
    with (
        serving(models | named_as_on_the_page, work / "serve.log", "--api-key", KEY) as url,
        serving({"bi": models["bi"]}, work / "serve-open.log") as open_url,
    ):
        asked = {"url": url, "open_url": open_url, "key": KEY, "query": QUERY, "texts": TEXTS}
        for client, python in pythons.items():
            answered = call(client, python, asked)
            versions = ", ".join(f"{name} {each}" for name, each in answered["versions"].items())
            print(f"\n{client} ({versions})")
            faults = {name: judge.fault(each) for name, each in answered["calls"].items()}
            if client in TITLES:
                faults[f"the code in {PAGE.name}"] = fault_of_snippet(client, python, url)
            for name, fault in faults.items():
                num_failed += fault is not None
                print(f"  {'ok    ' if fault is None else 'FAILED'} {name}", end="")
                print("" if fault is None else f": {fault}", flush=True)
    print(
        f"\n{num_failed} calls failed" if num_failed else "\nevery call was answered as it should"
    )
    return 1 if num_failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What one search does not import: with these, its start took three times the CPU."""

import gc
import json
import subprocess
import sys

import pytest

from polyrank.retrieval.index import Index
from tiny_encoders import load_variant

NOT_NEEDED = {
    "accelerate",
    "bm25s",
    "datasets",
    "faiss",
    "huggingface_hub",
    "matplotlib",
    "pandas",
    "pyarrow.dataset",
    "pymilvus",
    "rich",
    "scipy",
    "sklearn",
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.tensor",
    "transformers",
    "yaml",
}
PROGRAM = """
import atexit, gc, json, os, sys
from polyrank.__main__ import main

def tell():
    found = {"modules": sorted(sys.modules), "threshold": gc.get_threshold()[0]}
    found |= {"frozen": gc.get_freeze_count(), "policy": os.environ.get("OMP_WAIT_POLICY")}
    print(json.dumps(found), file=sys.stderr)

atexit.register(tell)  # the first to be registered is the last to be called
sys.argv = ["polyrank", *sys.argv[1:]]
main()
"""


def test_help_imports_no_library_of_other_formats():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "evaluate", "--help"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    found = {name.split(".")[0] for name in json.loads(done.stderr.splitlines()[-1])["modules"]}
    others = {"mteb", "peft", "onnx", "onnxruntime", "openvino", "nncf", "sentence_transformers"}
    assert found & (others | {"torch", "transformers", "huggingface_hub"}) == set()


@pytest.fixture(scope="module", params=["bi", "poly-learnt"])
def index(request, bert, tmp_path_factory):
    path = tmp_path_factory.mktemp("start_up") / "index"
    texts = ["read a file", "no sound", "thanks"]
    Index.build(load_variant(request.param, bert), texts, path)
    return path


def test_a_search_imports_only_what_it_needs(index):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "search", str(index), "a file", "--json"],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    found = json.loads(done.stderr.splitlines()[-1])
    assert len(json.loads(done.stdout)["results"][0]["hits"]) == 3
    assert "torch" in found["modules"]
    assert set(found["modules"]) & NOT_NEEDED == set()
    assert found["threshold"] > gc.get_threshold()[0]
    assert found["policy"] == "passive"
    assert found["frozen"] > 10_000  # and so is not looked through for garbage on the way out


@pytest.mark.parametrize("name", ["cross", "cross-interaction"])
def test_a_reranker_is_loaded_without_the_compiler_of_torch(name, bert, tmp_path):
    load_variant(name, bert).save_pretrained(tmp_path / "cross")
    data = tmp_path / "pairs.jsonl"
    data.write_text('{"context": "a file", "candidates": ["read it", "no sound"]}\n')
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "predict", str(tmp_path / "cross"), "--data", str(data)],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert done.stdout.count("\n") == 1
    modules = json.loads(done.stderr.splitlines()[-1])["modules"]
    assert set(modules) & {"torch._dynamo", "torch._inductor", "sympy"} == set()

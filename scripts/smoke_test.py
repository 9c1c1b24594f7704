"""A smoke test of an installed polyrank: `python smoke_test.py FOLDER [EXTRA]`.

Without EXTRA: pre-train a tiny encoder, train on a CSV file, build an exact index, search it and
call it from Python, with no extra installed. With EXTRA: the one thing that the extra is for.
It runs the `polyrank` command beside this Python, works in FOLDER, and needs no network.
"""

from __future__ import annotations

import csv
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

TOPICS = ("lists", "files", "dates", "threads", "numbers", "strings", "sets", "errors")
TINY = ("--num-layers", "1", "--width", "32", "--num-heads", "2", "--vocabulary", "300")
FEW = ("--max-steps", "2", "--batch-size", "8", "--device", "cpu")


def polyrank(*arguments: str | Path) -> str:
    """Run one command of the installed polyrank and return its standard output."""
    command = Path(sys.executable).parent / "polyrank"
    print("$ polyrank", *arguments, flush=True)
    done = subprocess.run(
        [command, *map(str, arguments)], stdout=subprocess.PIPE, text=True, check=False
    )
    print(done.stdout, end="", flush=True)
    if done.returncode:
        sys.exit(f"polyrank {arguments[0]} ended with exit code {done.returncode}")
    return done.stdout


def expect(condition: bool, what: str) -> None:
    """End the test with `what` unless the condition holds."""
    if not condition:
        sys.exit(f"smoke test failed: {what}")


def write_texts(folder: Path) -> None:
    """Articles to pre-train on, a CSV file of questions and answers, and the answers alone."""
    questions = [(f"How do I use {topic}, case {n}?", f"Use {topic} in way {n}.")
                 for topic in TOPICS for n in range(4)]  # fmt: skip
    articles = []
    for topic in TOPICS:
        paragraphs = [f"{q} {a} It is simple." for q, a in questions if topic in q]
        articles.append({"title": topic, "text": "\n\n".join(paragraphs)})
    lines = "".join(json.dumps(article) + "\n" for article in articles)
    (folder / "articles.jsonl").write_text(lines, encoding="utf-8")
    with (folder / "faq.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("question", "answer"), *questions])
    answers = "".join(answer + "\n" for _, answer in questions)
    (folder / "answers.txt").write_text(answers, encoding="utf-8")


def make_model(folder: Path) -> None:
    """A tiny encoder and a bi-encoder trained from it, unless an earlier test has made them."""
    if (folder / "model").exists():
        return
    write_texts(folder)
    polyrank("corpus", folder / "articles.jsonl", "--output", folder / "corpus")
    polyrank("pretrain", "--corpus", folder / "corpus", "--output", folder / "encoder", *TINY, *FEW)
    polyrank("train", "--arch", "bi", "--base", folder / "encoder", "--train", folder / "faq.csv",
             "--output", folder / "model", *FEW)  # fmt: skip


def index_and_search(folder: Path, *backend: str) -> None:
    """Build an index of the answers and search it."""
    polyrank("index", "build", folder / "model", "--candidates", folder / "answers.txt",
             "--output", folder / "index", *backend)  # fmt: skip
    found = json.loads(polyrank("search", folder / "index", "How do I use sets?", "--json"))
    expect(len(found["results"][0]["hits"]) == 10, "a search of 32 answers gives 10 hits")


def without_extras(folder: Path) -> None:
    """Train, index and search, on the command line and in Python."""
    index_and_search(folder)
    polyrank("doctor")
    import polyrank as library

    model = library.load_model(folder / "model")
    hits = model.rank("How do I use sets?", ["Use sets.", "Use files."])
    expect(sorted(hit.text for hit in hits) == ["Use files.", "Use sets."], "rank gives both")
    index = library.Index.open(folder / "index")
    expect(len(index.search("How do I use sets?", top_k=3)) == 3, "Index.search gives 3 hits")


def bm25(folder: Path) -> None:
    """Mine negatives by words."""
    polyrank("mine", "--data", folder / "faq.csv", "--method", "bm25",
             "--output", folder / "hard.jsonl")  # fmt: skip
    expect((folder / "hard.jsonl").stat().st_size > 0, "negatives were written")


def demo(folder: Path) -> None:
    """The encoder of the demo is found and loads."""
    from polyrank import BiEncoder

    model = BiEncoder.from_pretrained("sentence-transformers/all-MiniLM-L6-v2")
    hits = model.rank("How do I sort a list?", ["Use open().", "Use sorted()."])
    expect(hits[0].text == "Use sorted().", "MiniLM prefers sorted()")


def faiss(folder: Path) -> None:
    """Build and search an approximate index."""
    index_and_search(folder, "--backend", "hnsw")


def hub(folder: Path) -> None:
    """Train on a `datasets.Dataset`."""
    import datasets

    from polyrank import load_examples

    rows = datasets.Dataset.from_csv(str(folder / "faq.csv"), cache_dir=str(folder / "cache"))
    expect(len(load_examples(rows)) == 32, "a data set of 32 rows gives 32 examples")


def lora(folder: Path) -> None:
    """Train an adapter and open it."""
    from polyrank import load_model

    polyrank("train", "--arch", "bi", "--base", folder / "encoder", "--train", folder / "faq.csv",
             "--output", folder / "lora", "--lora-rank", "2", *FEW)  # fmt: skip
    expect((folder / "lora" / "adapter_config.json").is_file(), "there is an adapter")
    load_model(folder / "lora").encode_contexts("How do I use lists?")


def export_to(folder: Path, target: str) -> None:
    """Export the model as graphs and let their runtime rank."""
    from polyrank import load_model

    polyrank("export", folder / "model", "--to", target, "--output", folder / target)
    hits = load_model(folder / target, engine=target).rank("How do I use sets?", ["A", "B"])
    expect(len(hits) == 2, "an exported model ranks")


def onnx(folder: Path) -> None:
    """Export to ONNX and load it."""
    export_to(folder, "onnx")


def openvino(folder: Path) -> None:
    """Export to OpenVINO and load it."""
    export_to(folder, "openvino")


def mteb(folder: Path) -> None:
    """MTEB takes the model; a task would need its data."""
    from polyrank.interop.mteb import model

    encoded = model(str(folder / "model"))
    expect(encoded.mteb_model_meta is not None, "MTEB knows the model")


def metrics(folder: Path) -> None:
    """Judge a retrieval set."""
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True, exist_ok=True)
    answers = (folder / "answers.txt").read_text(encoding="utf-8").splitlines()
    corpus = [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(answers)]
    queries = [{"_id": f"q{n}", "text": text} for n, text in enumerate(answers)]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (beir / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    judgements = "".join(f"q{n}\td{n}\t1\n" for n in range(len(answers)))
    qrels = "query-id\tcorpus-id\tscore\n" + judgements
    (beir / "qrels" / "test.tsv").write_text(qrels, encoding="utf-8")
    expect("ndcg@10" in polyrank("evaluate", folder / "model", "--data", beir, "--json"), "ndcg@10")


def milvus(folder: Path) -> None:
    """Keep the candidates in an embedded Milvus."""
    index_and_search(folder, "--backend", str(folder / "milvus.db"))


def plot(folder: Path) -> None:
    """Compare two models with a plot."""
    polyrank("compare", folder / "model", "again=" + str(folder / "model"), "--data",
             folder / "faq.csv", "--output", folder / "comparison")  # fmt: skip
    expect(any((folder / "comparison").glob("*.png")), "the comparison has a plot")


def ray(folder: Path) -> None:
    """Encode candidates on a Ray cluster of this machine."""
    import os

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from polyrank.retrieval.bulk.ray import encode_with_ray

    parts = folder / "parts"
    list(encode_with_ray(str(folder / "model"), str(folder / "answers.txt"), str(parts),
                         num_parts=2, num_actors=1))  # fmt: skip
    polyrank("index", "build", folder / "model", "--encoded", parts, "--output", folder / "index")


def fetch(url: str, body: object = None) -> bytes:
    """What the server answers to a GET, or to a POST of `body`."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        content: bytes = answer.read()
    return content


def wait_until_ready(url: str, server: subprocess.Popen[bytes]) -> None:
    """Return when the server is ready for requests."""
    while True:
        expect(server.poll() is None, "polyrank serve runs")
        try:
            fetch(f"{url}/ready")
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)


def serve(folder: Path) -> None:
    """Serve the model, call it, look at its pages, and stop it."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = Path(sys.executable).parent / "polyrank"
    arguments = ["serve", "--model", folder / "model", "--port", str(port), "--device", "cpu"]
    print("$ polyrank", *arguments, flush=True)
    with subprocess.Popen([command, *map(str, arguments)]) as server:
        try:
            wait_until_ready(url, server)
            made = json.loads(fetch(f"{url}/v1/embeddings", {"model": "model", "input": "Sets?"}))
            expect(len(made["data"][0]["embedding"]) > 0, "/v1/embeddings gives a vector")
            ranked = json.loads(fetch(f"{url}/rerank", {"query": "Sets?", "texts": ["a", "b"]}))
            expect(len(ranked) == 2, "/rerank ranks two texts")
            page = fetch(f"{url}/").decode()
            expect("<html" in page and "polyrank" in page, "the page is there")
            docs = fetch(f"{url}/docs").decode()
            expect("//cdn" not in docs, "/docs loads nothing from elsewhere")
        finally:
            server.terminate()
    expect(server.returncode == 0, f"the server ends with 0, not {server.returncode}")


def tensorboard(folder: Path) -> None:
    """Write events while training."""
    events = folder / "events"
    polyrank("train", "--arch", "bi", "--base", folder / "encoder", "--train", folder / "faq.csv",
             "--output", folder / "logged", "--tensorboard", events, *FEW)  # fmt: skip
    expect(any(events.rglob("events.out.*")), "there are events")


def wiki(folder: Path) -> None:
    """Make a corpus from a Wikipedia dump."""
    page = (
        "<page><title>{0}</title><ns>0</ns><id>{1}</id><revision><id>1</id><text>'''{0}''' are "
        "useful. [[Sets]] have no order.\n\n== Use ==\nOne may use {0} often. They are fast."
        "</text></revision></page>"
    )
    pages = [page.format(topic.title(), n) for n, topic in enumerate(TOPICS, start=1)]
    dump = (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" xml:lang="en"><siteinfo>'
        "<sitename>Wikipedia</sitename><dbname>enwiki</dbname></siteinfo>"
    )
    (folder / "dump.xml").write_text(dump + "".join(pages) + "</mediawiki>", encoding="utf-8")
    polyrank("corpus", folder / "dump.xml", "--output", folder / "wiki")


def zstd(folder: Path) -> None:
    """Train on a file that is compressed with zstandard."""
    import zstandard

    compressed = zstandard.compress((folder / "faq.csv").read_bytes())
    (folder / "faq.csv.zst").write_bytes(compressed)
    polyrank("train", "--arch", "bi", "--base", folder / "encoder", "--train",
             folder / "faq.csv.zst", "--output", folder / "zstd", *FEW)  # fmt: skip


EXTRAS: dict[str, Callable[[Path], None]] = {
    test.__name__: test
    for test in (
        bm25,
        demo,
        faiss,
        hub,
        lora,
        metrics,
        milvus,
        mteb,
        onnx,
        openvino,
        plot,
        ray,
        serve,
        tensorboard,
        wiki,
        zstd,
    )
}


if __name__ == "__main__":
    work = Path(sys.argv[1]).absolute()
    work.mkdir(parents=True, exist_ok=True)
    if sys.argv[2:] != ["demo"]:
        make_model(work)
    (EXTRAS[sys.argv[2]] if sys.argv[2:] else without_extras)(work)
    print("smoke test passed:", *sys.argv[2:] or ["no extra"])

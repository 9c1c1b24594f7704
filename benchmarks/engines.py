"""all-MiniLM-L6-v2 run by torch, ONNX Runtime and OpenVINO: speed and quality, in one run.

python -m benchmarks.engines [--texts 2000 --rounds 3 --data FILE --output FOLDER]

Int8 is calibrated on texts of the installed Python's documentation. All ways encode other texts of
it, interleaved; the time includes tokenising. Quality is measured on these texts, and on those of
each FILE, which nothing was calibrated on: each text's best 10 among all others, by torch in
float32 and by each way. The exports are kept in FOLDER, if it is given.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

import polyrank
from benchmarks.results_store import table
from benchmarks.texts import mixed_texts
from benchmarks.timing import interleaved, machine, median_ratio
from polyrank import BiEncoder
from polyrank.data.candidates import read_candidates
from polyrank.interop.graphs.folder import write_graphs
from polyrank.interop.graphs.openvino import converted, save
from polyrank.interop.graphs.quantisation import import_nncf
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries

CALIBRATED = 1000
"""Texts in the file to calibrate on; an export takes half of it, at most 300."""
CHECKED = 1500
"""The most texts of a kind that quality is measured on."""
BEST = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, action="append", default=[])
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    quieten_libraries()
    drawn = mixed_texts(CALIBRATED + options.texts)
    kinds = {"documentation": drawn[CALIBRATED:]}
    kinds |= {data.name: texts_in(data) for data in options.data}
    with tempfile.TemporaryDirectory() as temporary:
        work = options.output or Path(temporary)
        ways = encoders(work, drawn[:CALIBRATED])
        report_quality(ways, kinds)
        texts = kinds["documentation"]
        seconds = interleaved(
            {name: partial(encode, texts) for name, encode in ways.items()}, options.rounds
        )
    print(f"\n{len(texts):,} texts, {options.rounds} rounds; {machine()}\n")
    peers = ("polyrank bfloat16", "sentence-transformers float32")
    rows = [
        [name, len(texts) / sorted(values)[len(values) // 2]]
        + [median_ratio(seconds, peer, name) for peer in peers]
        for name, values in seconds.items()
    ]
    print(table(["way", "texts per second", *(f"times as fast as {peer}" for peer in peers)], rows))


def texts_in(path: Path) -> list[str]:
    """Different texts of a file of candidates."""
    texts = (candidate.text for candidate in islice(read_candidates(path), 20 * CHECKED))
    return list(dict.fromkeys(texts))[:CHECKED]


def encoders(work: Path, texts: list[str]) -> dict[str, Callable[[list[str]], Any]]:
    """What encodes texts in each way; the exports are written into `work`."""
    work.mkdir(parents=True, exist_ok=True)
    calibration = work / "calibration.jsonl"
    lines = (json.dumps({"text": text}) + "\n" for text in texts)
    calibration.write_text("".join(lines), encoding="utf-8")
    base = default_base()
    exact = BiEncoder.from_pretrained(base, shared_towers=True, device="cpu", dtype="float32")
    quick = BiEncoder.from_pretrained(base, shared_towers=True, device="cpu", dtype="bfloat16")
    int8: dict[str, Any] = {"quantise": "int8", "calibration": calibration, "min_overlap": 0}
    for name, settings in (
        ("onnx", {}),
        ("onnx-int8", int8),
        ("openvino", {}),
        ("openvino-int8", int8),
    ):
        made = polyrank.export(exact, work / name, to=name.partition("-")[0], **settings)
        print(f"{name}: {' '.join(made.notes)}")
    folder = work / "openvino-weights"
    folder.mkdir(exist_ok=True)
    write_graphs(exact, folder, "openvino", write_compressed, versions={})
    opened = {
        "onnx float32": ("onnx", "auto"),
        "onnx int8": ("onnx-int8", "auto"),
        "openvino float32": ("openvino", "float32"),
        "openvino bfloat16": ("openvino", "bfloat16"),
        "openvino 8-bit weights": ("openvino-weights", "bfloat16"),
        "openvino int8": ("openvino-int8", "bfloat16"),
    }
    return {
        "polyrank float32": exact.encode_candidates,
        "sentence-transformers float32": SentenceTransformer(str(base), device="cpu").encode,
        "polyrank bfloat16": quick.encode_candidates,
    } | {
        way: polyrank.load_model(work / name, device="cpu", dtype=dtype).encode_candidates
        for way, (name, dtype) in opened.items()
    }


def write_compressed(graph: Any, folder: Path) -> tuple[str, list[str]]:
    """A graph of OpenVINO whose weights alone have 8 bits."""
    nncf = import_nncf()
    model = nncf.compress_weights(converted(graph), mode=nncf.CompressWeightsMode.INT8_SYM)
    return save(model, graph.name, folder)


def report_quality(
    ways: dict[str, Callable[[list[str]], Any]], kinds: dict[str, list[str]]
) -> None:
    """Print each way's cosine and overlap to the first one, on the texts of each kind."""
    for kind, texts in kinds.items():
        texts = texts[:CHECKED]
        vectors = {name: torch.as_tensor(encode(texts)) for name, encode in ways.items()}
        reference = next(iter(vectors.values()))
        rows = [
            [name, float((reference * found).sum(dim=1).mean()), overlap(reference, found)]
            for name, found in vectors.items()
        ]
        print(f"\n{kind}, {len(texts):,} texts\n")
        print(table(["way", "mean cosine", f"overlap of the best {BEST}"], rows))


def overlap(reference: Tensor, found: Tensor) -> float:
    """The share of each text's best others that two sets of vectors have in common."""
    best = []
    for vectors in (reference, found):
        scores = (vectors @ vectors.T).fill_diagonal_(-torch.inf)
        best.append(scores.topk(BEST).indices)
    return float((best[0][:, :, None] == best[1][:, None, :]).any(dim=2).float().mean())


if __name__ == "__main__":
    main()

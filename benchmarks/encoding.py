"""Encoding 5,000 texts of mixed length: polyrank against SentenceTransformer.encode.

python -m benchmarks.encoding [--texts 5000 --rounds 3]
"""

from __future__ import annotations

import argparse

import torch
from sentence_transformers import SentenceTransformer
from torch.nn.functional import cosine_similarity

from benchmarks.texts import mixed_texts
from benchmarks.timing import interleaved, report
from polyrank import BiEncoder
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    quieten_libraries()
    base = default_base()
    texts = mixed_texts(options.texts)
    peer = SentenceTransformer(str(base), device="cpu")
    exact = BiEncoder.from_pretrained(base, device="cpu", dtype="float32")
    quick = BiEncoder.from_pretrained(base, device="cpu", dtype="bfloat16")

    reference = torch.from_numpy(peer.encode(texts))
    for name, model in (("float32", exact), ("bfloat16", quick)):
        lowest = cosine_similarity(model.encode_candidates(texts), reference).min()
        print(f"lowest cosine of {name} to sentence-transformers: {lowest:.6f}")

    seconds = interleaved(
        {
            "sentence-transformers": lambda: peer.encode(texts),
            "polyrank float32": lambda: exact.encode_candidates(texts),
            "polyrank bfloat16": lambda: quick.encode_candidates(texts),
        },
        options.rounds,
    )
    report(seconds, "sentence-transformers", f"{len(texts):,} texts")


if __name__ == "__main__":
    main()

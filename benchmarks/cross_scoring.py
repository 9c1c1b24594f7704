"""Scoring 1,000 pairs: polyrank's cross-encoder against sentence-transformers' CrossEncoder.

Both hold the same weights: all-MiniLM-L6-v2 with its pooler and a drawn classifier.

python -m benchmarks.cross_scoring [--pairs 1000 --rounds 3]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from sentence_transformers import CrossEncoder as PeerCrossEncoder
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from benchmarks.texts import mixed_pairs
from benchmarks.timing import interleaved, report
from polyrank import CrossEncoder
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries


def make_peer(base: Path, folder: Path) -> PeerCrossEncoder:
    """A CrossEncoder of sentence-transformers around the base."""
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    torch.nn.init.normal_(model.classifier.weight, std=0.5)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return PeerCrossEncoder(str(folder), device="cpu", max_length=512)


def make_ours(base: Path, peer: PeerCrossEncoder, dtype: str) -> CrossEncoder:
    """Ours, with the weights of the peer's head."""
    ours = CrossEncoder.from_pretrained(
        base,
        device="cpu",
        dtype=dtype,
        head="pooler",
        max_context_length=254,
        max_candidate_length=254,
    )
    weights = {name.partition("model.")[2] or name: w for name, w in peer.state_dict().items()}
    picked = {
        name: next(w for key, w in weights.items() if key.endswith(name))
        for name in (
            "pooler.dense.weight",
            "pooler.dense.bias",
            "classifier.weight",
            "classifier.bias",
        )
    }
    with torch.no_grad():
        ours.head.dense.weight.copy_(picked["pooler.dense.weight"])
        ours.head.dense.bias.copy_(picked["pooler.dense.bias"])
        ours.head.out.weight.copy_(picked["classifier.weight"])
        ours.head.out.bias.copy_(picked["classifier.bias"])
    return ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    quieten_libraries()
    base = default_base()
    pairs = mixed_pairs(options.pairs)
    plain = torch.nn.Identity()
    with tempfile.TemporaryDirectory() as folder:
        peer = make_peer(base, Path(folder))
        exact = make_ours(base, peer, "float32")
        quick = make_ours(base, peer, "bfloat16")

        def theirs() -> torch.Tensor:
            return peer.predict(pairs, activation_fn=plain, convert_to_tensor=True)

        reference = theirs().flatten()
        for name, model in (("float32", exact), ("bfloat16", quick)):
            scores = model.score_pairs(pairs)
            cosine = torch.cosine_similarity(scores, reference, dim=0)
            furthest = (scores - reference).abs().max()
            print(
                f"{name}: cosine of all scores {cosine:.6f}, furthest score {furthest:.2g} "
                f"(standard deviation of the scores {reference.std():.2f})"
            )
        seconds = interleaved(
            {
                "sentence-transformers": theirs,
                "polyrank float32": lambda: exact.score_pairs(pairs),
                "polyrank bfloat16": lambda: quick.score_pairs(pairs),
            },
            options.rounds,
        )
    report(seconds, "sentence-transformers", f"{len(pairs):,} pairs")


if __name__ == "__main__":
    main()

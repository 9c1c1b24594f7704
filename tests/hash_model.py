"""A model whose vectors are hashes of the texts: fast, deterministic, the same in every process."""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from polyrank.scoring.poly import poly_scores


class HashModel:
    """Implements what an index needs of a model; counts what it encoded."""

    def __init__(self, num_vectors=1, dimension=8, salt="", path=None):
        self.config = SimpleNamespace(architecture="bi" if num_vectors == 1 else "poly")
        self.num_vectors = num_vectors
        self.attention = "basic"
        self.dimension = dimension
        self.salt = salt
        self.path = path
        self.encoded = 0
        self.before_block = lambda: None

    def fingerprint(self):
        settings = f"{self.num_vectors} {self.dimension} {self.salt}"
        return hashlib.sha256(settings.encode()).hexdigest()

    def vector(self, text):
        seed = hashlib.sha256(f"{self.salt}/{text}".encode()).digest()
        generator = np.random.default_rng(int.from_bytes(seed, "little"))
        return generator.standard_normal(self.dimension).astype(np.float32)

    def encode_candidates_for_scoring(self, texts):
        self.before_block()
        self.encoded += len(texts)
        return torch.from_numpy(np.stack([self.vector(text) for text in texts]))

    encode_candidates = encode_candidates_for_scoring

    def encode_for_scoring(self, contexts):
        rows = [[self.vector(f"{i} {c}") for i in range(self.num_vectors)] for c in contexts]
        encoded = torch.from_numpy(np.array(rows))  # (B, m, d)
        if self.num_vectors > 1:
            short = [i for i, context in enumerate(contexts) if len(context) % 2]
            encoded[short, -1] = 0  # a context with fewer vectors
        return encoded

    def score_all(self, contexts, candidates):
        return poly_scores(contexts, candidates)

    def save_copy(self, path):
        Path(path).mkdir(parents=True, exist_ok=True)
        settings = [self.num_vectors, self.dimension, self.salt]
        (Path(path) / "polyrank.json").write_text(json.dumps(settings))

    @classmethod
    def load(cls, path, **_):
        settings = json.loads((Path(path) / "polyrank.json").read_text())
        return cls(*settings, path=Path(path))


def brute_force(model, candidates, contexts, top_k):
    """All scores at once, sorted in Python."""
    vectors = model.encode_candidates([text for _, text, *_ in candidates])
    scores = model.score_all(model.encode_for_scoring(contexts), vectors).tolist()
    ranked = [
        sorted(zip(row, candidates, strict=True), key=lambda p: (p[0], p[1][0]), reverse=True)
        for row in scores
    ]
    return [[(*pair, score) for score, pair in row[:top_k]] for row in ranked]


def numbered(count):
    return [(f"id{i}", f"text number {i}") for i in range(count)]


def pairs(candidates):
    """Ids and texts."""
    return [(candidate.id, candidate.text) for candidate in candidates]


@contextlib.contextmanager
def unflushed():
    """Without waiting for the disk, which most properties do not need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


def contents(folder):
    """Every file below a folder, by its relative name."""
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

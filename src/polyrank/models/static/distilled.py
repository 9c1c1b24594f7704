"""Makes static embeddings from the outputs of an encoder, token by token, or from word vectors.

An encoder reads each token of its vocabulary alone; the principal components of its outputs are the
tokens' vectors (Tulkens and van Dongen, 2024, Model2Vec). Frequent words are given less weight by
smooth inverse frequency (Arora et al., 2017), with frequencies that follow from the ranks of the
words by Zipf's law.

Letters: V tokens, h width of the encoder, d components.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

from polyrank.errors import UsageError
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.config import BiEncoderConfig
from polyrank.models.source import local_folder
from polyrank.models.static.embeddings import SETTINGS, from_words, is_static, make_static
from polyrank.models.static.word_vectors import read_word_vectors

UNUSED = re.compile(r"\[unused\d+\]")
DIMENSION = 256


def distil_static(
    source: str | Path,
    *,
    dimension: int | None = None,
    sif: float | None = 1e-4,
    device: str = "auto",
    dtype: str = "auto",
    batch_tokens: int | None = None,
    revision: str | None = None,
    show_progress_bar: bool = False,
) -> BiEncoder:
    """A bi-encoder of static embeddings made from an encoder's outputs.

    `dimension` d is the number of principal components, by default 256 or the encoder's width.
    `sif` is the constant a of the weights a / (a + p); None weighs all tokens alike. Raises
    ModelError if there is no encoder, and UsageError if it is already static or the dimension is
    above its width. `revision` is that of a hub id.
    """
    if is_static(local_folder(source, revision=revision)):
        raise UsageError(
            f"{source} holds static embeddings already.",
            "Train or evaluate it as it is, or give an encoder or a file of word vectors.",
        )
    model = BiEncoder.from_pretrained(
        source, revision=revision, device=device, dtype=dtype, batch_tokens=batch_tokens
    )
    tokenizer = model.tokenizer.pretrained
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = set(tokenizer.all_special_ids)
    kept = [
        number
        for number, token in enumerate(tokens)
        if number not in special and not UNUSED.fullmatch(str(token))
    ]
    outputs = token_outputs(model, kept, show_progress_bar=show_progress_bar)
    outputs = principal_components(outputs, dimension or min(DIMENSION, *outputs.shape))
    vectors = outputs.new_zeros(len(tokens), outputs.shape[1])
    vectors[kept] = outputs * sif_weights(len(kept), sif)[:, None]
    return BiEncoder(*make_static(tokenizer, vectors), BiEncoderConfig(**SETTINGS)).eval()


def static_from_file(
    path: Path, *, dimension: int | None = None, sif: float | None = None, most: int | None = None
) -> BiEncoder:
    """A bi-encoder of the first `most` word vectors of a file.

    `dimension` and `sif` are those of `distil_static`; `sif` needs words listed by falling
    frequency, as in published files. Raises DataError, UsageError.
    """
    words, read = read_word_vectors(path, most)
    vectors = torch.from_numpy(read)
    if dimension is not None:
        vectors = principal_components(vectors, dimension)
    vectors = vectors * sif_weights(len(words), sif)[:, None]
    return BiEncoder(*from_words(words, vectors.numpy()), BiEncoderConfig(**SETTINGS)).eval()


def token_outputs(
    model: BiEncoder, tokens: list[int], *, show_progress_bar: bool = False
) -> Tensor:
    """The mean of an encoder's outputs on each token, special tokens around it: (V, h)."""
    single = model.tokenizer.single
    sequences = [[*single.prefix, token, *single.suffix] for token in tokens]
    tower = model.for_inference("context_tower")
    outputs = torch.zeros(len(tokens), model.context_tower.width)
    described = "Encoding the vocabulary" if show_progress_bar else None
    with torch.inference_mode():
        for rows, batch in model.batched(sequences, description=described, unit="tokens"):
            outputs[rows.cpu()] = tower(batch).float().mean(dim=1).cpu()
    return outputs


def principal_components(vectors: Tensor, dimension: int) -> Tensor:
    """The components (V, d) of largest variance of vectors (V, h), centred; each component's
    largest value is positive. Raises UsageError for more than there are.
    """
    most = min(vectors.shape)
    if not 1 <= dimension <= most:
        raise UsageError(
            f"dimension must be from 1 to {most}, the number of components, got {dimension}.",
            "Choose a smaller dimension, or none.",
        )
    centred = vectors.double() - vectors.double().mean(dim=0)
    axes = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(1)[:, :dimension]  # (h, d)
    components = centred @ axes
    largest = components.gather(0, components.abs().argmax(dim=0, keepdim=True))
    return (components * largest.sign()).float()


def sif_weights(count: int, constant: float | None) -> Tensor:
    """The weight a / (a + p) of each token, the most frequent first: (V,).

    By Zipf's law p is proportional to 1 / (rank + 1), ranks from 1. Without a constant, ones.
    """
    if constant is None:
        return torch.ones(count)
    frequencies = 1 / torch.arange(2, count + 2, dtype=torch.float64)
    frequencies /= frequencies.sum()
    return (constant / (constant + frequencies)).float()

"""Folders that the installed sentence-transformers saves, and the comparison of its vectors with
ours.
"""

import json
import warnings
from pathlib import Path

import torch

from polyrank.models.checkpoint import load_model
from tiny_encoders import LONG, POSITIONS, TEXTS, WIDTH

PROMPTS = {"query": "how do i search: ", "document": "title: none | text: "}
CPU = {"device": "cpu", "dtype": "float32"}
ALL_TEXTS = [*TEXTS, LONG, "print " + LONG, f"{LONG} {LONG}", "yes no " * 9]
"""Short and long texts in one batch; some are longer than any encoder here reads."""


def package():
    """sentence-transformers, without its warnings of old names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import sentence_transformers
        from sentence_transformers import models

    return sentence_transformers, models


def dense_modules(models, layers, width=WIDTH):
    """Dense modules of (dimension, bias, activation), with weights spread widely."""
    made = []
    for dimension, bias, activation in layers:
        module = models.Dense(width, dimension, bias=bias, activation_function=activation)
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        made.append(module)
        width = dimension
    return made


def save_packaged(
    encoder,
    folder,
    *,
    mode="mean",
    layers=(),
    normalise=True,
    include_prompt=True,
    length=POSITIONS,
    **settings,
):
    """Save a model around an encoder as sentence-transformers does.

    `settings` are arguments of SentenceTransformer, such as `prompts` and `truncate_dim`. Returns
    the folder.
    """
    sentence_transformers, models = package()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        transformer = models.Transformer(str(encoder))
        transformer.max_seq_length = length
        modules = [transformer, models.Pooling(WIDTH, mode, include_prompt=include_prompt)]
        modules += dense_modules(models, layers)
        modules += [models.Normalize()] * normalise
        made = sentence_transformers.SentenceTransformer(modules=modules, device="cpu", **settings)
    made.save(str(folder), create_model_card=False)
    return Path(folder)


def vectors_of_both(folder, texts=ALL_TEXTS, **settings):
    """The vectors of queries and of documents, theirs and ours: two pairs.

    Theirs are brought to unit length where ours are, which their cut after Normalize undoes.
    """
    sentence_transformers, _ = package()
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    ours = load_model(folder, **CPU, **settings)
    options = {"normalize_embeddings": ours.gives_unit_length and ours.config.similarity != "dot"}
    return (
        (torch.from_numpy(theirs.encode_query(texts, **options)), ours.encode_contexts(texts)),
        (torch.from_numpy(theirs.encode_document(texts, **options)), ours.encode_candidates(texts)),
    )


def require_equal_vectors(folder, texts=ALL_TEXTS, **settings):
    """Fail unless both sides have the same vectors here and there.

    Returns the smallest cosine and the largest difference.
    """
    cosines, differences = [], []
    for theirs, ours in vectors_of_both(folder, texts, **settings):
        assert theirs.shape == ours.shape
        present = theirs.norm(dim=-1) > 0
        cosines.append(torch.cosine_similarity(theirs[present], ours[present], dim=-1).min())
        differences.append((theirs - ours).abs().max())
    cosine, difference = float(min(cosines)), float(max(differences))
    assert cosine > 1 - 1e-5, f"cosine {cosine}"
    assert difference < 1e-5 * max(float(theirs.abs().max()), 1.0), f"difference {difference}"
    return cosine, difference


def change_json(path, **values):
    """Change values in a JSON file; None removes one."""
    described = json.loads(path.read_text()) if path.is_file() else {}
    described |= values
    path.write_text(json.dumps({k: v for k, v in described.items() if v is not None}))

"""Static embeddings: a vector for each token, averaged over a text. A baseline, and very fast.

An encoder of this kind gives one output per text, not one per token, so only a bi-encoder can be
built on it. Batches are not padded: their texts lie one after another. Knows the folders of
model2vec and of sentence-transformers' StaticEmbedding; `word_vectors` reads files of word vectors.

Letters: B texts, n tokens of a batch, V tokens of the vocabulary, R rows of vectors, h width.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyrank.config import from_mapping
from polyrank.errors import ModelError, UsageError
from polyrank.models.backbone import BACKBONE_FOLDER, Backbone, unknown_ids
from polyrank.models.description import Shapes
from polyrank.models.encoder_checks import require_sizes
from polyrank.models.folder import read_tensors
from polyrank.models.foreign.modules import read_known, read_modules, read_required
from polyrank.models.foreign.sentence_transformers import COSINE, read_prompts, read_similarity
from polyrank.models.source import faults_named
from polyrank.models.static.word_vectors import read_word_vectors, word_tokenizer
from polyrank.tokens.batching import Batch
from polyrank.tokens.saved_tokenizer import read_tokenizer
from polyrank.tokens.tokenizer import BareTokenizer

KIND = "static"
"""The `model_type` of a saved model's encoder."""
MODEL2VEC = "model2vec"
MODULE = "StaticEmbedding"
MAX_LENGTH = 512
"""The maximum tokens of a text, unless a folder names another number; model2vec's default."""
NO_LIMIT = 1_000_000
SETTINGS: dict[str, Any] = {
    "shared_towers": True,
    "reduction": "mean",
    "max_context_length": MAX_LENGTH,
    "max_candidate_length": MAX_LENGTH,
    **COSINE,
}
"""The default settings of a bi-encoder of word vectors."""


@dataclass(frozen=True, kw_only=True)
class StaticConfig:
    """The shapes of a static encoder, saved as the `config.json` of a model's backbone folder."""

    vocab_size: int
    """The number V of tokens."""
    num_vectors: int
    """The number R of vectors; less than V if tokens share some."""
    hidden_size: int
    is_weighted: bool = False
    """Whether each token has a weight beside its vector."""
    drops_unknown: bool = True
    """Whether words that are not in the vocabulary are left out of the average."""
    model_type: str = KIND

    def save_pretrained(self, folder: Path) -> None:
        """Write `config.json` into a new folder."""
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps(asdict(self), indent=2) + "\n"
        (folder / "config.json").write_text(text, encoding="utf-8")


class StaticEncoder(nn.Module):
    """The average of the vectors of a text's tokens (Tulkens and van Dongen, 2024, Model2Vec).

    The vectors are trained, and the weights of the tokens if there are any. With fewer vectors
    than tokens, `mapping` (V,) says which vector a token has.
    """

    mapping: Tensor | None
    token_weights: nn.Parameter | None

    def __init__(self, config: StaticConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = nn.EmbeddingBag(
            config.num_vectors,
            config.hidden_size,
            mode="sum",
            _weight=torch.zeros(config.num_vectors, config.hidden_size),
        )
        self.token_weights = None
        if config.is_weighted:
            self.token_weights = nn.Parameter(torch.ones(config.vocab_size))
        shared = config.num_vectors != config.vocab_size
        mapping = torch.zeros(config.vocab_size, dtype=torch.int64) if shared else None
        self.register_buffer("mapping", mapping)

    def get_input_embeddings(self) -> nn.EmbeddingBag:
        """The vectors: `weight` (R, h)."""
        return self.embeddings

    def forward(self, input_ids: Tensor, offsets: Tensor) -> Tensor:
        """Ids (n,) of texts that begin at `offsets` (B,) to vectors (B, h); of no token, zeros."""
        weights = None if self.token_weights is None else self.token_weights[input_ids]
        rows = input_ids if self.mapping is None else self.mapping[input_ids]
        summed: Tensor = self.embeddings(rows, offsets, per_sample_weights=weights)
        counts = torch.diff(offsets, append=offsets.new_tensor([len(input_ids)]))
        return summed / counts.clamp(min=1)[:, None].to(summed.dtype)


class StaticBackbone(Backbone):
    """A static encoder with the interface of an encoder of `transformers`."""

    is_static = True

    def __init__(self, encoder: StaticEncoder) -> None:
        nn.Module.__init__(self)
        self.encoder = encoder
        self.width = encoder.config.hidden_size
        self.vocab_size = encoder.config.vocab_size
        self.has_segments = False
        self.max_length = None
        self.first_place = 0
        self.is_causal = False

    def forward(self, batch: Batch) -> Tensor:
        """One output per text: (B, 1, h)."""
        vectors: Tensor = self.encoder(batch["input_ids"], batch["offsets"])
        return vectors[:, None, :]


def is_static(source: Path) -> bool:
    """Whether a model's source is made of static embeddings; a file can only hold word vectors."""
    if source.is_file() or is_model2vec(source):
        return True
    if (source / "modules.json").is_file():
        return kind_of(read_modules(source / "modules.json")[0]) == MODULE
    return described_as(source / BACKBONE_FOLDER) == KIND


def is_model2vec(folder: Path) -> bool:
    """Whether a folder is model2vec's own, which sentence-transformers reads too."""
    return described_as(folder) == MODEL2VEC


def described_as(folder: Path) -> str | None:
    """The `model_type` of the encoder in a folder, if it is stated."""
    try:
        described = read_required(folder / "config.json")
    except ModelError:  # no file; or a broken one, which the reader of an encoder refuses
        return None
    return described.get("model_type") if isinstance(described, dict) else None


def kind_of(module: dict[str, Any]) -> str:
    """The class of a module of sentence-transformers."""
    return str(module["type"]).rsplit(".", 1)[-1]


def static_settings(source: Path) -> dict[str, Any]:
    """The settings that a folder or a file of static embeddings brings.

    Raises ModelError for modules of sentence-transformers that polyrank does not support.
    """
    if source.is_file():
        return SETTINGS
    if is_model2vec(source):
        asked = read_required(source / "config.json").get("max_length", MAX_LENGTH)
        length = NO_LIMIT if asked is None else int(asked)
        return {**SETTINGS, "max_context_length": length, "max_candidate_length": length}
    others = {kind_of(module) for module in read_modules(source / "modules.json")[1:]}
    if others - {"Normalize"}:
        raise ModelError(
            f"The folder {source} has static embeddings and then {', '.join(sorted(others))}, "
            "which polyrank does not support.",
            "Give static embeddings alone.",
        )
    brought = {**read_similarity(source, bool(others)), **read_prompts(source)[0]}
    lengths = {"max_context_length": NO_LIMIT, "max_candidate_length": NO_LIMIT}
    return {**SETTINGS, **brought, **lengths}


def require_average(architecture: str, settings: dict[str, Any], source: Path) -> None:
    """Raise UsageError for settings that static embeddings cannot have."""
    if architecture != "bi":
        raise UsageError(
            f"{source} holds static embeddings, which give one vector per text. A {architecture}-"
            "encoder needs the outputs of a text's tokens, each of which has seen the others.",
            "Choose the architecture bi, or an encoder such as MiniLM.",
        )
    for name, known in (("reduction", "mean"), ("candidate_reduction", "mean")):
        given = settings.get(name) or known
        if given != known:
            raise UsageError(
                f"Static embeddings are averaged, so {name} must be {known}, got {given}.",
                f"Leave {name} out, or set it to {known}.",
            )
    if not settings.get("pool_prompt", True):
        raise UsageError(
            "Static embeddings are averaged over a prompt and its text, so pool_prompt must be "
            "true, got false.",
            "Leave pool_prompt out.",
        )


def load_static(source: Path) -> tuple[StaticBackbone, BareTokenizer]:
    """The encoder and the tokeniser of a folder of model2vec or sentence-transformers, or of a file
    of word vectors.

    Raises ModelError for an incomplete or inconsistent folder, and DataError, with the line, for a
    file of anything else.
    """
    if source.is_file():
        return from_words(*read_word_vectors(source))
    own = is_model2vec(source)
    if not own:
        source = source / str(read_modules(source / "modules.json")[0]["path"])
    pretrained = load_word_tokenizer(source)
    tensors = read_tensors(source / "model.safetensors", "static embeddings", "download it again")
    vectors = tensors.get("embeddings", tensors.get("embedding.weight"))
    weights, mapping = tensors.get("weights"), tensors.get("mapping")
    count = len(pretrained)
    sizes = [len(one) for one in (weights, mapping) if one is not None]
    fits = vectors is not None and vectors.ndim == 2 and all(size == count for size in sizes)
    if vectors is None or not fits or (mapping is None and len(vectors) != count):
        shapes = ", ".join(f"{name} {tuple(one.shape)}" for name, one in sorted(tensors.items()))
        raise ModelError(
            f"The tensors in {source} do not fit a vocabulary of {count:,} tokens: {shapes}.",
            "The folder mixes files of two models or is damaged; download it again.",
        )
    if mapping is not None and not 0 <= int(mapping.min()) <= int(mapping.max()) < len(vectors):
        raise ModelError(
            f"The mapping in {source} refers to vectors beyond the {len(vectors):,} in it.",
            "The folder is damaged; download it again.",
        )
    return make_static(pretrained, vectors, weights, mapping, drops_unknown=own)


def make_static(
    pretrained: Any,
    vectors: Tensor,
    weights: Tensor | None = None,
    mapping: Tensor | None = None,
    *,
    drops_unknown: bool = True,
) -> tuple[StaticBackbone, BareTokenizer]:
    """A static encoder of vectors (R, h), weights (V,) and a mapping (V,), with its tokeniser."""
    config = StaticConfig(
        vocab_size=len(pretrained),
        num_vectors=len(vectors),
        hidden_size=vectors.shape[1],
        is_weighted=weights is not None,
        drops_unknown=drops_unknown,
    )
    encoder = StaticEncoder(config)
    with torch.no_grad():
        encoder.embeddings.weight.copy_(vectors)
        if encoder.token_weights is not None and weights is not None:
            encoder.token_weights.copy_(weights)
        if encoder.mapping is not None and mapping is not None:
            encoder.mapping.copy_(mapping)
    return StaticBackbone(encoder).eval(), BareTokenizer(pretrained, drops_unknown=drops_unknown)


def from_words(words: list[str], vectors: np.ndarray) -> tuple[StaticBackbone, BareTokenizer]:
    """A static encoder of words and their vectors (V − 1, h); any other word has zeros."""
    unknown = np.zeros((1, vectors.shape[1]), dtype=np.float32)
    return make_static(word_tokenizer(words), torch.from_numpy(np.concatenate([vectors, unknown])))


def empty_static(
    folder: Path, shapes: Shapes, *, trainable: bool = True
) -> tuple[StaticBackbone, BareTokenizer]:
    """The static encoder of a saved model's backbone folder, before weights of these shapes."""
    try:
        config = from_mapping(StaticConfig, read_known(folder / "config.json"), where="config.json")
    except UsageError as error:
        raise ModelError(
            f"{folder / 'config.json'} does not describe static embeddings: {error}.",
            "The folder is damaged; save the model again.",
        ) from error
    require_sizes(config, folder, shapes)
    pretrained = load_word_tokenizer(folder, trainable=trainable)
    tokenizer = BareTokenizer(pretrained, drops_unknown=config.drops_unknown)
    count = pretrained.backend_tokenizer.get_vocab_size()
    if count > config.vocab_size:
        raise unknown_ids(count - 1)
    return StaticBackbone(StaticEncoder(config)).eval(), tokenizer


def load_word_tokenizer(folder: Path, *, trainable: bool = True) -> Any:
    """The tokeniser of a folder; `transformers`' own class only for a model that is `trainable`.

    Raises ModelError if there is none.
    """
    saved = None if trainable else read_tokenizer(folder)
    if saved is not None:
        return saved
    from transformers import PreTrainedTokenizerFast

    with faults_named(
        f"The tokeniser in {folder} could not be loaded",
        "Put tokenizer.json beside model.safetensors.",
    ):
        return PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))

"""A pre-trained encoder: a batch of token ids in, one output per token out.

Knows `transformers` and the kinds of folder an encoder can come from, but not what is done with
the outputs. Imports `transformers` only where it is used: that takes longer than a
search, which can do without it (decision 13).

Letters: B texts, T tokens, h width of the encoder.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from polyrank.errors import ModelError, UsageError, nearest
from polyrank.models.bert import ROBERTAS, VARIANT, Bert, read_config
from polyrank.models.config import NewEncoderConfig
from polyrank.models.description import Shapes, shapes_in, shards_of
from polyrank.models.encoder_checks import (
    require_own_vocabulary,
    require_sizes,
    require_text_encoder,
)
from polyrank.models.source import faults_named, remedy_without_model
from polyrank.tokens.batching import Batch
from polyrank.tokens.saved_tokenizer import read_tokenizer
from polyrank.tokens.tokenizer import TextTokenizer

BACKBONE_FOLDER = "backbone"
CANDIDATE_FOLDER = "candidate_backbone"
"""The folder of the candidates' encoder, where it is another than that of the contexts."""


WeightsDtype = Literal["float32", "bfloat16", "auto"]
"""The dtype that an encoder's weights are kept in; `auto` is that of the file."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
KEPT = (torch.bfloat16, torch.float16)
"""The dtypes of weights that are kept to save memory, for inference alone."""


class Backbone(nn.Module):
    """An encoder without its pooling layer."""

    is_static = False
    """Whether it averages word vectors and has one output per text."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        config: Any = encoder.config
        accepted = inspect.signature(encoder.forward).parameters
        self.kind: str | None = config.model_type
        """The kind of encoder, `bert` for instance; None for one inside a graph."""
        self.width: int = config.hidden_size
        self.vocab_size: int | None = getattr(config, "vocab_size", None)
        self.has_segments = (
            "token_type_ids" in accepted and getattr(config, "type_vocab_size", 0) >= 2
        )
        self.first_place = first_place_of(encoder)
        positions: int | None = getattr(config, "max_position_embeddings", None)
        self.max_length = None if positions is None else positions - self.first_place
        self.is_causal = any(getattr(each, "is_causal", False) for each in encoder.modules())
        """Whether a token's output knows nothing of the tokens after it, as in most decoders."""
        self.switches = {"use_cache": False} if "use_cache" in accepted else {}
        """What is switched off: nothing is generated, so that no keys are kept for later."""

    def forward(self, batch: Batch) -> Tensor:
        """Token outputs (B, T, h)."""
        inputs: dict[str, Any] = {"input_ids": batch["input_ids"], **self.switches}
        inputs["attention_mask"] = batch.get("attention_mask")
        if self.has_segments and "token_type_ids" in batch:
            inputs["token_type_ids"] = batch["token_type_ids"]
        with known_ids(batch["input_ids"]):
            result: Tensor = self.encoder(**inputs).last_hidden_state
        return result

    @torch.no_grad()
    def output_norm(self) -> float:
        """The mean Euclidean norm of the outputs of arbitrary tokens."""
        generator = torch.Generator().manual_seed(0)
        encoder: Any = self.encoder
        size: int = encoder.config.vocab_size
        ids = torch.randint(size, (8, 16), generator=generator)
        outputs = self({"input_ids": ids.to(next(self.parameters()).device)})
        return float(outputs.norm(dim=-1).mean())


@contextlib.contextmanager
def known_ids(ids: Tensor) -> Iterator[None]:
    """Raise ModelError where an encoder has no embedding for one of these ids."""
    try:
        yield
    except IndexError as error:
        raise unknown_ids(int(ids.max())) from error


def unknown_ids(highest: int) -> ModelError:
    """The error for ids of which the encoder has no embedding for the highest."""
    return ModelError(
        f"The tokeniser gives ids up to {highest:,}, for which the encoder has no embedding.",
        "The folder mixes files of two models; download it again.",
    )


class Tower(NamedTuple):
    """An encoder and the tokeniser of its texts."""

    backbone: Backbone
    tokenizer: TextTokenizer


def first_place_of(encoder: nn.Module) -> int:
    """The position of a text's first token: 0, but in RoBERTa and its kin the one after padding's.

    These, such as XLM-R, CamemBERT and MPNet, give padding a position of its own.
    """
    config: Any = encoder.config
    if config.model_type in ROBERTAS:
        return int(config.pad_token_id) + 1
    for name, module in encoder.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return 0 if module.padding_idx is None else module.padding_idx + 1
    return 0


def choose_attention(encoder: Any, name: str) -> None:
    """Compute attention by an implementation of `transformers`; a family without choice stays."""
    if not hasattr(encoder, "set_attn_implementation"):
        return
    with quiet(), contextlib.suppress(ValueError):
        encoder.set_attn_implementation(name)


def twin_of(backbone: Backbone) -> Backbone:
    """An encoder for the other side that starts alike.

    It is the same one, instead of a copy, if its weights are kept in 16 bits and cannot change.
    """
    parameter = next(backbone.parameters())
    if parameter.dtype in KEPT and not parameter.is_meta:
        return backbone
    return copy.deepcopy(backbone)


def require_weights_dtype(name: str) -> None:
    """Raise UsageError for the name of a dtype that weights cannot be kept in."""
    known = get_args(WeightsDtype)
    if name not in known:
        raise UsageError(
            f"weights_dtype must be one of {', '.join(known)}, got {name!r}.",
            nearest(str(name), known),
        )


def load_encoder(folder: Path, weights_dtype: str = "float32") -> nn.Module:
    """Load an encoder with its weights, in a dtype of `WeightsDtype`.

    Raises ModelError if there is none, or if weights of the encoder itself are missing.
    """
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"The folder {folder} is not a model: it has no config.json.",
            remedy_without_model(
                folder, "Give the folder of a saved polyrank model or encoder, or a hub id."
            ),
        )
    from transformers import AutoConfig, AutoModel

    require_text_encoder(folder)
    shards_of(folder)  # which transformers would follow anywhere
    with faults_named(
        f"The encoder in {folder} could not be loaded",
        "Give an encoder with config.json, its tokeniser and model.safetensors. If it has only "
        "pytorch_model.bin, convert it once with transformers: "
        "AutoModel.from_pretrained(NAME).save_pretrained(FOLDER), and AutoTokenizer likewise.",
    ):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        files = folder.glob("*.safetensors")
        shapes = {name: shape for file in files for name, shape in shapes_in(file).items()}
        require_sizes(config, folder, shapes)
        model_class: Any = AutoModel._model_mapping[type(config)]
        with quiet():
            encoder, report = AutoModel.from_pretrained(
                folder,
                config=config,
                dtype=DTYPES.get(weights_dtype, "auto"),
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused below, by name
                **without_pooling(model_class),
            )
    misshapen = sorted(key[0] for key in report["mismatched_keys"])
    if misshapen:
        raise ModelError(
            f"The weights in {folder} have {len(misshapen)} tensors whose shapes differ from its "
            f"config.json says: {shorten(misshapen)}.",
            "The folder mixes files of two models; download it again.",
        )
    missing = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise ModelError(
            f"The weights in {folder} lack {len(missing)} tensors that the encoder needs: "
            f"{shorten(missing)}.",
            "The folder is incomplete or its config.json is another model's; download it again.",
        )
    return keep_weights(encoder, encoder.dtype)


def build_encoder(
    folder: Path, shapes: Shapes, *, trainable: bool = True, dtype: torch.dtype = torch.float32
) -> nn.Module:
    """The encoder described in `folder`, before weights of these shapes are loaded.

    For inference, a BERT is built without `transformers`. Its weights, and all that are kept in 16
    bits, are on the meta device, to be replaced by those of a file. A variant that `transformers`
    does not have is always our own.
    """
    described = read_config(folder)
    is_kept = dtype in KEPT
    if described is not None and (not trainable or described.model_type == VARIANT):
        require_sizes(described, folder, shapes)
        with torch.device("meta") if is_kept or not trainable else contextlib.nullcontext():
            return keep_weights(Bert(described).to(dtype), dtype)
    from transformers import AutoConfig, AutoModel

    with faults_named(
        f"The encoder's description in {folder} cannot be used",
        "Save the model again, or download the folder again.",
    ):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        require_sizes(config, folder, shapes)
        model_class: Any = AutoModel._model_mapping[type(config)]
        with without_weights() if is_kept else contextlib.nullcontext():
            encoder = AutoModel.from_config(
                config, dtype=dtype, trust_remote_code=False, **without_pooling(model_class)
            )
    return keep_weights(encoder, dtype)


def keep_weights(encoder: nn.Module, dtype: torch.dtype) -> nn.Module:
    """An encoder for inference, whose weights can be trained unless `dtype` keeps them."""
    encoder.requires_grad_(dtype not in KEPT)
    for module in encoder.modules():  # Gemma's scale was rounded to the dtype of the weights
        if hasattr(module, "scalar_embed_scale"):
            module.embed_scale = torch.tensor(module.scalar_embed_scale)
    return encoder.eval()


def load_tokenizer(folder: Path, *, trainable: bool = True) -> Any:
    """The tokeniser in a folder; `transformers`' own class only for a model that is `trainable`.

    Raises ModelError if there is none.
    """
    remedy = "Put the files of the tokeniser (tokenizer.json) beside config.json."
    with faults_named(f"The tokeniser in {folder} could not be loaded", remedy):
        saved = None if trainable else read_tokenizer(folder)
        if saved is not None:
            return saved
        require_own_vocabulary(folder)
        from transformers import AutoTokenizer

        with quiet():  # it also reads config.json, and warns of kinds that are ours
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):  # made up for want of a file
        raise ModelError(f"The tokeniser in {folder} has no vocabulary.", remedy)
    return tokenizer


@contextlib.contextmanager
def without_weights() -> Iterator[None]:
    """What is made has its weights on the meta device; buffers, which no file has, are real."""
    from accelerate import init_empty_weights
    from transformers.initialization import no_init_weights

    with no_init_weights(), init_empty_weights(include_buffers=False):
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' bars, and its report of weights that are left out on purpose."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def without_pooling(model_class: Any) -> dict[str, bool]:
    """Arguments that leave out an encoder's pooling layer, if it has one."""
    takes = "add_pooling_layer" in inspect.signature(model_class.__init__).parameters
    return {"add_pooling_layer": False} if takes else {}


def shorten(names: list[str], most: int = 5) -> str:
    """The first names of a list, and the number of the others."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def new_encoder(config: NewEncoderConfig, tokenizer: Any) -> nn.Module:
    """A BERT without pooling layer for a tokeniser's vocabulary, with weights drawn as in BERT.

    Set the seed beforehand. Attention weights are never dropped, as everywhere in polyrank.
    """
    from transformers import AutoConfig, AutoModel

    form = AutoConfig.for_model(
        "bert",
        vocab_size=len(tokenizer),
        hidden_size=config.width,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        intermediate_size=config.intermediate or 4 * config.width,
        max_position_embeddings=config.positions,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
    )
    made: nn.Module = AutoModel.from_config(form, dtype=torch.float32, add_pooling_layer=False)
    return made.eval()

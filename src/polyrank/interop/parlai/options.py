"""The options of a ParlAI ranker that define its scores, and those that cannot be kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from polyrank.errors import ModelError

Architecture = Literal["bi", "poly", "cross"]

AGENTS: Mapping[str, Architecture] = {
    "transformer/biencoder": "bi",
    "transformer/ranker": "bi",
    "transformer/polyencoder": "poly",
    "transformer/crossencoder": "cross",
}
"""The agents that are read, and what each becomes."""
CLASSES = {
    "parlai.agents.transformer.biencoder:BiencoderAgent": "transformer/biencoder",
    "parlai.agents.transformer.biencoder:IRFriendlyBiencoderAgent": "transformer/biencoder",
    "parlai.agents.transformer.transformer:TransformerRankerAgent": "transformer/ranker",
    "parlai.agents.transformer.polyencoder:PolyencoderAgent": "transformer/polyencoder",
    "parlai.agents.transformer.polyencoder:IRFriendlyPolyencoderAgent": "transformer/polyencoder",
    "parlai.agents.transformer.crossencoder:CrossencoderAgent": "transformer/crossencoder",
}
"""The other names of these agents."""
KNOWN: Mapping[str, tuple[str, ...]] = {
    "variant": ("xlm", "bart", "aiayn", "prelayernorm"),
    "activation": ("gelu", "relu"),
    "reduction_type": ("first", "mean", "max"),
    "polyencoder_type": ("codes", "n_first"),
    "poly_attention_type": ("basic", "sqrt"),
    "codes_attention_type": ("basic", "sqrt"),
    "dict_tokenizer": (
        *("bpe", "gpt2", "bytelevelbpe", "slow_bytelevel_bpe"),
        *("re", "split", "space"),
    ),
}
"""The values that are read, by option; others are refused."""
DEFAULTS: Mapping[str, Any] = {
    "variant": "aiayn",
    "activation": "relu",
    "reduction_type": "mean",
    "polyencoder_type": "codes",
    "poly_n_codes": 64,
    "poly_attention_type": "basic",
    "codes_attention_type": "basic",
    "dict_tokenizer": "re",
    "embeddings_scale": True,
    "output_scaling": 1.0,
    "n_segments": 0,
    "share_encoders": True,
    "share_word_embeddings": True,
    "truncate": -1,
    "history_size": -1,
    "delimiter": "\n",
}
"""ParlAI's values for options that an older checkpoint does not name."""
LARGEST = 1 << 30
TEXT = ("a text", lambda value: type(value) is str)
SWITCH = ("true or false", lambda value: type(value) is bool)
SIZE = ("a whole number above 0", lambda value: type(value) is int and 0 < value <= LARGEST)
LIMIT = ("a whole number", lambda value: type(value) is int and abs(value) <= LARGEST)
NUMBER = ("a number", lambda value: type(value) in (int, float) and abs(value) <= LARGEST)
SHARE = ("a number from 0 to 1", lambda value: type(value) in (int, float) and 0 <= value <= 1)
KINDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    **dict.fromkeys(("n_layers", "n_heads", "embedding_size", "ffn_size", "poly_n_codes"), SIZE),
    **dict.fromkeys(("n_encoder_layers", "n_segments", "dict_max_ngram_size"), LIMIT),
    **dict.fromkeys(("truncate", "text_truncate", "label_truncate", "history_size"), LIMIT),
    **dict.fromkeys(("dropout", "attention_dropout"), SHARE),
    **dict.fromkeys(("embeddings_scale", "share_encoders", "share_word_embeddings"), SWITCH),
    **dict.fromkeys(("fp16", "force_fp16_tokens", "normalize_sent_emb"), SWITCH),
    **dict.fromkeys(("dict_lower", "bpe_add_prefix_space", "split_lines"), SWITCH),
    **dict.fromkeys(("dict_starttoken", "dict_endtoken", "dict_nulltoken"), TEXT),
    **dict.fromkeys(("dict_unktoken", "delimiter"), TEXT),
    "output_scaling": NUMBER,
}
"""What an option must be if it is given: in words, and as a check."""
REQUIRED = ("n_layers", "n_heads", "embedding_size", "ffn_size")
UNSUPPORTED = (
    "person_tokens",
    "special_tok_lst",
    "history_reversed",
    "history_add_global_end_token",
    "use_memories",
)
"""Options that change what a model reads, and have no equal here."""


@dataclass(frozen=True)
class Options:
    """What defines the scores of a ranker; every field is named as ParlAI's option."""

    agent: str
    architecture: Architecture
    values: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        """The value of an option; None where neither the checkpoint nor ParlAI has one."""
        if name.startswith("__"):
            raise AttributeError(name)
        value = self.values.get(name)
        return DEFAULTS.get(name) if value is None else value

    @property
    def adds_tokens(self) -> bool:
        """Whether a text gets a start and an end token."""
        return self.agent != "transformer/ranker"

    @property
    def pads_vocabulary(self) -> bool:
        """Whether the vocabulary is padded to a multiple of 8."""
        return bool(self.fp16 or self.force_fp16_tokens)

    @property
    def layers(self) -> int:
        """The number of layers of an encoder."""
        own = self.n_encoder_layers or -1
        return int(own if own > 0 else self.n_layers)

    def limit(self, name: str) -> int | None:
        """The most tokens of a text: `text_truncate` or `label_truncate`; None without a limit."""
        value = int(getattr(self, name) or self.truncate)
        return value if value > 0 else None


def parse_options(values: Mapping[str, Any], file: Path) -> Options:
    """The options of a ranker. Raises ModelError for what cannot be kept, by its name."""
    named = str(values.get("model"))
    agent = CLASSES.get(named, named)
    if agent not in AGENTS:
        raise ModelError(
            f"{file} describes the agent {named!r}, which is not a ranker that polyrank can read.",
            f"These can be imported: {', '.join(AGENTS)}.",
        )
    for name, (words, fits) in KINDS.items():
        value = values.get(name)
        if name in REQUIRED if value is None else not fits(value):
            raise ModelError(
                f"{file} should say {name} as {words}, got {value!r}.",
                "Give the .opt file that ParlAI wrote for these weights.",
            )
    options = Options(agent, AGENTS[agent], values)
    for name, known in KNOWN.items():
        if name.startswith(("poly", "codes")) and options.architecture != "poly":
            continue
        if getattr(options, name) not in known:
            raise ModelError(
                f"{file} has {name} = {getattr(options, name)!r}, which polyrank does not have.",
                f"Checkpoints with {name} = {', '.join(known)} can be imported.",
            )
    for name in UNSUPPORTED:
        if values.get(name):
            raise unsupported(file, name, values[name])
    if (values.get("dict_max_ngram_size") or -1) > 1:
        raise unsupported(file, "dict_max_ngram_size", values["dict_max_ngram_size"])
    if values.get("split_lines") and options.delimiter != "\n":
        raise unsupported(file, "split_lines with another delimiter than a new line", True)
    if options.embedding_size % options.n_heads:
        raise ModelError(
            f"{file} has embedding_size = {options.embedding_size}, which is not a multiple of "
            f"n_heads = {options.n_heads}.",
            "Give the .opt file that ParlAI wrote for these weights.",
        )
    return options


def unsupported(file: Path, name: str, value: Any) -> ModelError:
    """The error for an option that changes what a model reads."""
    return ModelError(
        f"{file} has {name} = {value!r}, so that its scores would differ here.",
        "Such checkpoints cannot be imported.",
    )

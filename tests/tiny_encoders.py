"""Tiny encoders of many families, with seeded random weights and tokenisers built in code.

The weights are spread widely, so that different texts get clearly different outputs.
"""

import string

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModel,
    BertConfig,
    BertTokenizer,
    CamembertConfig,
    DebertaConfig,
    DebertaV2Config,
    DistilBertConfig,
    DistilBertTokenizer,
    ElectraConfig,
    ElectraTokenizer,
    Gemma3TextConfig,
    MistralConfig,
    ModernBertConfig,
    MPNetConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    RobertaConfig,
    RobertaTokenizer,
    XLMRobertaConfig,
)

from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder

FAMILIES = ("bert", "electra", "distilbert", "modernbert", "roberta")
DECODERS = ("qwen3", "mistral", "gemma3")
"""Decoders that encode: the first two read forwards only, the last reads both ways."""
OTHER_FAMILIES = ("xlm-roberta", "camembert", "mpnet", "deberta", "deberta-v2", *DECODERS)
POSITIONS = 64
WIDTH = 32
SPREAD = 0.2
SOME_WORDS = """the a
of to and in is how do i what you my it not with file open read write disk full
index list sort python error line text model train search print kernel driver install package
boot network wifi sound screen old new turn first second third last hello thanks yes no"""
WORDS = SOME_WORDS.split()
TEXTS = [
    "how do i read a file",
    "the wifi driver is not in the kernel",
    "",
    "print",
    "install the new package and boot with the old kernel then search the index to the last line",
    "yes",
    "sort a list in python!",
    "sound and screen",
    "thanks",
    "What is my DISK error? xyzzy 42",
]
LONG = " ".join(f"{word} {other}" for word in WORDS[:9] for other in WORDS[9:19])  # > POSITIONS


def wordpieces():
    """Special tokens, letters with their continuations, digits, signs and some words."""
    letters = string.ascii_lowercase + string.digits
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *string.punctuation, *letters]
    pieces += [f"##{letter}" for letter in letters]
    pieces += [word for word in WORDS if len(word) > 1]
    return {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}


def byte_pairs():
    """The vocabulary and the merges of a byte-level BPE: the special tokens stand first."""
    vocabulary = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    vocabulary += sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = []
    for word in WORDS:
        for whole in (word, f"Ġ{word}"):
            for end in range(1, len(whole)):
                merges.append((whole[:end], whole[end]))
                vocabulary.append(whole[: end + 1])
    numbered = {token: number for number, token in enumerate(dict.fromkeys(vocabulary))}
    return numbered, list(dict.fromkeys(merges))


def modern_tokenizer():
    """A tokeniser of no class of its own, with the template in its file, as ModernBERT has."""
    vocabulary = wordpieces()
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")],
    )
    tokenizer.add_special_tokens([AddedToken(token) for token in list(vocabulary)[:5]])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        unk_token="[UNK]",
        mask_token="[MASK]",
        model_input_names=["input_ids", "attention_mask"],
    )


TEMPLATES = {
    "mpnet": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
    "deberta": ("<s> $A </s>", "<s> $A </s> $B:1 </s>:1"),
    "xlm-roberta": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
    "camembert": ("<s> $A </s>", "<s> $A </s> </s> $B </s>"),
    "deberta-v2": ("<s> $A </s>", "<s> $A </s> $B:1 </s>:1"),
    "mistral": ("<s> $A", "<s> $A <s> $B"),
    "gemma3": ("<s> $A </s>", "<s> $A </s> <s> $B </s>"),
    "qwen3": ("$A <|end|>", "$A $B <|end|>"),
}
"""What each family puts around one text and around two."""


def fast_tokenizer(family):
    """A tokeniser as those of the family: SentencePiece's pieces, or BPE of bytes for Qwen3."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|end|>"]
    if family == "qwen3":
        vocabulary, merges = byte_pairs()
        vocabulary["<|end|>"] = len(vocabulary)
        tokenizer = Tokenizer(models.BPE(vocabulary, merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
    else:
        letters = string.ascii_letters + string.digits + string.punctuation
        pieces = [*special, *(f"▁{word}" for word in WORDS), "▁", *letters]
        scored = [(piece, -float(len(piece) < 2)) for piece in dict.fromkeys(pieces)]
        tokenizer = Tokenizer(models.Unigram(scored, unk_id=3))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
    single, pair = TEMPLATES[family]
    known = [(token, tokenizer.token_to_id(token)) for token in ("<s>", "</s>", "<|end|>")]
    tokenizer.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=known)
    tokenizer.add_special_tokens([AddedToken(token) for token in special])
    named = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    if family == "qwen3":  # whose last token is not the end of a text, but the padding
        named["pad_token"] = "<|end|>"
    if family == "mistral":
        named["pad_token"] = "</s>"
    if family not in DECODERS:
        named |= {"cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        padding_side="left" if family in DECODERS else "right",
        model_input_names=["input_ids", "attention_mask"],
        **named,
    )


def tokenizer_of(family):
    if family in TEMPLATES:
        return fast_tokenizer(family)
    if family == "roberta":
        vocabulary, merges = byte_pairs()
        return RobertaTokenizer(vocab=vocabulary, merges=merges)
    if family == "modernbert":
        return modern_tokenizer()
    classes = {
        "bert": BertTokenizer,
        "electra": ElectraTokenizer,
        "distilbert": DistilBertTokenizer,
    }
    return classes[family](vocab=wordpieces(), do_lower_case=True)


def config_of(family, vocab_size):
    sizes = {
        "vocab_size": vocab_size,
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": POSITIONS,
        "initializer_range": SPREAD,
    }
    if family == "bert":
        return BertConfig(**sizes)
    if family == "electra":
        return ElectraConfig(**sizes, embedding_size=16)
    if family == "roberta":
        sizes["max_position_embeddings"] = POSITIONS + 2  # the first is at pad_token_id + 1
        return RobertaConfig(**sizes, type_vocab_size=1, pad_token_id=1, bos_token_id=0)
    if family in DECODERS:
        return decoder_config(family, sizes)
    if family in OTHER_FAMILIES:
        sizes |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
        if family in ("xlm-roberta", "camembert", "mpnet"):
            sizes["max_position_embeddings"] = POSITIONS + 2
        if family in ("deberta", "deberta-v2"):  # as DeBERTa-v3 has them
            sizes |= {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
            sizes |= {"position_biased_input": False, "max_relative_positions": -1}
        if family == "deberta-v2":
            sizes |= {"share_att_key": True, "norm_rel_ebd": "layer_norm", "position_buckets": 16}
        classes = {
            "xlm-roberta": XLMRobertaConfig,
            "camembert": CamembertConfig,
            "mpnet": MPNetConfig,
            "deberta": DebertaConfig,
            "deberta-v2": DebertaV2Config,
        }
        return classes[family](**sizes)
    if family == "distilbert":
        return DistilBertConfig(
            vocab_size=vocab_size,
            dim=WIDTH,
            n_layers=2,
            n_heads=2,
            hidden_dim=48,
            max_position_embeddings=POSITIONS,
            initializer_range=SPREAD,
        )
    specials = {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3}
    specials |= {"bos_token_id": 2, "eos_token_id": 3}
    return ModernBertConfig(**sizes, **specials, initializer_cutoff_factor=2.0)


def decoder_config(family, sizes):
    """Grouped queries with heads of their own width, as Qwen3 and Gemma have."""
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    sizes |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    if family == "qwen3":
        return Qwen3Config(**sizes, tie_word_embeddings=True)
    if family == "mistral":
        return MistralConfig(**sizes, sliding_window=None)
    layers = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8}
    return Gemma3TextConfig(
        **sizes, **layers, use_bidirectional_attention=True, query_pre_attn_scalar=16
    )


def build_encoder_folder(family, folder, seed=0, **sizes):
    """Save a tiny encoder and its tokeniser as `transformers` writes them; returns the folder.

    `sizes` replace settings of its configuration, such as `hidden_size`.
    """
    tokenizer = tokenizer_of(family)
    config = config_of(family, len(tokenizer))
    config.update(sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoder = AutoModel.from_config(config)
    encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


VARIANTS = {
    "bi": (BiEncoder, {"temperature": 1.0}),
    "poly-learnt": (PolyEncoder, {"temperature": 1.0, "num_codes": 5}),
    "poly-first": (
        PolyEncoder,
        {"temperature": 1.0, "num_codes": 5, "context_vectors": "first"},
    ),
    "poly-last": (
        PolyEncoder,
        {"temperature": 1.0, "num_codes": 5, "context_vectors": "last", "attention": "sqrt"},
    ),
    "poly-last-and-first": (
        PolyEncoder,
        {"temperature": 1.0, "num_codes": 5, "context_vectors": "last_and_first"},
    ),
    "cross": (CrossEncoder, {"head": "linear"}),
    "cross-interaction": (CrossEncoder, {"head": "interaction", "reading": "pairs"}),
}
"""The architectures in all their kinds of context vectors, with scores of the order of one."""


def load_variant(variant, folder, *, dtype="float32", **settings):
    """A model of a variant around the encoder in `folder`, its two towers grown apart."""
    model_class, defaults = VARIANTS[variant]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = model_class.from_pretrained(
            folder, device="cpu", dtype=dtype, **(defaults | settings)
        )
        with torch.no_grad():
            if isinstance(model, CrossEncoder):
                for parameter in model.head.parameters():
                    parameter.normal_(std=0.3)
            if model.candidate_tower is not None:
                for parameter in model.candidate_tower.parameters():
                    parameter.add_(0.02 * torch.randn_like(parameter))
    return model


def scores_of(model, contexts, candidates):
    """Every context against every candidate, whichever the architecture: (B, N)."""
    return model.score(contexts, candidates)

"""Tiny encoders of five families, with seeded random weights and tokenisers built in code.

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
    DistilBertConfig,
    DistilBertTokenizer,
    ElectraConfig,
    ElectraTokenizer,
    ModernBertConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaTokenizer,
)

from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.poly_encoder import PolyEncoder

FAMILIES = ("bert", "electra", "distilbert", "modernbert", "roberta")
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


def tokenizer_of(family):
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
    "cross-interaction": (CrossEncoder, {"head": "interaction"}),
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

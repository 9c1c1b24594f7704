"""A tokeniser trained on texts: WordPiece with BERT's special tokens. Knows nothing of corpora."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import WordPiece
from transformers import PreTrainedTokenizerFast

from polyrank.config import require
from polyrank.errors import DataError

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ALPHABET_SHARE = 8
"""Single characters take at most one in this many pieces; rarer characters are [UNK]."""


def train_tokenizer(
    texts: Iterable[str], size: int, *, lower_case: bool = True, max_length: int = 512
) -> PreTrainedTokenizerFast:
    """A WordPiece tokeniser (Devlin et al., 2019) of at most `size` pieces.

    `texts` are read twice and must be the same each time. The same texts give the same tokeniser:
    the trainer breaks ties by the numbers of the characters, whose order changes from run to run,
    so they are numbered beforehand. Accents are kept, since removing them splits Korean syllables.
    Raises UsageError for a size that is too small, DataError if there is no text.
    """
    require(size >= 10 * len(SPECIAL), "vocabulary", f"at least {10 * len(SPECIAL)}", size)
    letters = alphabet_of(texts, size, lower_case=lower_case)
    inner = [f"##{letter}" for letter in letters if letter.isalnum()]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=[*SPECIAL, *inner],
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    blank = blank_tokenizer(WordPiece(unk_token="[UNK]"), lower_case=lower_case)
    blank.train_from_iterator(texts, trainer)
    known = sorted(blank.get_vocab().items(), key=lambda item: item[1])
    vocabulary = {piece: number for number, (piece, _) in enumerate(known)}
    return finished(WordPiece(vocabulary, unk_token="[UNK]"), lower_case, max_length)


def alphabet_of(texts: Iterable[str], size: int, *, lower_case: bool) -> list[str]:
    """The most frequent characters of the texts, in a fixed order. Raises DataError if none."""
    cleaned = blank_tokenizer(WordPiece(unk_token="[UNK]"), lower_case=lower_case).normalizer
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(cleaned.normalize_str(text))
    usual = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    letters = sorted(letter for letter, _ in usual[: size // ALPHABET_SHARE] if letter.strip())
    if not letters:
        raise DataError("There is no text to make a vocabulary from.", "Give a corpus with texts.")
    return letters


def blank_tokenizer(model: WordPiece, *, lower_case: bool) -> Any:
    """BERT's words, with composed characters and accents kept."""
    made: Any = Tokenizer(model)
    bert = normalizers.BertNormalizer(strip_accents=False, lowercase=lower_case)
    made.normalizer = normalizers.Sequence([normalizers.NFC(), bert])
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def finished(model: WordPiece, lower_case: bool, max_length: int) -> PreTrainedTokenizerFast:
    """A tokeniser with BERT's special tokens and segments around the texts."""
    made = blank_tokenizer(model, lower_case=lower_case)
    made.decoder = decoders.WordPiece()
    numbers = [(token, SPECIAL.index(token)) for token in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=numbers
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_max_length=max_length,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )

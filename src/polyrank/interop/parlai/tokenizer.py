r"""ParlAI's tokenisers as `tokenizers` of the same ids.

ParlAI splits with Python's `re`, whose \w and \s are not those of other engines; here they are
written out. A piece of `bpe` that the dictionary lacks is "unknown" there. Here it has an id of its
own, above those of the dictionary, whose vector is that of "unknown": merges go through it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from polyrank.errors import ModelError
from polyrank.interop.parlai.dictionary import (
    BYTE_LEVEL,
    escaped,
    pieces_files,
    read_pieces,
    special_tokens,
)
from polyrank.interop.parlai.files import Files
from polyrank.interop.parlai.options import Options

WORD = r"\p{L}\p{N}_"
r"""Python's \w, within square brackets."""
SPACE = (
    r"\x{9}-\x{d}\x{1c}-\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}"
    r"\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}"
)
r"""Python's \s, within square brackets."""
CASED, IGNORED = r"[\p{Cased}&&[^\p{Case_Ignorable}]]", r"\p{Case_Ignorable}"
BEFORE = rf"{CASED}|{CASED}{IGNORED}|{CASED}{IGNORED}{IGNORED}"
FINAL_SIGMA = rf"(?<={BEFORE})Σ(?!{IGNORED}*{CASED})"
"""A capital sigma that Python makes small in the form for the end of a word."""
PATTERNS = {
    "re": rf"[{WORD}]+|[^{WORD}{SPACE}]|\n",
    "bpe": rf"[{WORD}]+|[^{WORD}{SPACE}]",
    "split": rf"[.,;:!?]|[^{SPACE}.,;:!?]+",
    "space": r"[^ ]+",
}
"""What is one word, by tokeniser."""
END = "</w>"
"""Ends the last piece of a word in the merges of `bpe`."""
CONTINUED = "@@"
"""Ends every other piece of a word in the dictionary of `bpe`."""
EMPTY = "\ue000"
"""Stands for the empty word that `space` finds between two spaces, and in white space alone."""


class Converted(NamedTuple):
    """A tokeniser, and what it needs of the encoder."""

    pretrained: Any
    unknown: int
    num_aliases: int
    """The number of ids above the dictionary's whose vector is that of "unknown"."""


def convert_tokenizer(files: Files, options: Options, ids: dict[str, int]) -> Converted:
    """The tokeniser of `transformers` with ParlAI's ids. Raises ModelError for damaged files."""
    from transformers import PreTrainedTokenizerFast

    kind = options.dict_tokenizer
    special = special_tokens(options)
    if kind == "bpe":
        special = {name: token + END for name, token in special.items()}
        backend = subwords(files, ids, special["unk"])
    elif kind in BYTE_LEVEL:
        backend = byte_pieces(files, options, ids, special)
    else:
        backend = words(kind, ids, special["unk"])
    if options.dict_lower:
        lower = [normalizers.Replace(Regex(FINAL_SIGMA), "ς"), normalizers.Lowercase()]
        parts = [*lower, *([] if backend.normalizer is None else [backend.normalizer])]
        backend.normalizer = normalizers.Sequence(parts)
    if options.adds_tokens:
        start, end = special["start"], special["end"]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{start} $A {end}",
            pair=f"{start}:0 $A:0 {end}:0 {start}:1 $B:1 {end}:1",
            special_tokens=[(start, backend.token_to_id(start)), (end, backend.token_to_id(end))],
        )
    finds_special = kind == "bytelevelbpe"  # in a text, too
    pretrained = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=special["null"],
        unk_token=special["unk"],
        split_special_tokens=not finds_special,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    if finds_special:
        tokens = [AddedToken(one, special=True, normalized=True) for one in special.values()]
        pretrained.add_special_tokens({"additional_special_tokens": tokens})
    num_aliases = max(backend.get_vocab().values()) + 1 - len(ids)
    return Converted(pretrained, ids[special_tokens(options)["unk"]], num_aliases)


def words(kind: str, ids: dict[str, int], unknown: str) -> Tokenizer:
    """A tokeniser whose words are looked up whole."""
    known = dict(ids)
    if kind == "space" and "" in known:
        known[EMPTY] = known.pop("")
    made = Tokenizer(models.WordLevel(known, unk_token=unknown))
    made.pre_tokenizer = matches(kind)
    if kind == "space":
        made.normalizer = normalizers.Sequence(
            [
                normalizers.Replace(Regex(rf"\A[{SPACE}]+\z"), EMPTY),
                normalizers.Replace(Regex(rf"\A[{SPACE}]+|[{SPACE}]+\z"), ""),
                normalizers.Replace(Regex(" (?= )"), f" {EMPTY}"),
            ]
        )
    return made


def matches(kind: str) -> Any:
    """What finds the words of a text."""
    return pre_tokenizers.Split(Regex(PATTERNS[kind]), behavior="removed", invert=True)


def subwords(files: Files, ids: dict[str, int], unknown: str) -> Tokenizer:
    """The tokeniser `bpe`, whose words are merged from letters by the codes of subword-nmt."""
    merges = read_codes(files.beside(".codecs"))
    vocabulary = {
        token.removesuffix(CONTINUED) if token.endswith(CONTINUED) else token + END: number
        for token, number in ids.items()
    }
    aliases: dict[str, int] = {}
    for left, right in merges:
        for piece in (left, right, left + right):
            if piece not in vocabulary:
                aliases.setdefault(piece, len(ids) + len(aliases))
    model = models.BPE(
        vocab=vocabulary | aliases, merges=merges, unk_token=unknown, end_of_word_suffix=END
    )
    made = Tokenizer(model)
    made.normalizer = normalizers.Replace("\n", " __newln__ ")
    made.pre_tokenizer = matches("bpe")
    return made


def read_codes(file: Path) -> list[tuple[str, str]]:
    """The merges of subword-nmt, the first to apply first. Raises ModelError if damaged."""
    try:
        first, *lines = file.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except FileNotFoundError:
        raise ModelError(
            f"The tokeniser bpe needs its merges, but there is no {file}.",
            "Copy it from where the checkpoint is; ParlAI writes it beside the dictionary.",
        ) from None
    except (OSError, ValueError) as error:
        raise damaged(file, str(error)) from error
    if first.removeprefix("#version:").strip() != "0.2":
        raise damaged(file, f"the first line should be '#version: 0.2', got {first[:40]!r}")
    merges: dict[tuple[str, str], None] = {}
    for number, line in enumerate(lines, start=2):
        pair = line.strip("\r\n ").split(" ")
        if len(pair) != 2 or not all(pair):
            raise damaged(file, f"line {number} should be two pieces, got {line[:40]!r}")
        merges.setdefault((pair[0], pair[1]))
    return list(merges)


def byte_pieces(
    files: Files, options: Options, ids: dict[str, int], special: dict[str, str]
) -> Tokenizer:
    """A tokeniser whose pieces are merged from bytes."""
    kind = options.dict_tokenizer
    pieces, merges = read_pieces(files, options), pieces_files(files, options)[1]
    try:
        lines = merges.read_text(encoding="utf-8").split("\n")
        # ParlAI drops the first and the last line, whatever they are
        lines = lines[1:-1] if kind != "bytelevelbpe" else lines
        pairs = [line.split() for line in lines if line and not line.startswith("#version")]
        vocabulary = {
            piece: ids[piece if kind == "bytelevelbpe" else escaped(piece)] for piece in pieces
        }
        vocabulary |= {token: ids[token] for token in special.values()}
        model = models.BPE(vocab=vocabulary, merges=[(left, right) for left, right in pairs])
    except Exception as error:  # `tokenizers` raises bare Exceptions
        raise damaged(merges, str(error)) from error
    if kind != "bytelevelbpe":
        model.unk_token = special["unk"]
    made = Tokenizer(model)
    prefix = options.bpe_add_prefix_space
    always = kind != "bytelevelbpe"  # even where a text begins with a space
    if always and prefix:
        made.normalizer = normalizers.Prepend(" ")
    adds = not always and prefix is not False
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=adds)
    return made


def damaged(file: Path, reason: str) -> ModelError:
    """The error for merges that cannot be used."""
    return ModelError(
        f"The merges {file} cannot be used: {reason.rstrip('.')}.",
        "Copy the file again from where the checkpoint is.",
    )

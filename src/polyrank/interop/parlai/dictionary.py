"""ParlAI's dictionary: which token has which id.

The four special tokens come first, then the lines of the file, then what a byte-level tokeniser
knows, then tokens that only make the number a multiple of 8.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from polyrank.errors import ModelError
from polyrank.folder_files import read_json
from polyrank.interop.parlai.files import Files
from polyrank.interop.parlai.options import Options

SPECIAL = {
    "null": "__null__",
    "start": "__start__",
    "end": "__end__",
    "unk": "__unk__",
}
"""ParlAI's special tokens in the order of their ids, with their usual forms."""
OLDER = ("__UNK__", "__NULL__", "__END__", "__START__")
MULTIPLE = 8
BYTE_LEVEL = ("gpt2", "bytelevelbpe", "slow_bytelevel_bpe")
"""The tokenisers whose pieces are bytes."""
PIECES = {
    "-vocab.json": "encoder.json",
    "-merges.txt": "vocab.bpe",
}
"""The two files of a byte-level tokeniser: their ends after the dictionary's name, and what those
of `gpt2` are called where ParlAI downloads them."""


def special_tokens(options: Options) -> dict[str, str]:
    """The form of each special token. Raises ModelError if two are one, or one is switched off."""
    found = {
        kind: default if (given := getattr(options, f"dict_{kind}token")) is None else given
        for kind, default in SPECIAL.items()
    }
    if len({token for token in found.values() if token}) < len(SPECIAL):
        raise ModelError(
            "The checkpoint's special tokens should be four different ones, got "
            f"{', '.join(map(repr, found.values()))}.",
            "Such checkpoints cannot be imported.",
        )
    return found


def read_dictionary(files: Files, options: Options) -> dict[str, int]:
    """The id of every token. Raises ModelError if a file is missing or damaged."""
    special = special_tokens(options)
    ids: dict[str, int] = {}
    add(ids, special.values())
    kind = options.dict_tokenizer
    if kind != "slow_bytelevel_bpe":  # which starts again from its pieces
        add(ids, lines_of(files.dictionary, lower=special["null"] == special["null"].lower()))
    if kind in BYTE_LEVEL:
        pieces = read_pieces(files, options)
        add(ids, pieces if kind == "bytelevelbpe" else map(escaped, pieces))
    if options.pads_vocabulary:
        missing = -len(ids) % MULTIPLE
        padding = [f"__FP16_PAD_{number}__" for number in range(missing)]
        add(ids, [one.lower() for one in padding] if options.dict_lower else padding)
    return ids


def add(ids: dict[str, int], tokens: Iterable[str]) -> None:
    """Give new tokens the next ids."""
    for token in tokens:
        ids.setdefault(token, len(ids))


def lines_of(file: Path, *, lower: bool) -> list[str]:
    """The tokens of a dictionary file, one per line. Raises ModelError if it cannot be read."""
    try:
        lines = file.read_text(encoding="utf-8", errors="ignore").split("\n")
    except OSError as error:
        raise ModelError(
            f"The dictionary {file} cannot be read: {error.strerror or error}.",
            "Copy it again from where the checkpoint is.",
        ) from error
    if lines and not lines[-1]:
        lines.pop()
    tokens = []
    for line in lines:
        token = line.split("\t")[0]
        for mark, character in (("\\n", "\n"), ("\\t", "\t"), ("\\r", "\r")):
            token = token.replace(mark, character)
        tokens.append(token.lower() if lower and token in OLDER else token)
    return tokens


def pieces_files(files: Files, options: Options) -> tuple[Path, Path]:
    """The vocabulary and the merges of a byte-level tokeniser. Raises ModelError if missing."""
    found = []
    for end, downloaded in PIECES.items():
        folder = files.dictionary.parent
        places = [files.beside(end)]
        if options.dict_tokenizer != "bytelevelbpe":
            places += [folder / downloaded, folder / "gpt2" / downloaded]
        there = next((place for place in places if place.is_file()), None)
        if there is None:
            raise ModelError(
                f"The tokeniser {options.dict_tokenizer} of {files.model} needs its pieces, but "
                f"there is no {places[0]}.",
                f"Copy {' or '.join(place.name for place in places[:2])} there; ParlAI keeps "
                "gpt2's in the folder gpt2 of its data."
                if len(places) > 1
                else f"Copy {places[0].name} there; ParlAI writes it with the dictionary.",
            )
        found.append(there)
    return found[0], found[1]


def read_pieces(files: Files, options: Options) -> list[str]:
    """The pieces of a byte-level tokeniser, in order. Raises ModelError if damaged."""
    file = pieces_files(files, options)[0]
    try:
        found: Any = read_json(file)
        pieces: list[str] = list(found)
        if options.dict_tokenizer == "bytelevelbpe":
            pieces.sort(key=found.__getitem__)
        return pieces
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ModelError(
            f"The pieces {file} are not a JSON object of pieces and ids: {error}.",
            "Copy the file again from where the checkpoint is.",
        ) from error


def escaped(piece: str) -> str:
    r"""The form of a byte-level piece in a dictionary: bytes outside ASCII as \x and a number."""
    return "".join(
        chr(byte) if 32 <= byte <= 127 else "\\" + hex(byte).lstrip("0")
        for byte in piece.encode("utf-8")
    )

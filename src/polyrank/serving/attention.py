"""The tokens of a context as people read them: their texts, their turns, and what kind they are.

Knows nothing of HTTP, nor of how a model attends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import takewhile
from typing import Any, Literal

from polyrank.models.attention import AttentionMap
from polyrank.models.poly_encoder import PolyEncoder
from polyrank.records import Context
from polyrank.tokens.tokenizer import cut, side_of

Kind = Literal["text", "special", "separator", "prompt"]
WORD_STARTS = "\u0120\u2581"
"""What byte-level BPE and SentencePiece put before a piece that begins a word."""
CONTINUES = "##"
"""What WordPiece puts before a piece that continues a word."""
DIGITS = 6
"""Decimals of a weight in an answer."""


@dataclass(frozen=True, kw_only=True)
class Token:
    """A token of a context."""

    text: str
    kind: Kind
    """`separator`: what stands between two turns. `prompt`: what the model puts before the text."""
    turn: int | None
    """The number of its turn, from 0, in the context as it was given; None if it is in none."""
    joined: bool
    """Whether it continues the word of the token before it."""


def tokens_of(model: PolyEncoder, context: Context, ids: list[int]) -> list[Token]:
    """The tokens `ids` that a model reads of a context."""
    vocabulary = Vocabulary(model.tokenizer.pretrained)
    pieces = list(map(vocabulary.piece, ids))
    special = vocabulary.special
    marks_starts = any(piece[:1] in WORD_STARTS for piece in pieces if piece)
    tokens: list[Token] = []
    for number, piece, (turn, kind) in zip(
        ids, pieces, places_of(model, context, ids), strict=True
    ):
        if kind == "text" and number in special:
            kind = "special"
        continues = piece.startswith(CONTINUES) and len(piece) > len(CONTINUES)
        begins = piece[:1] in WORD_STARTS if marks_starts else not continues
        follows = bool(tokens) and tokens[-1].kind == kind == "text" and tokens[-1].turn == turn
        text = piece if kind == "special" else vocabulary.text(number, piece, continues)
        tokens.append(Token(text=text, kind=kind, turn=turn, joined=follows and not begins))
    return tokens


class Vocabulary:
    """The pieces of a tokeniser of `transformers`, or of one that a folder has."""

    def __init__(self, pretrained: Any) -> None:
        self.special = set(pretrained.all_special_ids)
        own = pretrained.backend_tokenizer if pretrained.is_fast else pretrained
        self.piece: Callable[[int], str] = (
            own.id_to_token if pretrained.is_fast else own.convert_ids_to_tokens
        )
        options: dict[str, Any] = {"skip_special_tokens": False}
        self.decode: Callable[[list[int]], str] = partial(own.decode, **options)

    def text(self, number: int, piece: str, continues: bool) -> str:
        """The text of a token; the vocabulary's piece where it is not a text on its own."""
        if continues:
            return piece.removeprefix(CONTINUES)
        text = self.decode([number]).strip()
        return piece if not text or "\ufffd" in text else text


def places_of(
    model: PolyEncoder, context: Context, ids: list[int]
) -> list[tuple[int | None, Kind]]:
    """The turn and the kind of each token of a context, whose tokens were cut as those of `ids`."""
    config, tokenizer = model.config, model.tokenizer
    turns = [context] if isinstance(context, str) else list(context)
    first = max(len(turns) - (config.max_turns or len(turns)), 0)
    prompt = config.context_prompt
    texts = [prompt + turns[first], *turns[first + 1 :]] if turns else [prompt]
    between = config.turn_separator
    separator = tokenizer.separator if between is None else tokenizer.encode([between])[0]
    prompted = tokenizer.encode([prompt])[0] if prompt else []
    joined: list[tuple[int, tuple[int | None, Kind]]] = []
    for turn, tokens in enumerate(tokenizer.encode(texts), start=first):
        if turn > first:  # also where the turn before it has no tokens
            joined += [(token, (None, "separator")) for token in separator]
        own = num_equal(prompted, tokens) if turn == first else 0
        joined += [(token, (None, "prompt")) for token in tokens[:own]]
        joined += [(token, (turn, "text")) for token in tokens[own:]]
    before, after = tokenizer.single.prefix, tokenizer.single.suffix
    side = side_of(context, config.context_truncation)
    start = [(token, (None, "prompt")) for token in prompted]
    kept: list[Any] = cut(joined, len(ids) - len(before) - len(after), side, start)  # type: ignore[arg-type]
    special: list[tuple[int | None, Kind]] = [(None, "special")]
    places = [*special * len(before), *(place for _, place in kept), *special * len(after)]
    return places or special * len(ids)  # of nothing at all, an encoder still reads one token


def num_equal(first: list[int], second: list[int]) -> int:
    """The number of equal tokens that two lists begin with."""
    return sum(1 for _ in takewhile(lambda two: two[0] == two[1], zip(first, second, strict=False)))


def described(
    model: PolyEncoder, context: Context, texts: list[str], found: AttentionMap
) -> dict[str, Any]:
    """The attention as an answer has it."""
    config = model.config
    learnt = config.context_vectors == "learnt"
    note = None
    if found.tokens is None:
        note = (
            f"The engine {getattr(model.engine, 'name', '')} runs this model, and its codes are "
            "inside the graph: the attention over tokens cannot be read. Serve the model that it "
            "was exported from to see it."
        )
    return {
        "tokens": [asdict(token) for token in tokens_of(model, context, found.ids)],
        "context_vectors": config.context_vectors,
        "even_share": config.code_mean if learnt else 0.0,
        "codes": None if found.tokens is None else rounded(found.tokens.tolist()),
        "note": note,
        "candidates": [
            {"text": text, "score": score, "weights": weights}
            for text, score, weights in zip(
                texts, found.scores.tolist(), rounded(found.weights.tolist()), strict=True
            )
        ],
    }


def rounded(rows: list[list[float]]) -> list[list[float]]:
    """The numbers with `DIGITS` decimals."""
    return [[round(value, DIGITS) for value in row] for row in rows]

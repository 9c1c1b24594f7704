"""Turns texts into token ids with the encoder's special tokens; each text is tokenised once.

Knows how contexts, candidates and pairs are joined and cut; knows nothing of padding, batches or
models.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Literal, NamedTuple

from polyrank.errors import ModelError, UsageError
from polyrank.json_text import without_lone_surrogates
from polyrank.records import Context

PROBE = "a"

Side = Literal["left", "right"]
"""The side on which a long text loses tokens."""
Truncation = Literal["by_kind", "left", "right"]
"""The same for contexts; `by_kind` cuts a dialogue on the left and a single text on the right."""


class Template(NamedTuple):
    """What the encoder puts before, between and after its texts, with the segment ids of each.

    `segments` has a number for every special token, and one for each text.
    """

    prefix: list[int]
    middle: list[int]
    suffix: list[int]
    segments: tuple[list[int], int, list[int], int, list[int]]


class TextTokenizer:
    """A tokeniser of `transformers` that never truncates or pads on its own.

    Truncation and padding of the stored tokeniser are switched off.
    """

    def __init__(self, tokenizer: Any) -> None:
        self.pretrained = tokenizer
        if tokenizer.is_fast:
            tokenizer.backend_tokenizer.no_truncation()
            tokenizer.backend_tokenizer.no_padding()
        fillers = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)  # masked, whichever it is
        self.pad_id: int = next(each for each in fillers if each is not None)
        ends = (tokenizer.sep_token_id, tokenizer.eos_token_id)
        known = [[each] for each in ends if each is not None]
        self.separator: list[int] = known[0] if known else self.encode(["\n"])[0]
        """What stands between two turns: [SEP], or else the end of a text, or else a new line. It
        may differ from what stands at the end."""
        self.padding: int | None = self.pad_id
        """What pads the rows of a batch; None if rows follow one another instead."""
        self.single, self.pair = self._probe()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text without special tokens; a repeated text is tokenised once.

        A lone surrogate is read as U+FFFD.
        """
        unique = list(dict.fromkeys(texts))
        try:
            ids = self._ids(unique)
        except (TypeError, UnicodeEncodeError):  # tokenizers takes UTF-8 alone
            whole = [without_lone_surrogates(text) for text in unique]
            if whole == unique:
                raise
            ids = self._ids(whole)
        if len(unique) == len(texts):
            return ids
        known = dict(zip(unique, ids, strict=True))
        return [known[text] for text in texts]

    def _ids(self, texts: list[str]) -> list[list[int]]:
        if self.pretrained.is_fast:
            try:
                encodings = self.pretrained.backend_tokenizer.encode_batch_fast(
                    texts, add_special_tokens=False
                )
            except Exception as error:
                if type(error) is not Exception:
                    raise
                raise ModelError(  # a word is unknown, for instance, and [UNK] too
                    f"The tokeniser cannot read a text: {str(error).rstrip('.')}.",
                    "The folder of the model is damaged; download it again.",
                ) from error
            return [encoding.ids for encoding in encodings]
        if not texts:
            return []
        ids: list[list[int]] = self.pretrained(texts, add_special_tokens=False, verbose=False)[
            "input_ids"
        ]
        return ids

    def encode_turns(
        self,
        contexts: Sequence[Context],
        prompt: str = "",
        separator: str | None = None,
        max_turns: int | None = None,
    ) -> list[list[int]]:
        """Token ids of each context, its turns joined by a separator, without special tokens.

        The prompt stands before the first turn. By default, the separator is the tokeniser's.
        `max_turns` keeps only the newest turns.
        """
        newest = slice(None if max_turns is None else -max_turns, None)
        turns = [[c] if isinstance(c, str) else list(c)[newest] for c in contexts]
        between = self.separator if separator is None else self.encode([separator])[0]
        if prompt:
            turns = [[prompt + "".join(context[:1]), *context[1:]] for context in turns]
        flat = self.encode([turn for context in turns for turn in context])
        joined: list[list[int]] = []
        position = 0
        for context in turns:
            ids: list[int] = []
            for number, turn in enumerate(flat[position : position + len(context)]):
                ids += (between if number else []) + turn
            joined.append(ids)
            position += len(context)
        return joined

    def contexts(
        self,
        contexts: Sequence[Context],
        max_length: int,
        truncation: Truncation = "by_kind",
        prompt: str = "",
        *,
        separator: str | None = None,
        max_turns: int | None = None,
        cut_end: bool = False,
    ) -> list[list[int]]:
        """Contexts with special tokens, at most `max_length` tokens each.

        Args:
            contexts: Texts, and dialogues as lists of turns.
            max_length: The most tokens of one; special ones count.
            truncation: The side on which a longer one is cut.
            prompt: What stands before the first turn.
            separator: What stands between turns; by default, the tokeniser's separator.
            max_turns: Keep only this many turns, the newest.
            cut_end: Whether the cut takes the special token at the end, too.
        """
        room = self._room(max_length)
        end = len(self.single.suffix) if cut_end else 0
        joined = self.cut_contexts(
            contexts, room + end, truncation, prompt, separator=separator, max_turns=max_turns
        )
        return [self._wrap(ids) if len(ids) <= room else self.single.prefix + ids for ids in joined]

    def cut_contexts(
        self,
        contexts: Sequence[Context],
        room: int,
        truncation: Truncation,
        prompt: str = "",
        *,
        separator: str | None = None,
        max_turns: int | None = None,
    ) -> list[list[int]]:
        """Contexts without special tokens, at most `room` tokens each; see `contexts`.

        A context that is cut on the left keeps its prompt.
        """
        start = self.encode([prompt])[0] if prompt else []
        joined = self.encode_turns(contexts, prompt, separator, max_turns)
        return [
            cut(ids, room, side_of(context, truncation), start)
            for context, ids in zip(contexts, joined, strict=True)
        ]

    def candidates(
        self,
        texts: Sequence[Context],
        max_length: int,
        truncation: Side = "right",
        prompt: str = "",
        **options: Any,
    ) -> list[list[int]]:
        """Candidates with special tokens, at most `max_length` tokens each.

        A title and its text are joined by the separator. `options` are those of `contexts`.
        """
        return self.contexts(texts, max_length, truncation, prompt, **options)

    def prompt_length(self, prompt: str, max_length: int) -> int:
        """The number of tokens that a prompt takes of a text, the special ones before it included.

        Counted on the prompt alone, as sentence-transformers does: with special tokens and without
        one at the end. Raises UsageError for a prompt that leaves no room for a text.
        """
        if not prompt:
            return 0
        ids = self.encode([prompt])[0]
        if len(ids) >= self._room(max_length):
            raise UsageError(
                f"The prompt {prompt!r} has {len(ids)} tokens, which leaves no room for a text "
                f"within {max_length} tokens.",
                "Choose a greater length or a shorter prompt.",
            )
        wrapped = self._wrap(ids)
        special = set(self.pretrained.all_special_ids)
        return len(wrapped) - sum(token in special for token in wrapped[-1:])

    def join(
        self, context: list[int], candidate: list[int], *, has_end: bool = True
    ) -> tuple[list[int], list[int]]:
        """A pair of bare token ids with special tokens, and its segment ids.

        `has_end` says whether there are special tokens after the candidate.
        """
        template = self.pair
        before, first, between, second, after = template.segments
        suffix = template.suffix if has_end else []
        ids = [*template.prefix, *context, *template.middle, *candidate, *suffix]
        segments = [*before, *[first] * len(context), *between, *[second] * len(candidate)]
        return ids, segments + after[: len(suffix)]

    @property
    def pair_overhead(self) -> int:
        """The number of special tokens of a pair."""
        return len(self.pair.prefix) + len(self.pair.middle) + len(self.pair.suffix)

    def _room(self, max_length: int) -> int:
        return max(max_length - len(self.single.prefix) - len(self.single.suffix), 0)

    def _wrap(self, ids: list[int]) -> list[int]:
        wrapped = self.single.prefix + ids + self.single.suffix
        return wrapped or [self.pad_id]  # an encoder without special tokens still needs one

    def _probe(self) -> tuple[Template, Template]:
        """Find the special tokens by encoding a known text alone and as a pair."""
        bare = list(self.pretrained(PROBE, add_special_tokens=False)["input_ids"])
        alone = list(self.pretrained(PROBE)["input_ids"])
        both = self.pretrained(PROBE, PROBE)
        joined = list(both["input_ids"])
        kinds = list(both.get("token_type_ids", [0] * len(joined)))
        start = find(bare, alone, 0)
        first = find(bare, joined, 0)
        second = find(bare, joined, first + len(bare))
        if not bare or min(start, first, second) < 0:
            raise ModelError(
                f"The tokeniser {type(self.pretrained).__name__} changes texts when it adds "
                "special tokens.",
                "Use an encoder whose tokeniser only adds special tokens around its texts.",
            )
        size = len(bare)
        before, after = alone[:start], alone[start + size :]
        single = Template(before, [], after, ([0] * len(before), 0, [], 0, [0] * len(after)))
        inside = joined[first + size : second]
        between = inside or self.separator  # else two texts become one
        pair = Template(
            joined[:first],
            between,
            joined[second + size :],
            (
                kinds[:first],
                kinds[first],
                kinds[first + size : second] or [kinds[first]] * len(between),
                kinds[second],
                kinds[second + size :],
            ),
        )
        return single, pair


class BareTokenizer(TextTokenizer):
    """A tokeniser for averages of word vectors: it adds no special tokens.

    Batches of its ids are not padded.
    """

    def __init__(self, tokenizer: Any, *, drops_unknown: bool) -> None:
        """`drops_unknown`: leave out the tokens of words that the vocabulary does not have.

        Raises ModelError for a token whose id is beyond the vocabulary, since an average has a
        vector for each of its tokens and no more.
        """
        ids = tokenizer.backend_tokenizer.get_vocab().values()
        highest = max(ids, default=-1)
        if highest >= len(ids):
            raise ModelError(
                f"The tokeniser has {len(ids):,} tokens, and one of them has the id {highest:,}.",
                "The folder is damaged; download it again.",
            )
        self.pretrained = tokenizer
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        self.pad_id = 0
        self.padding = None
        self.separator = []
        nothing = Template([], [], [], ([], 0, [], 0, []))
        self.single, self.pair = nothing, nothing
        self.unknown = unknown_of(tokenizer.backend_tokenizer) if drops_unknown else None

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text; a text may have none."""
        encoded = super().encode(texts)
        if self.unknown is None:
            return encoded
        return [[token for token in ids if token != self.unknown] for ids in encoded]

    def _wrap(self, ids: list[int]) -> list[int]:
        return ids


def unknown_of(tokenizer: Any) -> int | None:
    """The token for words outside a tokeniser's vocabulary, if there is one."""
    model = json.loads(tokenizer.to_str())["model"]
    if "unk_id" in model:  # SentencePiece's unigrams
        found: int | None = model["unk_id"]
        return found
    token = model.get("unk_token")
    return None if token is None else tokenizer.token_to_id(token)


def find(part: list[int], whole: list[int], start: int) -> int:
    """The first position at or after `start` where `part` stands in `whole`, or −1."""
    for position in range(start, len(whole) - len(part) + 1):
        if whole[position : position + len(part)] == part:
            return position
    return -1


def side_of(context: Context, truncation: Truncation) -> Side:
    """The side on which a context is cut; one with several turns is a dialogue."""
    if truncation != "by_kind":
        return truncation
    return "left" if not isinstance(context, str) and len(context) > 1 else "right"


def cut(ids: list[int], room: int, side: Side, prompt: Sequence[int] = ()) -> list[int]:
    """At most `room` ids: the first ones or, if the cut is on the left, the last ones.

    What the ids begin with of a `prompt` is kept on either side.
    """
    if side == "right" or len(ids) <= room:
        return ids[:room]
    both = zip(prompt, ids, strict=False)
    kept = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
    if kept >= room:
        return ids[:room]
    return ids[:kept] + ids[len(ids) - room + kept :]

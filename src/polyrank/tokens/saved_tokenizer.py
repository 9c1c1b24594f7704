"""A tokeniser read from its files by `tokenizers` alone, without importing `transformers`.

It does what `TextTokenizer` needs from a tokeniser of `transformers`, and gives the same ids. Knows
nothing of models.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"
SETTINGS = "tokenizer_config.json"


class SavedTokenizer:
    """The tokeniser of a folder that `transformers` wrote."""

    is_fast = True

    def __init__(self, tokenizer: str, settings: str) -> None:
        """`tokenizer` and `settings` are the texts of the two files."""
        self.files = {TOKENIZER: tokenizer, SETTINGS: settings}
        self.backend_tokenizer = Tokenizer.from_str(tokenizer)
        self.settings: dict[str, Any] = json.loads(settings)
        if self.settings.get("split_special_tokens"):  # they are ordinary words of a text
            self.backend_tokenizer.encode_special_tokens = True
        self.pad_token_id = self.id_of("pad_token")
        self.sep_token_id = self.id_of("sep_token")
        self.eos_token_id = self.id_of("eos_token")
        named = [self.id_of(name) for name in self.settings if name.endswith("_token")]
        self.all_special_ids = [number for number in named if number is not None]

    def id_of(self, name: str) -> int | None:
        """The id of a special token, such as `pad_token`; None if there is none."""
        token = self.settings.get(name)
        content = token.get("content") if isinstance(token, dict) else token
        if not isinstance(content, str):  # such as add_bos_token, which is true or false
            return None
        found: int | None = self.backend_tokenizer.token_to_id(content)
        return found

    def __call__(
        self, text: str, second: str | None = None, *, add_special_tokens: bool = True
    ) -> dict[str, list[int]]:
        """The ids of a text or a pair, and the segment of each."""
        encoding = self.backend_tokenizer.encode(
            text, second, add_special_tokens=add_special_tokens
        )
        return {"input_ids": encoding.ids, "token_type_ids": encoding.type_ids}

    def save_pretrained(self, folder: Path) -> None:
        """Write the files as they were read."""
        folder.mkdir(exist_ok=True)
        for name, text in self.files.items():
            (folder / name).write_text(text, encoding="utf-8")


def read_tokenizer(folder: Path) -> SavedTokenizer | None:
    """The tokeniser in a folder, or None if `tokenizers` alone cannot read it."""
    try:
        texts = [(folder / name).read_text(encoding="utf-8") for name in (TOKENIZER, SETTINGS)]
        return SavedTokenizer(*texts)
    except Exception:  # `tokenizers` raises bare Exceptions; transformers says what is wrong
        return None

"""The tables of conversations: turns by number; writing and reading."""

from __future__ import annotations

import shutil
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from pathlib import Path

from polyrank.pretraining.split import TablesSettings
from polyrank.pretraining.table_files import Columns, OneBlockTable, Spool
from polyrank.records import Conversation, Document, Turn

TABLES: Mapping[str, Columns] = {
    "conversations": {"id": "text", "turns_start": "uint64", "turns_stop": "uint64"},
    "turns": {"text": "text"},
    "replies": {"turn": "uint64"},
}
"""The tables of one side, each a file NAME.arrow. Numbers of rows count from 0; a range of rows
goes from its start to before its stop."""
SPOOL = "spool"


class ConversationTables:
    """One side of a corpus of conversations: C conversations, T turns, all from 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        conversations = OneBlockTable(folder, "conversations")
        self.ids = conversations.text_sequence("id")
        self.turns_start = conversations.sequence("turns_start")
        self.turns_stop = conversations.sequence("turns_stop")
        self.turns = OneBlockTable(folder, "turns").text_sequence("text")
        self.replies = OneBlockTable(folder, "replies").sequence("turn")
        """The turns that are not the first of their conversation."""

    def __reduce__(self) -> tuple[type[ConversationTables], tuple[Path]]:
        return type(self), (self.folder,)

    def conversation_of(self, turn: int) -> int:
        """The conversation of a turn."""
        return bisect_right(self.turns_stop, turn)

    def turns_before(self, turn: int, most: int) -> tuple[str, ...]:
        """The last turns before one, in its conversation, oldest first."""
        first = self.turns_start[self.conversation_of(turn)]
        return tuple(self.turns.between(max(first, turn - most), turn))


class ConversationBuilder:
    """Writes one side of a corpus of conversations."""

    def __init__(self, folder: Path, settings: TablesSettings) -> None:
        self._folder = folder
        self._merge = settings.merge_speaker
        (folder / SPOOL).mkdir()
        self._tables = {
            name: Spool(folder / SPOOL, name, columns) for name, columns in TABLES.items()
        }

    def add(self, conversation: Document) -> None:
        """Append a conversation; one without a text is left out."""
        assert isinstance(conversation, Conversation)
        texts = utterances(conversation.turns, merge=self._merge)
        if not texts:
            return
        conversations, turns = self._tables["conversations"], self._tables["turns"]["text"]
        start = len(turns)
        turns.extend(texts)
        self._tables["replies"]["turn"].extend(range(start + 1, len(turns)))
        conversations["id"].append(conversation.id)
        conversations["turns_start"].append(start)
        conversations["turns_stop"].append(len(turns))

    def finish(self) -> dict[str, int]:
        """Write the tables, and count."""
        for name, table in self._tables.items():
            table.write(self._folder / f"{name}.arrow")
        shutil.rmtree(self._folder / SPOOL)
        return {
            "conversations": len(self._tables["conversations"]["id"]),
            "turns": len(self._tables["turns"]["text"]),
            "replies": len(self._tables["replies"]["turn"]),
        }


def utterances(turns: Iterable[Turn], *, merge: bool) -> list[str]:
    """The texts of turns without the blank ones; neighbours of one speaker as one if asked."""
    texts: list[str] = []
    last: str | None = None
    for turn in turns:
        text = turn.text.strip()
        if not text:
            continue
        if merge and turn.speaker and turn.speaker == last:
            texts[-1] += " " + text
        else:
            texts.append(text)
        last = turn.speaker
    return texts

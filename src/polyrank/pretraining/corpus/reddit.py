r"""Dumps of Reddit comments, as Pushshift publishes them (`RC_2019-06.zst`), to `Conversation`s.

    {"id": "e1", "parent_id": "t1_e0" or "t3_p", "link_id": "t3_p", "author": "…", "body": "…",
     "subreddit": "…", …}

A conversation is a path of replies, from a comment that answers the post (whose own text is in
another dump) or whose parent is in the dump of another month, down to one that nobody answered.
Its id is that of the thread, a slash, and that of its last comment: paths of one thread share
comments, so that a split has to go by what stands before the slash.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from polyrank.data.files import COMPRESSIONS, damaged, is_damage, open_bytes
from polyrank.errors import DataError, UsageError
from polyrank.pretraining.corpus.reddit_comments import BROKEN, Rules, read_comment
from polyrank.pretraining.corpus.reddit_trees import Groups, conversations
from polyrank.pretraining.corpus.source import Documents, Dropped, Glimpse, Source
from polyrank.storage import storage_errors

USUAL = Rules()
GROUP_BYTES = 192 * 2**20
"""Bytes of JSON a group, of which about a fifth is kept."""
EXPANSION = 12
"""About how many times its size a compressed dump grows."""
PATIENCE = 100
"""Broken lines, without a comment before them, after which a file is taken for another kind."""


@dataclass(frozen=True, kw_only=True)
class Reddit(Source):
    """A dump of Reddit comments."""

    name = "reddit"

    @classmethod
    def recognises(cls, glimpse: Glimpse) -> bool:
        """Whether the first object has the fields of a comment."""
        return len(glimpse.fields(("parent_id", "body"))) == 2

    def read(self, scratch: Path) -> Documents:
        """Yield the conversations, and what was dropped from them."""
        return read_comments(self.path, scratch=scratch)


def read_comments(path: Path, *, rules: Rules = USUAL, scratch: Path | None = None) -> Documents:
    """Yield the conversations of a dump, plain or compressed, and what was dropped, by reason.

    `scratch` is where the comments wait to be joined, by default the system's folder for temporary
    files (`TMPDIR`). A broken line is dropped and counted. Raises DataError, with the line, for a
    file without comments at once, and for one that is cut off after the conversations of what it
    holds; MissingExtraError for .zst without its package; StorageError where scratch is full.
    """
    if not 1 <= rules.fewest_turns <= rules.most_turns:
        raise UsageError(
            f"fewest_turns is {rules.fewest_turns}, most_turns {rules.most_turns}: no conversation "
            "has such a length.",
            "Give numbers from 1, the most not below the fewest.",
        )
    number = number_of_groups(path)
    with contextlib.ExitStack() as stack:
        with storage_errors(scratch or Path(tempfile.gettempdir())):
            folder = tempfile.TemporaryDirectory(prefix="polyrank-reddit-", dir=scratch)
        groups = Groups(Path(stack.enter_context(folder)), number)
        cut_off: DataError | None = None
        try:
            yield from fill(groups, path, rules)
        except DataError as error:
            cut_off = error
        for thread in groups.threads():
            yield from conversations(thread, rules)
        if cut_off is not None:
            raise cut_off


def fill(groups: Groups, path: Path, rules: Rules) -> Iterator[Dropped]:
    """Put every comment of a dump to its thread; yield those that are dropped for themselves."""
    found = 0
    broken = 0
    for number, line in read_byte_lines(path):
        if not line.strip():
            continue
        comment, reason = read_comment(line, rules)
        if comment is None:
            broken += 1
            if not found and broken == PATIENCE:
                break
            yield Dropped(BROKEN, f"line {number}")
            continue
        found += 1
        groups.add(comment)
        if reason:
            yield Dropped(reason, f"{comment.link}/{comment.id}")
    if not found:
        raise no_comments(path, broken)


def no_comments(path: Path, broken: int) -> DataError:
    """The error of a file that is not a dump of comments."""
    return DataError(
        "The file is empty."
        if not broken
        else f"None of the first {broken} lines is a comment: expected the fields 'id', "
        "'parent_id', 'link_id' and 'body'.",
        "Give a dump of comments (RC_….zst), not one of posts (RS_….zst).",
        path=path,
    )


def number_of_groups(path: Path) -> int:
    """Into how many groups a dump is parted, so that each fits in memory."""
    size = path.stat().st_size if path.is_file() else 0
    size *= EXPANSION if path.suffix in COMPRESSIONS else 1
    return max(1, math.ceil(size / GROUP_BYTES))


def read_byte_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line without its end) of a file, plain or compressed.

    Raises DataError, with the line, where the compressed data is broken or cut off.
    """
    number = 0
    with open_bytes(path) as handle:
        try:
            for number, line in enumerate(handle, start=1):
                yield number, line.rstrip(b"\r\n")
        except Exception as error:
            if not is_damage(error):
                raise
            raise damaged(path, number + 1, error) from error

r"""Dumps of Reddit, as Pushshift publishes them, to `Conversation`s.

    comments (RC_2019-06.zst)
        {"id": "e1", "parent_id": "t1_e0" or "t3_p", "link_id": "t3_p", "author": "…", "body": "…",
         "subreddit": "…", …}
    posts (RS_2019-06.zst)
        {"id": "p", "author": "…", "title": "…", "selftext": "…", "subreddit": "…", …}

A conversation is a path of replies down to a comment that nobody answered. It begins with the post,
its title and text, where the posts are given beside the comments; otherwise, and where a parent is
in the dump of another month, with the first comment that is there. Its id is that of the thread, a
slash, and that of its last comment: paths of one thread share comments, so that a split has to go
by what is before the slash.
"""

from __future__ import annotations

import contextlib
import math
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from polyrank.data.files import COMPRESSIONS, damaged, is_damage, open_bytes
from polyrank.errors import DataError, UsageError
from polyrank.pretraining.corpus.reddit_comments import BROKEN, Rules, read_item
from polyrank.pretraining.corpus.reddit_trees import Groups, conversations
from polyrank.pretraining.corpus.source import Documents, Dropped, FilesSource, Glimpse
from polyrank.storage import storage_errors

USUAL = Rules()
GROUP_BYTES = 192 * 2**20
"""Bytes of JSON a group, of which about a fifth is kept."""
EXPANSION = 12
"""About how many times its size a compressed dump grows."""
PATIENCE = 100
"""Broken lines, with nothing before them, after which a file is taken for another kind."""
DUMP = re.compile(r"R[CS]_.*")
"""The name of a dump: `RC_2019-06.zst`, `RS_v2_2008-03`."""


@dataclass(frozen=True, kw_only=True)
class Reddit(FilesSource):
    """Dumps of Reddit: of comments, and of the posts that they answer."""

    name = "reddit"

    @classmethod
    def recognises(cls, glimpse: Glimpse) -> bool:
        """Whether the first object has the fields of a comment or a post, or a folder has dumps."""
        if glimpse.path.is_dir():
            return any(map(cls.takes, glimpse.path.rglob("R*")))
        is_comment = len(glimpse.fields(("parent_id", "body"))) == 2
        return is_comment or len(glimpse.fields(("title", "selftext"))) == 2

    @classmethod
    def takes(cls, path: Path) -> bool:
        """Whether it is called as dumps are."""
        return DUMP.fullmatch(path.name) is not None

    def read(self, scratch: Path) -> Documents:
        """Yield the conversations, and what was dropped from them."""
        return read_dumps(self.files, scratch=scratch)


def read_dumps(
    paths: Sequence[Path], *, rules: Rules = USUAL, scratch: Path | None = None
) -> Documents:
    """Yield the conversations of dumps, plain or compressed, and what was dropped, by reason.

    `scratch` is where comments and posts wait to be joined, by default the system's folder for
    temporary files (`TMPDIR`). A broken line is dropped and counted. Raises DataError, with the
    line, at once for a file that is not a dump, and for a truncated one after its conversations;
    MissingExtraError for .zst without its package; StorageError if scratch is full.
    """
    if not 1 <= rules.fewest_turns <= rules.most_turns:
        raise UsageError(
            f"fewest_turns is {rules.fewest_turns}, most_turns {rules.most_turns}: no conversation "
            "has such a length.",
            "Give numbers from 1; most_turns must not be below fewest_turns.",
        )
    number = number_of_groups(paths)
    with contextlib.ExitStack() as stack:
        with storage_errors(scratch or Path(tempfile.gettempdir())):
            folder = tempfile.TemporaryDirectory(prefix="polyrank-reddit-", dir=scratch)
        groups = Groups(Path(stack.enter_context(folder)), number)
        cut_off: DataError | None = None
        for path in paths:
            try:
                yield from fill(groups, path, rules)
            except DataError as error:
                cut_off = cut_off or error
        if groups.num_comments == 0 and groups.num_posts and cut_off is None:
            raise DataError(
                "There are posts but no comments.",
                "Give the dumps of comments (RC_….zst) too.",
                path=paths[0],
            )
        for thread in groups.threads():
            yield from conversations(thread, rules)
        if cut_off is not None:
            raise cut_off


def fill(groups: Groups, path: Path, rules: Rules) -> Iterator[Dropped]:
    """Put what a dump holds to its threads; yield what is dropped for itself."""
    found = 0
    broken = 0
    for number, line in read_byte_lines(path):
        if not line.strip():
            continue
        item, reason = read_item(line, rules)
        if item is None:
            broken += 1
            if not found and broken == PATIENCE:
                break
            yield Dropped(BROKEN, f"{path.name}, line {number}")
            continue
        found += 1
        groups.add(item)
        if reason:
            yield Dropped(reason, item.place)
    if not found:
        raise not_a_dump(path, broken)


def not_a_dump(path: Path, broken: int) -> DataError:
    """The error of a file that holds neither comments nor posts."""
    return DataError(
        "The file is empty."
        if not broken
        else f"None of the first {broken} lines is a comment, with 'id', 'parent_id', 'link_id' "
        "and 'body', or a post, with 'id' and 'title'.",
        "Give dumps of comments (RC_….zst) and of posts (RS_….zst).",
        path=path,
    )


def number_of_groups(paths: Sequence[Path]) -> int:
    """Into how many groups dumps are parted, so that each fits in memory."""
    size = 0
    for path in paths:
        own = path.stat().st_size if path.is_file() else 0
        size += own * (EXPANSION if path.suffix in COMPRESSIONS else 1)
    return max(1, math.ceil(size / GROUP_BYTES))


def read_byte_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line without its end) of a file, plain or compressed.

    Raises DataError, with the line, if the compressed data is damaged or truncated.
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

"""Comments to trees to conversations, with memory for a part of the threads at a time.

A month of 200 million comments, kept whole in dictionaries, would take about 120 GB (630 bytes
each). Here each comment is put, compressed, into one of many files by the thread it belongs to;
then one file after the other is read and its trees are joined. Memory holds a buffer and the
largest of the files, some 100 MB; the disk holds about 85 bytes a comment, 17 GB for such a month.
A reply may stand before what it answers.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

from polyrank.pretraining.corpus.reddit_comments import Comment, Rules
from polyrank.pretraining.corpus.source import Documents, Dropped
from polyrank.records import Conversation, Turn
from polyrank.storage import storage_errors

BELOW = "below a dropped comment"
DEEP = "too deep in its thread"
ALONE = "without a reply"
TWICE = "repeated comment"
CIRCLE = "circular replies"
BUFFERED = 64 * 2**20


class Groups:
    """Files below `folder` that together hold all comments, each thread in one of them."""

    def __init__(self, folder: Path, number: int, *, buffered: int = BUFFERED) -> None:
        self.folder = folder
        self.number = number
        self.buffered = buffered
        self.waiting: dict[int, list[str]] = {}
        self.size = 0
        self.num_comments = 0
        self.num_posts = 0

    def add(self, comment: Comment) -> None:
        """Put a comment or a post to its thread. Raises StorageError if the disk refuses."""
        self.num_posts += comment.is_post
        self.num_comments += not comment.is_post
        line = json.dumps(comment, ensure_ascii=False)
        group = zlib.crc32(comment.link.encode()) % self.number
        self.waiting.setdefault(group, []).append(line)
        self.size += len(line)
        if self.size >= self.buffered:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        with storage_errors(self.folder):
            for group, lines in self.waiting.items():
                text = "\n".join(lines) + "\n"
                with open(self.file(group), "ab") as handle:
                    handle.write(gzip.compress(text.encode(), compresslevel=1, mtime=0))
        self.waiting.clear()
        self.size = 0

    def file(self, group: int) -> Path:
        """Where the comments of a group lie."""
        return self.folder / f"{group}.jsonl.gz"

    def threads(self) -> Iterator[list[Comment]]:
        """Yield the comments of each thread in the order they came, and remove what was read."""
        self.flush()
        for group in range(self.number):
            path = self.file(group)
            if not path.exists():
                continue
            threads: dict[str, list[Comment]] = {}
            with gzip.open(path, "rt", encoding="utf-8", newline="\n") as handle:
                for line in handle:
                    comment = Comment(*json.loads(line))
                    threads.setdefault(comment.link, []).append(comment)
            path.unlink()
            yield from threads.values()


def conversations(thread: list[Comment], rules: Rules) -> Documents:
    """Yield the conversations of one thread, and its comments that are in none.

    What has no parent in the thread begins one: the post, comments that answer it where it is not
    there, and comments whose parent is not there. Everything below a dropped one is dropped too.
    """
    by_id: dict[str, Comment] = {}
    for comment in thread:
        if comment.id in by_id:
            yield Dropped(TWICE, comment.place)
        else:
            by_id[comment.id] = comment
    replies: dict[str, list[Comment]] = {}
    roots: list[Comment] = []
    for comment in by_id.values():
        above = comment.parent.removeprefix("t1_")  # t3_… of a post, which is its own id
        (replies.setdefault(above, []) if above in by_id else roots).append(comment)
    reached: set[str] = set()
    for root in roots:
        yield from walk(root, replies, rules, reached)
    for comment in by_id.values():
        if comment.id not in reached and comment.text is not None:
            yield Dropped(CIRCLE, comment.place)


def walk(
    root: Comment, replies: dict[str, list[Comment]], rules: Rules, reached: set[str]
) -> Documents:
    """Yield what comes of one comment and all below it, depth first; adds their ids to `reached`.

    Each leaf gives the conversation of all comments from the root to it.
    """
    most = rules.most_turns + root.is_post
    path: list[Comment] = []
    stack = [(root, 1, True)]
    while stack:
        comment, depth, whole = stack.pop()
        reached.add(comment.id)
        below = replies.get(comment.id, [])
        whole = whole and comment.text is not None
        stack.extend((reply, depth + 1, whole) for reply in reversed(below))
        if comment.text is None:
            continue
        if not whole or depth > most:
            yield Dropped(DEEP if whole else BELOW, comment.place)
            continue
        path[depth - 1 :] = [comment]
        is_leaf = depth == most or all(reply.text is None for reply in below)
        if depth >= rules.fewest_turns and (is_leaf or rules.every_comment):
            turns = tuple(Turn(said.author, said.text or "") for said in path)
            yield Conversation(f"{root.link}/{comment.id}", turns)
        elif is_leaf:
            yield Dropped(ALONE, comment.place)

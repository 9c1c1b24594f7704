"""The tokenising thread: texts of all requests become token ids, slice by slice.

Large requests are tokenised in slices, between which others have their turn. What is tokenised is
handed to the compute thread at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

from polyrank.errors import PolyrankError
from polyrank.serving.logs import log_failure
from polyrank.serving.scheduling.jobs import Work
from polyrank.serving.scheduling.scheduler import Scheduler

SLICE_TEXTS = 64
SLICE_CHARACTERS = 32_000
"""A slice ends at this many texts or characters, whichever comes first: some milliseconds."""

Encode = Callable[[Sequence[Any]], Sequence[Any]]
"""Texts of some kind to the items of a lane."""


class Texts:
    """The texts of a work that are left to tokenise."""

    def __init__(
        self, work: Work, texts: Sequence[Any], estimates: Sequence[int], encode: Encode
    ) -> None:
        """Take the texts of a work.

        Args:
            work: Where the items go.
            texts: Its texts, in the order of its items.
            estimates: The tokens that are held for each text.
            encode: What makes items of texts.
        """
        self.work = work
        self.texts = texts
        self.estimates = estimates
        self.encode = encode
        self.start = 0

    def next_slice(self) -> tuple[Sequence[Any], int]:
        """The next texts and the tokens that are held for them."""
        stop, characters = self.start, 0
        limit = min(len(self.texts), self.start + SLICE_TEXTS)
        while stop < limit and (stop == self.start or characters < SLICE_CHARACTERS):
            characters += num_characters(self.texts[stop])
            stop += 1
        taken = slice(self.start, stop)
        self.start = stop
        return self.texts[taken], sum(self.estimates[taken])


class Tokenising:
    """The thread."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._inbox: SimpleQueue[Texts | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, name="tokenise", daemon=True)
        self._thread.start()

    def add(self, texts: Texts) -> None:
        """Tokenise the texts of a work, in their turn."""
        self._inbox.put(texts)

    def close(self) -> None:
        """End the thread."""
        self._inbox.put(None)
        self._thread.join()

    def _serve(self) -> None:
        waiting: deque[Texts] = deque()
        while True:
            while not waiting or not self._inbox.empty():
                added = self._inbox.get()
                if added is None:
                    return
                waiting.append(added)
            texts = waiting.popleft()
            if self._tokenise(texts):
                waiting.append(texts)

    def _tokenise(self, texts: Texts) -> bool:
        """Tokenise a slice; return whether there is more to do."""
        work = texts.work
        job = work.job
        if job.is_dead:
            return False
        began = time.monotonic()
        try:
            taken, estimate = texts.next_slice()
            items = texts.encode(taken)
        except Exception as error:
            if not isinstance(error, PolyrankError):
                log_failure(f"request {job.flow.request_id}, tokenising,", error)
            self._scheduler.fail(job, error)
            return False
        job.flow.times.tokenise += time.monotonic() - began
        self._scheduler.submit(work, items, estimate)
        return texts.start < len(texts.texts)


def num_characters(text: Any) -> int:
    """The characters of a text, of a dialogue, or of a pair of them."""
    return len(text) if isinstance(text, str) else sum(map(num_characters, text))

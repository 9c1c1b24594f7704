"""A request as the scheduler sees it: its deadline, its turn, and where its time went."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Times:
    """Where the time of a request went, in seconds."""

    queue: float = 0.0
    tokenise: float = 0.0
    model: float = 0.0
    search: float = 0.0


@dataclass(eq=False)
class Flow:
    """One request on its way through the server."""

    deadline: float
    """On the clock of `time.monotonic`."""
    request_id: str = ""
    times: Times = field(default_factory=Times)
    num_items: int = 0
    """The number of texts or pairs that were asked about."""
    num_tokens: int = 0
    """The number of tokens that were read for them."""
    cancelled: bool = False
    """Whether the client has gone away."""
    start: float = 0.0
    """Where it began in virtual time. The compute thread's own, like the next two."""
    spent: int = 0
    """The tokens that it has brought so far."""
    waiting: int = 0
    """How many of its items wait."""

    @classmethod
    def lasting(cls, seconds: float) -> Flow:
        """A request that is given up after some seconds."""
        return cls(deadline=time.monotonic() + seconds)

    @property
    def remaining(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self.deadline - time.monotonic()

"""The settings of the server. Knows nothing of HTTP libraries or models: `--help` reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from polyrank.config import require

LogFormat = Literal["auto", "text", "json"]

MB = 1_000_000
"""Bytes."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Where the server listens, whom it lets in, and how much it takes on."""

    host: str = "127.0.0.1"
    """The address to listen on. 0.0.0.0 lets other machines in; set a key then."""

    port: int = 8000
    """The port to listen on; 0 takes a free one."""

    workers: int = 1
    """The number of processes that answer requests, each with its own copy of the models."""

    api_key: tuple[str, ...] = field(
        default=(),
        repr=False,
        metadata={
            "help": "A key that requests must carry; repeat it for each. The variable "
            "POLYRANK_API_KEYS holds keys, too, with commas between them, and hides them from the "
            "list of processes.",
            "split": False,
            "metavar": "KEY",
        },
    )
    """Keys of which requests must carry one, besides those of POLYRANK_API_KEYS."""

    api_key_file: Path | None = None
    """A file of keys, one per line; # begins a comment. SIGHUP reads it again."""

    allow_origin: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "An origin whose pages may call the server from a browser, such as "
            "https://example.org; repeat it for each, and * stands for all.",
            "metavar": "ORIGIN",
        },
    )
    """The origins whose pages may call the server from a browser; * stands for all."""

    allow_host: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "A name by which requests may call the server, such as that of a proxy in "
            "front of it; repeat it for each, and * stands for all. Addresses, localhost and names "
            "without a dot always may. Without this flag, others may too if the server needs a key "
            "or listens on more than this machine.",
            "metavar": "NAME",
        },
    )
    """The names by which requests may call the server; * stands for all."""

    max_body_mb: float = 16.0
    """The largest body of a request, in MB; a larger one is answered with 413."""

    max_items: int = 10_000
    """The most texts or pairs of one request; more are answered with 413."""

    max_queue_tokens: int = 500_000
    """The most tokens that wait to be computed; what comes beyond is answered with 429."""

    timeout: float = 60.0
    """Seconds after which a request is given up and answered with 504."""

    drain_seconds: float = 5.0
    """Seconds in which a server that is told to stop still accepts requests, so that a load
    balancer can notice. A second signal ends them."""

    candidate_cache_mb: float = 256.0
    """Memory for the vectors of candidates that rerank requests bring, per process."""

    read_only: bool = False
    """Refuse requests that change the index."""

    comparison: Path | None = None
    """The folder that `polyrank compare` wrote, for the page's plot of quality and latency."""

    log_format: LogFormat = "auto"
    """The form of the log: text, or one JSON object per line. auto is text on a terminal."""

    def __post_init__(self) -> None:
        require(0 <= self.port <= 65535, "--port", "from 0 to 65535", self.port)
        require(self.workers >= 1, "--workers", "at least 1", self.workers)
        require(self.max_body_mb > 0, "--max-body-mb", "above 0", self.max_body_mb)
        require(self.max_items >= 1, "--max-items", "at least 1", self.max_items)
        require(
            self.max_queue_tokens >= 1, "--max-queue-tokens", "at least 1", self.max_queue_tokens
        )
        require(self.timeout > 0, "--timeout", "above 0", self.timeout)
        require(self.drain_seconds >= 0, "--drain-seconds", "0 or more", self.drain_seconds)
        require(
            self.candidate_cache_mb >= 0,
            "--candidate-cache-mb",
            "0 or more",
            self.candidate_cache_mb,
        )


@dataclass(frozen=True, kw_only=True)
class PipelineConfig:
    """Which models and which index are served."""

    models: tuple[str, ...] = ()
    """`[NAME=]FOLDER` of each model."""

    index: Path | None = None
    """The folder of an index."""

    reranker: str | None = None
    """`[NAME=]FOLDER` of a cross-encoder, or the name of one of the models."""

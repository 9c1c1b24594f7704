"""The settings of the server. Knows nothing of HTTP libraries or models: `--help` reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from polyrank.config import require

LogFormat = Literal["auto", "text", "json"]


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Where the server listens, whom it lets in, and how much it takes on."""

    host: str = "127.0.0.1"
    """The address to listen on. 0.0.0.0 lets other machines in; set a key then."""

    port: int = 8000
    """The port to listen on; 0 takes a free one."""

    max_body_mb: float = 16.0
    """The largest body of a request, in MB; a larger one is answered with 413."""

    max_items: int = 10_000
    """The most texts or pairs of one request; more are answered with 413."""

    max_queue_tokens: int = 500_000
    """The most tokens that wait to be computed; what comes beyond is answered with 429."""

    timeout: float = 60.0
    """Seconds after which a request is given up and answered with 504."""

    candidate_cache_mb: float = 256.0
    """Memory for the vectors of candidates that rerank requests bring, per process."""

    def __post_init__(self) -> None:
        require(0 <= self.port <= 65535, "--port", "from 0 to 65535", self.port)
        require(self.max_body_mb > 0, "--max-body-mb", "above 0", self.max_body_mb)
        require(self.max_items >= 1, "--max-items", "at least 1", self.max_items)
        require(
            self.max_queue_tokens >= 1, "--max-queue-tokens", "at least 1", self.max_queue_tokens
        )
        require(self.timeout > 0, "--timeout", "above 0", self.timeout)
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
    """`[NAME=]FOLDER` of a cross-encoder."""

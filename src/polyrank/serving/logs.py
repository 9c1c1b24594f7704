"""The log: one line per request, and what fails. Texts of users, keys and addresses stay out of it.

An exception is logged with its kind and its frames but without its message, which could quote a
request. Routes are named by their templates, never by what was asked for.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from polyrank.serving.config import LogFormat
    from polyrank.serving.scheduling.flow import Flow

LOG = logging.getLogger("polyrank.serving")
LEVELS = {"polyrank.serving": logging.INFO, "uvicorn": logging.WARNING, "asyncio": logging.WARNING}
"""The loggers whose messages are shown, and from which level on."""
QUIET = ("/health", "/ready", "/metrics")
"""Routes that are asked again and again: they are logged only where they fail."""


def configure(form: LogFormat, stream: TextIO | None = None) -> None:
    """Write the log of this process to a stream, standard error by default.

    Args:
        form: `text`, `json`, or `auto`: text on a terminal, JSON lines elsewhere.
        stream: Where to write.
    """
    target = sys.stderr if stream is None else stream
    if form == "auto":
        form = "text" if target.isatty() else "json"
    handler = StandardError() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form == "json" else Lines())
    for name, level in LEVELS.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(level)


def log_request(method: str, route: str, status: int, seconds: float, flow: Flow) -> None:
    """Log a request that was answered, or whose client has gone away."""
    if route in QUIET and status < 400:
        return
    stages = {stage: value for stage, value in asdict(flow.times).items() if value}
    fields = {
        "request_id": flow.request_id,
        "method": method,
        "route": route,
        "status": status,
        "ms": milliseconds(seconds),
        **{f"{stage}_ms": milliseconds(value) for stage, value in stages.items()},
        "items": flow.num_items,
        "tokens": flow.num_tokens,
    }
    LOG.info("request", extra={"fields": fields})


def log_failure(where: str, error: BaseException) -> None:
    """Log an unexpected error: its kind and its frames."""
    LOG.error("%s failed: %s", where, frames_of(error))


def frames_of(error: BaseException) -> str:
    """The kinds and the frames of an exception and of what caused it, without their messages."""
    return "\nthen ".join(
        f"{type(each).__name__}\n{''.join(traceback.format_tb(each.__traceback__)).rstrip()}"
        for each in chain(error)
    )


def chain(error: BaseException) -> list[BaseException]:
    """What caused an exception, first cause first, and the exception; a circle is cut."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and all(each is not one for one in found):
        found.append(each)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return found[::-1]


def milliseconds(seconds: float) -> float:
    """Seconds as milliseconds with one decimal."""
    return round(1000 * seconds, 1)


def fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """The named values of a message."""
    fields: Mapping[str, Any] = getattr(record, "fields", {})
    return fields


class StandardError(logging.StreamHandler):  # type: ignore[type-arg]  # Python 3.10
    """Writes to what standard error is at the time of the message."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        """Standard error."""
        return sys.stderr


class Lines(logging.Formatter):
    """Lines for people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The line of a message."""
        fields = dict(fields_of(record))
        if record.msg == "request" and fields:
            stages = [f"{name[:-3]} {fields[name]}" for name in fields if name.endswith("_ms")]
            record.message = (
                f"{fields['method']} {fields['route']} {fields['status']} {fields['ms']} ms"
                + (f" ({', '.join(stages)})" if stages else "")
                + (f", texts {fields['items']}, tokens {fields['tokens']}" * bool(fields["items"]))
                + f", {fields['request_id']}"
            )
        elif fields:
            told = ", ".join(f"{name} {value}" for name, value in fields.items())
            record.message = f"{record.message} ({told})"
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """Its kinds and frames."""
        return frames_of(ei[1])


class JsonLines(logging.Formatter):
    """One JSON object per line, for programs."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a message."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line["traceback"] = frames_of(record.exc_info[1])
        return json.dumps(line, ensure_ascii=False)

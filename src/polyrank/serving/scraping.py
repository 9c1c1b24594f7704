"""One scrape for several processes: the one that is asked asks the others, by sockets of files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from polyrank.serving.metrics import Metrics, Workers, exposition

SIBLING_SECONDS = 2.0
"""How long another process may take to tell its metrics."""


class Scrape:
    """The metrics of all processes, asked for in one of them."""

    def __init__(self, metrics: Metrics, number: int, num_workers: int, folder: Path) -> None:
        """Tell the metrics of this process, and ask for those of the others.

        Args:
            metrics: Those of this process.
            number: Its own number.
            num_workers: How many processes there are.
            folder: Where the socket of each is, by its number.
        """
        self.metrics = metrics
        self.number = number
        self.num_workers = num_workers
        self.folder = folder

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Tell another process the metrics of this one."""
        plain = await asyncio.to_thread(self.metrics.plain)
        writer.write(json.dumps(plain).encode())
        await writer.drain()
        writer.close()

    async def __call__(self) -> bytes:
        """What all processes tell, as Prometheus reads it; one that does not answer is left out."""
        numbers = range(self.num_workers)
        told = await asyncio.gather(*map(self.ask, numbers))
        answered = [(number, plain) for number, plain in zip(numbers, told, strict=True) if plain]
        return await asyncio.to_thread(exposition, Workers(answered))

    async def ask(self, number: int) -> list[Any]:
        """The metrics of a process; none if it does not answer in time."""
        if number == self.number:
            return list(await asyncio.to_thread(self.metrics.plain))
        try:
            return list(await asyncio.wait_for(self.read(number), SIBLING_SECONDS))
        except (OSError, ValueError, asyncio.TimeoutError):
            return []

    async def read(self, number: int) -> Any:
        """What a process tells."""
        reader, writer = await asyncio.open_unix_connection(str(self.folder / str(number)))
        try:
            return json.loads(await reader.read())
        finally:
            writer.close()

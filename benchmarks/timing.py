"""Interleaved timing of several ways to do one thing, and the machine it ran on."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable
from datetime import date

import torch


def interleaved(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way in each round, after one unmeasured round; rounds alternate the ways."""
    for way in ways.values():
        way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def median_ratio(seconds: dict[str, list[float]], peer: str, ours: str) -> float:
    """How many times as fast as the peer: the median over the rounds of the ratio in each."""
    pairs = zip(seconds[peer], seconds[ours], strict=True)
    return statistics.median(theirs / own for theirs, own in pairs)


def report(seconds: dict[str, list[float]], peer: str, what: str) -> None:
    """Print the machine, each way's median time, and how many times as fast as the peer it is."""
    print(f"{what}; {machine()}")
    for name, values in seconds.items():
        ratio = median_ratio(seconds, peer, name)
        print(f"{name:24} {statistics.median(values):7.2f} s   {ratio:.2f} times as fast")


def machine() -> str:
    """The processor, its cores, the versions and the date."""
    name = platform.processor() or platform.machine()
    capabilities = torch.cpu.get_capabilities()
    name = str(capabilities.get("cpu_name", name))
    bf16 = [key for key in ("avx512_bf16", "amx_bf16") if capabilities.get(key)]
    return (
        f"{name}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, "
        f"{', '.join(bf16) or 'no bf16 instructions'}; torch {torch.__version__}; {date.today()}"
    )

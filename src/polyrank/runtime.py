"""Chooses the device and the precision. Knows the hardware, but no models."""

from __future__ import annotations

import random

import numpy as np
import torch

from polyrank.display.meter import peak_memory as peak_of_process
from polyrank.errors import UsageError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """`auto` is the first accelerator, otherwise the CPU.

    Raises UsageError for a device that torch does not know or that this machine does not have.
    """
    if isinstance(device, torch.device):
        return device
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        if torch.backends.mps.is_available():
            return torch.device("mps")
        return torch.device("cpu")
    try:
        resolved = torch.device(device)
        torch.empty(0, device=resolved)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"The device {device!r} cannot be used: {reason}.",
            "Use auto, cpu, cuda, cuda:N or mps.",
        ) from error
    return resolved


def resolve_dtype(dtype: str | torch.dtype, device: torch.device) -> torch.dtype:
    """`auto` is bfloat16 if the hardware multiplies it, otherwise float32."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype == "auto":
        return torch.bfloat16 if has_bfloat16(device) else torch.float32
    if dtype not in DTYPES:
        raise UsageError(
            f"The dtype {dtype!r} is unknown.", f"Use one of auto, {', '.join(DTYPES)}."
        )
    return DTYPES[dtype]


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device has instructions for bfloat16 products, not an emulation."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device)[0] >= 8
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities()
        names = ("avx512_bf16", "amx_bf16", "arm_bf16", "bf16")
        return any(bool(capabilities.get(name)) for name in names)
    return False


def peak_memory(device: torch.device) -> int | None:
    """The most memory so far, in bytes: of a GPU, what torch has taken there; else the process's.

    None where the system does not say.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return peak_of_process()


def set_seed(seed: int) -> None:
    """Seed Python, numpy and torch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)

"""`polyrank doctor`: what is installed, what this machine can compute with, and what is missing."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from polyrank._version import __version__
from polyrank.cli.command import command
from polyrank.cli.flags import Options
from polyrank.cli.output import Output
from polyrank.errors import PolyrankError

SHOWN = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "huggingface-hub",
    "numpy",
    "pyarrow",
)
LEAST_MEMORY = 4e9
"""Bytes, below which the default encoder trains slowly or not at all."""


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(Options):
    """Options of `polyrank doctor`."""


class SickError(PolyrankError):
    """Something is wrong, which people have been told."""

    said_elsewhere = True


@command("doctor", DoctorOptions)
def doctor(options: DoctorOptions, output: Output) -> None:
    """Check the installation: versions, devices, bf16, extras, cache.

    Says for each missing extra how to install it. The exit code is 1 where something is wrong that
    will make commands fail, and each such thing is a warning.
    """
    extras = extras_of("polyrank")
    wrong = requirements("polyrank")
    versions = {"python": platform.python_version(), "polyrank": __version__}
    versions |= {name: version for name in SHOWN if (version := version_of(name)) is not None}
    found: dict[str, Any] = {"versions": versions}
    warnings = [*wrong, *(() if "torch" not in versions else machine(found)), *cache(found)]
    found["extras"] = extras
    for name, value in found.items():
        output.say(f"{name}:")
        for key, each in value.items():
            output.say(f"  {key:<16} {in_words(each) if name != 'extras' else of_extra(key, each)}")
    for warning in warnings:
        output.warn(warning)
    if not warnings:
        output.say("All is well.")
    output.result({**found, "warnings": warnings})
    if warnings:
        raise SickError("Something is wrong.", "Read the warnings.")


def version_of(name: str) -> str | None:
    """The version of an installed package; None where it is missing."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def requirements(package: str) -> list[str]:
    """What a package needs and what is missing or of another version, as warnings."""
    warnings = []
    for requirement in requirements_of(package):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = version_of(requirement.name)
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            there = "is missing" if version is None else f"is {version}"
            warnings.append(
                f"{requirement.name} {there}, and polyrank needs {requirement}. "
                f'Run: pip install "{requirement}".'
            )
    return warnings


def extras_of(package: str) -> dict[str, list[str]]:
    """The packages that are missing of each extra."""
    try:
        names = metadata.metadata(package).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        names = []
    extras = {}
    for name in sorted(names):
        needed = [
            requirement
            for requirement in requirements_of(package)
            if requirement.marker is not None
            and requirement.marker.evaluate({"extra": name})
            and not requirement.marker.evaluate({"extra": ""})
        ]
        extras[name] = [
            str(requirement.name)
            for requirement in needed
            if (version := version_of(requirement.name)) is None
            or not requirement.specifier.contains(version, prereleases=True)
        ]
    return extras


def requirements_of(package: str) -> Iterator[Any]:
    """The requirements that a package declares, with those of its extras."""
    from packaging.requirements import Requirement

    try:
        declared = metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        declared = []
    for line in declared:
        yield Requirement(line)


def machine(found: dict[str, Any]) -> Iterable[str]:
    """Add devices, bf16, threads and memory; yields warnings."""
    import torch

    from polyrank.runtime import resolve_device

    device = resolve_device("auto")
    devices = {"chosen by auto": str(device), "cpu": platform.processor() or platform.machine()}
    for number in range(torch.cuda.device_count()):
        devices[f"cuda:{number}"] = torch.cuda.get_device_name(number)
    devices["bf16"] = bf16_words(device)
    found["devices"] = devices
    cores, threads = cores_of(), torch.get_num_threads()
    memory = memory_of()
    found["machine"] = {
        "system": f"{platform.system()} {platform.release()}",
        "cores": cores,
        "threads": threads,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "not set"),
        "memory": "unknown" if memory is None else f"{memory / 1e9:.1f} GB",
    }
    if threads > cores:
        yield (
            f"torch uses {threads} threads on {cores} cores, which is slow. "
            f"Set OMP_NUM_THREADS={cores}."
        )
    if memory is not None and memory < LEAST_MEMORY:
        yield (
            f"There are {memory / 1e9:.1f} GB of memory, and training the default encoder takes "
            "about 4. Use a smaller encoder or --batch-size."
        )


def bf16_words(device: Any) -> str:
    """Whether auto computes in bfloat16 on a device, and what decided it."""
    import torch

    from polyrank.runtime import has_bfloat16

    if device.type == "cpu":
        known = torch.cpu.get_capabilities()
        reason = ", ".join(name for name in sorted(known) if "bf16" in name and known[name])
        reason = f"the processor has {reason}" if reason else "the processor has no bf16 products"
    elif device.type == "cuda":
        reason = "compute capability {}.{}".format(*torch.cuda.get_device_capability(device))
    else:
        reason = f"{device.type} is not asked for it"
    return f"{'yes' if has_bfloat16(device) else 'no, float32'}: {reason}"


def cores_of() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_of() -> int | None:
    """The machine's memory in bytes; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def cache(found: dict[str, Any]) -> Iterable[str]:
    """Add the hub's cache and where files can be written; yields warnings."""
    if version_of("huggingface-hub") is None:
        return
    from huggingface_hub import constants

    folder, here = Path(constants.HF_HUB_CACHE), Path.cwd()
    offline = constants.HF_HUB_OFFLINE
    found["files"] = {
        "hub cache": str(folder),
        "cached models": sum(1 for _ in folder.glob("models--*")) if folder.is_dir() else 0,
        "hub": "offline, since HF_HUB_OFFLINE is set" if offline else "asked for hub ids only",
        "this folder": str(here),
        "temporary files": tempfile.gettempdir(),
    }
    for name, where in (("cache of the hub", folder), ("current folder", here)):
        if not is_writable(where):
            yield (
                f"The {name}, {where}, cannot be written to. "
                + (
                    "Set HF_HOME to a folder that can be."
                    if where == folder
                    else "Change to another, or give --output."
                )
            )


def is_writable(folder: Path) -> bool:
    """Whether a file can be made in a folder or, where it does not exist, in its parents."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return os.access(there, os.W_OK | os.X_OK)


def of_extra(name: str, missing: list[str]) -> str:
    """What people read of an extra."""
    if not missing:
        return "installed"
    return f'missing {", ".join(missing)}: pip install "polyrank[{name}]"'


def in_words(value: Any) -> str:
    """A value for people."""
    return f"{value:,}" if isinstance(value, int) else str(value)

"""Settings as YAML that `--config` reads: what will run, and what could be given beside it."""

from __future__ import annotations

from typing import Any

from polyrank.cli.flags import flags_of
from polyrank.cli.options import settings_of
from polyrank.cli.output import Output
from polyrank.config import to_mapping
from polyrank.models.config import CONFIGS

NOT_SETTINGS = ("show_config", "restart")


def show_config(options: Any, architecture: str | None, output: Output) -> None:
    """Print the settings of built options; with --json, as one object.

    Settings of the model that nobody gave stand in comments, since the base may bring its own.
    """
    settings = settings_of(options)
    for name in NOT_SETTINGS:
        settings.pop(name, None)
    flags = {flag.name: flag for flag in flags_of(type(options))}
    missing = [name for name, value in settings.items() if value is None and flags[name].required]
    for name in missing:
        del settings[name]
    output.say("\n".join(lines(settings, missing, architecture)))
    output.result({"config": settings, "missing": missing})


def lines(settings: dict[str, Any], missing: list[str], architecture: str | None) -> list[str]:
    """The lines of the YAML file."""
    import yaml

    shown = [f"# {name}: is required" for name in missing]
    shown += yaml.safe_dump(settings, sort_keys=False, allow_unicode=True).splitlines()
    if architecture is not None:
        rest = to_mapping(CONFIGS[architecture]())
        unset = {name: value for name, value in rest.items() if name not in settings}
        if unset:
            shown.append("# As follows, unless the base brings its own:")
            shown += [f"# {line}" for line in yaml.safe_dump(unset, sort_keys=False).splitlines()]
    return shown

"""The card of an export: how to load it, where it differs from the model, and where it is from.

Knows the hub's metadata; the facts come from the model's own card.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyrank._version import __version__
from polyrank.config import parse_yaml
from polyrank.models.hub.card import CARD, card_data, card_of
from polyrank.storage import write_text

METADATA = re.compile(r"\s*---[ \t]*\r?\n(.*?)\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
"""The YAML that a card begins with."""
ORIGIN = ("base_model", "datasets", "language", "license")
"""The metadata that an export has from the model."""
TEMPLATE = """\
---
{{ card_data }}
---

# {{ title }}

A {{ architecture }}-encoder of [polyrank](https://pypi.org/project/polyrank/), version \
{{ version }},
exported for [sentence-transformers](https://sbert.net/).

## Use

```python
{{ use }}
```
{%- if notes %}

## Differences from the model
{% for note in notes %}
- {{ note }}
{%- endfor %}
{%- endif %}
"""


def write_card(folder: Path, model: Any, title: str, use: str, notes: Sequence[str]) -> None:
    """Write `README.md`: `use` is Python that loads and calls the model."""
    text = card_of(
        card_data(model, library="sentence-transformers", **origin_of(model)),
        TEMPLATE,
        title=title,
        architecture=model.architecture,
        version=__version__,
        use=use,
        notes=notes,
    )
    write_text(folder / CARD, text)


def origin_of(model: Any) -> dict[str, Any]:
    """What the model's own card says of its base, its data, its language and its licence."""
    import yaml

    file = None if model.path is None else model.path / CARD
    if file is None or not file.is_file():
        return {}
    try:
        found = METADATA.match(file.read_text(encoding="utf-8"))
        said = {} if found is None else parse_yaml(found[1])
    except (ValueError, RecursionError, yaml.YAMLError):  # whoever wrote the card
        return {}
    said = said if isinstance(said, dict) else {}
    return {name: said[name] for name in ORIGIN if said.get(name) and is_words(said[name])}


def is_words(value: Any) -> bool:
    """Whether the value of a card's metadata is a text or a list of texts."""
    return all(isinstance(one, str) for one in (value if isinstance(value, list) else [value]))

"""The card of an export: how to load it, where it differs from the model, and where it is from.

Knows the hub's metadata; the facts come from the model's own card.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from polyrank._version import __version__
from polyrank.models.hub.card import CARD, card_data, card_of

ORIGIN = ("base_model", "datasets", "language", "license")
"""The metadata that an export has from the model."""
TEMPLATE = """\
---
{{{{ card_data }}}}
---

# {title}

A {architecture}-encoder of [polyrank](https://pypi.org/project/polyrank/), version {version},
exported for [sentence-transformers](https://sbert.net/).

## Use

```python
{use}
```
{notes}"""


def write_card(folder: Path, model: Any, title: str, use: str, notes: Sequence[str]) -> None:
    """Write `README.md`: `use` is Python that loads and calls the model."""
    metadata = card_data(model, library="sentence-transformers", **origin_of(model))
    listed = "".join(f"- {note}\n" for note in notes)
    text = TEMPLATE.format(
        title=title,
        architecture=model.architecture,
        version=__version__,
        use=use,
        notes=f"\n## Differences from the model\n\n{listed}" if notes else "",
    )
    (folder / CARD).write_text(card_of(metadata, text), encoding="utf-8")


def origin_of(model: Any) -> dict[str, Any]:
    """What the model's own card says of its base, its data, its language and its licence."""
    from huggingface_hub import ModelCard

    file = None if model.path is None else model.path / CARD
    if file is None or not file.is_file():
        return {}
    try:
        said = ModelCard(file.read_text(encoding="utf-8")).data.to_dict()
    except ValueError:  # the metadata of a card that someone wrote may not be YAML
        return {}
    return {name: said[name] for name in ORIGIN if said.get(name)}

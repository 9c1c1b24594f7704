"""The metadata of a model's page on the hub, and the words that every card has.

Knows what the hub calls things; knows nothing of how a model was trained.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank._version import __version__
from polyrank.data.hub import is_hub, parse_address
from polyrank.folder_files import read_object
from polyrank.models.source import hub_id

if TYPE_CHECKING:
    from polyrank.models.base import Model

CARD = "README.md"
RECORD = "training.json"
CLASSES = {"bi": "BiEncoder", "poly": "PolyEncoder", "cross": "CrossEncoder"}
PLACEHOLDER = "path/to/this/folder"
"""What a card names as the source of the model until it is published."""
PLAIN_CARD = """\
---
{{ card_data }}
---

# {{ name }}

A {{ architecture }}-encoder of [polyrank](https://pypi.org/project/polyrank/), version \
{{ version }}.

## Use

```python
from polyrank import {{ class_name }}

model = {{ class_name }}.from_pretrained("{{ source }}")
{{ use }}
```
"""
LANGUAGE = re.compile(r"(?!und)[a-z]{2,3}")
MOST_HOPS = 10
"""How many trained models in a row are looked at for their common base."""


def card_of(metadata: Any, template: str, **words: Any) -> str:
    """A card with its metadata, in Markdown.

    Jinja runs what the template says, so nothing of a model is ever part of it: words are.
    """
    from huggingface_hub import ModelCard

    return f"{ModelCard.from_template(metadata, template_str=template, **words)}\n"


def card_data(model: Model, *, library: str = "polyrank", **facts: Any) -> Any:
    """The metadata of a model for a library; `facts` are further fields of `ModelCardData`."""
    from huggingface_hub import ModelCardData

    return ModelCardData(
        library_name=library,
        pipeline_tag=pipeline_tag(model),
        tags=[library, "polyrank", f"{model.architecture}-encoder"],
        **facts,
    )


def plain_card(model: Model, name: str) -> str:
    """The card of a model whose training is not known."""
    base = None if model.hub_id is None else base_on_hub(model.hub_id)
    return card_of(
        card_data(model, base_model=base),
        PLAIN_CARD,
        name=name,
        architecture=model.architecture,
        version=__version__,
        class_name=CLASSES[model.architecture],
        source=PLACEHOLDER,
        use=usage(model),
    )


def base_on_hub(source: str | None) -> str | None:
    """The id on the hub of what a model started from; None where that is not known.

    Folders of trained models are followed to what they started from.
    """
    for _ in range(MOST_HOPS):
        if source is None or (found := hub_id(source)) is not None:
            return found if source is not None else None
        source = read_object(Path(source) / RECORD).get("provenance", {}).get("base")
    return None


def bases_on_hub(sources: Iterable[str | None]) -> str | list[str] | None:
    """The ids of what the encoders of a model started from; None where none is known."""
    found = list(dict.fromkeys(filter(None, map(base_on_hub, sources))))
    return found if len(found) > 1 else next(iter(found), None)


def data_on_hub(names: Iterable[str | None]) -> list[str] | None:
    """The ids of those data that are on the hub, by the addresses that they were read from."""
    found = [parse_address(Path(name)).name for name in names if name and is_hub(Path(name))]
    return list(dict.fromkeys(found)) or None


def languages_of(codes: Iterable[str]) -> list[str] | None:
    """Those of the codes that the hub knows as languages."""
    found = dict.fromkeys(code.partition("-")[0].casefold() for code in codes)
    return [code for code in found if LANGUAGE.fullmatch(code)] or None


def results_of(model: Model, figures: Mapping[str, float], data: str | None) -> list[Any] | None:
    """The figures on some data as the hub's results; None without figures."""
    from huggingface_hub import EvalResult

    if not figures:
        return None
    place: dict[str, Any] = {"dataset_type": "unknown", "dataset_name": data_name(data)}
    if data is not None and is_hub(Path(data)):
        address = parse_address(Path(data))
        place = {
            "dataset_type": address.name,
            "dataset_name": address.name,
            "dataset_config": address.config,
            "dataset_split": address.split,
        }
    return [
        EvalResult(
            task_type=pipeline_tag(model), metric_type=name, metric_value=round(value, 4), **place
        )
        for name, value in figures.items()
    ]


def data_name(data: str | None) -> str:
    """What the metadata call some data: of a file on this machine, its name alone."""
    if data is None:
        return "dev data"
    *words, last = data.split(" ")
    return " ".join([*words, Path(last).name])


def pipeline_tag(model: Model) -> str:
    """What the hub calls the use of the model."""
    if model.architecture != "cross":
        return "sentence-similarity"
    return "text-ranking" if model.classes is None else "text-classification"


def usage(model: Model) -> str:
    """Calls that use the model."""
    rank = 'model.rank("a question", ["one answer", "another"])'
    classify = 'model.classify([("one text", "another")])'
    if model.classes is not None:
        return classify if model.architecture == "cross" else f"{rank}\n{classify}"
    if model.architecture == "cross" and model.config.task != "rank":
        return 'model.score_pairs([("one text", "another")])'
    return rank

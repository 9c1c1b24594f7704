"""The README.md of a trained model: what it is, how and on what it was trained, and its results.
Knows the words; gets the facts from outside. Does not load torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polyrank._version import __version__
from polyrank.config import to_mapping
from polyrank.models.hub.card import (
    CLASSES,
    PLACEHOLDER,
    bases_on_hub,
    card_data,
    card_of,
    data_on_hub,
    languages_of,
    results_of,
    usage,
)

if TYPE_CHECKING:
    from polyrank.training.result import Run, TrainingResult

TEMPLATE = """\
---
{{ card_data }}
---

# {{ name }}

A {{ architecture }}-encoder trained with polyrank {{ version }}
{%- if source.base is not none %}, from `{{ source.base }}`{% endif -%}
{%- if source.candidate_base is not none %} for contexts and from `{{ source.candidate_base }}` for
candidates{% endif -%}
: {{ "{:,}".format(parameters.total) }} parameters, of which \
{{ "{:,}".format(parameters.trained) }} were trained and {{ "{:,}".format(parameters.frozen) }} \
were frozen.
{%- if parameters.beside %} Another {{ "{:,}".format(parameters.beside) }} were trained \
in heads that are not kept.{% endif %}

## Use

```python
from polyrank import {{ class_name }}

model = {{ class_name }}.from_pretrained("{{ placeholder }}")
{{ use }}
```

## Data

| use | name | records | SHA-256 of the records, in their order |
|---|---|---|---|
{%- for row in data %}
| {{ row.use }} | {% if row.name is none %}(not named){% else %}`{{ row.name }}`{% endif %}\
{% if row.share is not none %}, {{ row.share }}{% endif %} | \
{{ "{:,}".format(row.count) }} {{ row.kind }} | `{{ row.sha256 }}` |
{%- endfor %}

## Results

{% if result.figures -%}
On the dev data; this is the model of step {{ "{:,}".format(result.best_step) }} of \
{{ "{:,}".format(result.steps) }}:

| figure | value |
|---|---:|
{%- for figure, value in result.figures.items() %}
| {{ figure }} | {{ "%.4f" % value }} |
{%- endfor %}
{%- else -%}
There were no dev data, so this is the model of the last step, {{ "{:,}".format(result.steps) }}.
{%- endif %}

## Settings

{% if source.recipe is not none -%}
All settings, starting from the recipe `{{ source.recipe }}`:

{% endif -%}
```yaml
{{ settings }}
```

## How it was made

{% if source.command is not none -%}
```
{{ source.command }}
```

{% endif -%}
| | |
|---|---|
{%- for fact, value in hardware.items() %}
| {{ fact }} | {{ value }} |
{%- endfor %}
{%- if rescaling %}
| outputs multiplied by | {{ rescaling }} |
{%- endif %}
| time spent on steps | {{ "{:,.0f}".format(result.seconds) }} s |
"""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """What a run cannot know about its own origin."""

    base: str | None = None
    """What the model started from: a folder or a hub id."""
    candidate_base: str | None = None
    """What the candidates' encoder started from, if it is another."""
    train: str | None = None
    """The name of the training data."""
    share: str | None = None
    """The share of them that was taken, with its seed; None for all."""
    dev: str | None = None
    """The name of the dev data."""
    languages: tuple[str, ...] = ()
    """The languages of the training data, as codes, if they are known."""
    recipe: str | None = None
    """The recipe whose settings the run began with."""
    command: str | None = None
    """The command line."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """One set of records: its use and name, how many, the SHA-256 of all in their order."""

    use: str
    name: str | None
    share: str | None
    """The share of what has this name, with its seed; None for all."""
    count: int
    kind: str
    sha256: str


def model_card(
    run: Run,
    result: TrainingResult,
    *,
    data: list[Data],
    parameters: Mapping[str, int],
    hardware: Mapping[str, str],
) -> str:
    """The page, in Markdown, with the metadata that the Hugging Face hub reads."""
    import yaml

    model, source = run.model, run.provenance
    architecture = model.architecture
    results = results_of(model, result.figures, source.dev)
    metadata = card_data(
        model,
        base_model=bases_on_hub([source.base, source.candidate_base]),
        datasets=data_on_hub([source.train, source.dev]),
        language=languages_of(source.languages),
        eval_results=results,
        model_name=run.output.name if results else None,
    )
    settings = {**to_mapping(model.config), **to_mapping(run.objective), **to_mapping(run.config)}
    return card_of(
        metadata,
        TEMPLATE,
        name=run.output.name,
        architecture=architecture,
        version=__version__,
        source=source,
        class_name=CLASSES[architecture],
        placeholder=PLACEHOLDER,
        use=usage(model),
        parameters=parameters,
        data=data,
        result=result,
        settings=yaml.safe_dump(settings, sort_keys=False).rstrip(),
        hardware=hardware,
        rescaling=", ".join(f"{one:.4g}" for one in result.rescaling if one != 1),
    )

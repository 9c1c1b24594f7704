"""A model to the Hugging Face hub: its folder and its card, and the words that every card has.

Knows nothing of how a model was trained; the card of a trained model is taken from its folder.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyrank._version import __version__
from polyrank.errors import StorageError, UsageError
from polyrank.models.description import DESCRIPTION

if TYPE_CHECKING:
    from polyrank.models.base import Model

CARD = "README.md"
KEPT = (CARD, "training.json", "log.jsonl")
"""Files of a trained model's folder that belong to the model."""
CLASSES = {"bi": "BiEncoder", "poly": "PolyEncoder", "cross": "CrossEncoder"}
PLACEHOLDER = "path/to/this/folder"
"""What a card names as the source of the model until it is published."""
PLAIN_CARD = """\
---
{{{{ card_data }}}}
---

# {name}

A {architecture}-encoder of [polyrank](https://pypi.org/project/polyrank/), version {version}.

## Use

```python
from polyrank import {class_name}

model = {class_name}.from_pretrained("{repo_id}")
{use}
```
"""


def publish(
    model: Model,
    repo_id: str,
    *,
    private: bool | None,
    token: str | bool | None,
    revision: str | None,
    commit_message: str | None,
) -> str:
    """Put a model into a repository of the hub and return its address.

    Parameters and errors are those of `Model.push_to_hub`.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (  # type: ignore[attr-defined]
        HFValidationError,
        HTTPError,  # what its HTTP client raises, whichever that is
        LocalTokenNotFoundError,
    )

    api = HfApi(token=token)
    try:
        address = str(api.create_repo(repo_id, private=private, exist_ok=True))
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "model"
            model.save_copy(place, extra=texts_of(model, repo_id))
            api.upload_folder(
                repo_id=repo_id,
                folder_path=place,
                revision=revision,
                commit_message=commit_message or f"Upload with polyrank {__version__}",
            )
    except HFValidationError as error:
        raise UsageError(
            f"{repo_id!r} is not the id of a repository on the hub.",
            "Give one such as my-name/my-model.",
        ) from error
    except LocalTokenNotFoundError as error:
        raise no_token(repo_id) from error
    except (OSError, HTTPError) as error:
        answer: Any = getattr(error, "response", None)
        if answer is not None and answer.status_code in (401, 403):
            raise no_token(repo_id) from error
        said = "cannot be reached" if answer is None else f"answers with {answer.status_code}"
        raise StorageError(
            f"The model was not published as {repo_id!r}: the hub {said}.",
            "Check the connection and try again, or keep the model with save_pretrained.",
        ) from error
    return address


def no_token(repo_id: str) -> UsageError:
    """The error of a hub that does not let us write."""
    return UsageError(
        f"The hub does not let you write to {repo_id!r} without a token that allows it.",
        "Log in with `hf auth login`, or give token=… with the right to write.",
    )


def texts_of(model: Model, repo_id: str) -> dict[str, str]:
    """The texts that go with the weights: the card, and how a trained model was trained.

    They are taken from the folder that the model was saved to or loaded from.
    """
    texts = {}
    if model.path is not None and (model.path / DESCRIPTION).is_file():
        files = [model.path / name for name in KEPT]
        texts = {each.name: each.read_text("utf-8") for each in files if each.is_file()}
    card = texts.get(CARD) or plain_card(model, repo_id)
    return {**texts, CARD: card.replace(f'"{PLACEHOLDER}"', f'"{repo_id}"')}


def plain_card(model: Model, repo_id: str) -> str:
    """The card of a model whose training is not known, in Markdown with the hub's metadata."""
    from huggingface_hub import ModelCard, ModelCardData

    metadata = ModelCardData(
        library_name="polyrank",
        pipeline_tag=pipeline_tag(model),
        tags=["polyrank", f"{model.architecture}-encoder"],
    )
    text = PLAIN_CARD.format(
        name=repo_id.rpartition("/")[2],
        architecture=model.architecture,
        version=__version__,
        class_name=CLASSES[model.architecture],
        repo_id=repo_id,
        use=usage(model),
    )
    return f"{ModelCard.from_template(metadata, template_str=text)}\n"


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

"""Puts a model's folder, with its card, into a repository of the Hugging Face hub.

Knows nothing of how a model was trained; the card of a trained model is taken from its folder.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from polyrank._version import __version__
from polyrank.errors import StorageError, UsageError
from polyrank.models.description import DESCRIPTION
from polyrank.models.hub.card import CARD, PLACEHOLDER, RECORD, plain_card
from polyrank.models.hub.download import TIMEOUT, quieten, words_of

if TYPE_CHECKING:
    from polyrank.models.base import Model

KEPT = (CARD, RECORD, "log.jsonl")
"""Files of a trained model's folder that belong to the model."""


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

    The hub is first asked about the repository with a timeout, since an upload has none.
    Parameters and errors are those of `Model.push_to_hub`.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    quieten()
    api = HfApi(token=token, library_name="polyrank", library_version=__version__)
    with answers(repo_id):
        with suppress(RepositoryNotFoundError):
            api.model_info(repo_id, timeout=TIMEOUT)
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
    return address


@contextmanager
def answers(repo_id: str) -> Iterator[None]:
    """Turn what the hub's client raises into UsageError and StorageError."""
    from huggingface_hub.errors import (  # type: ignore[attr-defined]
        HfHubHTTPError,
        HFValidationError,
        HTTPError,  # what its HTTP client raises, whichever that is
        LocalTokenNotFoundError,
    )

    try:
        yield
    except HFValidationError as error:
        raise UsageError(
            f"{repo_id!r} is not the id of a repository on the hub.",
            "Give one such as my-name/my-model.",
        ) from error
    except LocalTokenNotFoundError as error:
        raise no_token(repo_id) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise no_token(repo_id) from error
        raise not_published(repo_id, f"answers with {status}") from error
    except HTTPError as error:
        raise not_published(repo_id, words_of(error)) from error
    except ValueError as error:  # of a card, which the hub checks before anything is sent
        said = " ".join(str(error).split()).rstrip(".")
        raise UsageError(
            f"The hub does not take the card {CARD} of the model: {said}.",
            "Mend the metadata between its first two lines of dashes, or delete the file.",
        ) from error
    except (OSError, RuntimeError) as error:  # of the upload of a file
        raise not_published(repo_id, words_of(error.__cause__ or error)) from error


def not_published(repo_id: str, why: str) -> StorageError:
    """The error of a hub that cannot be reached or does not take the files."""
    return StorageError(
        f"The model was not published as {repo_id!r}: the hub {why}.",
        "Check the connection and try again, or keep the model with save_pretrained.",
    )


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
    card = texts.get(CARD) or plain_card(model, repo_id.rpartition("/")[2])
    return {**texts, CARD: card.replace(f'"{PLACEHOLDER}"', f'"{repo_id}"')}

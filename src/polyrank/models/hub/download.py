"""Downloads a model from the Hugging Face hub into its cache, file by file and by name.

The hub is asked once for the commit and the names of its files. Every request has a timeout, and
only safetensors are fetched, never pickles or code. Knows nothing of what the files mean.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from polyrank._version import __version__
from polyrank.errors import ModelError, StorageError
from polyrank.models.description import DESCRIPTION
from polyrank.models.hub.files import DESCRIPTIONS, MODULES, TOKENIZER, needed
from polyrank.progress import Say, silent

FIRST = (*DESCRIPTIONS, *TOKENIZER)
"""Files of which every model has one beside its others."""
SUFFIX = ".safetensors"
TIMEOUT = 10.0
"""Seconds until a hub that does not answer counts as unreachable."""
COMMIT = re.compile(r"[0-9a-f]{40}")
MAIN = "main"


@dataclass(frozen=True, kw_only=True)
class Access:
    """How a model of the hub is fetched."""

    revision: str | None = None
    """A branch, a tag or a commit; None for the main branch."""
    token: str | bool | None = None
    """A token of the hub; None for that of `hf auth login`, False for none."""
    cache_dir: str | Path | None = None
    """The cache; None for the hub's own."""
    local_files_only: bool = False
    """Whether only the cache is used."""

    @property
    def wanted(self) -> str:
        """The revision by its name."""
        return self.revision or MAIN


class UnknownNameError(ModelError):
    """A name stands for nothing that can be had here; the caller may know a nearer one."""


class UnreachableError(Exception):
    """The hub does not answer, or is not well; the message is the end of a sentence about it."""


def download(name: str, access: Access, say: Say = silent) -> Path:
    """The files of a model from the hub or, if it cannot be reached, from the cache.

    `say` is told what is downloaded, and its size, before the download of the weights begins.
    Raises ModelError, UnknownNameError where the name may be wrong, and StorageError.
    """
    quieten()
    require_id(name)
    if COMMIT.fullmatch(access.wanted) and (kept := cached(name, access)) is not None:
        return kept  # a commit never changes
    if is_offline(access):
        kept = cached(name, access)
        if kept is None:
            raise not_in_cache(name, access)
        return kept
    try:
        with answers(name, access):
            return fetch(name, access, say)
    except UnreachableError as error:
        kept = cached(name, access)  # what was downloaded before needs no hub
        if kept is not None:
            return kept
        raise UnknownNameError(
            f"There is no folder {name!r}, and the hub {error}.",
            "Check the name and the connection, or give the folder of a model.",
        ) from None


def require_id(name: str) -> None:
    """Raise UnknownNameError for a name that a model on the hub cannot have."""
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        raise UnknownNameError(
            f"{name!r} is neither a folder nor a possible id of a model on the hub.",
            "Give the path of a folder, or an id such as sentence-transformers/all-MiniLM-L6-v2.",
        ) from None


def quieten() -> None:
    """Send the hub no account of what runs here, unless the environment allows it."""
    from huggingface_hub import constants

    if "HF_HUB_DISABLE_TELEMETRY" not in os.environ:
        constants.HF_HUB_DISABLE_TELEMETRY = True


def is_offline(access: Access) -> bool:
    """Whether the hub must not be asked, by argument or by the environment (HF_HUB_OFFLINE)."""
    from huggingface_hub import constants

    return access.local_files_only or constants.HF_HUB_OFFLINE


def fetch(name: str, access: Access, say: Say) -> Path:
    """Download what the model needs, of one commit, into the hub's cache."""
    from huggingface_hub import HfApi

    api = HfApi(token=access.token, library_name="polyrank", library_version=__version__)
    info = api.model_info(name, revision=access.revision, timeout=TIMEOUT, files_metadata=True)
    sizes = {each.rfilename: each.size or 0 for each in info.siblings or ()}
    commit = str(info.sha)
    start = [file for file in FIRST if file in sizes]
    if not start:
        raise ModelError(
            f"{name} on the hub is not a model that polyrank reads: it has no {FIRST[0]}.",
            "Check the name, or give the folder of an encoder or a saved model.",
        )
    first = get_file(name, start[0], access, access.wanted)  # so that the cache knows the revision
    if first.parent.name != commit:  # which has moved on since
        first = get_file(name, start[0], access, commit)
    folder = first.parent
    if MODULES not in sizes:
        note_absence(name, MODULES, access, commit)
    got: set[str] = set()
    while new := [file for file in needed(folder, sizes) if file not in got]:
        missing = [file for file in new if not (folder / file).exists()]
        size = sum(sizes[file] for file in missing)
        if any(file.endswith(SUFFIX) for file in missing):
            say(f"Downloading {name} from the hub: {size / 1e6:,.0f} MB.")
        for file in missing:
            require_sound(name, get_file(name, file, access, commit))
        got |= set(new)
    return folder


def get_file(name: str, file: str, access: Access, revision: str) -> Path:
    """One file of a model, from the hub unless the cache has it."""
    from huggingface_hub import hf_hub_download

    return Path(
        hf_hub_download(
            name,
            file,
            revision=revision,
            token=access.token,
            cache_dir=access.cache_dir,
            etag_timeout=TIMEOUT,
            library_name="polyrank",
            library_version=__version__,
        )
    )


def note_absence(name: str, file: str, access: Access, commit: str) -> None:
    """Let the cache know that the model does not have a file, by asking for it once."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError

    if try_to_load_from_cache(name, file, access.cache_dir, revision=commit) is None:
        with suppress(EntryNotFoundError):
            get_file(name, file, access, commit)


def require_sound(name: str, file: Path) -> None:
    """Check the weights that were just downloaded; damaged ones leave the cache again.

    Raises ModelError.
    """
    from safetensors import SafetensorError, safe_open

    if file.suffix != SUFFIX:
        return
    try:
        with safe_open(file, framework="numpy") as weights:
            weights.keys()
    except (OSError, SafetensorError) as error:
        file.resolve().unlink(missing_ok=True)
        file.unlink(missing_ok=True)
        raise damaged(name, f"{file.name}: {str(error).rstrip('.')}") from None


def cached(name: str, access: Access) -> Path | None:
    """The folder of a model in the cache; None if it is not there, or not whole.

    Other programs may have fetched an encoder without what says how it pools, so it counts as whole
    only if that is there or is known not to exist.
    """
    from huggingface_hub import try_to_load_from_cache

    found = [
        try_to_load_from_cache(name, file, access.cache_dir, revision=access.revision)
        for file in FIRST
    ]
    folder = next((Path(file).parent for file in found if isinstance(file, str)), None)
    if folder is None or not is_whole(folder):
        return None
    if not (folder / DESCRIPTION).is_file() and found[FIRST.index(MODULES)] is None:
        return None
    return folder


def is_whole(folder: Path) -> bool:
    """Whether a folder of the cache has all that its model needs; weights are fetched last."""
    names = {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}
    try:
        return bool(needed(folder, names))
    except ModelError:
        return False


def not_in_cache(name: str, access: Access) -> ModelError:
    """The error of a model that would have to be downloaded, which is not allowed."""
    asked = "local_files_only" if access.local_files_only else "HF_HUB_OFFLINE"
    which = "" if access.revision is None else f" at revision {access.revision!r}"
    return UnknownNameError(
        f"There is no folder {name!r}, the hub's cache has no whole model of that name{which}, and "
        f"{asked} forbids asking the hub.",
        "Check the name, allow the download, or give the folder of a model.",
    )


@contextmanager
def answers(name: str, access: Access) -> Iterator[None]:
    """Turn what the hub's client raises into errors of ours; UnreachableError may pass."""
    from huggingface_hub.errors import (  # type: ignore[attr-defined]
        GatedRepoError,
        HfHubHTTPError,
        HTTPError,  # what its HTTP client raises, whichever that is
        LocalEntryNotFoundError,
        LocalTokenNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        yield
    except GatedRepoError:
        raise ModelError(
            f"The hub gives {name} only to those whom its authors have let in.",
            "Ask for access on its page, then log in with `hf auth login` or give token=….",
        ) from None
    except RepositoryNotFoundError:
        raise UnknownNameError(
            f"There is no folder {name!r}, and no model of that name on the hub.",
            "Check the name; for a private model, log in with `hf auth login`.",
        ) from None
    except RevisionNotFoundError:
        raise ModelError(
            f"{name} on the hub has no revision {access.wanted!r}.",
            "Give a branch, a tag or a commit that its page lists.",
        ) from None
    except LocalTokenNotFoundError:
        raise no_right_to_read(name, "there is no token") from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise no_right_to_read(name, f"it answers with {status}") from None
        raise UnreachableError(f"answers with {status}") from None
    except (HTTPError, LocalEntryNotFoundError) as error:
        raise UnreachableError(words_of(error)) from None
    except OSError as error:
        if error.errno is not None:
            raise StorageError(
                f"The files of {name} cannot be written to the cache: {error.strerror}.",
                "Make room, or name another folder with cache_dir or HF_HUB_CACHE.",
            ) from None
        raise damaged(name, str(error).split("\n")[0].rstrip(".")) from None


def words_of(error: BaseException) -> str:
    """What became of a request that got no whole answer: the end of a sentence about the hub."""
    kind = type(error).__name__
    if "Timeout" in kind:
        return f"does not answer within {TIMEOUT:g} seconds"
    return "breaks off the download" if "Protocol" in kind else "cannot be reached"


def no_right_to_read(name: str, why: str) -> ModelError:
    """The error of a hub that does not let us read."""
    return ModelError(
        f"The hub does not let you read {name}: {why}.",
        "Log in with `hf auth login`, or give token=… with the right to read it.",
    )


def damaged(name: str, why: str) -> ModelError:
    """The error of a file that is not what it should be; the cache does not keep it."""
    return ModelError(
        f"The download of {name} is damaged: {why}.",
        "Try again, or give another revision.",
    )

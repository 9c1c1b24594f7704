"""What all three architectures share: an identity, and the ways from and to a folder.

Knows nothing of how a score is formed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor

from polyrank.config import to_mapping
from polyrank.errors import UsageError
from polyrank.models.adapters.folders import Base, write_adapters
from polyrank.models.adapters.layers import is_adapted, merged_copy, named_towers
from polyrank.models.backbone import (
    BACKBONE_FOLDER,
    CANDIDATE_FOLDER,
    KEPT,
    WeightsDtype,
    require_weights_dtype,
)
from polyrank.models.computing import Computing
from polyrank.models.config import ClassifierConfig, EngineName
from polyrank.models.description import CLASSIFIER, Description, digest_of, identity_of
from polyrank.models.engines.engine import choose_engine
from polyrank.models.engines.opening import copy_export, open_export, require_free
from polyrank.models.engines.record import export_fingerprint
from polyrank.models.folder import write_description, write_encoders, write_folder
from polyrank.models.hub.publishing import publish
from polyrank.models.loading.load import load
from polyrank.models.source import faults_named, hub_id, local_folder
from polyrank.tokens.tokenizer import TextTokenizer

if TYPE_CHECKING:
    from typing_extensions import Self


class Model(Computing):
    """Base of the three architectures.

    It has an identity, and comes from a folder or the hub and goes there.
    """

    architecture: ClassVar[str]

    def __init__(
        self, tokenizer: TextTokenizer, candidate_tokenizer: TextTokenizer | None = None
    ) -> None:
        super().__init__(tokenizer, candidate_tokenizer)
        self.hub_id: str | None = None
        self.origins: tuple[Path, ...] = ()
        """The folder that each tower comes from, also where it is not the user's own."""
        self.bases: dict[str, Base] = {}
        """Of a model that is saved as adapters: what each tower's is for."""
        self._fingerprint: tuple[int, str] | None = None

    def fingerprint(self) -> str:
        """The SHA-256 of everything that defines a score: the settings and every weight, as stored.

        A classifier besides the scores does not count.
        """
        state = self.weights_state()
        if self._fingerprint is None or self._fingerprint[0] != state:
            if self.engine is not None:
                self._fingerprint = (state, export_fingerprint(self.identity(), self.engine.record))
                return self._fingerprint[1]
            own = self.merged_weights()
            own = {k: v for k, v in own.items() if not k.startswith(f"{CLASSIFIER}.")}
            self._fingerprint = (state, digest_of_weights(self.identity(), own))
        return self._fingerprint[1]

    def classes_fingerprint(self) -> str:
        """The SHA-256 of everything that defines a class; without classes, the `fingerprint`."""
        if self.classes is None:
            return self.fingerprint()
        identity = {"scores": self.fingerprint(), **to_mapping(self.classifier_config)}
        return digest_of_weights(identity, self.merged_weights())

    def identity(self) -> dict[str, Any]:
        """The settings that define a score, as plain values."""
        return identity_of(self.config)

    def take_classifier(self, config: ClassifierConfig) -> None:
        """Become a model of these classes. Raises UsageError if it cannot."""
        raise UsageError(
            f"The architecture {self.architecture} cannot have a classifier.",
            "Train a bi- or cross-encoder on classes.",
        )

    def drop_classifier(self) -> None:
        """Drop a classifier besides the scores: other training of the encoders outdates it."""

    def merged_weights(self) -> dict[str, Tensor]:
        """Every weight by its name, with adapters merged into those of their layers."""
        weights: dict[str, Tensor] = self.state_dict()
        for name, tower in named_towers(self):
            if is_adapted(tower):
                weights = {k: v for k, v in weights.items() if not k.startswith(f"{name}.")}
                weights |= merged_copy(tower).state_dict(prefix=f"{name}.")
        return weights

    def save_pretrained(self, path: str | Path, *, extra: Mapping[str, str] | None = None) -> None:
        """Write the model folder, replacing an existing one; it becomes the model's `path`.

        `extra` are further texts for it, by file name. Raises StorageError.
        """
        self.require_weights("be saved")
        self.save_copy(path, extra=extra)
        self.path = Path(path).absolute()
        self.origins = (self.path, self.path)

    def save_copy(self, path: str | Path, *, extra: Mapping[str, str] | None = None) -> None:
        """Write the model folder as `save_pretrained` does, but leave `path` as it is.

        Of an exported model, its folder is copied.
        """
        if self.engine is not None:
            copy_export(self.engine.folder, Path(path), self.description(), self.fingerprint())
            return
        weights, adapters = self.merged_weights(), None
        if self.bases:
            weights = {k: v for k, v in weights.items() if k.partition(".")[0] not in self.bases}
            adapters = partial(write_adapters, self)
        encoders = self.described_encoders()
        write_folder(Path(path), self.description(), weights, encoders, extra or {}, adapters)

    def save_description(self, folder: Path) -> None:
        """Write everything but weights into a folder: settings, encoders and tokenisers."""
        write_encoders(folder, self.described_encoders())
        write_description(folder, self.description())

    def description(self) -> Description:
        """The content of `polyrank.json`."""
        classifier = self.classifier_config
        return Description(
            self.config.architecture,
            to_mapping(self.config),
            None if classifier is None else to_mapping(classifier),
        )

    @property
    def has_two_bases(self) -> bool:
        """Whether the candidates have an encoder of another kind, with its own tokeniser."""
        return self.candidate_tokenizer is not self.tokenizer

    def described_encoders(self) -> dict[str, tuple[Any, Any]]:
        """The encoders that are described, with their tokenisers, by the name of their folders."""
        names = BACKBONE_FOLDER, CANDIDATE_FOLDER
        tokenizers = self.tokenizer, self.candidate_tokenizer
        found = {
            name: (tower.encoder, tokenizer.pretrained)
            for name, tower, tokenizer in zip(names, self.towers, tokenizers, strict=False)
        }
        return found if self.has_two_bases else {BACKBONE_FOLDER: found[BACKBONE_FOLDER]}

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        commit_message: str | None = None,
    ) -> str:
        """Upload the model folder with its card to a repository of the Hugging Face hub.

        The repository is made if there is none.

        Args:
            repo_id: The repository, such as my-name/my-model.
            private: Whether a new repository is private. By default, the hub decides.
            token: A token with the right to write. By default, that of `hf auth login`.
            revision: A branch to upload to, made if there is none. By default, `main`.
            commit_message: The words of the commit.

        Returns:
            The address of the repository.

        Raises:
            UsageError: The hub refuses the id or the token, or there is no token.
            StorageError: The hub cannot be reached or does not take the files.
        """
        self.require_weights("be published")
        return publish(
            self,
            repo_id,
            private=private,
            token=token,
            revision=revision,
            commit_message=commit_message,
        )

    @classmethod
    def from_pretrained(
        cls,
        source: str | Path,
        *,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        batch_tokens: int | None = None,
        defaults: Mapping[str, Any] | None = None,
        candidate_base: str | Path | None = None,
        revision: str | None = None,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        engine: EngineName = "auto",
        weights_dtype: WeightsDtype = "float32",
        **settings: Any,
    ) -> Self:
        """Load a model from an encoder, a saved polyrank model or a sentence-transformers folder.

        A saved model of the same architecture is loaded as it is. From one of another architecture,
        or a cross-encoder with another task, only the encoders are used, and everything else is
        new. The pooling of a sentence-transformers model is kept.

        Args:
            source: A folder or a hub id.
            device: Where to compute: `auto`, `cpu`, `cuda`, `cuda:N` or `mps`.
            dtype: The precision of inference; `auto` is bfloat16 where the hardware has it.
            batch_tokens: The most padded tokens of a batch of inference.
            defaults: Settings that replace the configuration's defaults and the source's settings,
                except those that a saved model's weights need; lengths among them are cut to the
                encoder's limit.
            candidate_base: The source of another encoder for the candidates, which may have another
                size, another vocabulary and its own limits; on the hub, its `main` is taken. Only
                the encoders and the pooling are taken from the two sources; everything above is
                new. If the two encoders differ in width, `projection` must be given.
            revision: A branch, a tag or a commit of a model on the hub. By default, `main`.
            token: A token of the hub. By default, that of `hf auth login`.
            cache_dir: Where downloaded files are kept. By default, the hub's own cache.
            local_files_only: Use only what the cache has, and do not ask the hub.
            engine: What computes: `torch` runs the weights, `onnx` and `openvino` run the graphs
                of an exported model. `auto` is torch if the folder has weights, otherwise the
                engine of its graphs.
            weights_dtype: The dtype in which the encoders' weights stay in memory, and are saved.
                `float32` can be trained. `bfloat16`, and `auto` for a file in 16 bits, take half
                the memory and are for inference alone: there is no second copy of the weights, and
                two towers that start alike are one. The dtype of computation is `dtype`'s.
            **settings: The fields of the architecture's configuration, such as `num_codes=64`.

        Returns:
            The model, ready to train and to score; an exported model can only score.

        Raises:
            ModelError: There is no model, or its weights or graphs do not fit.
            OutOfMemoryError: There is not enough memory for it.
            UsageError: A setting is unknown, or contradicts the saved model.
            MissingExtraError: The engine's runtime is not installed.
        """
        found = partial(
            local_folder, token=token, cache_dir=cache_dir, local_files_only=local_files_only
        )
        model = cls.from_folder(
            found(source, revision=revision),
            is_own=Path(source).is_dir(),
            device=device,
            dtype=dtype,
            batch_tokens=batch_tokens,
            defaults=defaults,
            candidate_folder=None if candidate_base is None else found(candidate_base),
            engine=engine,
            weights_dtype=weights_dtype,
            **settings,
        )
        model.hub_id = hub_id(source)
        return model

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        *,
        is_own: bool,
        device: str | torch.device = "auto",
        dtype: str | torch.dtype = "auto",
        batch_tokens: int | None = None,
        defaults: Mapping[str, Any] | None = None,
        engine: EngineName = "auto",
        trainable: bool = True,
        candidate_folder: Path | None = None,
        weights_dtype: WeightsDtype = "float32",
        **settings: Any,
    ) -> Self:
        """A model as `from_pretrained` gives it, from a local folder.

        Args:
            folder: The folder.
            is_own: Whether the folder becomes the model's `path`; one in the hub's cache does not.
            device: As for `from_pretrained`.
            dtype: As for `from_pretrained`.
            batch_tokens: As for `from_pretrained`.
            defaults: As for `from_pretrained`.
            engine: As for `from_pretrained`.
            trainable: False for inference only, which loads faster (see `load_model`).
            candidate_folder: The folder of `candidate_base`.
            weights_dtype: As for `from_pretrained`.
            **settings: As for `from_pretrained`.

        Returns:
            The model.

        Raises:
            ModelError: The folder holds no model, or its weights or graphs do not fit.
            OutOfMemoryError: There is not enough memory for it.
            UsageError: A setting is unknown, or contradicts the saved model.
            MissingExtraError: The engine's runtime is not installed.
        """
        require_weights_dtype(weights_dtype)
        chosen = choose_engine(folder, engine)
        with faults_named(f"The model in {folder} could not be loaded"):
            if chosen == "torch":
                model = load(
                    cls,
                    folder,
                    settings,
                    defaults or {},
                    trainable=trainable,
                    candidate_folder=candidate_folder,
                    weights_dtype=weights_dtype,
                )
            else:
                require_free(folder, candidate_folder)
                model = open_export(cls, folder, settings, device=device, dtype=dtype)
        if chosen == "torch":
            model.place(device, dtype)
        model.path = folder.absolute() if is_own and candidate_folder is None else None
        model.origins = (folder, folder if candidate_folder is None else candidate_folder)
        if batch_tokens is not None:
            model.batch_tokens = batch_tokens
        return cast("Self", model.eval())

    def __deepcopy__(self, memo: dict[int, Any]) -> Model:
        raise TypeError("Copy a model by saving and loading it.")


def digest_of_weights(identity: Mapping[str, Any], weights: Mapping[str, Tensor]) -> str:
    """The SHA-256 of settings and weights; those in 16 bits count as float32."""
    tensors = sorted(weights.items())
    values = ((name, tensor.detach().cpu()) for name, tensor in tensors)
    return digest_of(
        identity,
        (
            (name, (value.float() if value.dtype in KEPT else value).numpy())
            for name, value in values
        ),
    )

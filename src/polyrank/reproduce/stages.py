"""Runs the stages of a row, each into a model folder, with the functions behind `polyrank train`
and `polyrank pretrain`. Knows nothing of tables or of what is measured.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from polyrank.config import field_types, from_mapping
from polyrank.demo.stages import SEED, sparing
from polyrank.errors import UsageError, nearest
from polyrank.folder_files import read_json, sha256_of
from polyrank.jobs import digest_of
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import ARCHITECTURES
from polyrank.models.config import CONFIGS, NewEncoderConfig
from polyrank.models.hub.card import RECORD
from polyrank.models.loading.settings import LENGTHS
from polyrank.models.source import default_base, local_folder
from polyrank.pretraining.registry import TASKS, TaskSettings
from polyrank.pretraining.split import TablesSettings
from polyrank.progress import Say
from polyrank.records import Example, LabelledPair
from polyrank.reproduce.data import TableData
from polyrank.reproduce.table import Kind, Overrides, Pretrain, Scale, Settings, Stage, Train
from polyrank.runtime import set_seed
from polyrank.tokens.masking_config import MaskingConfig
from polyrank.training.config import TrainingConfig
from polyrank.training.model_card import Provenance
from polyrank.training.objectives.registry import ObjectiveConfig
from polyrank.training.pretraining.config import PretrainingConfig
from polyrank.training.pretraining.corpora import Corpora
from polyrank.training.pretraining.new_base import base_folder, make_base
from polyrank.training.run import train

T = TypeVar("T")
NEW = "new"
"""The base of a new encoder, in the identity of a run."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and how precisely models compute."""

    device: str = "auto"
    dtype: str = "auto"
    batch_tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class Settled:
    """The settings of a training, each with the class that it belongs to."""

    model: dict[str, Any]
    lengths: dict[str, Any]
    training: TrainingConfig
    objective: ObjectiveConfig


@dataclass(frozen=True, kw_only=True)
class SettledPretraining:
    """The settings of a pre-training, each with the class that it belongs to."""

    model: dict[str, Any]
    lengths: dict[str, Any]
    training: TrainingConfig
    pretraining: PretrainingConfig
    masking: MaskingConfig
    tables: TablesSettings
    tasks: TaskSettings
    encoder: NewEncoderConfig


def settle(arch: str, values: Settings) -> Settled:
    """Settings by name as those of a training. Raises UsageError for unknown ones."""
    left = dict(values)
    settled = Settled(
        training=taken(TrainingConfig, left),
        objective=taken(ObjectiveConfig, left),
        lengths=own(LENGTHS, left),
        model=own(field_types(CONFIGS[arch]), left),
    )
    require_none(left, field_types(TrainingConfig))
    return settled


def settle_pretraining(values: Settings) -> SettledPretraining:
    """Settings by name as those of a pre-training. Raises UsageError for unknown ones."""
    left = dict(values)
    tasks = {
        name: taken(task.settings_type, left)
        for name, task in TASKS.items()
        if name in field_types(TaskSettings)
    }
    settled = SettledPretraining(
        training=taken(TrainingConfig, left),
        pretraining=taken(PretrainingConfig, left),
        masking=taken(MaskingConfig, left),
        tables=taken(TablesSettings, left),
        tasks=TaskSettings(**tasks),
        encoder=taken(NewEncoderConfig, left),
        lengths=own(LENGTHS, left),
        model=own(field_types(CONFIGS["bi"]), left),
    )
    require_none(left, field_types(PretrainingConfig))
    return settled


def own(names: Any, left: dict[str, Any]) -> dict[str, Any]:
    """The settings of some names, taken out of `left`."""
    return {name: left.pop(name) for name in names if name in left}


def taken(cls: type[T], left: dict[str, Any]) -> T:
    """An instance of a class of settings, with what it has of `left`, taken out of there."""
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    return from_mapping(cls, own(names, left), where="The table")


def require_none(left: Mapping[str, Any], known: Any) -> None:
    """Raise UsageError if a setting is left that nothing has."""
    for name in left:
        raise UsageError(f"The table has an unknown setting {name!r}.", nearest(name, known))


class Maker:
    """Makes the model of each row; a finished stage is not repeated.

    Fine-tuned models are made in `models`, pre-trained encoders in `encoders`. Every pre-training
    has seed 0; the seed of a run is that of its fine-tuning.
    """

    def __init__(
        self,
        data: TableData,
        scale: Scale,
        overrides: Overrides,
        *,
        base: str | None,
        new: bool,
        place: Place,
        models: Path,
        encoders: Path,
        say: Say,
    ) -> None:
        self.data = data
        self.scale = scale
        self.overrides = overrides
        self.place = place
        self.models = models
        self.encoders = encoders
        self.say = say
        self.base = None if new and base is None else base or str(default_base())
        self.digests: dict[Kind, str] = {}

    @cached_property
    def base_identity(self) -> str:
        """Tells bases apart by their weights and descriptions."""
        if self.base is None:
            return NEW
        folder = local_folder(self.base)
        files = sorted((*folder.rglob("*.json"), *folder.rglob("*.safetensors")))
        return digest_of((file.name, sha256_of(file)) for file in files)

    def values(self, stage: Stage) -> dict[str, Any]:
        """All settings of a stage."""
        if isinstance(stage, Train):
            return stage.resolved(self.scale, self.overrides)
        return stage.resolved(self.scale, self.overrides, new=self.base is None)

    def identity(self, stages: Sequence[Stage], seed: int) -> list[Any]:
        """Everything that the model of some stages depends on, JSON-ready."""
        place = [self.place.dtype]
        return [self.base_identity, place, *(self.described(stage, seed) for stage in stages)]

    def described(self, stage: Stage, seed: int) -> list[Any]:
        """Everything that a stage adds."""
        values = sorted(self.values(stage).items())
        if isinstance(stage, Train):
            share = stage.share if stage.data == "questions" else None
            how = [stage.arch, share, stage.effort > 0, seed]
            return ["train", *how, self.digest(stage.data), values]
        return ["pretrain", stage.tasks, self.digest("corpus"), values]

    def digest(self, kind: Kind) -> str:
        """Tells the data of a kind apart by their content."""
        if kind not in self.digests:
            found = getattr(self.data, kind)
            if kind == "corpus":
                self.digests[kind] = found.fingerprint
            else:
                dev = found.dev if kind == "dialogues" and self.scale.is_paper else ()
                self.digests[kind] = digest_of((*found.train, *dev))
        return self.digests[kind]

    def make(self, stages: Sequence[Stage], seed: int) -> Path:
        """The folder of the model of some stages, made where it is not there."""
        *before, last = stages
        parent = self.encoders if isinstance(last, Pretrain) else self.models
        folder = parent / digest_of(self.identity(stages, seed))[:24]
        if not folder.is_dir():
            source = str(self.make(before, seed)) if before else self.base
            set_seed(seed if isinstance(last, Train) else SEED)
            if isinstance(last, Train):
                self.train(last, source or str(default_base()), folder, seed)
            else:
                self.pretrain(last, source, folder)
        return folder

    def train(self, stage: Train, source: str, folder: Path, seed: int) -> None:
        """Train a model, or save it as it starts."""
        settled = settle(stage.arch, {**self.values(stage), "seed": seed})
        model: Any = ARCHITECTURES[stage.arch].from_pretrained(
            source,
            device=self.place.device,
            dtype=self.place.dtype,
            batch_tokens=self.place.batch_tokens,
            defaults=settled.lengths,
            **settled.model,
        )
        if not stage.effort:
            model.save_pretrained(folder)
            return
        examples = self.examples(stage)
        config = replace(
            settled.training, batch_size=min(settled.training.batch_size, len(examples))
        )
        dev = self.data.dialogues.dev if stage.data == "dialogues" and self.scale.is_paper else []
        train(
            model,
            examples,
            folder,
            config,
            objective=settled.objective,
            dev=dev,
            provenance=Provenance(base=source, train=getattr(self.data, stage.data).name),
            say=sparing(self.say),
            show_progress_bar=True,
        )

    def examples(self, stage: Train) -> list[Example] | list[LabelledPair]:
        """What a stage is trained on."""
        if stage.data == "questions":
            return self.data.questions.share(stage.share)
        found: list[Example] | list[LabelledPair] = getattr(self.data, stage.data).train
        return found

    def pretrain(self, stage: Pretrain, source: str | None, folder: Path) -> None:
        """Pre-train a bi-encoder on the corpus, or save it as it starts."""
        settled = settle_pretraining({**self.values(stage), "seed": SEED})
        config = settled.training
        corpora = Corpora(
            [self.data.corpus],
            settled.pretraining,
            tables=settled.tables,
            tasks=settled.tasks,
            batch_size=config.batch_size,
            seed=SEED,
        )
        if source is None:
            source = str(base_folder(folder))
            texts = corpora.texts()
            self.say(f"  a new encoder, {settled.encoder.num_layers} layers")
            make_base(Path(source), texts, settled.encoder, identity=corpora.identity, seed=SEED)
        model = BiEncoder.from_pretrained(
            source,
            device=self.place.device,
            dtype=self.place.dtype,
            batch_tokens=self.place.batch_tokens,
            defaults=settled.lengths,
            **settled.model,
        )
        if stage.tasks:
            pairs = corpora.pairs(
                config.num_steps(len(corpora.mixture)) * config.batch_size, settled.masking
            )
            objective = ObjectiveConfig(logq=settled.pretraining.logq)
            self.say(f"  pre-training on {stage.tasks}")
            name = str(self.data.corpus.manifest.source.get("name"))
            train(
                model,
                pairs,
                folder,
                config,
                objective=objective,
                provenance=Provenance(base=self.base, train=name),
                say=sparing(self.say),
                show_progress_bar=True,
            )
        else:
            model.save_pretrained(folder)
        shutil.rmtree(base_folder(folder), ignore_errors=True)


def seconds_of(folder: Path) -> tuple[float, int]:
    """The seconds of a model's last training, and the pairs that it took; zeros without one."""
    try:
        record = read_json(folder / RECORD)
    except OSError:
        return 0.0, 0
    return float(record["seconds"]), int(record["pairs"])

"""One training run: from a new model and examples to a trained model folder.

The run works in a folder beside its output, where checkpoints let it go on after an interruption;
the output appears only when it is complete. Knows nothing of the command line.
"""

from __future__ import annotations

import gc
import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import TrainingArguments

from polyrank.config import to_mapping
from polyrank.errors import DataError, StorageError, UsageError
from polyrank.evaluation.evaluate import evaluate
from polyrank.models.base import Model
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.models.folder import DESCRIPTION
from polyrank.models.two_tower import TwoTower
from polyrank.records import Example
from polyrank.runtime import set_seed
from polyrank.storage import require_replaceable, storage_errors, write_text
from polyrank.training.collators import CrossCollator, NumberedExamples, TwoTowerCollator
from polyrank.training.config import TrainingConfig
from polyrank.training.objective import Objective
from polyrank.training.trainer import RankingTrainer

Say = Callable[[str], None]
RECORD = "training.json"


@dataclass(frozen=True, kw_only=True)
class TrainingResult:
    """What a run did; also written to `training.json` in the model folder."""

    steps: int
    pairs: int
    seconds: float
    """Wall time of the steps alone; evaluation and checkpoints are not in it."""
    best_step: int
    figures: dict[str, float]
    """Of the dev examples, by the kept checkpoint; empty without dev examples."""
    history: list[dict[str, float]]


def work_folder(output: Path) -> Path:
    """Where a run that makes `output` keeps its checkpoints."""
    output = output.absolute()
    return output.with_name(f".{output.name}.training")


def train(
    model: Model,
    examples: Sequence[Example],
    output: str | Path,
    config: TrainingConfig,
    *,
    dev: Sequence[Example] = (),
    restart: bool = False,
    say: Say = lambda words: None,
) -> TrainingResult:
    """Train `model` in place on `examples` and save it to the folder `output`.

    `dev` examples, which need candidates, choose the best checkpoint; without them the last is
    kept. Precision is the model's `compute_dtype`: bfloat16 runs the encoders in mixed precision,
    with float32 weights. An interrupted run goes on when it is started again with the same
    settings. Raises UsageError where an unfinished run with other settings is in the way (unless
    `restart`), DataError for too few examples, TrainingError for a loss that is not finite,
    StorageError if the disk refuses.
    """
    output = Path(output)
    require_replaceable(output, DESCRIPTION, "model")
    check(model, examples)
    steps = count_steps(len(examples), config)
    work = work_folder(output)
    identified = identity(model, examples, dev, config)
    checkpoint = open_work(work, identified, restart)
    if checkpoint is not None:
        say(f"Going on after step {checkpoint.name.rpartition('-')[2]} of {steps}.")
    prepare(model, config)
    trainer = make_trainer(model, examples, dev, work, config, steps, say)
    try:
        with storage_errors(work):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    except SafetensorError as error:
        raise StorageError(
            f"Writing a checkpoint to {work} failed: {error}.",
            "Free some space and run the same command again; it goes on from the last checkpoint.",
        ) from error
    model.eval()
    result = summarise(trainer, config)
    record = {**vars(result), "num_examples": len(examples), "identity": identified}
    model.save_pretrained(output, extra={RECORD: json.dumps(record, indent=2) + "\n"})
    shutil.rmtree(work, ignore_errors=True)
    del trainer
    gc.collect()  # the trainer refers to itself, and its optimiser is twice the size of the model
    return result


def finished(
    model: Model,
    examples: Sequence[Example],
    output: str | Path,
    config: TrainingConfig,
    *,
    dev: Sequence[Example] = (),
) -> bool:
    """Whether `output` holds what `train` with these arguments would make."""
    try:
        record = json.loads((Path(output) / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    same: bool = record.get("identity") == identity(model, examples, dev, config)
    return same


def check(model: Model, examples: Sequence[Example]) -> None:
    """Refuse what cannot be trained."""
    if isinstance(model, CrossEncoder) and model.config.task != "rank":
        raise UsageError(
            f"Training on responses needs a cross-encoder with task = rank, not "
            f"{model.config.task}.",
            "Leave task out.",
        )
    if len({example.response for example in examples}) < 2:
        raise DataError(
            f"Training needs at least 2 examples with different responses, got {len(examples)}.",
            "Give more examples.",
        )


def count_steps(num_examples: int, config: TrainingConfig) -> int:
    """The steps of the whole run. A last batch that is not full is left out of an epoch."""
    if config.max_steps is not None:
        return config.max_steps
    an_epoch = max(num_examples // config.batch_size, 1)
    return max(round(an_epoch * config.epochs), 1)


def identity(
    model: Model, examples: Sequence[Example], dev: Sequence[Example], config: TrainingConfig
) -> dict[str, Any]:
    """All that a run's result depends on, to tell whether an unfinished run is the same."""
    digest = hashlib.sha256()
    for example in (*examples, *dev):
        digest.update(repr(example).encode())
    return {
        "training": to_mapping(config),
        "model": model.fingerprint(),
        "dtype": str(model.compute_dtype),
        "examples": digest.hexdigest(),
    }


def open_work(work: Path, identity: dict[str, Any], restart: bool) -> Path | None:
    """Make the work folder, or find the last whole checkpoint of the same run in it."""
    written = work / "run.json"
    if restart:
        shutil.rmtree(work, ignore_errors=True)
    if written.is_file():
        if json.loads(written.read_text(encoding="utf-8")) == identity:
            return last_checkpoint(work)
        raise UsageError(
            f"An unfinished run with other settings, data or base lies in {work}.",
            "Repeat that command to finish it, give --restart to discard it, or choose another "
            "output.",
        )
    write_text(written, json.dumps(identity, indent=2) + "\n")
    return None


def last_checkpoint(work: Path) -> Path | None:
    """The newest checkpoint; its state is written last, so one with a state is whole."""
    whole = [path for path in work.glob("checkpoint-*") if (path / "trainer_state.json").is_file()]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def prepare(model: Model, config: TrainingConfig) -> None:
    """Set dropout and the attention that trains fastest."""
    for name in model.tower_names:
        tower = getattr(model, name)
        if tower is None:
            continue
        for path, module in tower.named_modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0 if "attention" in path and "output" not in path else config.dropout
        if model.device.type == "cpu":
            # torch's fused attention is slow on the way back on CPUs; see docs/log.md.
            tower.encoder.set_attn_implementation("eager")


def make_trainer(
    model: Model,
    examples: Sequence[Example],
    dev: Sequence[Example],
    work: Path,
    config: TrainingConfig,
    steps: int,
    say: Say,
) -> RankingTrainer:
    """The trainer of a run."""
    set_seed(config.seed)
    every = max(-(-steps // config.evaluations), 1)
    arguments = TrainingArguments(
        output_dir=str(work),
        per_device_train_batch_size=config.batch_size,
        max_steps=steps,
        learning_rate=config.learning_rate,
        lr_scheduler_type=config.schedule,
        warmup_steps=config.warmup if config.warmup < 1 else int(config.warmup),
        max_grad_norm=config.max_grad_norm,
        weight_decay=config.weight_decay,
        bf16=model.compute_dtype == torch.bfloat16,
        use_cpu=model.device.type == "cpu",
        seed=config.seed,
        data_seed=config.seed,
        eval_strategy="steps" if dev else "no",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=2,
        load_best_model_at_end=bool(dev),
        metric_for_best_model=config.metric,
        greater_is_better=True,
        logging_steps=max(steps // 20, 1),
        disable_tqdm=True,
        report_to=[],
        remove_unused_columns=False,
        label_names=[],
        dataloader_drop_last=len(examples) >= config.batch_size,
        dataloader_pin_memory=model.device.type == "cuda",
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # a process trains on one device; DataParallel cannot split our steps
    collator: Any
    if isinstance(model, CrossEncoder):
        collator = CrossCollator(
            model, examples, config.num_negatives, config.train_batch_tokens, config.seed
        )
    else:
        assert isinstance(model, TwoTower)
        collator = TwoTowerCollator(model, config.train_batch_tokens)
    return RankingTrainer(
        model=Objective(model),
        args=arguments,
        data_collator=collator,
        train_dataset=NumberedExamples(examples),
        eval_dataset=NumberedExamples(dev) if dev else None,
        new_learning_rate=config.new_learning_rate,
        evaluate_model=lambda current: figures_of(current, dev),
        say=say,
    )


def figures_of(model: Model, dev: Sequence[Example]) -> dict[str, float]:
    """The dev figures by the names that settings use."""
    result: Any = evaluate(model, dev)  # type: ignore[arg-type]
    return {"mrr": result.mrr, **{f"recall@{k}": value for k, value in result.recall.items()}}


def summarise(trainer: RankingTrainer, config: TrainingConfig) -> TrainingResult:
    """The result of a finished run."""
    state = trainer.state
    evaluated = [entry for entry in state.log_history if "eval_mrr" in entry]
    best_step = state.best_global_step or state.global_step
    best: dict[str, float] = next((entry for entry in evaluated if entry["step"] == best_step), {})
    return TrainingResult(
        steps=state.global_step,
        pairs=state.global_step * config.batch_size,
        seconds=trainer.seconds,
        best_step=best_step,
        figures={
            name.removeprefix("eval_"): value
            for name, value in best.items()
            if name.startswith("eval_")
        },
        history=state.log_history,
    )

"""The stages of the demo: data, models, comparison, index. Each stage leaves its result in the
demo's folder, in the form that the other commands read. A repeated demo skips the stages whose
results are there.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polyrank.data.examples import read_examples, write_examples
from polyrank.demo.documentation import read_documentation
from polyrank.demo.examples import make_splits, read_passages
from polyrank.errors import DataError
from polyrank.evaluation.comparison import Comparison, compare_contenders
from polyrank.evaluation.evaluator import Entry, Evaluator, EvaluatorSettings
from polyrank.evaluation.report import environment, write_report
from polyrank.evaluation.tasks import RankingTask, with_sampled_candidates
from polyrank.jobs import Results
from polyrank.models.checkpoint import ARCHITECTURES, load_model
from polyrank.models.source import default_base
from polyrank.progress import Say
from polyrank.records import Candidate, Example
from polyrank.retrieval.engine import SearchResults
from polyrank.retrieval.index import Index
from polyrank.runtime import set_seed
from polyrank.storage import write_text
from polyrank.training.config import TrainingConfig
from polyrank.training.identity import finished
from polyrank.training.run import train

NUM_CANDIDATES = 20
MOST_DEV, MOST_TEST = 150, 300
LENGTHS: dict[str, Any] = {"max_context_length": 64, "max_candidate_length": 96}
SIZES = (100, 1000, 10_000)
SEED = 0


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One model of the demo."""

    name: str
    architecture: str
    settings: dict[str, Any]
    training: TrainingConfig


@dataclass(frozen=True, kw_only=True)
class DemoData:
    """What is trained on, chosen by, tested on and searched."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    passages: Path


def recipes(steps: int) -> list[Recipe]:
    """The demo's four models, each trained on `steps` of 64 contexts with in-batch negatives."""
    training = TrainingConfig(batch_size=64, max_steps=steps, evaluations=1, seed=SEED)
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "bi": ("bi", {}),
        "poly-16": ("poly", {"num_codes": 16}),
        "poly-64": ("poly", {"num_codes": 64}),
        "cross": ("cross", {}),
    }
    return [
        Recipe(name=name, architecture=kind, settings=settings, training=training)
        for name, (kind, settings) in kinds.items()
    ]


def python_data(folder: Path) -> DemoData:
    """The documentation of the installed Python, written to `folder` once.

    Distractors come from the whole split; those of `test-hard.jsonl` from the same module.
    """
    if not (folder / "passages.jsonl").is_file():
        articles = read_documentation()
        splits = make_splits(articles, num_candidates=NUM_CANDIDATES, seed=SEED)
        write_examples(folder / "train.jsonl", splits.train)
        write_examples(folder / "dev.jsonl", splits.dev)
        write_examples(folder / "test.jsonl", splits.test)
        hard = make_splits(articles, num_candidates=NUM_CANDIDATES, hard=True, seed=SEED)
        write_examples(folder / "test-hard.jsonl", hard.test)
        passages = read_passages(articles)
        candidates = (Candidate(passage.id, passage.text) for passage in passages)
        write_candidates(folder / "passages.jsonl", candidates)
    return read_data(folder)


def own_data(file: Path, folder: Path) -> DemoData:
    """A user's examples, split at random, written to `folder`.

    Raises DataError where there are too few.
    """
    examples = list(read_examples(file))
    fewest = 4 * NUM_CANDIDATES
    if len(examples) < fewest:
        raise DataError(
            f"The demo needs at least {fewest} examples, got {len(examples)}.",
            "Give a larger file, or use `polyrank train` and `polyrank evaluate`.",
            path=file,
        )
    random.Random(SEED).shuffle(examples)
    held = max(min(len(examples) // 10, 1000), NUM_CANDIDATES)
    parts = {"dev": examples[:held], "test": examples[held : 2 * held]}
    for name, part in parts.items():
        sampled = with_sampled_candidates(part, NUM_CANDIDATES, SEED, source=examples)
        write_examples(folder / f"{name}.jsonl", sampled)
    write_examples(folder / "train.jsonl", examples[2 * held :])
    texts = dict.fromkeys(example.response for example in examples if example.response.strip())
    numbered = (Candidate(str(number), text) for number, text in enumerate(texts, start=1))
    write_candidates(folder / "passages.jsonl", numbered)
    return read_data(folder)


def read_data(folder: Path) -> DemoData:
    """What an earlier stage wrote, with few dev and test examples, to save time."""
    return DemoData(
        train=list(read_examples(folder / "train.jsonl")),
        dev=spread(list(read_examples(folder / "dev.jsonl")), MOST_DEV),
        test=spread(list(read_examples(folder / "test.jsonl")), MOST_TEST),
        passages=folder / "passages.jsonl",
    )


def spread(examples: list[Example], most: int) -> list[Example]:
    """At most `most` examples, drawn over the whole list."""
    return examples if len(examples) <= most else random.Random(SEED).sample(examples, most)


def write_candidates(path: Path, candidates: Iterable[Candidate]) -> None:
    """Write candidates as JSONL."""
    rows = ({"id": candidate.id, "text": candidate.text} for candidate in candidates)
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def train_model(
    recipe: Recipe, base: str | None, data: DemoData, folder: Path, device: str, say: Say
) -> None:
    """Train a recipe's model into `folder`, unless that is done already."""
    set_seed(recipe.training.seed)
    model_class = ARCHITECTURES[recipe.architecture]
    source, lengths = (default_base(), LENGTHS) if base is None else (base, {})
    model = model_class.from_pretrained(source, device=device, **lengths, **recipe.settings)
    if finished(model, data.train, folder, recipe.training, dev=data.dev):
        say("  trained before")
        return
    say(f"  {recipe.training.max_steps} steps of {recipe.training.batch_size} contexts")
    train(
        model,
        data.train,
        folder,
        recipe.training,
        dev=data.dev,
        restart=True,
        say=sparing(say),
        show_progress_bar=True,
    )


def sparing(say: Say) -> Say:
    """Say every fourth loss, and all else, indented."""
    count = 0

    def some(words: str) -> None:
        nonlocal count
        count += "loss" in words
        if "loss" not in words or count % 4 == 0:
            say(f"  {words}")

    return some


def compare_models(
    names: Iterable[str], data: DemoData, folder: Path, device: str, say: Say
) -> Comparison:
    """The trained models on the test examples, as `polyrank compare` compares them."""
    evaluator = Evaluator(
        RankingTask(examples=data.test),
        lambda source: load_model(source, device=device),
        Results(folder / "comparison" / "evaluations"),
        EvaluatorSettings(sizes=SIZES, num_queries=5, time_limit=8.0),
        say=lambda words: say(f"  {words}"),
    )
    entries = [Entry(name=name, sources=(str(folder / "models" / name),)) for name in names]
    comparison = compare_contenders(evaluator.evaluate(entries), seed=SEED)
    about = {"data": str(folder / "data" / "test.jsonl"), "seed": SEED, **environment(device)}
    write_report(comparison, folder / "comparison", about)
    return comparison


def build_index(model: Path, device: str, data: DemoData, folder: Path) -> Index:
    """The index of all passages, by a saved model."""
    loaded: Any = load_model(model, device=device)
    return Index.build(loaded, data.passages, folder)


def answer(index: Index, questions: list[Any]) -> SearchResults:
    """The best three passages for each question."""
    return index.search(questions, top_k=3)

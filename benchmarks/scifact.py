"""SciFact: claims against 5,183 abstracts, from BM25 to mined negatives and rerankers.

nDCG@10 and recall@100 on the 300 test claims: BM25; the bi-encoder untrained; the bi-encoder
trained on the 809 training claims with negatives that the untrained one mined; and the best
`--top` of BM25 and of the trained bi-encoder in the order of a cross-encoder and of a poly-encoder,
both trained on the same examples, all three by in-batch softmax (the cross-encoder with head =
interaction). Claims have up to 64 tokens, abstracts with titles up to 256.
The published nDCG@10 of BM25 is .660 (the data's README).

python -m benchmarks.scifact DATA --models FOLDER --output FILE [--top 100 --epochs 5 --seed 0]

DATA is the BEIR folder; FOLDER keeps the mined negatives and the models, which are not trained
again. Settings of earlier runs are not looked at: take another FOLDER for others.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from transformers.utils import logging

from benchmarks.results_store import ResultsStore, table
from benchmarks.timing import machine
from polyrank import BiEncoder
from polyrank.data.loading import load_examples, load_records
from polyrank.evaluation.retrieval import Rankings, judge, rerank, retrieve
from polyrank.models.checkpoint import ARCHITECTURES
from polyrank.models.source import default_base
from polyrank.progress import quieten_libraries
from polyrank.records import Example, RetrievalSet
from polyrank.retrieval.bm25.index import BM25Index
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.negatives.config import NegativesConfig
from polyrank.training.negatives.methods import model_method
from polyrank.training.negatives.mining import mine_to_file
from polyrank.training.negatives.pool import Pool
from polyrank.training.run import train

LENGTHS = {"max_context_length": 64, "max_candidate_length": 256}
MODELS: dict[str, dict[str, Any]] = {
    "bi": {},
    "poly": {"num_codes": 64},
    "cross": {},
}
MOST_NEGATIVES = 7


def fresh(name: str) -> Any:
    """A new model."""
    made: Any = ARCHITECTURES[name]
    return made.from_pretrained(default_base(), device="cpu", **LENGTHS, **MODELS[name])


def mined(options: argparse.Namespace) -> list[Example]:
    """The training claims with the negatives that the untrained bi-encoder finds."""
    file = options.models / "mined.jsonl"
    if not file.is_file():
        data: Any = load_records(options.data, format="beir", split="train")
        pool = Pool.of_retrieval(data).limited(options.limit)
        config = NegativesConfig(
            num_negatives=options.negatives, from_rank=1, to_rank=50, missing="fill"
        )
        mine_to_file(
            pool, model_method(fresh("bi")), file, config, say=print, show_progress_bar=True
        )
    return load_examples(file)


def trained(name: str, options: argparse.Namespace) -> Any:
    """A model trained on the mined examples, or the one that was."""
    folder = options.models / name
    made: Any = ARCHITECTURES[name]
    if folder.is_dir():
        return made.from_pretrained(folder, device="cpu")
    examples = mined(options)
    set_seed(options.seed)
    model = fresh(name)
    config = TrainingConfig(
        batch_size=32,
        epochs=options.epochs,
        max_steps=options.steps,
        learning_rate=options.learning_rate,
        evaluations=1,
        seed=options.seed,
    )
    train(model, examples, folder, config, say=print)
    return model


def first_stage(name: str, data: RetrievalSet, options: argparse.Namespace) -> Rankings:
    """What the first stage finds."""
    if name == "BM25":
        return retrieve(BM25Index.build(data.corpus), data)
    model: BiEncoder = fresh("bi") if name == "bi, untrained" else trained("bi", options)
    return retrieve(model, data, show_progress_bar=True)


def measure(
    stage: str, reranker: str | None, data: RetrievalSet, options: argparse.Namespace
) -> dict[str, Any]:
    """The figures of a first stage, put in order again or not."""
    rankings = first_stage(stage, data, options)
    if reranker is not None:
        model = trained(reranker, options)
        rankings = rerank(model, data, rankings, options.top, show_progress_bar=True)
    return {name: round(value, 4) for name, value in judge(rankings, data).means().items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="JSON file of results")
    parser.add_argument("--top", type=int, default=100, help="candidates to put in order again")
    parser.add_argument("--negatives", type=int, default=MOST_NEGATIVES, help="mined for a claim")
    parser.add_argument("--epochs", type=float, default=5.0)
    parser.add_argument("--steps", type=int, help="of every training, in the place of epochs")
    parser.add_argument("--learning-rate", type=float, default=5e-5, help="of every training")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="training examples and test claims")
    options = parser.parse_args()
    quieten_libraries()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    print(machine())
    store = ResultsStore(options.output)
    data: Any = load_records(options.data, format="beir", split="test", limit=options.limit)
    stages = ["BM25", "bi, untrained", "bi, trained"]
    plans: list[tuple[str, str | None]] = [(stage, None) for stage in stages]
    plans += [(stage, name) for stage in ("BM25", "bi, trained") for name in ("poly", "cross")]
    rows = []
    for stage, reranker in plans:
        is_trained = reranker is not None or stage == "bi, trained"
        settings = {
            "first": stage,
            "rerank": reranker,
            "top": options.top if reranker else None,
            "negatives": options.negatives if is_trained else None,
            "epochs": options.epochs if is_trained else None,
            "steps": options.steps if is_trained else None,
            "seed": options.seed if is_trained else None,
            "claims": len(data.queries),
        }
        found = store.get(settings, partial(measure, stage, reranker, data, options))
        rows.append([stage, reranker or "", found["ndcg@10"], found["recall@100"]])
    print(table(["first stage", f"best {options.top} in the order of", "nDCG@10", "R@100"], rows))


if __name__ == "__main__":
    main()

"""What pre-training brings: each task and their mixture, judged on pairs and by fine-tuning.

After Chang et al. (2020), tables 3 to 5, in small: an encoder is pre-trained on the articles of
wikispeedia by no task, MLM, ICT, BFS, WLP, and ICT + BFS + WLP, for the same number of steps, from
nothing (a BERT of `--layers` and `--width`, a vocabulary of the same articles) or from
all-MiniLM-L6-v2. A tenth of the articles is held out. The row `target` has ICT on the abstracts
that scifact searches, without its claims. Then

  pairs       recall of the document of held-out ICT, BFS and WLP pairs among those of all `--pairs`
  squad       squad_sentences: the answer's sentence among 6,795, a share of the questions to train
  scifact     the abstracts of a claim among 5,183, a share of the training claims to train

with 1 %, 5 % and 80 % of the questions (of the 809 training claims) and the same steps each;
R@1/5/10/50/100, BM25 beside. A fifth of the questions of squad is tested on, never trained on.

python -m benchmarks.pretraining DATA --work FOLDER --output FILE [--steps 600 --batch 64
    --base nothing|minilm --tasks none,mlm,ict,bfs,wlp,all --shares 1,5,80 --tuning-steps 60
    --reduction mean|first]

--reduction first has the pairs judged and the fine-tuning done with the first output, as the paper
has it; the encoders are pre-trained with the mean.

FOLDER keeps corpus and encoders. FILE holds every result as it comes.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.command import call
from benchmarks.results_store import ResultsStore, table
from benchmarks.timing import machine
from polyrank import BiEncoder
from polyrank.data.loading import load_records
from polyrank.models.source import default_base
from polyrank.pretraining.corpus.store import Corpus
from polyrank.pretraining.pairs import Pair
from polyrank.pretraining.registry import make_task
from polyrank.pretraining.split import TablesSettings
from polyrank.pretraining.statistics import second_text
from polyrank.pretraining.tables import open_tables
from polyrank.progress import quieten_libraries
from polyrank.records import Candidate, Example
from polyrank.retrieval.bm25.index import BM25Index
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.pretraining.held_out import documents_of, ranks_of
from polyrank.training.pretraining.objective import document
from polyrank.training.run import train

KS = (1, 5, 10, 50, 100)
HELD_OUT = 0.1
SOFTMAX = ("ict", "bfs", "wlp")
USUAL = {"none": "", "mlm": "mlm", **{name: name for name in SOFTMAX}, "all": ",".join(SOFTMAX)}
TASKS = {**USUAL, "target": "ict"}
LENGTHS = {"max_context_length": 64, "max_candidate_length": 160}
RATES = {"nothing": (5e-4, 2e-4), "minilm": (5e-5, 5e-5)}
"""Peak learning rates of pre-training and of fine-tuning."""


class Search(NamedTuple):
    """Questions with their answers among documents, and questions to train on."""

    name: str
    corpus: list[Candidate]
    tested: list[tuple[str, set[str]]]
    train: list[Example]


def flags(**settings: Any) -> list[str]:
    """Settings as flags."""
    return [
        text
        for name, value in settings.items()
        for text in (f"--{name.replace('_', '-')}", str(value))
    ]


def corpus_of(options: argparse.Namespace, name: str) -> Path:
    """The folder of the articles that a row of the table is pre-trained on, converted once."""
    source = options.data / "wikispeedia" / "articles.jsonl.xz"
    if name == "target":
        source = options.data / "scifact" / "corpus.jsonl.xz"
    folder: Path = options.work / source.parent.name
    if not folder.is_dir():
        call("corpus", str(source), "--language", "en", "--output", str(folder))
    return folder


def encoder_of(options: argparse.Namespace, name: str) -> Path:
    """The folder of the encoder of a row of the table, pre-trained where it is not there."""
    if name == "none" and options.base == "minilm":
        return Path(default_base())
    steps = 1 if name == "none" else options.steps
    folder: Path = options.work / f"{options.base}-{name}-{steps}-{options.batch}"
    if folder.is_dir():
        return folder
    given = ["pretrain", "--corpus", str(corpus_of(options, name)), "--output", str(folder)]
    given += flags(tasks=TASKS[name] or "mlm", max_steps=steps, batch_size=options.batch)
    given += flags(held_out=HELD_OUT, held_out_pairs=200, evaluations=2, seed=options.seed)
    given += flags(max_joined_length=160, **LENGTHS)
    rate = RATES[options.base][0]
    if options.base == "minilm":
        given += ["--base", str(default_base())]
    else:
        given += flags(
            num_layers=options.layers, width=options.width, num_heads=options.width // 64
        )
        given += flags(vocabulary=options.vocabulary, projection="none")
    if name == "none":  # drawn and saved, and not moved
        rate = 1e-12
        given += flags(new_learning_rate=1e-12)
    call(*given, *flags(learning_rate=rate))
    return folder


def load(options: argparse.Namespace, name: str) -> BiEncoder:
    """The encoder of a row of the table as a bi-encoder with one tower for both sides."""
    settings: dict[str, Any] = {**LENGTHS, "reduction": options.reduction}
    folder = encoder_of(options, name)
    if name == "none" and options.base == "minilm":
        settings["shared_towers"] = True
    return BiEncoder.from_pretrained(folder, device="cpu", **settings)


def recalls(ranks: torch.Tensor) -> dict[str, float]:
    """The shares of ranks, from 1, up to each k."""
    return {f"R@{k}": round(float((ranks <= k).float().mean()), 4) for k in KS}


def held_out_pairs(options: argparse.Namespace, corpus: Corpus) -> dict[str, list[Pair]]:
    """Pairs of articles that no encoder was trained on, by task."""
    tables = open_tables(corpus, TablesSettings(held_out=HELD_OUT))
    return {
        name: list(make_task(name, tables, "held_out", options.seed).sample(options.pairs))
        for name in SOFTMAX
    }


def on_pairs(model: BiEncoder | None, pairs: Sequence[Pair]) -> dict[str, float]:
    """The recalls of a model, or of BM25, on held-out pairs of one task."""
    texts: Any = documents_of(pairs)
    if model is None:
        shown = {document(pair): second_text(pair) for pair in pairs}
        index = BM25Index.build([Candidate(str(n), shown[text]) for n, text in enumerate(texts)])
        scores = torch.full((len(pairs), len(texts)), -torch.inf)
        for row, found in enumerate(index.search([str(p.first) for p in pairs], len(texts))):
            for hit in found:
                scores[row, int(hit.id)] = hit.score
    else:
        contexts = model.encode_contexts([pair.first for pair in pairs])
        scores = model.score(contexts, model.encode_candidates(texts))
    return recalls(ranks_of(scores, pairs))


def searches(options: argparse.Namespace) -> list[Search]:
    """Both sets, with the questions that are tested."""
    squad: Any = load_records(options.data / "squad_sentences", split="dev")
    order = sorted(squad.queries)
    random.Random(0).shuffle(order)
    tested = set(order[: len(order) // 5])
    examples = list(squad.examples())
    made = [
        Search(
            "squad",
            squad.corpus,
            [(squad.queries[query], set(squad.judgements[query])) for query in sorted(tested)],
            [one for one in examples if str(one.id).split("/")[0] not in tested],
        )
    ]
    test: Any = load_records(options.data / "scifact", split="test")
    known: Any = load_records(options.data / "scifact", split="train")
    claims = [(test.queries[query], set(grades)) for query, grades in test.judgements.items()]
    made.append(Search("scifact", test.corpus, claims, list(known.examples())))
    return [one for one in made if one.name in options.sets]


def tune(
    options: argparse.Namespace, model: BiEncoder, search: Search, share: float, seed: int
) -> None:
    """Train on a share of the questions, in place."""
    examples = list(search.train)
    random.Random(seed).shuffle(examples)
    examples = examples[: max(round(share / 100 * len(examples)), 2)]
    config = TrainingConfig(
        batch_size=min(options.tuning_batch, len(examples)),
        max_steps=options.tuning_steps,
        learning_rate=RATES[options.base][1],
        evaluations=1,
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        train(model, examples, Path(folder) / "model", config, restart=True)


def on_search(model: BiEncoder | None, search: Search) -> dict[str, float]:
    """The recalls of a model, or of BM25, over the whole corpus: the best of the right answers."""
    questions = [question for question, _ in search.tested]
    ranks = []
    if model is None:
        found = BM25Index.build(search.corpus).search(questions, max(KS))
        for (_, right), hits in zip(search.tested, found, strict=True):
            places = [place for place, hit in enumerate(hits, 1) if hit.id in right]
            ranks.append(min(places, default=max(KS) + 1))
        return recalls(torch.tensor(ranks))
    contexts = model.encode_contexts(questions)
    candidates = model.encode_candidates([candidate.text for candidate in search.corpus])
    scores = model.score(contexts, candidates)
    places_of = {candidate.id: place for place, candidate in enumerate(search.corpus)}
    for row, (_, right) in zip(scores, search.tested, strict=True):
        best = max(row[places_of[identifier]] for identifier in right)
        ranks.append(int((row >= best).sum()))
    return recalls(torch.tensor(ranks))


def tuned(
    options: argparse.Namespace, name: str, search: Search, share: float, seed: int
) -> dict[str, float]:
    """Fine-tune an encoder and search with it; with a share of 0, search with it as it is."""
    set_seed(seed)
    model = load(options, name)
    if share:
        tune(options, model, search, share, seed)
    return on_search(model, search)


def report(options: argparse.Namespace, store: ResultsStore) -> None:
    """Compute what is missing, then print the tables."""
    corpus = Corpus.open(corpus_of(options, "all"))
    pairs = held_out_pairs(options, corpus)
    base = {"base": options.base, "steps": options.steps, "batch": options.batch}
    if options.base == "nothing":
        base |= {"layers": options.layers, "width": options.width}
    if options.reduction != "mean":
        base["reduction"] = options.reduction
    rows = []
    for name in ("bm25", *(name for name in options.tasks if name in USUAL)):
        model = None if name == "bm25" else load(options, name)
        for task, own in pairs.items():
            key = {"on": task, "pairs": len(own), "tasks": name}
            key |= {} if name == "bm25" else base
            found = store.get(key, partial(on_pairs, model, own))
            rows.append([task, name, *found.values()])
    columns = [f"R@{k}" for k in KS]
    print(table(["held-out pairs", "pre-trained on", *columns], sorted(rows, key=lambda r: r[0])))
    rows = []
    for search in searches(options):
        found = store.get({"on": search.name, "tasks": "bm25"}, partial(on_search, None, search))
        rows.append([search.name, "–", "bm25", *found.values()])
        for share in options.shares:
            for name in options.tasks:
                if name == "target" and search.name != "scifact":
                    continue
                key = {"on": search.name, "share": f"{share:g}", "tasks": name, **base}
                key |= {"tuning": options.tuning_steps if share else 0, "seed": options.seed}
                compute = partial(tuned, options, name, search, share, options.seed)
                found = store.get(key, compute)
                rows.append([search.name, f"{share:g} %", name, *found.values()])
    print(table(["set", "trained on", "pre-trained on", *columns], rows))


def numbers(text: str) -> list[float]:
    """Numbers by commas."""
    return [float(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--base", choices=("nothing", "minilm"), default="nothing")
    parser.add_argument("--tasks", type=lambda text: text.split(","), default=list(USUAL))
    parser.add_argument("--sets", type=lambda text: text.split(","), default=["squad", "scifact"])
    parser.add_argument("--shares", type=numbers, default=[1, 5, 80])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--tuning-steps", type=int, default=60)
    parser.add_argument("--tuning-batch", type=int, default=64)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--vocabulary", type=int, default=16000)
    parser.add_argument("--reduction", choices=("mean", "first"), default="mean")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    quieten_libraries()
    options.work.mkdir(parents=True, exist_ok=True)
    print(f"{machine()}; {options.steps} steps of {options.batch}, base: {options.base}")
    report(options, ResultsStore(options.output))


if __name__ == "__main__":
    main()

"""The parts of the protocol's sets: `train` to train on, `choose` to choose by, `dev` to report.

    set               group                            dev
    ubuntu_irc        a day of the channel             the set's own, of other days
    sgd               the first service of a dialogue  the set's own
    squad_sentences   one or two articles              questions of other articles
    python_docs       a module, or all topics          the demo's dev examples, of other modules

`train` and `choose` are the training part, divided by group: a group is in `choose` if its CRC-32
is divisible by 8, so settings are chosen on texts of other days, services, articles or modules than
those trained on. squad_sentences has no dev part: the groups with the remainders 1 and 2 are held
out as one.

`choose` has at most 2,000 examples, those whose ids have the lowest CRC-32. Their 20 candidates are
the response and 19 other responses of the part, drawn by the seed and the id. Those of
squad_sentences, in `choose` and in `dev`, are what BM25 and the untrained bi-encoder find among the
sentences of the part, taken in turn; the answer takes the last place if neither finds it.

Negatives to train with are drawn from the best of the same two (`mined_training`).
"""

from __future__ import annotations

import dataclasses
import random
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from benchmarks.articles import squad_examples
from benchmarks.dialogues import dev_examples, grouped_training_examples
from benchmarks.ledger import NUM_CANDIDATES
from polyrank.data.answers import KnownAnswers, text_identity
from polyrank.data.examples import read_examples, write_examples
from polyrank.demo.documentation import read_documentation
from polyrank.demo.examples import make_splits, read_passages
from polyrank.evaluation.retrieval import retrieve
from polyrank.evaluation.tasks import sample_candidates
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.source import default_base
from polyrank.records import Candidate, Example, RetrievalSet
from polyrank.retrieval.bm25.index import BM25Index
from polyrank.training.negatives.mine import mine

MOST_CHOOSE = 2000
SHARES = 8
SQUAD_DEV = (1, 2)
SEED = 0
DIALOGUES = {"max_context_length": 128, "max_candidate_length": 64}
LENGTHS: dict[str, dict[str, Any]] = {
    "ubuntu_irc": DIALOGUES,
    "sgd": DIALOGUES,
    "squad_sentences": {"max_context_length": 64, "max_candidate_length": 96},
    "python_docs": {"max_context_length": 64, "max_candidate_length": 96},
}
"""The most tokens of the two texts in each set."""
SETS = tuple(LENGTHS)
PARTS = ("train", "choose", "dev")
MINED = {"num_negatives": 3, "to_rank": 8}
"""What each method draws for a training example."""

Grouped = tuple[str, Example]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The examples of a set, by part; those of `choose` and `dev` have candidates."""

    train: list[Example]
    choose: list[Example]
    dev: list[Example]


def parts_of(data: Path, name: str, work: Path) -> Parts:
    """The parts of a set; those of `work` if they were made before, otherwise they are kept there.

    `data` is the folder of all sets; python_docs is made of the documentation of the running
    Python. Delete the folder `parts` of `work` after a change of the data.
    """
    folder = work / "parts" / name
    files = [folder / f"{part}.jsonl" for part in PARTS]
    if not all(file.is_file() for file in files):
        made = MAKERS[name](data)
        folder.mkdir(parents=True, exist_ok=True)
        for file, part in zip(files, PARTS, strict=True):
            write_examples(file, getattr(made, part))
    train, choose, dev = (list(read_examples(file)) for file in files)
    return Parts(train=train, choose=choose, dev=dev)


def share_of(group: str) -> int:
    """The number, below SHARES, that decides which part a group belongs to."""
    return zlib.crc32(group.encode()) % SHARES


def divided(grouped: Iterable[Grouped]) -> tuple[list[Example], list[Example]]:
    """The examples to train on, and those of the groups that settings are chosen by."""
    train, choose = [], []
    for group, example in grouped:
        (choose if share_of(group) == 0 else train).append(example)
    return train, choose


def fewest_first(examples: Iterable[Example], most: int = MOST_CHOOSE) -> list[Example]:
    """At most `most` of the examples: those whose ids have the lowest CRC-32."""
    return sorted(examples, key=lambda each: (zlib.crc32(str(each.id).encode()), each.id))[:most]


def with_drawn_candidates(
    examples: Sequence[Example], source: Sequence[Example], seed: int = SEED
) -> list[Example]:
    """The examples with 19 other responses of `source` each, drawn by the seed and the id alone."""
    texts = {each.response: text_identity(each.response) for each in source}
    identified, answers = list(texts.items()), KnownAnswers(source)
    return [
        sample_candidates(
            each, identified, answers, NUM_CANDIDATES, random.Random(f"{seed}:{each.id}")
        )
        for each in examples
    ]


def dialogue_parts(data: Path, name: str) -> Parts:
    """The parts of ubuntu_irc or sgd."""
    train, choose = divided(grouped_training_examples(data, name))
    chosen = with_drawn_candidates(fewest_first(choose), choose)
    return Parts(train=train, choose=chosen, dev=dev_examples(data, name))


def documentation_parts() -> Parts:
    """The parts of the documentation of the running Python."""
    articles = read_documentation()
    group_of = {passage.id: passage.group for passage in read_passages(articles)}
    splits = make_splits(articles, num_candidates=NUM_CANDIDATES, seed=SEED)
    passages = (str(each.id).rpartition("/")[0] for each in splits.train)
    grouped = zip(map(group_of.__getitem__, passages), splits.train, strict=True)
    train, choose = divided(grouped)
    chosen = with_drawn_candidates(fewest_first(choose), choose)
    return Parts(train=train, choose=chosen, dev=splits.dev)


def squad_parts(data: Path, base: str | Path | None = None) -> Parts:
    """The parts of squad_sentences; `base` is the encoder of the bi-encoder that finds candidates.

    The bi-encoder computes in float32 on the CPU, so that the candidates are the same everywhere.
    """
    grouped, sentences = squad_examples(data)
    dev = [each for group, each in grouped if share_of(group) in SQUAD_DEV]
    train, choose = divided(
        (group, each) for group, each in grouped if share_of(group) not in SQUAD_DEV
    )
    model = searcher("squad_sentences", base)

    def found(examples: Sequence[Example], shares: Sequence[int]) -> list[Example]:
        own = [members for group, members in sentences.items() if share_of(group) in shares]
        return with_found_candidates(examples, list(chain(*own)), model)

    return Parts(train=train, choose=found(fewest_first(choose), [0]), dev=found(dev, SQUAD_DEV))


def searcher(name: str, base: str | Path | None = None) -> BiEncoder:
    """The untrained bi-encoder in float32 on the CPU, so that it finds the same everywhere."""
    return BiEncoder.from_pretrained(
        default_base() if base is None else base,
        device="cpu",
        dtype="float32",
        defaults=LENGTHS[name],
    )


def mined_training(data: Path, name: str, work: Path) -> tuple[Path, float]:
    """A file of the part `train` with mined negatives, and how many an example has on average.

    Three are drawn from BM25's best 8 and three from the untrained bi-encoder's; none counts twice.
    """
    file = work / "parts" / name / "train.mined.jsonl"
    examples = parts_of(data, name, work).train
    by_words = mine(examples, "bm25", **MINED)
    by_meaning = mine(examples, "model", retriever=searcher(name), **MINED)
    complete = [
        dataclasses.replace(one, negatives=unique(one.negatives or (), other.negatives or ()))
        for one, other in zip(by_words, by_meaning, strict=True)
    ]
    write_examples(file, complete)
    return file, sum(len(each.negatives or ()) for each in complete) / max(len(complete), 1)


def unique(*texts: Sequence[str]) -> tuple[str, ...]:
    """Texts in their order, without those that came before."""
    return tuple(dict.fromkeys(chain(*texts)))


def with_found_candidates(
    examples: Sequence[Example], corpus: Sequence[Candidate], model: BiEncoder, seed: int = SEED
) -> list[Example]:
    """The examples with the best 20 of BM25 and of a model, taken in turn, in a random order."""
    data = RetrievalSet(
        corpus=corpus,
        queries={str(each.id): each.context for each in examples},
        judgements={str(each.id): {"": 0} for each in examples},
        split="found",
    )
    texts = {each.id: each.text for each in corpus}
    rankings = [
        retrieve(engine, data, depth=NUM_CANDIDATES) for engine in (BM25Index.build(corpus), model)
    ]
    complete = []
    for each in examples:
        ranked = [[texts[one] for one in ranking[str(each.id)]] for ranking in rankings]
        taken_in_turn = dict.fromkeys(chain(*zip_longest(*ranked)))  # BM25 may find fewer
        candidates = [text for text in taken_in_turn if text is not None][:NUM_CANDIDATES]
        if each.response not in candidates:
            candidates[-1] = each.response
        random.Random(f"{seed}:{each.id}").shuffle(candidates)
        gold = candidates.index(each.response)
        complete.append(dataclasses.replace(each, candidates=tuple(candidates), gold=gold))
    return complete


MAKERS: Mapping[str, Callable[[Path], Parts]] = {
    "ubuntu_irc": lambda data: dialogue_parts(data, "ubuntu_irc"),
    "sgd": lambda data: dialogue_parts(data, "sgd"),
    "squad_sentences": squad_parts,
    "python_docs": lambda _: documentation_parts(),
}

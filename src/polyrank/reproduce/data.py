"""The data of a table: made from the installed Python, or read from where `--data` says.

    dialogues   examples to train on, to choose by and to test on, with candidates
    questions   questions to train on, and others that search a corpus
    nli, sts    labelled pairs
    corpus      articles to pre-train on

Dialogues, questions and a corpus are made of the Python documentation where no path is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from polyrank.data.examples import read_examples
from polyrank.data.loading import load_examples, load_records
from polyrank.data.sampling import Share
from polyrank.demo.corpus import PythonDocs
from polyrank.demo.stages import NUM_CANDIDATES, SEED, python_data, spread
from polyrank.errors import UsageError
from polyrank.evaluation.tasks import with_all_candidates, with_sampled_candidates
from polyrank.pretraining.corpus.convert import convert
from polyrank.pretraining.corpus.detection import source_at
from polyrank.pretraining.corpus.manifest import MANIFEST
from polyrank.pretraining.corpus.store import Corpus
from polyrank.progress import Say
from polyrank.records import Example, LabelledPair, RetrievalSet
from polyrank.reproduce.data_sets import DATA, HUB, MADE, OWN, DataSet, Given, part_of
from polyrank.reproduce.table import Kind

DOCS = "the documentation of the installed Python"
TRAINED = Share(value=0.8, seed=SEED)
"""The questions that may be trained on, where nothing divides them; the others are tested on."""
PARTS = (("dev", "test"), ("test", "dev"))
"""Which part replaces one that is missing."""


@dataclass(frozen=True, kw_only=True)
class Dialogues:
    """Examples; those of dev and test have candidates."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    name: str


@dataclass(frozen=True, kw_only=True)
class Questions:
    """Questions with their answers to train on; `test` has others, and the corpus."""

    train: list[Example]
    """All that may be trained on."""
    test: RetrievalSet
    total: int
    """How many there are for training and for testing."""
    name: str
    whole: RetrievalSet | None = None
    """What both were taken from, where nothing else divides them."""

    def share(self, percent: float) -> list[Example]:
        """This per cent of all questions, or all training questions. A larger share contains the
        smaller ones. Where the set is split here, the share is that of `polyrank train --share`.
        Raises DataError if the share is less than one question.
        """
        if self.whole is not None:
            value = min(percent / 100, TRAINED.value)
            drawn = Share(value=value, seed=SEED).of(self.whole.queries)
            return list(self.whole.only(drawn).examples())
        value = min(percent / 100 * self.total / len(self.train), 1.0)
        return Share(value=value, seed=SEED).of(self.train)


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Labelled pairs; inference pairs have no test part."""

    train: list[LabelledPair]
    test: list[LabelledPair]
    name: str


class TableData:
    """The data of a run, each kind loaded when it is first asked for; what is made is kept in
    `folder`. Every property raises UsageError for missing data, DataError for broken ones.
    """

    def __init__(self, given: Given, folder: Path, most_tested: int | None, say: Say) -> None:
        self.given = given
        self.folder = folder
        self.most_tested = most_tested
        self.say = say

    def require(self, kinds: Iterable[Kind], table: str) -> None:
        """Raise UsageError, with where to get them, for data that are neither given nor made."""
        missing = [DATA[kind] for kind in kinds if kind not in MADE and self.named(kind) is None]
        if missing:
            typed = " ".join(f"--data {one.name}=PATH" for one in missing)
            wanted = "; ".join(f"{one.name} is {one.about}: {one.where}" for one in missing)
            raise UsageError(
                f"The table {table} needs data that cannot be made here: "
                f"{', '.join(one.name for one in missing)}.",
                f"Get them ({wanted}), then type: polyrank reproduce {table} {typed}",
            )
        for name, paths in self.given.items():
            for path in paths:
                if not path.startswith(HUB) and not Path(path).exists():
                    one = DATA[name]
                    raise UsageError(
                        f"There is nothing at {path}, which --data {name} names.",
                        f"Check the path. {name} is {one.about}; it can be had from {one.where}.",
                    )

    def named(self, kind: Kind) -> tuple[DataSet, tuple[str, ...]] | None:
        """The data set that was given for a kind, and its paths."""
        found = [(DATA[name], paths) for name, paths in self.given.items()]
        return next((each for each in found if each[0].kind == kind), None)

    @cached_property
    def docs(self) -> Path:
        """The folder of examples made of the Python documentation."""
        folder = self.folder / "python-docs"
        python_data(folder)
        return folder

    @cached_property
    def dialogues(self) -> Dialogues:
        """The given dialogues, or questions about Python."""
        named = self.named("dialogues")
        if named is None:
            parts = {name: list(read_examples(self.docs / f"{name}.jsonl")) for name in OWN}
            return Dialogues(**{**parts, "test": self.few(parts["test"])}, name=DOCS)
        data, (path,) = named
        train: Any = load_examples(part_of(data, path, "train"), format=data.format, say=self.say)
        if not isinstance(train[0], Example):
            raise UsageError(f"{path} holds labelled pairs, not dialogues.", "Give dialogues.")
        dev, test = (self.ranked(data, path, part, other) for part, other in PARTS)
        return Dialogues(train=train, dev=dev, test=test, name=f"{data.name}: {path}")

    def ranked(self, data: DataSet, path: str, part: str, other: str) -> list[Example]:
        """The examples of a part, or of the other where it is missing, with candidates."""
        file = part_of(data, path, part, other)
        found: Any = load_records(file, format=data.format, say=self.say)
        return with_sampled_candidates(self.few(found), NUM_CANDIDATES, SEED, source=found)

    @cached_property
    def questions(self) -> Questions:
        """The given questions, or questions about Python with all passages as the corpus."""
        named = self.named("questions")
        if named is None:
            return self.python_questions()
        data, (path,) = named
        name = f"{data.name}: {path}"
        if (Path(path) / "qrels" / "train.tsv").is_file():
            train: Any = load_examples(path, split="train", say=self.say)
            test: Any = load_records(path, say=self.say)
            total = len(train) + len(test.queries)
            return Questions(train=train, test=self.some_of(test), total=total, name=name)
        whole: Any = load_records(path, say=self.say)
        if not isinstance(whole, RetrievalSet):
            raise UsageError(f"{path} holds no questions about a corpus.", f"Give {data.about}.")
        return Questions(
            train=list(whole.only(TRAINED.of(whole.queries)).examples()),
            test=self.some_of(whole.only(TRAINED.rest_of(whole.queries))),
            total=len(whole.queries),
            name=name,
            whole=whole,
        )

    def python_questions(self) -> Questions:
        """The answer to a question is searched among the answers of all parts."""
        parts = {name: list(read_examples(self.docs / f"{name}.jsonl")) for name in OWN}
        source = [example for part in parts.values() for example in part]
        test = with_all_candidates([*parts["dev"], *parts["test"]], "test", source=source)
        return Questions(
            train=parts["train"], test=self.some_of(test), total=len(source), name=DOCS
        )

    @cached_property
    def nli(self) -> Pairs:
        """The pairs of inference of all files."""
        data, paths = self.require_named("nli")
        found: list[Any] = []
        for path in paths:
            found += load_examples(path, format=data.format, say=self.say)
        return Pairs(train=found, test=[], name=f"nli: {', '.join(paths)}")

    @cached_property
    def sts(self) -> Pairs:
        """The scored pairs; test on dev where there is no test."""
        data, (path,) = self.require_named("sts")
        train: Any = load_examples(part_of(data, path, "train"), format=data.format, say=self.say)
        file = part_of(data, path, "test", "dev")
        test: Any = load_records(file, format=data.format, say=self.say)
        return Pairs(train=train, test=self.few(test), name=f"sts: {path}")

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus that was given, or one made of the source; kept with what else is made."""
        named = self.named("corpus")
        if named is None:
            return convert(PythonDocs(), self.folder / "python-docs-corpus")
        path = Path(named[1][0])
        if (path / MANIFEST).is_file():
            return Corpus.open(path)
        return convert(source_at(path), self.folder / "corpus")

    def require_named(self, kind: Kind) -> tuple[DataSet, tuple[str, ...]]:
        """The data set of a kind that is never made; `require` has seen that it is there."""
        named = self.named(kind)
        assert named is not None
        return named

    def few(self, records: Sequence[Any]) -> list[Any]:
        """As many records as are tested, drawn over all of them."""
        return spread(list(records), self.most_tested or len(records))

    def some_of(self, data: RetrievalSet) -> RetrievalSet:
        """The set with as many queries as are tested, drawn over all of them."""
        return data.only(self.few(list(data.queries)))

"""What `--data` can name: data sets, where to get them, and what their files are called. Reads no
file; does not need torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from polyrank.errors import UsageError, nearest
from polyrank.reproduce.table import Kind

HUB = "hub:"
Patterns = Mapping[str, tuple[str, ...]]

OWN: Patterns = {
    "train": ("train.*", "*train*"),
    "dev": ("dev.*", "valid.*", "*dev*", "*valid*"),
    "test": ("test.*", "*test*"),
}


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A data set that can be given by name: `--data NAME=PATH`."""

    name: str
    kind: Kind
    about: str
    where: str
    """Where to get it."""
    files: Patterns = field(default_factory=lambda: OWN)
    """Of a folder, the file of each part: the first pattern that any file fits."""
    format: str = "auto"


DATA: Mapping[str, DataSet] = {
    one.name: one
    for one in (
        DataSet(
            name="convai2",
            kind="dialogues",
            about="the folder of ParlAI's task convai2",
            where="ParlAI (parl.ai), which fetches it as its task convai2",
            files={
                "train": ("train_self_original.txt*", "*train*"),
                "dev": ("valid_self_original.txt*", "*valid*"),
                "test": ("test_self_original.txt*",),
            },
            format="convai2",
        ),
        DataSet(
            name="ubuntu",
            kind="dialogues",
            about="the folder of train.csv, valid.csv and test.csv of Ubuntu v2",
            where="github.com/rkadlec/ubuntu-ranking-dataset-creator, or ParlAI's task ubuntu",
            format="ubuntu-v2",
        ),
        DataSet(
            name="dstc7",
            kind="dialogues",
            about="the folder of DSTC7, track 1, subtask 1",
            where="github.com/IBM/dstc-noesis, or ParlAI's task dstc7",
            files={
                "train": ("ubuntu_train_subtask_1.json*", "*train*subtask_1*.json*"),
                "dev": ("ubuntu_dev_subtask_1.json*", "*dev*subtask_1*.json*"),
                "test": ("ubuntu_test_subtask_1.json*", "*test*subtask_1*.json*"),
            },
        ),
        DataSet(
            name="dialogues",
            kind="dialogues",
            about="a folder of your own: train, dev and test in any format of docs/data.md",
            where="your own files",
        ),
        DataSet(
            name="questions",
            kind="questions",
            about="a file of SQuAD or of Natural Questions, or a folder in BEIR's layout",
            where="rajpurkar.github.io/SQuAD-explorer, or ai.google.com/research/NaturalQuestions",
        ),
        DataSet(
            name="nli",
            kind="nli",
            about="a file of SNLI, MultiNLI, XNLI or KorNLI; several may be given",
            where="nlp.stanford.edu/projects/snli and cims.nyu.edu/~sbowman/multinli, or as "
            "hub:NAME (docs/data.md)",
            format="nli",
        ),
        DataSet(
            name="sts",
            kind="sts",
            about="the folder of the STS benchmark, or of KorSTS",
            where="ixa2.si.ehu.eus/stswiki (STSbenchmark), or as hub:NAME (docs/data.md)",
            files={
                "train": ("sts-train*", *OWN["train"]),
                "dev": ("sts-dev*", *OWN["dev"]),
                "test": ("sts-test*", *OWN["test"]),
            },
            format="sts",
        ),
        DataSet(
            name="corpus",
            kind="corpus",
            about="a Wikipedia dump or any source of `polyrank corpus`, or the corpus it made",
            where="dumps.wikimedia.org, enwiki-latest-pages-articles.xml.bz2",
        ),
    )
}
MADE: tuple[Kind, ...] = ("dialogues", "questions", "corpus")
"""The kinds that are made from the Python documentation if no path is given."""

Given = Mapping[str, tuple[str, ...]]


def parse_data(texts: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The paths by name, of texts such as `convai2=PATH`.

    Raises UsageError for other texts, unknown names, and two data sets of one kind.
    """
    given: dict[str, tuple[str, ...]] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not (equals and path):
            raise UsageError(
                f"--data takes NAME=PATH, got {text!r}.", f"Names are: {', '.join(DATA)}."
            )
        if name not in DATA:
            raise UsageError(f"--data: there is no data set {name!r}.", nearest(name, DATA))
        given[name] = (*given.get(name, ()), path)
        kind = DATA[name].kind
        others = [other for other in given if DATA[other].kind == kind]
        if len(others) > 1 or (kind != "nli" and len(given[name]) > 1):
            raise UsageError(
                f"A run takes one data set of {kind}, got {' and '.join(others)} "
                f"({len(given[name])} of {name}).",
                "Give one, and run the command again with the other and another --output.",
            )
    return given


def part_of(data: DataSet, path: str, part: str, other: str | None = None) -> str:
    """The file of a part in a folder, or that of another part where it is missing.

    A name on the hub stands for all its parts. Raises UsageError where there is no such file, or
    several.
    """
    if path.startswith(HUB):
        return path
    folder = Path(path)
    for name in filter(None, (part, other)):
        for pattern in data.files[name]:
            found = sorted(each for each in folder.glob(pattern) if each.is_file())
            if len(found) > 1:
                raise UsageError(
                    f"{folder} has several files that could be the {name} part of {data.name}: "
                    f"{', '.join(each.name for each in found)}.",
                    "Put the one you mean into a folder with the other parts.",
                )
            if found:
                return str(found[0])
    raise UsageError(
        f"{folder} has no file of the {part} part of {data.name}, such as "
        f"{' or '.join(data.files[part])}.",
        f"--data {data.name} is {data.about}. It can be had from {data.where}.",
    )

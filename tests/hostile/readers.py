"""Everything that reads files which somebody else wrote, with small valid files for each."""

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import zstandard
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import AutoModel

from hash_model import HashModel
from polyrank.cli.conversation import Failure, Line, question_of
from polyrank.cli.data import DataOptions, columns_of
from polyrank.cli.found import find
from polyrank.config import from_mapping, load_yaml
from polyrank.data.candidates import read_candidates
from polyrank.data.examples import parse_example
from polyrank.data.loading import load_records
from polyrank.data.scoring_inputs import read_scoring_inputs
from polyrank.evaluation.report import RESULT, read_report
from polyrank.interop.export import export
from polyrank.interop.parlai.importing import import_checkpoint
from polyrank.models.adapters.folders import find_bases
from polyrank.models.adapters.layers import attach
from polyrank.models.bi_encoder import BiEncoder
from polyrank.models.checkpoint import load_model
from polyrank.models.static.distilled import distil_static, static_from_file
from polyrank.pretraining.corpus.convert import convert
from polyrank.pretraining.corpus.store import Corpus
from polyrank.pretraining.tables import open_tables
from polyrank.records import Example
from polyrank.retrieval.bulk.encode import encode_part
from polyrank.retrieval.filters import parse_filter
from polyrank.retrieval.index import Index
from polyrank.training.config import TrainingConfig
from polyrank.training.run import train
from polyrank.training.teaching.labelling import label
from tiny_encoders import load_variant
from true_formats import BEIR, FIXTURES, lines


@dataclass(frozen=True)
class Reader:
    """What reads a folder of files, and what they are when they are valid."""

    name: str
    files: dict[str, bytes]
    read: Callable[[Path], object]
    """Takes the folder, and raises InputError where it cannot be read."""
    one_in: int = 1
    """How many cases of others stand for one of this, which takes longer."""
    work: float = 0.0
    """CPU seconds that it may take for work other than reading."""


def write(reader: Reader, folder: Path, damaged: Mapping[str, bytes] | None = None) -> None:
    """Write the files of a reader to a folder, some of them damaged."""
    for name, data in {**reader.files, **(damaged or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


COMPRESSORS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}
EXAMPLES = [
    {"id": 1, "context": ["hello", "what is it?"], "response": "a cat", "negatives": ["a dog"]},
    {"id": "b", "context": "why?", "response": "because", "candidates": ["because", "no"]},
    {"context": ["x"], "response": "y", "negatives": ["n", "m"], "scores": [1.5, 0, -2]},
]
CANDIDATES = [
    {"id": "d1", "text": "cats sleep", "metadata": {"year": 2020, "lang": "en", "open": True}},
    {"id": 2, "title": "Dogs", "text": "bark", "metadata": {"weight": 0.5}},
    {"text": "no id"},
]
CONVERSATIONS = [
    {"id": "a", "turns": ["hi", {"speaker": "A", "text": "hello"}]},
    {"id": "b", "turns": [{"speaker": "B", "text": "who?"}, {"speaker": "A", "text": "me"}]},
]
ARTICLES = [
    {"title": "Cat", "text": "A cat. It sleeps.\n\nIt purrs."},
    {
        "title": "Dog",
        "sections": [
            {
                "title": "History",
                "paragraphs": [{"text": "A dog barks.", "links": [[2, 5, "Cat"]]}, "More."],
            }
        ],
    },
]
COMMENTS = [
    {"id": "1", "link_id": "t3_x", "parent_id": "t3_x", "author": "a", "body": "first", "score": 1},
    {"id": "2", "link_id": "t3_x", "parent_id": "t1_1", "author": "b", "body": "second"},
    {"id": "x", "title": "A post", "selftext": "its text", "author": "c", "subreddit": "cats"},
]
DUMP = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" xml:lang="en">
<siteinfo><case>first-letter</case><namespaces><namespace key="0" case="first-letter" />
</namespaces></siteinfo>
<page><title>Cat</title><ns>0</ns><id>1</id><revision><id>2</id>
<text>A '''cat''' sees a [[dog|Dog]].
== Life ==
It sleeps {{for|long}}. &lt;ref&gt;A book&lt;/ref&gt;
{| class=x
| cell
|}</text></revision></page>
<page><title>Old</title><ns>0</ns><id>3</id><redirect title="Cat" /><revision><id>4</id>
<text>#REDIRECT [[Cat]]</text></revision></page>
</mediawiki>
"""
BOOK = "The Cat\n\nCHAPTER I\n\nIt was late. The cat slept.\nIt dreamt.\n\nCHAPTER II\n\nIt woke.\n"
SETTINGS = "epochs: 3\nbatch-size: 32\nlearning_rate: 3.0e-5\nseed: 1\noptimiser: adamw\n"
FILTERS = "year >= 2020 and (lang in ('en', 'de') or not open == True) and name != 'it\\'s'"
QUESTIONS = [
    {"context": ["hi", "who?"], "filter": "year >= 2020", "top_k": 3, "exact": True},
    {"context": "what?"},
]
COMPARISON = {
    "metric": "mrr",
    "models": [
        {
            "name": "bi",
            "architecture": "bi",
            "figures": {"mrr": {"mean": 0.5, "low": 0.4, "high": 0.6}},
            "latency": [{"num_candidates": 100, "milliseconds": 3.5}],
        }
    ],
}


TRAINED = {
    "provenance": {"base": "base", "train": "a.jsonl", "polyrank": "0.1", "seed": 1},
    "steps": 5,
    "seconds": 12.5,
    "figures": {"mrr": 0.5},
    "training": {"seed": 1},
}


def data_reader(format: str | None, name: str) -> Callable[[Path], object]:
    """Reads data by what they look like and, unless it is None, as a format."""

    def read(folder: Path) -> object:
        path = folder / name if name else folder
        try:
            return load_records(path)
        finally:
            if format is not None:
                load_records(path, format=format)

    return read


def reading(function: Callable[..., object], name: str) -> Callable[[Path], object]:
    """Reads a file to its end."""
    return lambda folder: list(function(folder / name))


def questions(folder: Path) -> object:
    """Each line of standard input is a question or says what is wrong with it."""
    for number, line in enumerate((folder / "input").read_bytes().split(b"\n"), start=1):
        found = question_of(Line(line, number))
        assert isinstance(found.context, (str, list)), found
        if isinstance(found, Failure):
            json.dumps(found.result())


def settings(folder: Path) -> object:
    """The settings of a training run."""
    return from_mapping(TrainingConfig, load_yaml(folder / "train.yaml"), where="train.yaml")


def text_of(path: Path) -> str:
    """What a shell would give a program as an argument."""
    return os.fsdecode(path.read_bytes().replace(b"\0", b""))


def columns(folder: Path) -> object:
    """A table whose columns are named on the command line."""
    given = text_of(folder / "columns").split(",")
    return load_records(folder / "a.csv", columns=columns_of(DataOptions(columns=tuple(given))))


def corpus_of(name: str, format: str | None = None) -> Callable[[Path], object]:
    """Makes a corpus of a source."""
    return lambda folder: convert(folder / name, folder / "corpus")


def parquet(records: list[dict[str, object]]) -> bytes:
    """Rows as a Parquet file."""
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), file)
    return file.getvalue()


def jsonl(records: list[dict[str, object]]) -> bytes:
    """Objects, one per line."""
    return lines(records).encode()


def beir() -> dict[str, bytes]:
    """The files of a folder in BEIR's layout."""
    return {
        name: part.encode() if isinstance(part, str) else jsonl(part) for name, part in BEIR.items()
    }


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder by their names."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def model(folder: Path) -> object:
    """A model and the scores that it gives."""
    found: Any = load_model(folder / "saved", device="cpu")
    return found.score(["how do i read a file", ["a", "b"]], ["a file", ""])


def base(folder: Path) -> object:
    """A new model around an encoder, and the scores that it gives."""
    found = BiEncoder.from_pretrained(folder / "saved", device="cpu")
    return found.score(["how do i read a file", ["a", "b"]], ["a file", ""])


def index(folder: Path) -> object:
    """An index with its model, and the best of its candidates; then whether all of it is whole."""
    with Index.open(folder / "saved", device="cpu") as found:
        hits = found.search(["a", "b"], top_k=3)
        found.verify()
        return hits


def graph(folder: Path) -> object:
    """An index with a structure for approximate search, and the best of its candidates."""
    with Index.open(folder / "saved", HashModel(dimension=16)) as found:
        hits = found.search(["a", "b"], top_k=3)
        found.verify()
        return hits


def parts(folder: Path) -> object:
    """An index of encoded parts."""
    found: Any = HashModel()
    return Index.assemble(found, folder / "saved", folder / "made").close()


def told(folder: Path) -> object:
    """What `polyrank info` tells."""
    return json.dumps(asdict(find(folder / "saved")), default=str)


def kept_labels(teacher: Any) -> Callable[[Path], object]:
    """The labels of a teacher that are kept in a file, or new ones."""
    examples = list(map(parse_example, EXAMPLES))
    return lambda folder: label(teacher, examples, store=folder / "saved")


def unfinished_training(encoder: Path) -> Callable[[Path], object]:
    """A run of four steps, which resumes; `stop` begins the line at which it is cut off."""

    def run(folder: Path, stop: str = "") -> object:
        def say(words: str) -> None:
            if stop and words.startswith(stop):
                raise KeyboardInterrupt

        config = TrainingConfig(batch_size=2, max_steps=4, evaluations=2)
        examples = [Example(context=f"what is {n}", response=f"it is {n}") for n in range(8)]
        found: Any = load_variant("bi", encoder)
        return train(found, examples, folder / "saved", config, say=say)

    return run


def imported(folder: Path) -> object:
    """A checkpoint of ParlAI as a model."""
    return import_checkpoint(folder, folder / "made")


def corpus(folder: Path) -> object:
    """All documents of a corpus."""
    return list(Corpus.open(folder / "saved"))


def tables(folder: Path) -> object:
    """The tables of a corpus, which are made where they are missing."""
    opened = open_tables(Corpus.open(folder / "saved"))
    if opened.kind == "articles":
        articles = opened.articles("train")
        return [articles.answers(passage) for passage in range(len(articles.passages))]
    found = opened.conversations("train")
    return [found.turns_before(turn, 5) for turn in range(len(found.turns))]


def saved(save: Callable[[Path], object]) -> dict[str, bytes]:
    """The files of what is saved to a folder."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "saved"
        save(folder)
        return contents(Path(temporary))


@cache
def folder_readers(encoder: Path, exports: tuple[str, ...]) -> list[Reader]:
    """What reads the folders that polyrank and sentence-transformers save; made once a process.

    Args:
        encoder: The folder of a tiny BERT.
        exports: The formats that a model is exported to as well.
    """
    bi: Any = load_variant("bi", encoder)
    labels = kept_labels(load_variant("cross", encoder))
    training = unfinished_training(encoder)
    extra = {"training.json": json.dumps(TRAINED)}
    static = distil_static(encoder, device="cpu")
    candidates = [(str(n), f"text {n}", {"year": 2000 + n, "lang": "en"}) for n in range(9)]
    build = partial(Index.build, bi, candidates, storage="int8")
    return [
        *(
            Reader(name, saved(load_variant(name, encoder).save_pretrained), model)
            for name in ("bi", "poly-learnt", "cross", "cross-interaction")
        ),
        Reader(
            "sentence-transformers",
            saved(lambda folder: export(bi, folder, TO)),
            model,
        ),
        Reader(
            "reranker",
            saved(lambda folder: export(load_variant("cross", encoder), folder, TO)),
            model,
        ),
        Reader("encoder in shards", saved(partial(in_shards, encoder)), base),
        Reader("adapters", saved(adapted(encoder).save_pretrained), model),
        Reader("static", saved(static.save_pretrained), model),
        Reader("model2vec", saved(partial(write_model2vec, encoder)), model),
        Reader("parlai", contents(CHECKPOINTS / "poly-n-first"), imported),
        Reader("index", saved(lambda folder: build(folder).close()), index),
        Reader("corpus", saved(partial(convert_texts, jsonl(CONVERSATIONS))), corpus),
        Reader("tables", saved(partial(with_tables, jsonl(CONVERSATIONS))), tables),
        Reader("tables of articles", saved(partial(with_tables, jsonl(ARTICLES))), tables),
        Reader("graph", saved(build_graph), graph),
        Reader("parts", saved(encode_parts), parts),
        *(Reader(to, saved(partial(export, bi, to=to)), model) for to in exports),
        Reader("labels", saved(lambda folder: labels(folder.parent)), labels),
        Reader("unfinished training", cut_short(training), training, one_in=20, work=5.0),
        *(
            Reader(f"info of {name}", saved(save), told)
            for name, save in {
                "a model": lambda folder: bi.save_pretrained(folder, extra=extra),
                "an index": lambda folder: build(folder).close(),
                "a corpus": partial(convert_texts, jsonl(CONVERSATIONS)),
                "parts": encode_parts,
                "an export": lambda folder: export(bi, folder, TO),
                "a comparison": partial(write_files, {RESULT: json.dumps(COMPARISON)}),
            }.items()
        ),
    ]


def write_files(texts: Mapping[str, str], folder: Path) -> None:
    """Write texts to a new folder, by their names."""
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def cut_short(training: Callable[..., object]) -> dict[str, bytes]:
    """The files that a training run leaves when it is interrupted."""
    with TemporaryDirectory() as temporary:
        with suppress(KeyboardInterrupt):
            training(Path(temporary), "step 3")
        return contents(Path(temporary))


def build_graph(folder: Path) -> None:
    """Build an index with a structure for approximate search."""
    candidates = [(str(number), f"text {number}") for number in range(1024)]
    found: Any = HashModel(dimension=16)
    Index.build(found, candidates, folder, backend="hnsw").close()


def encode_parts(folder: Path) -> None:
    """Encode candidates in two parts."""
    source = folder.with_name("candidates.jsonl")
    source.write_bytes(jsonl([{"id": str(n), "text": f"text {n}"} for n in range(9)]))
    found: Any = HashModel()
    for number in range(2):
        encode_part(found, source, folder, 2, number)


def with_tables(data: bytes, folder: Path) -> None:
    """Make a corpus of a file with these bytes, and its tables."""
    convert_texts(data, folder)
    open_tables(Corpus.open(folder))


def in_shards(encoder: Path, folder: Path) -> None:
    """Write an encoder as transformers saves it, with its weights in several files."""
    shutil.copytree(encoder, folder)
    (folder / "model.safetensors").unlink()
    found: Any = AutoModel.from_pretrained(encoder)
    found.save_pretrained(folder, max_shard_size="60KB")
    assert (folder / "model.safetensors.index.json").is_file()


def adapted(encoder: Path) -> Any:
    """A bi-encoder with adapters; its base stays where it is."""
    found: Any = BiEncoder.from_pretrained(encoder, device="cpu", dtype="float32")
    found.bases = find_bases(found)
    attach(found, rank=2, alpha=2)
    return found


def write_model2vec(encoder: Path, folder: Path) -> None:
    """Write a folder as model2vec saves it, with the tokeniser of an encoder."""
    folder.mkdir()
    tokenizer = (encoder / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
    count = Tokenizer.from_str(tokenizer).get_vocab_size()
    save_file({"embeddings": torch.ones(count, 4)}, folder / "model.safetensors")
    (folder / "config.json").write_text('{"model_type": "model2vec", "normalize": true}')


def convert_texts(data: bytes, folder: Path) -> None:
    """Make a corpus of a file with these bytes, which is not kept."""
    source = folder.with_suffix(".jsonl")
    source.write_bytes(data)
    convert(source, folder)
    source.unlink()


TO = "sentence-transformers"
EXPORTS = ("onnx", "openvino")
CHECKPOINTS = Path(__file__).parent.parent / "interop" / "parlai" / "checkpoints"
VECTORS = b"5 3\nfile 0.1 0.2 -0.3\ndisk 1 0 0\nkernel 0.5 0.5 1e-3\nwifi 0 1 0\nsound 1 1 1\n"
READERS = [
    *(
        Reader(
            f"{each.format} {each.name}",
            {each.name: each.text.encode()},
            data_reader(each.format, each.name),
        )
        for each in FIXTURES
    ),
    *(
        Reader(
            f"examples{suffix}",
            {f"a.jsonl{suffix}": compress(jsonl(EXAMPLES))},
            data_reader("examples", f"a.jsonl{suffix}"),
        )
        for suffix, compress in COMPRESSORS.items()
    ),
    Reader("examples", {"a.jsonl": jsonl(EXAMPLES)}, data_reader("examples", "a.jsonl")),
    Reader("parquet", {"a.parquet": parquet(EXAMPLES[:1])}, data_reader(None, "a.parquet")),
    Reader("beir", beir(), data_reader("beir", "")),
    Reader("candidates", {"a.jsonl": jsonl(CANDIDATES)}, reading(read_candidates, "a.jsonl")),
    Reader("candidate lines", {"a.txt": b"a cat\na dog\n"}, reading(read_candidates, "a.txt")),
    Reader(
        "candidate table",
        {"a.csv": b"id,text\n1,a cat\n2,a dog\n"},
        reading(read_candidates, "a.csv"),
    ),
    Reader("to score", {"a.jsonl": jsonl(EXAMPLES)}, reading(read_scoring_inputs, "a.jsonl")),
    Reader("questions", {"input": jsonl(QUESTIONS)}, questions),
    Reader("settings", {"train.yaml": SETTINGS.encode()}, settings),
    Reader("word vectors", {"a.vec": VECTORS}, lambda f: static_from_file(f / "a.vec")),
    Reader("filter", {"filter": FILTERS.encode()}, lambda f: parse_filter(text_of(f / "filter"))),
    Reader("columns", {"columns": b"context=q,response=a", "a.csv": b"q,a\nb,c\n"}, columns),
    Reader("comparison", {RESULT: json.dumps(COMPARISON).encode()}, read_report),
    Reader("corpus of conversations", {"a.jsonl": jsonl(CONVERSATIONS)}, corpus_of("a.jsonl")),
    Reader("corpus of articles", {"a.jsonl": jsonl(ARTICLES)}, corpus_of("a.jsonl")),
    Reader("corpus of Reddit", {"RC_2012-01": jsonl(COMMENTS)}, corpus_of("RC_2012-01")),
    Reader("corpus of Wikipedia", {"a.xml": DUMP.encode()}, corpus_of("a.xml")),
    Reader("corpus of books", {"a.txt": BOOK.encode()}, corpus_of("a.txt")),
]

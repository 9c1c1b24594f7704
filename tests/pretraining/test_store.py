from __future__ import annotations

import json
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from polyrank.errors import DataError, UsageError
from polyrank.folder_files import sha256_of
from polyrank.pretraining.corpus.convert import CorpusLayout, convert
from polyrank.pretraining.corpus.detection import source_at
from polyrank.pretraining.corpus.schema import count, from_batch, to_batch
from polyrank.pretraining.corpus.store import Corpus
from polyrank.records import Article, Conversation, Link, Paragraph, Section, Turn

ARTICLES = [
    Article(
        "1",
        "One",
        (
            Section("", 1, (Paragraph("A b. C.", ((0, 4), (5, 7)), (Link(0, 1, "T"),)),)),
            Section("H", 2, (Paragraph("D", ((0, 1),)), Paragraph("É", ()))),
        ),
    ),
    Article("2", "Empty", ()),
    Article("3", "둘", (Section("x", 3, ()),)),
]
TALKS = [Conversation("a", (Turn("x", "hi"), Turn("", "yo"))), Conversation("b", ())]


@pytest.mark.parametrize(("documents", "kind"), [(ARTICLES, "articles"), (TALKS, "conversations")])
def test_documents_survive_their_columns(documents, kind):
    batch = to_batch(documents, kind)
    batch.validate(full=True)
    assert list(from_batch(batch)) == documents
    assert list(from_batch(batch.slice(1, 1))) == documents[1:2]
    assert list(from_batch(to_batch([], kind))) == []


def test_documents_are_counted():
    numbers = {"articles": 3, "sections": 3, "paragraphs": 3, "sentences": 3, "links": 1}
    assert count(ARTICLES) == numbers
    assert count(TALKS) == {"conversations": 2, "turns": 2}


@pytest.fixture
def corpus(tmp_path):
    source = tmp_path / "articles.jsonl"
    rows = [{"title": f"T{n}", "text": f"Text {n}. More.\n\nAgain {n}."} for n in range(40)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    layout = CorpusLayout(group_size=100, part_groups=4)
    return convert(source_at(source, kind="articles"), tmp_path / "corpus", layout=layout)


def test_a_corpus_is_read_in_order_as_often_as_wanted(corpus):
    opened = Corpus.open(corpus.path)
    assert len(opened) == 40 == opened.counts["articles"]
    assert [article.title for article in opened] == [f"T{n}" for n in range(40)]
    assert list(opened) == list(opened)
    assert sum(batch.num_rows for batch in opened.batches()) == 40
    assert opened.fingerprint == corpus.fingerprint
    opened.verify()


def test_a_folder_that_is_no_corpus_is_refused(tmp_path):
    with pytest.raises(UsageError, match="polyrank corpus DUMP"):
        Corpus.open(tmp_path)
    with pytest.raises(UsageError, match="is not a folder"):
        Corpus.open(tmp_path / "none")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version 2, but this polyrank reads 1"),
        ({"format": "else"}, "does not have the format"),
        ({"parts": [{"no": 1}]}, "damaged"),
        ({"dropped": 3}, "damaged"),
    ],
)
def test_another_version_and_a_damaged_description_are_refused(corpus, change, message):
    path = corpus.path / "corpus.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError, match=message):
        Corpus.open(corpus.path)
    path.write_text("{")
    with pytest.raises(DataError, match=r"corpus\.json: "):
        Corpus.open(corpus.path)


def test_a_damaged_part_is_named(corpus):
    part = corpus.path / corpus.manifest.parts[1].file
    content = part.read_bytes()
    part.write_bytes(content[:50] + bytes([content[50] ^ 1]) + content[51:])
    opened = Corpus.open(corpus.path)
    titles = []
    with pytest.raises(DataError, match=r"part-00001\.parquet.*checksum"):  # noqa: PT012
        for article in opened:
            titles.append(article.title)
    assert 0 < len(titles) < 40
    with pytest.raises(DataError, match="checksum"):
        opened.verify()
    part.write_bytes(content[:-1])
    with pytest.raises(DataError, match=r"part-00001\.parquet.*bytes, not"):
        Corpus.open(corpus.path)
    part.unlink()
    with pytest.raises(DataError, match="missing"):
        Corpus.open(corpus.path)


def test_a_part_that_may_fill_the_memory_is_refused(corpus):
    """Its texts are stored once each, however often they occur."""
    part = min(corpus.path.glob("*.parquet"))
    pq.write_table(pq.read_table(part), part)
    described = json.loads((corpus.path / "corpus.json").read_text())
    described["parts"][0] |= {"bytes": part.stat().st_size, "sha256": sha256_of(part)}
    (corpus.path / "corpus.json").write_text(json.dumps(described))
    with pytest.raises(DataError, match="polyrank did not write it"):
        list(Corpus.open(corpus.path))


def test_no_module_loads_a_large_package_at_its_top():
    code = (
        "import sys, polyrank.cli.corpus, polyrank.pretraining.corpus.convert, "
        "polyrank.pretraining.corpus.schema; "
        "print({'torch', 'numpy', 'pyarrow', 'transformers'} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert found.stdout.strip() == "set()"

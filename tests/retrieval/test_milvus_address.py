from pathlib import Path

import pytest

from polyrank.errors import UsageError
from polyrank.retrieval.milvus.address import MilvusAddress, is_milvus, parse_backend


@pytest.mark.parametrize(
    ("text", "uri", "database", "collection"),
    [
        ("milvus://store:1234/docs", "http://store:1234", "", "docs"),
        ("milvus://store", "http://store:19530", "", "polyrank"),
        ("milvus://store/", "http://store:19530", "", "polyrank"),
        ("milvus://store/team/docs", "http://store:19530", "team", "docs"),
        ("milvus+https://cloud.example/docs", "https://cloud.example:443", "", "docs"),
        ("milvus://[::1]:5/docs", "http://[::1]:5", "", "docs"),
    ],
)
def test_servers(text, uri, database, collection):
    address = parse_backend(text)
    assert address == MilvusAddress(uri=uri, database=database, collection=collection)
    assert parse_backend(str(address)) == address
    assert is_milvus(text)


def test_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = Path.cwd()
    assert parse_backend("x.db") == MilvusAddress(path=here / "x.db", collection="polyrank")
    assert parse_backend("a/x.db/docs") == MilvusAddress(path=here / "a/x.db", collection="docs")
    address = parse_backend("a/x.db/docs")
    assert parse_backend(str(address)) == address
    assert is_milvus("x.db")
    assert is_milvus("a/x.db/docs")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "exact",
        ".db",
        "a/.db",
        "x.db/docs/more",
        "x.db/1st",
        "milvus://",
        "milvus:///docs",
        "milvus://store:port/docs",
        "milvus://store:99999/docs",
        "milvus://store/a/b/c",
        "milvus://store/do-cs",
        "milvus://store/docs?x=1",
        "http://store:19530/docs",
        "milvus+ftp://store/docs",
    ],
)
def test_what_names_no_place_is_refused(text):
    with pytest.raises(UsageError):
        parse_backend(text)


@pytest.mark.parametrize("text", ["exact", "hnsw", "ivfpq", "index", "db", "http://x/y.db"])
def test_other_backends(text):
    assert not is_milvus(text)


def test_a_password_is_refused_and_not_repeated():
    with pytest.raises(UsageError, match="POLYRANK_MILVUS_TOKEN") as caught:
        parse_backend("milvus://root:sec-ret@store:19530/docs")
    assert "sec-ret" not in str(caught.value)

import base64
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent import futures
from contextlib import closing, contextmanager

import pytest

from hash_model import HashModel
from milvus_proxy import Proxy
from polyrank.errors import IndexFolderError, MissingExtraError, StorageError, UsageError
from polyrank.records import Candidate
from polyrank.retrieval.milvus import connection
from polyrank.retrieval.milvus.address import MilvusAddress
from polyrank.retrieval.milvus.connection import Timeouts
from polyrank.retrieval.milvus.engine import MilvusEngine
from polyrank.retrieval.milvus.schema import MilvusIndex

pytest.importorskip("pymilvus", reason="needs the extra milvus")
pytest.importorskip("milvus_lite", reason="needs the extra milvus")

MODEL = HashModel(4)
SHORT = Timeouts(connect=1, request=1, collection=1)
SCRIPT = """
import sys
from pathlib import Path
import torch
from polyrank.records import Candidate
from polyrank.retrieval.milvus.address import MilvusAddress
from polyrank.retrieval.milvus.engine import MilvusEngine
address = MilvusAddress(path=Path(sys.argv[1]), collection="c")
engine = MilvusEngine.create(address, fingerprint="f", dimension=8, num_vectors=1)
"""


def create(address, **options):
    return MilvusEngine.create(
        address,
        fingerprint="f",
        dimension=8,
        num_vectors=4,
        index=MilvusIndex(index_type="FLAT"),
        **options,
    )


def numbered(count, start=0):
    return [Candidate(f"id{i}", f"text {i}") for i in range(start, start + count)]


def search(engine, top_k=3):
    return engine.search(MODEL.encode_for_scoring(["x"]), top_k, exact=True, filter=None)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The port of an embedded server, so that connections to it are those to any server."""
    path = tmp_path_factory.mktemp("milvus") / "server.db"
    uri = connection.start_server(path)
    yield int(uri.rsplit(":", 1)[1])
    connection.stop_server(path)


@contextmanager
def proxied(port):
    proxy = Proxy(port)
    try:
        address = proxy.listener.getsockname()
        yield proxy, f"http://127.0.0.1:{address[1]}"
    finally:
        proxy.close()


@contextmanager
def within(seconds):
    start = time.monotonic()
    yield
    assert time.monotonic() - start < seconds


def test_a_closed_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    address = MilvusAddress(uri=f"http://127.0.0.1:{port}", collection="c")
    with (
        within(15),
        pytest.raises(StorageError, match=f"{port}.*no Milvus server answered.*Check that") as e,
    ):
        MilvusEngine.open(address, timeouts=SHORT)
    assert "\n" not in str(e.value)


def test_a_listener_that_never_answers():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        address = MilvusAddress(uri=f"http://127.0.0.1:{port}", collection="c")
        with (
            within(15),
            pytest.raises(StorageError, match=r"Connecting to milvus://127.*1 seconds"),
        ):
            MilvusEngine.open(address, timeouts=SHORT)


def test_timeouts_come_from_the_environment(monkeypatch):
    monkeypatch.delenv("POLYRANK_MILVUS_TIMEOUTS", raising=False)
    assert Timeouts.from_environment() == Timeouts()
    monkeypatch.setenv("POLYRANK_MILVUS_TIMEOUTS", "connect=1, request=300")
    assert Timeouts.from_environment() == Timeouts(connect=1, request=300)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        address = MilvusAddress(uri=f"http://127.0.0.1:{port}", collection="c")
        with within(15), pytest.raises(StorageError, match="within 1 seconds"):
            MilvusEngine.open(address)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("reqest=300", "no setting 'reqest'.*'request'"),
        ("request=soon", "POLYRANK_MILVUS_TIMEOUTS: 'request=soon' is not a name and a number"),
        ("300", "'300' is not a name and a number"),
        ("request=0", "request must be a number of seconds above 0"),
        ("request=nan", "request must be a number of seconds above 0"),
        ("request=inf", "request must be a number of seconds above 0"),
    ],
)
def test_timeouts_that_are_none_are_refused(monkeypatch, text, message):
    monkeypatch.setenv("POLYRANK_MILVUS_TIMEOUTS", text)
    with pytest.raises(UsageError, match=message):
        Timeouts.from_environment()


def test_a_name_that_does_not_resolve():
    address = MilvusAddress(uri="http://no-such-host.invalid:19530", collection="c")
    with within(15), pytest.raises(StorageError, match=r"no-such-host.invalid:19530/c failed"):
        MilvusEngine.open(address, timeouts=SHORT)


def test_a_server_that_refuses_the_credentials(monkeypatch):
    grpc = pytest.importorskip("grpc")
    tokens = []

    def refuse(request, context):
        tokens.append(dict(context.invocation_metadata()).get("authorization"))
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "no")

    class Refusing(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(refuse)

    refusing = grpc.server(futures.ThreadPoolExecutor(1), handlers=[Refusing()])
    port = refusing.add_insecure_port("127.0.0.1:0")
    refusing.start()
    monkeypatch.setenv("POLYRANK_MILVUS_TOKEN", "root:secret")
    address = MilvusAddress(uri=f"http://127.0.0.1:{port}", collection="c")
    with within(15), pytest.raises(StorageError, match=r"refused.*POLYRANK_MILVUS_TOKEN") as e:
        MilvusEngine.open(address, timeouts=SHORT)
    assert base64.b64decode(tokens[0]) == b"root:secret"
    assert "secret" not in str(e.value)
    refusing.stop(0).wait()


def test_a_server_that_stalls(server):
    with proxied(server) as (proxy, uri):
        engine = create(MilvusAddress(uri=uri, collection="stalls"), timeouts=SHORT)
        engine.add(numbered(20), MODEL.encode_candidates, replace=False)
        right = search(engine)
        proxy.flowing.clear()
        with (
            within(10),
            pytest.raises(StorageError, match=r"no answer within 1 seconds.*MILVUS_TIMEOUTS"),
        ):
            search(engine)
        proxy.flowing.set()
        assert search(engine) == right
        engine.close()


def test_a_server_that_goes_away(server):
    with proxied(server) as (proxy, uri):
        engine = create(MilvusAddress(uri=uri, collection="goes"), timeouts=SHORT)
        engine.add(numbered(20), MODEL.encode_candidates, replace=False)

        def candidates():
            yield from numbered(3000, start=100)
            proxy.break_off()
            yield from numbered(3000, start=3100)

        with within(30), pytest.raises(StorageError, match=r"could not be taken out again") as e:
            engine.add(candidates(), MODEL.encode_candidates, replace=False)
        assert "no Milvus server answered" in str(e.value)
        with pytest.raises(StorageError):
            search(engine)
        engine.close()


def test_a_connection_to_a_server_does_all_that_a_file_does(server):
    address = MilvusAddress(uri=f"http://127.0.0.1:{server}", collection="remote")
    with closing(create(address)) as engine:
        engine.add(numbered(50), MODEL.encode_candidates, replace=False)
        assert len(engine) == 50
        engine.add([Candidate("id1", "new", {"a": 1})], MODEL.encode_candidates, replace=True)
        engine.add([Candidate("id1", "newer")], MODEL.encode_candidates, replace=True)
        assert engine.get("id1") == Candidate("id1", "newer", {})
        assert len(search(engine)[0].hits) == 3


def test_a_file_that_another_process_has_open(tmp_path):
    path = tmp_path / "x.db"
    script = SCRIPT + "print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StorageError, match="open in another process"):
            MilvusEngine.open(MilvusAddress(path=path, collection="c"))
        other.stdin.close()
        assert other.wait(30) == 0
    MilvusEngine.open(MilvusAddress(path=path, collection="c")).close()


def test_what_was_acknowledged_survives_a_kill(tmp_path):
    path = tmp_path / "x.db"
    script = SCRIPT + (
        "def some():\n"
        "    for i in range(10**9):\n"
        "        yield Candidate(f'id{i}', f'text {i}', {'place': i})\n"
        "def encode(texts):\n"
        "    print(texts[0].split()[1], flush=True)\n"
        "    return torch.tensor([[float(t.split()[1])] * 8 for t in texts])\n"
        "engine.add(some(), encode, replace=False)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE
    ) as other:
        for _ in range(4):
            begun = int(other.stdout.readline())
        os.kill(other.pid, signal.SIGKILL)
        other.wait(30)
    engine = MilvusEngine.open(MilvusAddress(path=path, collection="c"))
    found = list(engine)
    assert len(found) == len(engine) >= begun > 0
    assert {c.id for c in found} == {f"id{i}" for i in range(len(found))}
    assert all(c.text == f"text {c.id[2:]}" and c.metadata["place"] == int(c.id[2:]) for c in found)
    engine.verify()
    engine.close()


def test_a_file_is_shared_in_a_process_and_let_go_at_the_end(tmp_path):
    path = tmp_path / "x.db"
    first = create(MilvusAddress(path=path, collection="a"))
    second = create(MilvusAddress(path=path, collection="b"))
    first.add(numbered(5), MODEL.encode_candidates, replace=False)
    first.close()
    first.close()
    assert len(second) == 0
    with pytest.raises(StorageError, match="was closed"):
        len(first)
    second.close()
    assert path not in connection._users
    again = MilvusEngine.open(MilvusAddress(path=path, collection="a"))
    assert len(again) == 5
    assert search(again)[0].report.certified
    again.close()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path)], check=False, capture_output=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_nothing_is_written_to_stderr(tmp_path, capfd):
    engine = create(MilvusAddress(path=tmp_path / "x.db", collection="a"))
    engine.add(numbered(5), MODEL.encode_candidates, replace=False)
    with pytest.raises(StorageError):
        engine._collection.search(MODEL.encode_candidates(["x"]).numpy(), 1, "no such (", {})
    engine.compact()
    search(engine)
    engine.close()
    logging.getLogger("pymilvus").error("noise")
    assert capfd.readouterr().err == ""


def test_a_file_that_is_not_there_or_no_milvus(tmp_path):
    missing = MilvusAddress(path=tmp_path / "missing.db", collection="c")
    with pytest.raises(IndexFolderError, match=r"no .*missing\.db"):
        MilvusEngine.open(missing)
    assert not missing.path.exists()
    old = MilvusAddress(path=tmp_path / "old.db", collection="c")
    old.path.write_bytes(b"SQLite format 3")
    with pytest.raises(StorageError, match="keeps a folder there"):
        create(old)
    barred = MilvusAddress(path=tmp_path / "old.db" / "sub" / "x.db", collection="c")
    with pytest.raises(StorageError, match="cannot be made"):
        create(barred)


@pytest.mark.parametrize("package", ["pymilvus", "milvus_lite"])
def test_a_missing_extra_gives_the_command(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=r'pip install "polyrank\[milvus\]"'):
        create(MilvusAddress(path=tmp_path / "x.db", collection="c"))


def test_no_warnings(tmp_path):
    script = (
        SCRIPT + "engine.add([Candidate('a', 'b')], lambda t: torch.ones(1, 8), replace=False)\n"
        "engine.search(torch.ones(1, 1, 8), 1, exact=False, filter=None); engine.close()\n"
        "import threading; print([t.name for t in threading.enumerate() if not t.daemon])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(tmp_path / "x.db")],
        check=False,
        capture_output=True,
        timeout=60,
    )
    assert done.stderr == b""
    assert done.stdout == b"['MainThread']\n"

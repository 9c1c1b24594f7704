"""Keys: who is let in, and that nobody reads them anywhere."""

import hashlib

import httpx2 as httpx
import pytest
from running import running

from polyrank.errors import UsageError
from polyrank.serving.access import Keys
from polyrank.serving.app import create_app
from polyrank.serving.config import ServerConfig
from polyrank.serving.pipeline import Pipeline

KEY, OTHER = "sk-first-3141", "sk-second-2718"


@pytest.fixture
def guarded(bi):
    app = create_app(Pipeline({"bi": bi}), ServerConfig(api_key=(KEY, OTHER)))
    with running(app) as server:
        yield server


def get(server, path, authorization=None):
    headers = {} if authorization is None else {"authorization": authorization}
    return httpx.get(server.url + path, headers=headers)


@pytest.mark.parametrize(
    "authorization",
    [f"Bearer {KEY}", f"Bearer {OTHER}", f"bearer {KEY}", f"BEARER  {KEY}", KEY],
)
def test_each_key_lets_in_however_clients_send_it(guarded, authorization):
    assert get(guarded, "/v1/models", authorization).status_code == 200


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Bearer", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", f"Basic {KEY}",
     f"Bearer {KEY} {OTHER}", "ä".encode()],
)  # fmt: skip
def test_anything_else_is_401(guarded, authorization):
    response = get(guarded, "/v1/models", authorization)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["error"]["type"] == "authentication_error"
    assert KEY not in response.text


def test_paths_that_do_not_exist_are_not_told_apart_without_a_key(guarded):
    assert get(guarded, "/nowhere").status_code == 401
    assert get(guarded, "/nowhere", KEY).status_code == 404


@pytest.mark.parametrize("path", ["/health", "/ready", "/docs", "/openapi.json"])
def test_the_state_and_the_documents_are_open(guarded, path):
    assert get(guarded, path).status_code == 200


def test_what_is_open_to_read_is_not_open_to_send_to(guarded):
    for path in ("/", "/health"):
        assert httpx.post(guarded.url + path, json={"inputs": "a"}).status_code == 401


def test_keys_come_from_the_environment_and_a_file_that_is_read_again(tmp_path, monkeypatch):
    monkeypatch.setenv("POLYRANK_API_KEYS", "from-environment , second")
    path = tmp_path / "keys"
    path.write_text("# of the team\nfrom-file  # until June\n\n", "utf-8")
    keys = Keys(ServerConfig(api_key=("from-flag",), api_key_file=path))

    def lets_in(key):
        return hashlib.sha256(key.encode()).digest() in keys.digests

    assert all(map(lets_in, ("from-flag", "from-environment", "second", "from-file")))
    path.write_text("newer\n", "utf-8")
    keys.reload()
    assert lets_in("newer")
    assert not lets_in("from-file")
    path.write_text("", "utf-8")
    with pytest.raises(UsageError, match="holds no key"):
        keys.reload()
    assert lets_in("newer")


@pytest.mark.parametrize("key", ["", " ", "two words", "schlüssel", "tab\t"])
def test_a_key_that_no_client_could_send_is_refused_and_not_shown(key):
    with pytest.raises(UsageError) as raised:
        Keys(ServerConfig(api_key=(key,)))
    assert not key.strip() or key not in str(raised.value)


def test_a_file_of_keys_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "binary"):
        with pytest.raises(UsageError, match="cannot be read"):
            Keys(ServerConfig(api_key_file=path))


def test_a_configuration_does_not_show_its_keys():
    assert KEY not in repr(ServerConfig(api_key=(KEY,)))


def ask(app, host):
    with running(app) as server:
        return httpx.get(f"{server.url}/v1/models", headers={"host": host})


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8000", "127.0.0.1:9", "[::1]:8000", "10.0.0.7", "a.localhost", "box"],
)
def test_a_server_of_this_machine_is_called_by_addresses_and_its_own_names(bi, host):
    assert ask(create_app(Pipeline({"bi": bi}), ServerConfig()), host).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example"])
def test_no_page_reaches_it_by_a_name_of_its_own(bi, host):
    """The page's server says that its name stands for 127.0.0.1, once the browser has the page."""
    answer = ask(create_app(Pipeline({"bi": bi}), ServerConfig()), host)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "unknown_host"
    assert "--allow-host" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("settings", "host", "status"),
    [
        ({"allow_host": ("a.example",)}, "A.example:80", 200),
        ({"allow_host": ("*",)}, "b.example", 200),
        ({"allow_host": ("a.example",)}, "b.example", 400),
        ({"allow_host": ("a.example",), "api_key": (KEY,)}, "b.example", 400),
        ({"api_key": (KEY,)}, "b.example", 401),
        ({"host": "0.0.0.0"}, "b.example", 200),
        ({"host": "localhost"}, "b.example", 400),
    ],
)
def test_which_names_are_let_in_depends_on_keys_and_address(bi, settings, host, status):
    app = create_app(Pipeline({"bi": bi}), ServerConfig(**settings))
    assert ask(app, host).status_code == status

"""A stand-in of the Hugging Face hub on this machine, which the real client talks to over HTTP.

Repositories are folders of bytes with commits and branches. `log` has every request, as
"METHOD path", and `agents` what the client said of itself.
"""

import base64
import hashlib
import http.server
import json
import re
import threading
import urllib.parse
from contextlib import contextmanager
from pathlib import Path

LFS = (".safetensors", ".bin", ".onnx")
UPLOAD_MODES = {True: "lfs", False: "regular"}


def digest(content):
    return hashlib.sha256(content).hexdigest()


class Repository:
    """Commits by hash, each a mapping from file names to bytes, and branches by name."""

    def __init__(self):
        self.commits = {"0" * 40: {}}
        self.branches = {"main": "0" * 40}

    def commit(self, files, branch="main"):
        """Add files to a branch and return the hash."""
        content = {**self.commits[self.branches[branch]], **files}
        described = json.dumps([len(self.commits), sorted(content)])
        sha = hashlib.sha1(described.encode()).hexdigest()
        self.commits[sha] = content
        self.branches[branch] = sha
        return sha

    def resolve(self, revision):
        """The hash of a revision; None if there is none."""
        sha = self.branches.get(revision, revision)
        return sha if sha in self.commits else None


class Hub:
    """The repositories, what is wrong with them, and what was asked."""

    def __init__(self):
        self.repositories = {}
        self.objects = {}
        self.log = []
        self.agents = []
        self.tokens = []
        self.gated, self.private = set(), set()
        self.status = None
        """What every request is answered with instead."""
        self.damage = {}
        """By file name, what happens to its bytes on the way out."""
        self.broken = set()
        """The files of which nothing comes before the connection ends."""
        self.silence = None
        """An event to wait for before anything is answered."""
        self.validated = []
        """The cards that were checked."""
        self.invalid = None
        """What is wrong with every card."""
        self.messages = []
        """The words of the commits."""

    def add(self, name, folder, branch="main"):
        """Commit the files of a folder; returns the hash."""
        repository = self.repositories.setdefault(name, Repository())
        repository.branches.setdefault(branch, repository.branches["main"])
        files = {
            each.relative_to(folder).as_posix(): each.read_bytes()
            for each in Path(folder).rglob("*")
            if each.is_file()
        }
        return repository.commit(files, branch)

    def fetched(self):
        """The names of the files whose content was asked for, each once, in their order."""
        found = [re.fullmatch(r"GET /[^/]+/[^/]+/resolve/[^/]+/(.+)", line) for line in self.log]
        return list(dict.fromkeys(each.group(1) for each in found if each))


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the hub does, as far as models go."""

    def __init__(self, hub, *arguments):
        self.hub = hub
        super().__init__(*arguments)

    def log_message(self, *arguments):
        """Say nothing on standard error."""

    def handle_one(self):
        hub, path = self.hub, urllib.parse.unquote(self.path.partition("?")[0])
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                self.body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        hub.log.append(f"{self.command} {path}")
        hub.agents.append(self.headers.get("User-Agent"))
        hub.tokens.append(self.headers.get("Authorization"))
        if hub.silence is not None:
            hub.silence.wait(10)
        if hub.status is not None:
            return self.answer(hub.status)
        for method, pattern, function in ROUTES:
            found = re.fullmatch(pattern, path)
            if found and self.command in method.split():
                return function(self, *found.groups())
        return self.answer(404)

    do_GET = do_HEAD = do_POST = do_PUT = handle_one  # noqa: N815

    def answer(self, status=200, content=b"", *, headers=(), length=None):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def refuse(self, status, code, words):
        self.answer(status, headers={"X-Error-Code": code, "X-Error-Message": words})

    def opened(self, name, revision):
        """The repository and the commit, or None after an answer that refuses."""
        known = self.headers.get("Authorization") is not None
        if name not in self.hub.repositories or (name in self.hub.private and not known):
            return self.refuse(401, "RepoNotFound", "Repository not found")
        repository = self.hub.repositories[name]
        sha = repository.resolve(revision)
        if sha is None:
            return self.refuse(404, "RevisionNotFound", "Invalid rev id")
        return repository, sha

    def model_info(self, name, revision="main"):
        if found := self.opened(name, revision):
            repository, sha = found
            files = [
                {"rfilename": file, "size": len(content), "blobId": digest(content)[:40]}
                for file, content in repository.commits[sha].items()
            ]
            self.answer(content={"_id": "1", "id": name, "sha": sha, "siblings": files})

    def tree(self, name, revision):
        if found := self.opened(name, revision):
            repository, sha = found
            files = [
                {"type": "file", "path": file, "size": len(content), "oid": digest(content)[:40]}
                for file, content in repository.commits[sha].items()
            ]
            self.answer(content=files)

    def resolve(self, name, revision, file):
        found = self.opened(name, revision)
        if not found:
            return found
        repository, sha = found
        if name in self.hub.gated and self.headers.get("Authorization") is None:
            return self.refuse(403, "GatedRepo", "Access to this model is restricted")
        content = repository.commits[sha].get(file)
        if content is None:
            headers = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": sha}
            return self.answer(404, headers=headers)
        sent = self.hub.damage.get(file, lambda same: same)(content)
        size = len(content) if self.command == "HEAD" else len(sent)
        if file in self.hub.broken and self.command == "GET":
            sent = b""
        headers = {"X-Repo-Commit": sha, "ETag": f'"{digest(content)}"'}
        return self.answer(content=sent, headers=headers, length=size)

    def create(self):
        described = json.loads(self.body)
        name = f"{described.get('organization') or 'me'}/{described['name']}"
        if self.headers.get("Authorization") is None:
            return self.refuse(401, "Unauthorized", "Log in")
        url = f"http://{self.headers['Host']}/{name}"
        if name in self.hub.repositories:
            return self.answer(409, {"error": "exists", "url": url})
        self.hub.repositories[name] = Repository()
        if described.get("visibility") == "private" or described.get("private"):
            self.hub.private.add(name)
        return self.answer(content={"url": url})

    def branch(self, name, branch):
        branches = self.hub.repositories[name].branches
        if branch in branches:
            return self.answer(409, {"error": "exists"})
        branches[branch] = branches["main"]
        return self.answer(content={})

    def validate(self):
        self.hub.validated.append(json.loads(self.body)["content"])
        if self.hub.invalid is not None:
            errors = [{"message": self.hub.invalid}]
            return self.answer(400, {"errors": errors, "warnings": []})
        return self.answer(content={"errors": [], "warnings": []})

    def preupload(self, name, revision):
        files = [
            {
                "path": each["path"],
                "uploadMode": UPLOAD_MODES[each["path"].endswith(LFS)],
                "shouldIgnore": False,
            }
            for each in json.loads(self.body)["files"]
        ]
        self.answer(content={"files": files})

    def batch(self, name):
        host = self.headers["Host"]
        objects = [
            {**each, "actions": {"upload": {"href": f"http://{host}/upload/{each['oid']}"}}}
            for each in json.loads(self.body)["objects"]
        ]
        self.answer(content={"objects": objects, "transfer": "basic"})

    def upload(self, oid):
        assert digest(self.body) == oid
        self.hub.objects[oid] = self.body
        self.answer()

    def commit(self, name, revision):
        files = {}
        for line in self.body.splitlines():
            each = json.loads(line)
            value = each["value"]
            if each["key"] == "header":
                self.hub.messages.append(value["summary"])
            elif each["key"] == "file":
                assert value["encoding"] == "base64"
                files[value["path"]] = base64.b64decode(value["content"])
            elif each["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
        sha = self.hub.repositories[name].commit(files, revision)
        url = f"http://{self.headers['Host']}/{name}/commit/{sha}"
        self.answer(content={"success": True, "commitOid": sha, "commitUrl": url})


NAME = "([^/]+/[^/]+)"
ROUTES = (
    ("GET", f"/api/models/{NAME}", Handler.model_info),
    ("GET", f"/api/models/{NAME}/revision/([^/]+)", Handler.model_info),
    ("GET", f"/api/models/{NAME}/tree/([^/]+)", Handler.tree),
    ("GET HEAD", f"/{NAME}/resolve/([^/]+)/(.+)", Handler.resolve),
    ("POST", "/api/repos/create", Handler.create),
    ("POST", f"/api/models/{NAME}/branch/([^/]+)", Handler.branch),
    ("POST", "/api/validate-yaml", Handler.validate),
    ("POST", f"/api/models/{NAME}/preupload/([^/]+)", Handler.preupload),
    ("POST", f"/{NAME}.git/info/lfs/objects/batch", Handler.batch),
    ("PUT", "/upload/([0-9a-f]+)", Handler.upload),
    ("POST", f"/api/models/{NAME}/commit/([^/]+)", Handler.commit),
)


@contextmanager
def running():
    """A hub that answers at `address` while the block runs."""
    hub = Hub()
    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *arguments: Handler(hub, *arguments)
    )
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # a client that went away
    hub.address = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    try:
        yield hub
    finally:
        if hub.silence is not None:
            hub.silence.set()
        server.shutdown()
        server.server_close()


def connect(hub, cache, monkeypatch):
    """Let huggingface_hub talk to a stand-in, with an empty cache and without anyone's token."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    template = f"{hub.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", False)
    for name in ("HF_TOKEN_PATH", "HF_STORED_TOKENS_PATH", "AGENT_HARNESSES_PATH"):
        if hasattr(constants, name):
            monkeypatch.setattr(constants, name, str(cache / name))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_HUB_DISABLE_TELEMETRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

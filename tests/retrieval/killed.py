"""Kills changes of an index before every one of their storage operations, and in the middle of
every write, and looks at what is left.

`killed.py FOLDER SEED`, in a process of its own and with one thread, since it forks. The seed draws
the index and its changes. For each kind of change it prints a line of JSON: how many operations
there are, how often the old and how often the new state was found, and what was wrong.
"""

import json
import os
import random
import shutil
import signal
import sys
from pathlib import Path

import torch

from hash_model import HashModel, numbered
from polyrank import storage, tables
from polyrank.retrieval.index import Index
from polyrank.retrieval.store import arrays, vectors
from polyrank.retrieval.store.manifest import ShardLayout

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
EVENTS = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}


class Killer:
    """Ends the process at the n-th storage operation; counts them with n = 0."""

    def __init__(self, at):
        self.at = at
        self.count = 0

    def tick(self):
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hear(self, event, arguments):
        if event in EVENTS or (event == "open" and arguments[2] & WRITING):
            self.tick()

    def exchange(self, first, second):
        self.tick()
        return storage_exchange(first, second)

    def write_all(self, handle, data):
        data = bytes(data)
        self.tick()
        storage_write_all(handle, data[: len(data) // 2])
        self.tick()
        storage_write_all(handle, data[len(data) // 2 :])

    def write_text(self, path, text, encoding=None):
        with open(path, "w", encoding=encoding) as handle:
            handle.write(text[: len(text) // 2])
            handle.flush()
            self.tick()
            handle.write(text[len(text) // 2 :])

    def install(self):
        sys.addaudithook(self.hear)
        storage.exchange = self.exchange
        Path.write_text = lambda *given, **named: self.write_text(*given, **named)
        for module in (arrays, tables, vectors):
            module.write_all = self.write_all


storage_write_all = storage.write_all
storage_exchange = storage.exchange


def state(index):
    rows = [(each.id, each.text, dict(each.metadata)) for each in index]
    return index.engine.cache.num_rows, rows


def run(change, folder, at):
    """Make the change in a child process; its exit status and the number of operations."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        index = Index.open(folder, HashModel())
        killer = Killer(at)
        killer.install()
        change(index)
        os.write(write, str(killer.count).encode())
        os._exit(0)
    os.close(write)
    _, status = os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        return status, answer.read()


def look(folder, before, after, faults):
    """Which state is there; it must be one of the two, and a change must work."""
    index = Index.open(folder, HashModel())
    index.verify()
    found = state(index)
    if found not in (before, after):
        faults.append(f"a mixture: {found}")
    if [hit.id for hit in index.search(["a"], len(index))[0]] == []:
        faults.append("nothing is found")
    index.add([("later", "y")])
    if state(index) != (found[0] + 1, [*found[1], ("later", "y", {})]):
        faults.append(f"after a further addition: {state(index)}")
    named = {*index.engine.manifest.files, "manifest.json", "lock", ".manifest.json.new"}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    if there - named:
        faults.append(f"left over: {there - named}")
    return found == after


def drawn(draw):
    """A layout, the candidates of an index, those of its ids that are deleted from the beginning,
    and changes by their names."""
    block = draw.randint(4, 8)
    layout = ShardLayout(block_rows=block, shard_rows=block * draw.randint(1, 2))
    first = [(name, text, {"year": year}) for year, (name, text) in enumerate(numbered(12))]
    first = first[: draw.randint(6, 12)]
    names = [name for name, *_ in first]
    gone, left = names[1:3], [names[0], *names[3:]]
    more = [("new", "x", {"lang": "en"})]
    changed = [(name, "changed") for name in draw.sample(left, draw.randint(1, len(left)))]
    deleted = draw.sample(left, draw.randint(1, len(left) - 1))
    return (
        layout,
        first,
        gone,
        {
            "add": lambda index: index.add(more),
            "replace": lambda index: index.add(more + changed, replace=True),
            "delete": lambda index: index.delete(deleted),
            "compact": lambda index: index.compact(),
            "rebuild": lambda index: Index.build(
                HashModel(), more + changed, index.path, layout=layout
            ),
        },
    )


def main(work, seed):
    torch.set_num_threads(1)
    os.fsync = lambda _: None
    start = work / "start"
    layout, first, gone, changes = drawn(random.Random(seed))
    index = Index.build(HashModel(), first, start, layout=layout)
    index.delete(gone)
    before = state(index)
    folder = work / "index"
    for name, change in changes.items():
        shutil.copytree(start, folder)
        status, answer = run(change, folder, 0)
        assert status == 0, (name, status)
        after = state(Index.open(folder, HashModel()))
        faults, new = [], 0
        for at in range(1, int(answer) + 1):
            shutil.rmtree(work / ".index.building", ignore_errors=True)
            shutil.rmtree(folder)
            shutil.copytree(start, folder)
            status, _ = run(change, folder, at)
            if os.WTERMSIG(status) != signal.SIGKILL:
                faults.append(f"not killed at {at}")
            new += look(folder, before, after, faults)
            if name == "rebuild":
                change(Index.open(folder, HashModel()))  # the same call resumes
                resumed = Index.open(folder, HashModel())
                resumed.verify()
                if state(resumed) != after:
                    faults.append(f"after a resumed build: {state(resumed)}")
        shutil.rmtree(folder)
        print(json.dumps({"change": name, "operations": int(answer), "new": new, "faults": faults}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

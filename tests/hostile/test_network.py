"""Every command runs where the network is forbidden; none asks for it unless the hub is named.

Everything lies in folders whose names are patterns, markup and templates, and is named like them.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from polyrank.cli.main import commands

ASKS = {"push"}
"""What is for the hub alone."""
STRANGE = "[red][/b]$\\frac{{{x}}{{y}}**%s'\"`*?é"
CHECKPOINT = Path(__file__).parent.parent / "interop" / "parlai" / "checkpoints" / "bi-words"
PROGRAM = textwrap.dedent("""
    import gc, json, os, signal, sys, threading, time
    from pathlib import Path

    asked = []

    def hear(event, arguments):
        names = ("socket.getaddrinfo", "socket.gethostbyname", "urllib.Request")
        to = arguments[1] if event in ("socket.connect", "socket.sendto") else None
        is_asked = event in names and arguments[0] != "127.0.0.1"
        if is_asked or isinstance(to, tuple):
            asked.append([event, str(arguments)])
            raise OSError("the network is forbidden")

    sys.addaudithook(hear)
    from long_commands import COMMANDS, make_inputs
    from polyrank.cli.main import command_typed, commands, run

    strange = sys.argv[4]
    make_inputs(Path(sys.argv[1]), Path(sys.argv[2]))
    gc.freeze()
    lines = [
        each.line.replace("OUTPUT", each.changes or f"made/{name.split()[0]}")
        for name, each in COMMANDS.items()
    ]
    lines += [
        "--help", "doctor", "info bi", "info cross", "info made/index", "index info made/index",
        "search made/index file", "index verify made/index", "completion bash",
        "evaluate bi --data dev.jsonl", "predict cross --data pairs.jsonl --output made/p.jsonl",
        "export bi --to sentence-transformers --output made/exported",
        "static encoder --output made/static", "train --arch bi --base encoder "
        "--train pairs.jsonl --preview", f"import {sys.argv[3]} --output made/imported",
        "demo --data demo.jsonl --base encoder --max-steps 1 --output made/demo --device cpu",
        "reproduce architectures --data dialogues=talks --base encoder --max-steps 1 "
        "--batch-size 8 --output made/reproduced --device cpu",
        "serve --index made/index --port 0 --drain-seconds 0",
    ]
    pairs = Path("pairs.jsonl").read_text()
    Path("demo.jsonl").write_text(pairs + pairs.replace('"response": "', '"response": "yes '))
    Path("talks").mkdir()
    for name in ("train", "dev", "test"):
        Path("talks", f"{name}.jsonl").write_text(pairs)

    def stop(*_):
        os.kill(os.getpid(), signal.SIGTERM)

    for line in lines:
        line = line.replace("made/", f"{strange}/{strange}")
        before = len(asked)
        if line.startswith("serve"):
            signal.signal(signal.SIGALRM, stop)
            signal.setitimer(signal.ITIMER_REAL, 1, 0.5)
        start = time.monotonic()
        code = run(line.split(), commands())
        signal.setitimer(signal.ITIMER_REAL, 0)
        name = " ".join(command_typed(line.split(), commands())[0])
        told = {"line": line, "name": name, "code": code, "asked": asked[before:]}
        told["seconds"] = time.monotonic() - start
        print(json.dumps(told), file=sys.stderr)
""")


def test_no_command_asks_the_network(bert, tmp_path):
    offline = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
    environment = {name: value for name, value in os.environ.items() if name not in offline}
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    place = tmp_path / STRANGE
    place.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, place, bert, CHECKPOINT, STRANGE],
        env={**environment, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
    )
    found = [json.loads(line) for line in done.stderr.splitlines() if line.startswith(b'{"line"')]
    tried = {each["name"] for each in found}
    assert {command.name for command in commands()} - tried == ASKS, done.stderr.decode()
    faults = {each["line"]: each["code"] for each in found if each["code"]}
    assert faults == {}, done.stderr.decode()
    assert {each["line"]: each["asked"] for each in found if each["asked"]} == {}

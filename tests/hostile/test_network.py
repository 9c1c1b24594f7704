"""No command asks the network for anything, unless a model or data of the hub are named."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

PROGRAM = textwrap.dedent("""
    import gc, json, sys
    from pathlib import Path

    asked = []

    def hear(event, arguments):
        if event in ("socket.getaddrinfo", "socket.gethostbyname", "urllib.Request"):
            asked.append([event, str(arguments[0])])
        if event == "socket.connect" and isinstance(arguments[1], tuple):
            asked.append([event, str(arguments[1])])

    sys.addaudithook(hear)
    from long_commands import COMMANDS, make_inputs
    from polyrank.cli.main import commands, run

    make_inputs(Path(sys.argv[1]), Path(sys.argv[2]))
    gc.freeze()
    lines = [
        each.line.replace("OUTPUT", each.changes or f"made/{name.split()[0]}")
        for name, each in COMMANDS.items()
    ]
    lines += [
        "--help", "doctor", "info bi", "info cross", "info made/index", "index info made/index",
        "search made/index file", "index verify made/index",
        "evaluate bi --data dev.jsonl", "predict cross --data pairs.jsonl --output made/p.jsonl",
        "export bi --to sentence-transformers --output made/exported",
        "static encoder --output made/static", "train --arch bi --base encoder "
        "--train pairs.jsonl --preview",
    ]
    for line in lines:
        before = len(asked)
        code = run(line.split(), commands())
        print(json.dumps({"line": line, "code": code, "asked": asked[before:]}), file=sys.stderr)
""")


def test_no_command_asks_the_network(bert, tmp_path):
    offline = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
    environment = {name: value for name, value in os.environ.items() if name not in offline}
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, tmp_path, bert],
        env={**environment, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
    )
    found = [json.loads(line) for line in done.stderr.splitlines() if line.startswith(b'{"line"')]
    assert len(found) > 20, done.stderr.decode()
    assert {each["line"]: each["code"] for each in found if each["code"]} == {}
    assert {each["line"]: each["asked"] for each in found if each["asked"]} == {}

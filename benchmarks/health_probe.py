"""A probe that asks a server for /health in a steady rhythm, as a balancer would.

python -m benchmarks.health_probe PORT --every 0.05

It is a process of its own, so that no load delays it. It ends when its input does, and prints the
seconds of every answer as JSON; one that failed counts as infinite.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import threading
import time

TIMEOUT = 10.0


def asked(port: int) -> float:
    """Seconds from a new connection to the end of the answer; infinite if it is not a 200."""
    started = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        return float("inf")
    finally:
        connection.close()
    return time.perf_counter() - started if answer.status == 200 else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--every", type=float, default=0.05)
    options = parser.parse_args()
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    found = []
    while not ended.wait(options.every):
        found.append(asked(options.port))
    print(json.dumps(found))


if __name__ == "__main__":
    main()

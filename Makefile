# setup, demo, test, check, docs, bench: everything runs in .venv, made here.
PYTHON ?= python3
VENV ?= .venv
# Processes of the tests, each with one thread; 0 is this one with all threads.
JOBS ?= 2
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test check docs docs-serve bench format release-check client-check lock audit clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt scripts/setup.sh
	PYTHON="$(PYTHON)" TORCH_INDEX="$(TORCH_INDEX)" sh scripts/setup.sh "$(VENV)"
	@touch $(READY)

demo: $(READY)
	$(BIN)/polyrank demo $(ARGS)

# The bytecode is for the processes that tests start, where PYTHONDONTWRITEBYTECODE is set.
test: $(READY)
	$(BIN)/python -m compileall -q src
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs docs-serve: export NO_MKDOCS_2_WARNING = 1

docs: $(READY)
	$(BIN)/mkdocs build
	@echo "The site is in site/; make docs-serve shows it at http://localhost:8000"

docs-serve: $(READY)
	$(BIN)/mkdocs serve --no-strict --livereload

bench: $(READY)
	$(BIN)/python -m benchmarks.encoding
	$(BIN)/python -m benchmarks.cross_scoring

# Build the wheel, check it, and try it in fresh environments of every Python here, each extra alone.
release-check: $(READY)
	$(BIN)/python -m pip install --quiet --group release
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python scripts/check_release.py --work build/release $(ARGS)

# Call the server with the real clients of other projects, each in an environment of its own.
client-check: $(READY)
	$(BIN)/python scripts/check_clients.py --work build/clients $(ARGS)

# Every version that `make setup` installs, written to constraints.txt.
lock: $(READY)
	$(BIN)/python -m pip install --quiet --group release
	head -3 constraints.txt >build.lock
	$(BIN)/uv pip compile pyproject.toml --group dev --group docs --all-extras --universal \
	    --python-version 3.11 --no-annotate --no-header --quiet --output-file constraints.txt $(UPGRADE)
	cat constraints.txt >>build.lock
	mv build.lock constraints.txt

# Known weaknesses of the locked versions (asks PyPI), and the page of licences.
audit: $(READY)
	$(BIN)/python -m pip install --quiet --group release
	$(BIN)/pip-audit --strict --requirement constraints.txt --no-deps --disable-pip
	$(BIN)/python scripts/licences.py

clean:
	rm -rf $(VENV) dist build site .mypy_cache .ruff_cache .pytest_cache

"""Damaged files of every kind: each is read, or refused with a message. Nothing else may happen.

POLYRANK_HOSTILE_CASES is the number of damaged files of each kind; without it, the same few are
drawn every time. `python -m benchmarks.hostile` draws others for as long as you like.
"""

import os
import shutil
import time
import warnings
from contextlib import suppress

import pytest
from damage import damaged
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from readers import READERS, folder_readers, write

from polyrank.errors import PolyrankError

CASES = os.environ.get("POLYRANK_HOSTILE_CASES")
SECONDS_A_MEGABYTE = 1.0
LEAST_SECONDS = 1.0


FOLDERS = (
    "bi",
    "poly-learnt",
    "cross",
    "cross-interaction",
    "sentence-transformers",
    "reranker",
    "adapters",
    "static",
    "index",
    "corpus",
    "tables",
)


@pytest.fixture(scope="module")
def folders(bert):
    return {reader.name: reader for reader in folder_readers(bert)}


@pytest.mark.parametrize("reader", [pytest.param(each, id=each.name) for each in READERS])
def test_damaged_files(reader, tmp_path, record_property):
    try_damaged(reader, int(CASES or 12), tmp_path, record_property)


@pytest.mark.parametrize("name", FOLDERS)
def test_damaged_folders(name, folders, tmp_path, record_property):
    assert set(folders) == set(FOLDERS)
    try_damaged(folders[name], int(CASES or 5), tmp_path, record_property)


def try_damaged(reader, count, tmp_path, record_property):
    write(reader, tmp_path / "valid")
    reader.read(tmp_path / "valid")
    victims = st.sampled_from(sorted(reader.files))
    cases = victims.flatmap(lambda name: st.tuples(st.just(name), damaged(reader.files[name])))

    @settings(
        max_examples=count,
        derandomize=CASES is None,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(cases)
    def each(case):
        folder = tmp_path / "damaged"
        shutil.rmtree(folder, ignore_errors=True)
        write(reader, folder, dict([case]))
        start = time.process_time()
        with warnings.catch_warnings(), suppress(PolyrankError):
            warnings.simplefilter("error")
            reader.read(folder)
        seconds = time.process_time() - start
        megabytes = sum(map(len, [*reader.files.values(), case[1]])) / 1e6
        assert seconds < LEAST_SECONDS + SECONDS_A_MEGABYTE * megabytes

    each()
    record_property("cases", count)

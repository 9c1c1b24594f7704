"""Damaged files of every kind: each is read, or refused with a message. Nothing else may happen.

POLYRANK_HOSTILE_CASES is the number of damaged files of each kind; without it, the same few are
drawn every time. POLYRANK_HOSTILE_MEGABYTES is the length of long lines. Of the files with a value
of JSON replaced, or with a sign repeated, one in POLYRANK_HOSTILE_PARTS is tried;
POLYRANK_HOSTILE_SEED says which. `python -m benchmarks.hostile` draws others for as long as you
like.
"""

import os
import re
import shutil
import time
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from readers import EXPORTS, READERS, folder_readers, write

from damage import SIGNS, damaged, drawing, is_json, with_every_value, with_signs
from polyrank.errors import PolyrankError

CASES = os.environ.get("POLYRANK_HOSTILE_CASES")
SEED = int(os.environ.get("POLYRANK_HOSTILE_SEED", "0"))
MEGABYTES = int(os.environ.get("POLYRANK_HOSTILE_MEGABYTES", "1"))
SIZE_OF_SIGNS = 250_000 if CASES else 50_000
SECONDS_A_MEGABYTE = 1.0
LEAST_SECONDS = 1.0
SECONDS_A_MEGABYTE_OF_SIGNS = 60.0
"""Where every other byte begins a line, a list or a tag, of which libraries make objects."""
TIMES_THE_INPUT = 10
TIMES_THE_SIGNS = 1000
"""Likewise."""
LEAST_MEMORY = 64_000_000
STATUS, PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


FOLDERS = (
    "bi",
    "poly-learnt",
    "cross",
    "cross-interaction",
    "sentence-transformers",
    "reranker",
    "encoder in shards",
    "adapters",
    "static",
    "model2vec",
    "parlai",
    "index",
    "corpus",
    "tables",
    "tables of articles",
    "graph",
    "parts",
    "labels",
    "unfinished training",
    "info of a model",
    "info of an index",
    "info of a corpus",
    "info of parts",
    "info of an export",
    "info of a comparison",
    *(EXPORTS if CASES else ()),  # exporting takes seconds
)


@dataclass
class Case:
    """A damaged file; what it holds is found in the folder of a test that failed."""

    name: str
    data: bytes = field(repr=False)


@pytest.fixture(scope="module")
def folders(bert):
    return {reader.name: reader for reader in folder_readers(bert, EXPORTS if CASES else ())}


@pytest.mark.parametrize("reader", [pytest.param(each, id=each.name) for each in READERS])
def test_damaged_files(reader, tmp_path, record_property):
    try_damaged(reader, int(CASES or 12), tmp_path, record_property)


@pytest.mark.parametrize("name", FOLDERS)
def test_damaged_folders(name, folders, tmp_path, record_property):
    assert set(folders) == set(FOLDERS)
    try_damaged(folders[name], int(CASES or 5), tmp_path, record_property)


@pytest.mark.parametrize(
    "reader",
    [
        pytest.param(each, id=each.name)
        for each in READERS
        if any(map(is_json, each.files.values()))
    ],
)
def test_every_value_of_files(reader, tmp_path, record_property):
    try_every_value(reader, tmp_path, record_property)


@pytest.mark.parametrize("name", FOLDERS)
def test_every_value_of_folders(name, folders, tmp_path, record_property):
    try_every_value(folders[name], tmp_path, record_property)


@pytest.mark.parametrize("reader", [pytest.param(each, id=each.name) for each in READERS])
def test_files_with_a_long_line(reader, tmp_path):
    write(reader, tmp_path / "valid")
    reader.read(tmp_path / "valid")
    for name, data in reader.files.items():
        read_damaged(reader, {name: with_a_long_line(data)}, tmp_path / "damaged")


@pytest.mark.parametrize("number", range(len(READERS)), ids=[each.name for each in READERS])
def test_files_with_a_sign_repeated(number, tmp_path, record_property):
    reader, cases = READERS[number], 0
    parts = int(os.environ.get("POLYRANK_HOSTILE_PARTS", len(SIGNS)))
    for sign in SIGNS[(SEED + number) % parts :: parts]:
        for name, data in reader.files.items():
            for changed in with_signs(data, sign, SIZE_OF_SIGNS):
                read_damaged(reader, {name: changed}, tmp_path / "damaged", signs=True)
                cases += 1
    record_property("cases", cases)


def with_a_long_line(data):
    """A file whose first value in JSON is long, or that ends in a long line."""
    long = b"a" * (MEGABYTES << 20)
    place = re.search(rb': ?"([^"\\]*)"', data) if is_json(data) else None
    return data[: place.start(1)] + long + data[place.end(1) :] if place else data + b"\n" + long


def memory_now():
    """The bytes that this process takes up; its peak is counted from now on."""
    if PEAK.exists():
        PEAK.write_text("5")
    return memory("VmRSS")


def memory(name):
    """A figure of this process in bytes; 0 where the system does not tell."""
    found = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text()) if PEAK.exists() else None
    return 1024 * int(found[1]) if found else 0


def read_damaged(reader, files, folder, *, signs=False):
    """Read a reader's files, some of them damaged, within bounds of time and memory."""
    pace = SECONDS_A_MEGABYTE_OF_SIGNS if signs else SECONDS_A_MEGABYTE
    times = TIMES_THE_SIGNS if signs else TIMES_THE_INPUT
    shutil.rmtree(folder, ignore_errors=True)
    write(reader, folder, files)
    before = memory_now()
    start = time.process_time()
    with warnings.catch_warnings(), suppress(PolyrankError):
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".* has prompts that neither")  # our own words
        reader.read(folder)
    seconds = time.process_time() - start
    size = sum(map(len, {**reader.files, **files}.values()))
    assert seconds < LEAST_SECONDS + reader.work + pace * size / 1e6
    assert memory("VmHWM") - before < LEAST_MEMORY + times * size


def try_damaged(reader, count, tmp_path, record_property):
    count = max(count // reader.one_in, 1)
    write(reader, tmp_path / "valid")
    reader.read(tmp_path / "valid")
    victims = st.sampled_from(sorted(reader.files))
    cases = victims.flatmap(
        lambda name: damaged(reader.files[name]).map(lambda data: Case(name, data))
    )

    @drawing(count, anew=CASES is not None)
    @given(cases)
    def each(case):
        read_damaged(reader, {case.name: case.data}, tmp_path / "damaged")

    each()
    record_property("cases", count)


def try_every_value(reader, tmp_path, record_property):
    """Try one part of what `with_every_value` makes of each file; the next seed tries the next."""
    parts = int(os.environ.get("POLYRANK_HOSTILE_PARTS", "997")) * reader.one_in
    cases = 0
    for name, data in sorted(reader.files.items()):
        if is_json(data):
            for changed in with_every_value(data, SEED % parts, parts):
                read_damaged(reader, {name: changed}, tmp_path / "damaged")
                cases += 1
    record_property("cases", cases)

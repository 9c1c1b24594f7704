"""Shares of records: their size, what they hold, and that smaller ones lie inside larger ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyrank.data.loading import AUTO, load_with_corpus
from polyrank.data.sampling import Share, parse_share
from polyrank.data.source import Source
from polyrank.errors import DataError, UsageError
from polyrank.progress import silent
from polyrank.records import Example


@given(st.integers(1, 400), st.floats(0.01, 1), st.floats(0.01, 1), st.integers(0, 9))
def test_a_smaller_share_lies_inside_a_larger_one(
    count: int, one: float, other: float, seed: int
) -> None:
    low, high = sorted((one, other))
    if not round(low * count):
        return
    small = Share(value=low, seed=seed).of(range(count))
    large = Share(value=high, seed=seed).of(range(count))
    assert set(small) <= set(large)
    assert (len(small), len(large)) == (round(low * count), round(high * count))
    assert small == sorted(small)


def test_a_share_is_exact_of_a_long_stream_and_its_memory_does_not_grow_with_it() -> None:
    class Counted:
        alive = most = 0

        def __init__(self) -> None:
            Counted.alive += 1
            Counted.most = max(Counted.most, Counted.alive)

        def __del__(self) -> None:
            Counted.alive -= 1

    drawn = Share(value=0.01).of(Counted() for _ in range(50_000))
    assert len(drawn) == 500
    assert Counted.most < 2_000


def test_the_seed_decides_and_every_record_is_as_likely() -> None:
    assert Share(value=0.1).of(range(100)) == Share(value=0.1).of(range(100))
    drawn = [Share(value=0.1, seed=seed).of(range(100)) for seed in range(300)]
    times = [sum(place in one for one in drawn) for place in range(100)]
    assert min(times) >= 10  # 30 on average, with a deviation of 5.2
    assert max(times) <= 55


@given(st.integers(2, 200), st.floats(0.1, 0.9))
def test_the_rest_is_what_the_share_leaves(count: int, value: float) -> None:
    share = Share(value=value, seed=3)
    if not 0 < round(value * count) < count:
        return
    assert sorted(share.of(range(count)) + share.rest_of(range(count))) == list(range(count))


@pytest.mark.parametrize(
    ("given", "value"),
    [("1%", 0.01), ("0.01", 0.01), (0.01, 0.01), ("80 %", 0.8), ("100%", 1), ("0.5%", 0.005)],
)
def test_a_share_as_one_types_it(given: str | float, value: float) -> None:
    assert parse_share(given) == pytest.approx(value)


@pytest.mark.parametrize("given", ["0%", "120%", "-3%", "0", "some", "%", "nan", "-0.1"])
def test_a_share_out_of_range_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match=r"above 0% and at most 100%, got"):
        parse_share(given)


@pytest.mark.parametrize("given", ["5", 1, "1.0", "80"])
def test_a_number_that_may_mean_two_things_is_refused(given: str | float) -> None:
    with pytest.raises(UsageError, match="can mean two things"):
        parse_share(given)


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(DataError, match=r"1% \(seed 0\) of 40 records is less than one"):
        Share(value=0.01).of(range(40))
    with pytest.raises(DataError, match="leaves none"):
        Share(value=1.0).rest_of(range(40))
    assert Share(value=0.01).of([]) == []


def load_share(path: Path | str, *, share: Share, limit: int | None = None) -> list[Example]:
    source = Source(path=Path(path), training=True)
    return load_with_corpus(source, AUTO, limit, silent, share=share)[0]


def test_shares_of_files_and_of_data_sets_of_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", str(tmp_path / "cache"))
    lines = [{"context": f"question {n}", "response": f"answer {n}"} for n in range(60)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "train.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.jsonl").write_text(text, encoding="utf-8")
    half = load_share(tmp_path / "train.jsonl", share=Share(value=0.5))
    assert len(half) == 30
    assert load_share(f"hub:{tmp_path / 'set'}", share=Share(value=0.5)) == half
    few = load_share(tmp_path / "train.jsonl", share=Share(value=0.5), limit=4)
    assert few == half[:4]


def test_a_question_is_drawn_with_all_its_answers(tmp_path: Path) -> None:
    write_corpus(tmp_path, num_queries=20)
    drawn = load_share(tmp_path, share=Share(value=0.25))
    contexts = [example.context for example in drawn if isinstance(example, Example)]
    assert len(contexts) == 10
    assert len(set(contexts)) == 5


def write_corpus(folder: Path, num_queries: int) -> None:
    """A folder in BEIR's layout, two relevant documents to each query."""
    documents = [{"_id": f"d{n}", "text": f"answer {n}"} for n in range(2 * num_queries)]
    queries = [{"_id": f"q{n}", "text": f"question {n}"} for n in range(num_queries)]
    for name, records in (("corpus.jsonl", documents), ("queries.jsonl", queries)):
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / name).write_text(text, encoding="utf-8")
    rows = [f"q{n // 2}\td{n}\t1" for n in range(2 * num_queries)]
    (folder / "qrels").mkdir()
    judged = "\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n"
    (folder / "qrels" / "train.tsv").write_text(judged, encoding="utf-8")

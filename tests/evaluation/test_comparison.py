from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from polyrank.errors import UsageError
from polyrank.evaluation import report
from polyrank.evaluation.comparison import Comparison, Contender, Costs, compare_contenders
from polyrank.evaluation.latency import Latency
from polyrank.evaluation.metrics import QueryMetrics

QUERIES = 120


def figures(rate: float, seed: int, queries: int = QUERIES) -> QueryMetrics:
    hits = np.random.default_rng(seed).random(queries) < rate
    return QueryMetrics(
        ids=tuple(f"q{row}" for row in range(queries)),
        values={"recall@1": hits.astype(float), "mrr": (1.0 + hits) / 2},
        num_candidates=(20, 20),
    )


def contender(name: str, *runs: QueryMetrics, architecture: str = "bi") -> Contender:
    sources = tuple(f"{name}-{row}" for row in range(len(runs)))
    costs = Costs(
        parameters=22_713_216,
        vector_bytes=1536,
        latency={1000: Latency(num_candidates=1000, milliseconds=4.0, num_queries=3)},
    )
    return Contender(name=name, architecture=architecture, sources=sources, runs=runs, costs=costs)


def three(**more: object) -> Comparison:
    models = [
        contender("low", figures(0.3, 1)),
        contender("high|1", figures(0.9, 2), figures(0.85, 3)),
        contender("same", figures(0.3, 1)),
    ]
    return compare_contenders(models, num_resamples=500, num_permutations=999, **more)  # type: ignore[arg-type]


def test_runs_are_averaged_query_by_query() -> None:
    found = three()
    mean = found.means["high|1"]["recall@1"]
    runs = [figures(0.9, 2), figures(0.85, 3)]
    by_run = [run.means()["recall@1"] for run in runs]
    assert mean.by_run == tuple(by_run)
    assert mean.mean == pytest.approx(np.mean(by_run))
    assert mean.spread == pytest.approx(np.std(by_run, ddof=1))
    assert found.means["low"]["recall@1"].spread is None
    assert mean.interval.low < mean.mean < mean.interval.high


def test_every_two_models_are_tested() -> None:
    found = three()
    pairs = {(each.better, each.other): each for each in found.differences}
    assert list(pairs) == [("high|1", "low"), ("low", "same"), ("high|1", "same")]
    assert pairs["low", "same"].p == pairs["low", "same"].p_holm == 1
    assert pairs["low", "same"].interval == (0, 0)
    assert pairs["high|1", "low"].p == 0.001
    assert pairs["high|1", "low"].p_holm == pytest.approx(0.003)
    assert pairs["high|1", "low"].interval.low > 0
    assert three(metric="mrr").differences[0].difference == pytest.approx(
        pairs["high|1", "low"].difference / 2
    )


def test_one_model_needs_no_test() -> None:
    found = compare_contenders([contender("only", figures(0.5, 0))], num_resamples=100)
    assert found.differences == ()
    assert [title for title, _, _ in report.sections(found)] == ["Quality, 120 queries", "Costs"]


def test_what_cannot_be_compared_is_refused() -> None:
    one = contender("one", figures(0.5, 0))
    with pytest.raises(UsageError, match="no model"):
        compare_contenders([])
    with pytest.raises(UsageError, match="called 'one'"):
        compare_contenders([one, one])
    with pytest.raises(UsageError, match="other queries than one"):
        compare_contenders([one, contender("two", figures(0.5, 0, queries=9))])
    with pytest.raises(UsageError, match=r"no metric 'mmr' here\. Did you mean 'mrr'"):
        compare_contenders([one], metric="mmr")


def test_the_tables() -> None:
    found = three()
    console = Console(width=160)
    with console.capture() as capture:
        for table in report.terminal_tables(found):
            console.print(table)
    text = capture.get()
    for words in ("R@1/20", "95% interval", "sd of runs", "high|1", "22.7 M", "1.5 MB", "p (Holm)"):
        assert words in text
    page = report.markdown(found, {"data": "d", "limit": None}, plot="p.png")
    assert "- data: d\n" in page
    assert "limit" not in page
    assert "![Quality against latency](p.png)" in page
    assert "| high\\|1 | low | +" in page
    assert page.count("\n| ---") == 3


def test_names_and_extrapolated_times_in_the_tables() -> None:
    slow = Latency(num_candidates=1000, milliseconds=1234.5, num_queries=0, extrapolated=True)
    models = [contender("bi [a]", figures(0.5, 0)), contender("cross|b", figures(0.7, 1))]
    models[1] = replace(models[1], costs=replace(models[1].costs, latency={1000: slow}))
    found = compare_contenders(models, num_resamples=100, num_permutations=99)
    console = Console(width=160)
    with console.capture() as capture:
        for table in report.terminal_tables(found):
            console.print(table)
    for words in ("bi [a]", "cross|b", "~1,230", "4.0", "~ extrapolated linearly"):
        assert words in capture.get()
    page = report.markdown(found, {})
    assert "| bi [a] | 22.7 M | – | 1.5 MB | 4.0 |\n" in page
    assert "| cross\\|b | 22.7 M | – | 1.5 MB | ~1,230 |\n" in page
    assert report.FOOTNOTE in page
    assert report.to_json(found, {})["models"][1]["latency"][0]["extrapolated"] is True


def test_the_json_and_the_queries() -> None:
    found = three()
    record = json.loads(json.dumps(report.to_json(found, {"data": "d"})))
    assert [model["name"] for model in record["models"]] == ["low", "high|1", "same"]
    assert record["models"][1]["figures"]["mrr"]["sd_over_runs"] > 0
    assert record["models"][0]["latency"][0]["num_candidates"] == 1000
    assert record["differences"][0]["better"] == "high|1"
    lines = [json.loads(line) for line in report.per_query_lines(found).splitlines()]
    assert [line["query"] for line in lines] == [f"q{row}" for row in range(QUERIES)]
    mean = np.mean([line["models"]["high|1"]["recall@1"] for line in lines])
    assert mean == pytest.approx(found.means["high|1"]["recall@1"].mean)


def test_what_was_written_is_read(tmp_path) -> None:
    report.write_report(three(), tmp_path, {"data": "dev.jsonl"})
    result = report.read_report(tmp_path)
    assert [each["name"] for each in result["models"]] == ["low", "high|1", "same"]
    assert result["metric"] == "recall@1"


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        "\udcff",
        '{"models": 3}',
        '{"metric": "mrr", "models": [{"name": "a"}]}',
        '{"metric": "mrr", "models": [{"name": "a", "architecture": "bi", "figures": '
        '{"mrr": {"mean": "high", "low": 0, "high": 1}}, "latency": []}]}',
    ],
)
def test_what_is_no_comparison_is_refused(text, tmp_path) -> None:
    if text is not None:
        (tmp_path / "comparison.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match="polyrank compare --output"):
        report.read_report(tmp_path)


def test_what_else_lies_in_the_folder_of_a_report_stays_as_it_is(tmp_path):
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "later").symlink_to("nowhere")
    report.write_report(three(), tmp_path, {"data": "dev.jsonl"})
    assert (tmp_path / "notes").read_text() == "mine"
    assert (tmp_path / "later").is_symlink()

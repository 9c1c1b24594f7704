"""The papers' tables: declarations, tiny runs of each, resumption, and what the command says."""

from __future__ import annotations

import gc
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from polyrank.cli.main import commands, run
from polyrank.data.loading import load_examples, load_with_corpus
from polyrank.data.sampling import Share
from polyrank.data.source import Source
from polyrank.errors import UsageError
from polyrank.evaluation.ranking import evaluate_examples
from polyrank.evaluation.report import markdown_rows
from polyrank.models.bi_encoder import BiEncoder
from polyrank.progress import silent
from polyrank.reproduce import data as data_module
from polyrank.reproduce import runs
from polyrank.reproduce.data import TableData
from polyrank.reproduce.data_sets import DATA, parse_data
from polyrank.reproduce.report import cells, write_report
from polyrank.reproduce.runs import Runner, RunSettings, TableResult, run_table
from polyrank.reproduce.stages import Maker, Place, settle, settle_pretraining
from polyrank.reproduce.table import RECIPE_OF, SCALES, Overrides, Pretrain, Scale, Table, Train
from polyrank.reproduce.tables import TABLES
from polyrank.reproduce.tables.poly_encoder import trained
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.recipes import RECIPES
from polyrank.training.run import train
from tiny_encoders import TEXTS, WORDS

ALL = pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
TINY = Scale(
    name="tiny",
    about="for tests",
    training={"max_steps": 1, "batch_size": 4, "evaluations": 1},
    pretraining={"max_steps": 1, "batch_size": 4, "evaluations": 1, "held_out": 0.3},
    layers=3,
    width=32,
    vocabulary=200,
    most_tested=4,
)
ANSWERS = [f"{one} {other}" for one in WORDS[:20] for other in WORDS[20:30]]
CPU = Place(device="cpu", dtype="float32")


def lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in records), encoding="utf-8")
    return path


@pytest.fixture(scope="module", autouse=True)
def quick_collections() -> Iterator[None]:
    """Every training collects garbage: let it pass over what was imported, which takes long."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, ...]]:
    """Small data of every kind."""
    folder = tmp_path_factory.mktemp("data")
    texts = [text for text in TEXTS if text]
    asked = [
        {"id": f"e{n}", "context": [f"{one} {two}", text], "response": f"{two} {text} {one}"}
        for n, (one, two) in enumerate(zip(WORDS[:20], WORDS[20:40], strict=True))
        for text in texts[n % 3 :: 3][:1]
    ]
    lines(folder / "dialogues" / "train.jsonl", asked)
    for part in ("dev", "test"):
        lines(
            folder / "dialogues" / f"{part}.jsonl",
            [
                {**one, "candidates": [one["response"], *WORDS[:7]], "gold": 0}
                for one in asked[: 5 if part == "dev" else 6]
            ],
        )
    beir = folder / "questions"
    lines(beir / "corpus.jsonl", [{"_id": f"d{n}", "text": w} for n, w in enumerate(ANSWERS)])
    asking = [{"_id": f"q{n}", "text": f"{w} ?"} for n, w in enumerate(ANSWERS)]
    lines(beir / "queries.jsonl", asking)
    (beir / "qrels").mkdir()
    judged = "".join(f"q{n}\td{n}\t1\n" for n in range(len(ANSWERS)))
    (beir / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judged}")
    pairs = [{"sentence1": one, "sentence2": two} for one, two in itertools.pairwise(texts)]
    for part in ("train", "dev"):
        scored = [{**pair, "score": n / 2} for n, pair in enumerate(pairs)]
        lines(folder / "sts" / f"sts-{part}.jsonl", scored)
    names = ("entailment", "neutral", "contradiction")
    lines(folder / "nli.jsonl", [{**p, "gold_label": names[n % 3]} for n, p in enumerate(pairs)])
    articles = [
        {
            "id": f"a{n}",
            "title": WORDS[n],
            "sections": [
                {
                    "heading": heading,
                    "paragraphs": [
                        {
                            "text": f"{word.title()} is here to read {w}. It is not in {word}.",
                            "links": [[0, 3, WORDS[(n + 1) % 20]]],
                        }
                        for w in WORDS[n : n + 3]
                    ],
                }
                for heading in ("", "More")
            ],
        }
        for n, word in enumerate(WORDS[:20])
    ]
    lines(folder / "articles.jsonl", articles)
    named = {"dialogues": "dialogues", "questions": "questions", "sts": "sts"}
    files = {**named, "nli": "nli.jsonl", "corpus": "articles.jsonl"}
    return {name: (str(folder / file),) for name, file in files.items()}


def some_rows(table: Table, count: int = 2) -> Table:
    """The table with a few of its rows, the first and the last among them."""

    def rows(scale: Scale) -> list[Any]:
        every = list(table.rows(scale))
        places = sorted({round(n * (len(every) - 1) / (count - 1)) for n in range(count)})
        return [every[place] for place in places]

    return replace(table, rows=rows)


def tiny_run(
    table: Table, given: dict[str, tuple[str, ...]], bert: Path, folder: Path, **settings: Any
) -> TableResult:
    base = None if table.is_new else str(bert)
    settings = {"scale": TINY, "base": base, "place": CPU, **settings}
    data = TableData(given, folder, TINY.most_tested, print)
    return run_table(table, RunSettings(**settings), data, folder, print)


@ALL
@pytest.mark.parametrize("scale", SCALES.values(), ids=list(SCALES))
def test_declarations_hold_together(table: Table, scale: Scale) -> None:
    rows = table.rows(scale)
    labels = [row.label for row in rows]
    assert len(set(labels)) == len(labels) > 1
    for row in rows:
        assert len(row.paper) in (0, len(table.paper_columns)), row.label
    if table.paper_columns:
        assert any(figure is not None for row in rows for figure in row.paper)
    for stage in table.stages(scale):
        if isinstance(stage, Train):
            settle(stage.arch, stage.resolved(scale, Overrides()))
        else:
            settle_pretraining(stage.resolved(scale, Overrides(), new=True))
    assert set(table.kinds(scale)) <= {one.kind for one in DATA.values()}


@ALL
def test_every_table_runs(
    table: Table,
    given: dict[str, tuple[str, ...]],
    bert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runs, "TIME_LIMIT", 0.1)
    table = some_rows(table)
    result = tiny_run(table, given, bert, tmp_path)
    for row in result.rows:
        assert all(run.figures for run in row.runs)
    names = write_report(result, tmp_path, result.about)
    page, record = (tmp_path / name for name in names)
    plain = json.loads(record.read_text(encoding="utf-8"))
    header, *shown = cells(result)
    assert header[0] == ""
    assert len(header) == len(shown[0])
    is_tested = table.task not in ("time", "speed")
    assert ("95% interval" in header) == bool(plain["differences"]) == is_tested
    for row, line in zip(result.rows, shown, strict=True):
        assert line[0] == row.row.label
        assert markdown_rows([line])[0] in page.read_text(encoding="utf-8")
        for figure in row.row.paper:
            assert figure is None or f"{figure:,}" in line
    for row in plain["rows"]:
        assert all(row["figures"][name] is not None for name in table.metrics)
        assert row["runs"][0]["device"].startswith("cpu")
        assert row["runs"][0]["date"]
    assert not list(tmp_path.glob(".*.reproducing"))


@pytest.mark.parametrize("name", ["architectures", "objectives", "pretraining-tasks"])
def test_the_papers_recipes_run(
    name: str, given: dict[str, tuple[str, ...]], bert: Path, tmp_path: Path
) -> None:
    overrides = Overrides(max_steps=1, pretraining_steps=1, batch_size=4)
    data = TableData(given, tmp_path, TINY.most_tested, print)
    settings = RunSettings(
        scale=SCALES["paper"], overrides=overrides, base=str(bert), place=CPU, keep_models=True
    )
    result = run_table(some_rows(TABLES[name]), settings, data, tmp_path, print)
    assert all(run.figures for row in result.rows for run in row.runs)
    made = [json.loads(path.read_text()) for path in tmp_path.glob("models/*/training.json")]
    recipe = RECIPES[RECIPE_OF[TABLES[name].task]]  # type: ignore[index]
    for record in made:
        trained = record["identity"]["training"]
        known = recipe.settings(record["identity"]["architecture"])
        same = ("learning_rate", "schedule", "optimiser", "dropout", "trainable")
        assert {one: trained[one] for one in same} == {one: known[one] for one in same}
    assert made


def test_a_row_is_what_train_and_evaluate_give(
    given: dict[str, tuple[str, ...]], bert: Path, tmp_path: Path
) -> None:
    table = replace(TABLES["reductions"], rows=lambda scale: TABLES["reductions"].rows(scale)[1:2])
    result = tiny_run(table, given, bert, tmp_path, overrides=Overrides(max_steps=3), seeds=(5,))
    set_seed(5)
    settings: dict[str, Any] = {"reduction": "mean_first", "reduction_tokens": 16}
    model = BiEncoder.from_pretrained(bert, device="cpu", dtype="float32", **settings)
    examples = load_examples(Path(given["dialogues"][0]) / "train.jsonl")
    config = TrainingConfig(max_steps=3, batch_size=4, evaluations=1, seed=5)
    train(model, examples, tmp_path / "model", config)
    tested = TableData(given, tmp_path, TINY.most_tested, print).dialogues.test
    expected = evaluate_examples(model, tested).query_metrics().means()
    assert result.rows[0].runs[0].figures == pytest.approx(expected)


def test_an_interrupted_table_resumes(
    given: dict[str, tuple[str, ...]],
    bert: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = some_rows(TABLES["context-vectors"], 3)
    whole = tiny_run(table, given, bert, tmp_path / "whole")
    trained_rows: list[str] = []
    measure = Runner.measure

    def stop_at_the_third(self: Runner, name: str, source: str) -> Any:
        if len(trained_rows) == 2:
            trained_rows.append("stopped")
            raise KeyboardInterrupt
        trained_rows.append(name)
        return measure(self, name, source)

    monkeypatch.setattr(Runner, "measure", stop_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        tiny_run(table, given, bert, tmp_path / "cut")
    made: list[Any] = []
    monkeypatch.setattr(Maker, "train", lambda *given: made.append(given))
    resumed = tiny_run(table, given, bert, tmp_path / "cut")
    assert trained_rows[:2] == [row.row.label for row in whole.rows][:2]
    assert trained_rows[3:] == [whole.rows[2].row.label]
    assert not made  # the model of the third was trained before the interruption, and kept
    assert cells(resumed) == cells(whole)


def test_seeds_are_runs_of_one_row(
    given: dict[str, tuple[str, ...]], bert: Path, tmp_path: Path
) -> None:
    table = some_rows(TABLES["reductions"], 2)
    result = tiny_run(table, given, bert, tmp_path, seeds=(0, 1))
    assert result.comparison is not None
    [first, _] = result.comparison.contenders
    assert len(first.runs) == 2
    means = [run.figures["recall@1"] for run in result.rows[0].runs]
    assert result.rows[0].figure("recall@1") == pytest.approx(sum(means) / 2)


def test_stages_that_rows_share_are_made_once(
    given: dict[str, tuple[str, ...]], bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = TABLES["towers"]
    made: list[Pretrain] = []
    pretrain = Maker.pretrain

    def counted(self: Maker, stage: Pretrain, *rest: Any) -> None:
        made.append(stage)
        pretrain(self, stage, *rest)

    monkeypatch.setattr(Maker, "pretrain", counted)
    tiny_run(table, given, bert, tmp_path)
    assert [stage.settings["shared_towers"] for stage in made] == [True, False]
    assert sum(isinstance(stage, Pretrain) for stage in table.stages(TINY)) == 2


def test_shares_of_the_questions_are_those_of_train(
    given: dict[str, tuple[str, ...]], tmp_path: Path
) -> None:
    questions = TableData(given, tmp_path, None, print).questions
    few, more, most = (set(map(str, questions.share(percent))) for percent in (5, 20, 80))
    assert few < more < most == set(map(str, questions.train))
    source = Source(path=Path(*given["questions"]))
    examples, _ = load_with_corpus(source, "auto", None, silent, share=Share(value=0.2))
    assert more == set(map(str, examples))
    asked = {example.context for example in questions.train}
    assert not asked & set(questions.test.queries.values())
    assert len(asked) + len(questions.test.queries) == len(ANSWERS)


def test_steps_and_batches_can_be_typed() -> None:
    small = SCALES["small"]
    batches = trained("bi", 0.2, batch_size=512)[0]
    assert batches.resolved(small, Overrides())["max_steps"] == 8
    typed = Overrides(max_steps=100, batch_size=16)
    assert batches.resolved(small, typed)["max_steps"] == 20
    assert batches.resolved(small, typed)["batch_size"] == 512
    assert trained("bi")[0].resolved(small, typed)["batch_size"] == 16
    paper = trained("poly")[0].resolved(SCALES["paper"], Overrides())
    assert paper["batch_size"] == 512
    assert paper["epochs"] == 8.0
    assert "max_steps" not in paper


def test_data_are_made_of_the_documentation(
    given: dict[str, tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def docs(folder: Path) -> None:
        for part in ("train", "dev", "test"):
            text = (Path(given["dialogues"][0]) / f"{part}.jsonl").read_text(encoding="utf-8")
            folder.mkdir(exist_ok=True)
            (folder / f"{part}.jsonl").write_text(text.replace('"e', f'"{part}'), encoding="utf-8")

    monkeypatch.setattr(data_module, "python_data", docs)
    data = TableData({}, tmp_path, 3, print)
    data.require(("dialogues", "questions", "corpus"), "towers")
    assert len(data.dialogues.train) == 20
    assert len(data.dialogues.test) == 3
    questions = data.questions
    texts = {each.id: each.text for each in questions.test.corpus}
    tested = [one for name in ("dev", "test") for one in load_examples(data.docs / f"{name}.jsonl")]
    answers = {str(one.id): one.response for one in tested}
    assert len(questions.test.queries) == 3
    for query, right in questions.test.judgements.items():
        assert [texts[each] for each in right] == [answers[query]]
    shares = [questions.share(percent) for percent in (5, 20, 80)]
    assert [len(share) for share in shares] == [2, 6, 20]
    assert all(one in shares[1] for one in shares[0])


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["reproduce", *arguments], commands()) == 2
    return capsys.readouterr().err


def test_missing_data_are_named_with_where_to_get_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, given: dict[str, tuple[str, ...]]
) -> None:
    here = ("--output", str(tmp_path / "out"))
    said = refused(capsys, "pooling", *here)
    assert "nlp.stanford.edu/projects/snli" in said
    assert "ixa2.si.ehu.eus" in said
    assert "polyrank reproduce pooling --data nli=PATH --data sts=PATH" in said
    sts = f"sts={given['sts'][0]}"
    said = refused(capsys, "pooling", "--data", sts, *here)
    assert "--data nli=PATH" in said
    assert "--data sts=PATH" not in said
    said = refused(capsys, "layers", "--data", "convai2=nowhere", *here)
    assert "There is nothing at nowhere, which --data convai2 names." in said
    assert "parl.ai" in said
    (tmp_path / "empty").mkdir()
    said = refused(capsys, "layers", "--data", f"convai2={tmp_path / 'empty'}", *here)
    assert "train_self_original.txt" in said
    assert "parl.ai" in said
    assert "Did you mean 'layers'" in refused(capsys, "layer", *here)
    assert "no base" in refused(capsys, "encoder-size", "--base", "x", *here)
    assert not (tmp_path / "out" / "encoder-size.json").exists()


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["convai2"], "NAME=PATH"),
        (["convai=x"], "Did you mean 'convai2'"),
        (["convai2=x", "ubuntu=y"], "one data set of dialogues"),
        (["sts=x", "sts=y"], "one data set of sts"),
    ],
)
def test_data_that_cannot_be_given(texts: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_data(texts)


def test_several_files_of_inference() -> None:
    assert parse_data(["nli=a", "nli=b"]) == {"nli": ("a", "b")}


def test_a_folder_with_two_files_of_a_part(tmp_path: Path) -> None:
    for name in ("my-train-1.jsonl", "my-train-2.jsonl"):
        lines(tmp_path / "own" / name, [{"context": "a", "response": "b"}])
    with pytest.raises(UsageError, match="several files"):
        TableData({"dialogues": (str(tmp_path / "own"),)}, tmp_path, None, print).dialogues  # noqa: B018


def test_the_command_lists_and_runs(
    capsys: pytest.CaptureFixture[str],
    given: dict[str, tuple[str, ...]],
    bert: Path,
    tmp_path: Path,
) -> None:
    assert run(["reproduce", "--json"], commands()) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["table"] for one in listed["tables"]] == list(TABLES)
    assert all(one["source"] and one["cost"]["rows"] for one in listed["tables"])
    assert run(["reproduce", "--scale", "paper"], commands()) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in TABLES)
    assert "--data nli=PATH" in said
    output = tmp_path / "out"
    typed = ["reproduce", "reductions", "--data", f"dialogues={given['dialogues'][0]}"]
    typed += ["--base", str(bert), "--max-steps", "1", "--batch-size", "4", "--device", "cpu"]
    typed += ["--test-limit", "3", "--output", str(output)]
    assert run(typed, commands()) == 0
    said = capsys.readouterr().out
    assert "5/5 maximum" in said
    assert "83.3" in said
    assert "reductions.md" in said
    assert run([*typed, "--json"], commands()) == 0
    out, err = capsys.readouterr()
    assert err.count("run before") == 5
    [table] = json.loads(out)["tables"]
    assert table["rows"][0]["paper"] == {"ConvAI2 valid R@1/20, %": 83.3}
    assert table["data"]["dialogues"].startswith("dialogues: ")

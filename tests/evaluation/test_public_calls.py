"""`polyrank.evaluate` and `polyrank.compare` as people call them."""

import json

import pytest

import polyrank
from polyrank import BiEncoder
from polyrank.data.examples import write_examples
from polyrank.errors import DataError, UsageError
from polyrank.evaluation.pairs import evaluate_pairs
from polyrank.evaluation.ranking import evaluate_examples
from polyrank.evaluation.retrieval import evaluate_retrieval
from polyrank.evaluation.tasks import with_all_candidates, with_sampled_candidates
from polyrank.records import Example, LabelledPair
from tiny_encoders import WORDS, load_variant

ROWS = [
    {"question": f"what is {WORDS[row]} in {WORDS[row + 3]}", "answer": f"{WORDS[row]} is {row}"}
    for row in range(24)
]
EXAMPLES = [Example(context=row["question"], response=row["answer"]) for row in ROWS]
PAIRS = [(WORDS[row], WORDS[row + 5], row / 20) for row in range(20)]
SMALL = {"num_candidates": 5, "show_progress_bar": False, "sizes": ()}


@pytest.fixture(scope="module")
def models(bert):
    names = {"bi": "bi", "poly": "poly-learnt", "cross": "cross"}
    return {name: load_variant(variant, bert) for name, variant in names.items()}


@pytest.mark.parametrize("name", ["bi", "poly", "cross"])
def test_examples_of_any_kind_have_the_same_figures(models, name, tmp_path):
    model = models[name]
    expected = evaluate_examples(model, with_sampled_candidates(EXAMPLES, 5))
    write_examples(tmp_path / "data.jsonl", EXAMPLES)
    for data in (ROWS, EXAMPLES, iter(ROWS), tmp_path / "data.jsonl", str(tmp_path / "data.jsonl")):
        found = polyrank.evaluate(model, data, num_candidates=5)
        assert found.figures == expected.figures
    assert found["mrr"] == expected.mrr
    assert list(found.rows()) == list(expected.per_query.rows())
    assert found.to_json() == expected.to_json()


def test_a_result_prints_its_figures(models):
    found = polyrank.evaluate(models["bi"], ROWS, num_candidates=5, metrics=["ndcg@3"])
    assert str(found) == repr(found)
    assert str(found).splitlines() == [
        "24 examples, C = 5 candidates each",
        f"  R@1/5      {found['recall@1']:.4f}",
        f"  R@2/5      {found['recall@2']:.4f}",
        f"  R@5/5      {found['recall@5']:.4f}",
        f"  MRR        {found['mrr']:.4f}",
        f"  nDCG@3/5   {found['ndcg@3']:.4f}",
    ]
    with pytest.raises(UsageError, match=r"no figure 'mmr'\. Did you mean 'mrr'"):
        _ = found["mmr"]


def test_all_responses_are_a_corpus_that_a_reranker_may_read(models):
    corpus = with_all_candidates(EXAMPLES, "data")
    expected = evaluate_retrieval(models["bi"], corpus, reranker=models["cross"], num_candidates=4)
    found = polyrank.evaluate(models["bi"], corpus, reranker=models["cross"], num_candidates=4)
    assert found.figures == expected.means()
    assert str(found).startswith("24 queries of data, 24 documents, the best 4 reranked\n  nDCG@10")
    plain = polyrank.evaluate(models["bi"], ROWS, num_candidates="all")
    assert plain.figures == evaluate_retrieval(models["bi"], corpus).means()


def test_labelled_pairs_are_correlated(models):
    found = polyrank.evaluate(models["bi"], PAIRS)
    pairs = [LabelledPair(first=a, second=b, label=label) for a, b, label in PAIRS]
    assert found.figures == evaluate_pairs(models["bi"], pairs)
    assert str(found).startswith("20 labelled pairs\n  Spearman ")
    assert next(found.rows())["label"] == 0.0


def test_a_folder_stands_for_its_model(models, tmp_path):
    models["bi"].save_pretrained(tmp_path / "bi")
    one = polyrank.evaluate(tmp_path / "bi", ROWS, num_candidates=5, limit=7)
    assert one.figures == pytest.approx(
        polyrank.evaluate(models["bi"], ROWS, num_candidates=5, limit=7).figures, abs=0.3
    )
    assert one.about.startswith("7 examples")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: polyrank.evaluate(m, "what"), DataError, "data is a text, and there is no file"),
        (lambda m: polyrank.evaluate(m, [*ROWS, "x"]), DataError, "data: At row 25"),
        (lambda m: polyrank.evaluate(m, PAIRS, ks=[1]), UsageError, "ks is for rankings"),
        (lambda m: polyrank.evaluate(m, ROWS, reranker=m), UsageError, "nothing is retrieved"),
        (lambda m: polyrank.compare("bi", ROWS), UsageError, "models must be a mapping or a list"),
        (lambda m: polyrank.compare([m, m], ROWS), UsageError, "would be called"),
        (lambda m: polyrank.compare({}, ROWS, **SMALL), UsageError, "There is no model"),
    ],
)
def test_what_cannot_be_measured_is_refused(models, call, error, words):
    with pytest.raises(error, match=words):
        call(models["bi"])


def test_models_in_memory_are_compared(models):
    found = polyrank.compare(models, ROWS, **SMALL)
    for name, model in models.items():
        expected = polyrank.evaluate(model, ROWS, num_candidates=5)
        assert found.figures[name] == pytest.approx(expected.figures)
    shown = str(found)
    assert repr(found) == shown
    for words in ("Quality, 24 queries", "Costs", "Differences", "R@1/5", *models):
        assert words in shown
    assert {one.better for one in found.comparison.differences} <= set(models)


def test_a_comparison_keeps_what_it_measured_and_writes_a_report(models, tmp_path):
    said = []
    given = {"num_candidates": 5, "sizes": (5, 10), "time_limit": 0.2, "say": said.append}
    two = {name: models[name] for name in ("bi", "poly")}
    first = polyrank.compare(two, ROWS, tmp_path / "out", metrics=["mrr"], **given)
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert files >= {"comparison.md", "comparison.json", "per-query.jsonl", "comparison.png"}
    record = json.loads((tmp_path / "out" / "comparison.json").read_text("utf-8"))
    assert record["metric"] == "mrr"
    assert [model["name"] for model in record["models"]] == ["bi", "poly"]
    assert any("evaluating on 24 queries" in words for words in said)
    said.clear()
    again = polyrank.compare(two, ROWS, tmp_path / "out", metrics=["mrr"], **given)
    assert sum("evaluated before" in words for words in said) == 2
    assert again.figures == first.figures
    first.write(tmp_path / "elsewhere")
    assert (tmp_path / "elsewhere" / "comparison.md").read_text("utf-8").startswith("# Comparison")


def test_folders_seeds_and_bm25_are_compared(models, bert, tmp_path):
    pytest.importorskip("bm25s")
    models["bi"].save_pretrained(tmp_path / "one")
    other = BiEncoder.from_pretrained(tmp_path / "one", device="cpu", dtype="float32")
    found = polyrank.compare({"bi": [tmp_path / "one", other], "bm25": "bm25"}, ROWS, **SMALL)
    assert len(found.comparison.contenders[0].runs) == 2
    assert set(found.figures) == {"bi", "bm25"}
    listed = polyrank.compare([tmp_path / "one", "bm25"], ROWS, **SMALL)
    assert set(listed.figures) == {"one", "bm25"}


def test_nothing_is_shown_unless_it_is_wanted(models, capsys):
    polyrank.evaluate(models["bi"], ROWS, num_candidates=5)
    polyrank.compare({"bi": models["bi"]}, ROWS, **SMALL)
    assert capsys.readouterr() == ("", "")
    polyrank.compare({"bi": models["bi"]}, ROWS, **{**SMALL, "show_progress_bar": True})
    assert "bi: evaluating on 24 queries" in capsys.readouterr().err

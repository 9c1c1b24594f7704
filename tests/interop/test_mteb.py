"""Models in MTEB's protocols: the same figures as polyrank's own and as sentence-transformers'."""

import json
import sys
from types import ModuleType

import numpy as np
import pytest
import torch

from polyrank.cli.main import commands, run
from polyrank.errors import DataError, MissingExtraError, UsageError
from polyrank.evaluation.evaluate import evaluate as evaluate_own
from polyrank.interop import mteb as interop
from polyrank.models.cross_encoder import CrossEncoder
from tiny_encoders import TEXTS, WORDS, load_variant

pytestmark = [
    pytest.mark.skipif(sys.version_info < (3, 11), reason="MTEB needs Python 3.11"),
    pytest.mark.filterwarnings("ignore"),  # MTEB's, scikit-learn's of tiny tasks
]
OURS = {
    "ndcg_at_10": "ndcg@10",
    "recall_at_10": "recall@10",
    "mrr_at_10": "mrr@10",
    "map_at_1000": "map",
}
DOCUMENTS = {
    f"d{n}": {
        "title": WORDS[n] if n % 2 else "",
        "text": " ".join(WORDS[(n * 7 + k) % len(WORDS)] for k in range(3 + n % 4)),
    }
    for n in range(24)
}
QUERIES = {f"q{n}": " ".join(WORDS[(n * 5 + k) % len(WORDS)] for k in range(4)) for n in range(6)}
RELEVANT = {query: {f"d{n * 3}": 1, f"d{n * 3 + 2}": 2} for n, query in enumerate(QUERIES)}
NAMED = {query: [f"d{(n * 5 + k) % 24}" for k in range(7)] for n, query in enumerate(QUERIES)}


@pytest.fixture(scope="module", autouse=True)
def mteb(tmp_path_factory):
    """MTEB, with its cache beside the tests' other files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MTEB_CACHE", str(tmp_path_factory.mktemp("mteb")))
        import mteb

        yield mteb


def make_task(kind="Retrieval", queries=QUERIES, name="OwnTask"):
    """A task whose data are here."""
    from datasets import Dataset
    from mteb.abstasks import AbsTaskRetrieval
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
    from mteb.abstasks.task_metadata import TaskMetadata

    described = TaskMetadata(
        name=name,
        description="Texts of random words.",
        reference=None,
        dataset={"path": "none", "revision": "none"},
        type=kind,
        category="t2t",
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        modalities=["text"],
    )

    class OwnTask(AbsTaskRetrieval):
        metadata = described

        def load_data(self, num_proc=None, **_):
            listed = [{"id": key, "text": text} for key, text in queries.items()]
            corpus = [{"id": key, **document} for key, document in DOCUMENTS.items()]
            self.dataset = {
                "default": {
                    "test": RetrievalSplitData(
                        queries=Dataset.from_list(listed),
                        corpus=Dataset.from_list(corpus),
                        relevant_docs=RELEVANT,
                        top_ranked=NAMED if kind == "Reranking" else None,
                    )
                }
            }
            self.data_loaded = True

    return OwnTask()


def scores(result):
    """The scores of the only task on its only split and subset."""
    [task] = result.task_results
    [split] = task.scores.values()
    return split[0]


@pytest.fixture(scope="module")
def beir(tmp_path_factory):
    """The same data as a BEIR folder."""
    folder = tmp_path_factory.mktemp("beir")
    (folder / "qrels").mkdir()
    rows = [{"_id": key, **document} for key, document in DOCUMENTS.items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    rows = [{"_id": key, "text": text} for key, text in QUERIES.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = ["query-id\tcorpus-id\tscore"]
    lines += [f"{q}\t{d}\t{n}" for q, judged in RELEVANT.items() for d, n in judged.items()]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def as_sentence_transformer(bert, tmp_path_factory):
    """A bi-encoder with prompts, and a SentenceTransformer of the same weights."""
    from sentence_transformers import SentenceTransformer

    from polyrank.interop.export import export

    folder = tmp_path_factory.mktemp("exported") / "st"
    prompts = {"query": "how do i ", "document": "the "}
    model = load_variant(
        "bi",
        bert,
        shared_towers=True,
        context_prompt=prompts["query"],
        candidate_prompt=prompts["document"],
    )
    export(model, folder, to="sentence-transformers")
    return model, SentenceTransformer(str(folder), device="cpu", prompts=prompts)


def test_a_bi_encoder_has_the_figures_of_the_same_sentence_transformer(
    mteb, as_sentence_transformer
):
    model, same = as_sentence_transformer
    ours = scores(interop.evaluate(model, make_task()))
    theirs = scores(mteb.evaluate(same, make_task(), cache=None, co2_tracker=False))
    assert ours.keys() == theirs.keys()
    for name in OURS:
        assert ours[name] == pytest.approx(theirs[name], abs=1e-6)
    assert 0 < ours["ndcg_at_10"] < 1
    without = load_variant("bi", model.path, shared_towers=True)
    assert scores(interop.evaluate(without, make_task()))["ndcg_at_10"] != ours["ndcg_at_10"]


@pytest.mark.parametrize("variant", ["bi", "poly-learnt", "poly-first"])
def test_the_figures_are_those_of_polyrank_evaluate(mteb, variant, bert, beir):
    model = load_variant(variant, bert)
    found = scores(interop.evaluate(model, make_task()))
    own = evaluate_own(model, beir, metrics=("mrr@10", "map", "recall@10"))
    for theirs, ours in OURS.items():
        assert found[theirs] == pytest.approx(own[ours], abs=1e-5)


@pytest.mark.parametrize("variant", ["bi", "poly-learnt"])
def test_search_and_encode_agree(mteb, variant, bert):
    """MTEB's own search through the vectors finds what the index finds."""
    from mteb.models import SearchEncoderWrapper

    adapted = interop.model(load_variant(variant, bert))
    wrapped = SearchEncoderWrapper(adapted)
    for kind in ("Retrieval", "Reranking"):
        ours = scores(mteb.evaluate(adapted, make_task(kind), cache=None, co2_tracker=False))
        theirs = scores(mteb.evaluate(wrapped, make_task(kind), cache=None, co2_tracker=False))
        assert {name: ours[name] for name in OURS} == pytest.approx(
            {name: theirs[name] for name in OURS}, abs=1e-6
        )


@pytest.mark.parametrize("variant", ["bi", "poly-learnt", "cross", "cross-interaction"])
def test_the_named_documents_are_scored(variant, bert):
    model = load_variant(variant, bert)
    adapted = interop.model(model)
    task = make_task("Reranking")
    task.load_data()
    data = task.dataset["default"]["test"]
    adapted.index(data["corpus"], task_metadata=task.metadata)
    found = adapted.search(data["queries"], top_k=3, top_ranked=NAMED, task_metadata=task.metadata)
    texts = {key: f"{one['title']} {one['text']}".strip() for key, one in DOCUMENTS.items()}
    for query, named in NAMED.items():
        expected = model.score(QUERIES[query], [texts[each] for each in named])
        assert list(found[query]) == named
        assert torch.tensor(list(found[query].values())) == pytest.approx(expected, abs=1e-5)
    result = scores(interop.evaluate(model, make_task("Reranking")))
    assert 0 < result["ndcg_at_10"] <= 1


def test_a_reranker_reorders_the_best(bert, beir):
    model, cross = load_variant("bi", bert), load_variant("cross", bert)
    found = scores(interop.evaluate(model, make_task(), reranker=cross, num_candidates=5))
    own = evaluate_own(
        model, beir, reranker=cross, num_candidates=5, metrics=("mrr@10", "map", "recall@10")
    )
    for theirs, ours in OURS.items():
        assert found[theirs] == pytest.approx(own[ours], abs=1e-5)
    alone = scores(interop.evaluate(model, make_task()))
    assert alone["mrr_at_10"] != found["mrr_at_10"]


TURNS = {
    "q0": ["how do i read a file", "which file"],
    "q1": [{"role": "user", "content": "print"}, {"role": "assistant", "content": "the error"}],
}


@pytest.mark.parametrize("query", TURNS)
@pytest.mark.parametrize("variant", ["bi", "poly-learnt", "cross"])
def test_conversations_are_read_as_turns(variant, query, bert):
    model = load_variant(variant, bert)
    turns = [each if isinstance(each, str) else each["content"] for each in TURNS[query]]
    kind = "Reranking" if variant == "cross" else "Retrieval"
    task = make_task(kind, {query: TURNS[query]})
    task.load_data()
    data = task.dataset["default"]["test"]
    adapted = interop.model(model)
    adapted.index(data["corpus"], task_metadata=task.metadata)
    found = adapted.search(
        data["queries"],
        top_k=100,
        top_ranked=NAMED if kind == "Reranking" else None,
        task_metadata=task.metadata,
    )[query]
    texts = [f"{DOCUMENTS[each]['title']} {DOCUMENTS[each]['text']}".strip() for each in found]
    expected = model.score([turns], texts)[0]
    assert torch.tensor(list(found.values())) == pytest.approx(expected, abs=1e-5)
    joined = model.score("; ".join(turns), texts)  # as MTEB gives it to encoders
    assert not torch.allclose(expected, joined, atol=1e-3)
    if variant != "cross":
        batches = [{"conversation": [TURNS[query]], "text": ["; ".join(turns)]}]
        vectors = adapted.encode(batches, prompt_type="query")
        assert np.allclose(vectors, model.encode_contexts([turns]).numpy(), atol=1e-5)


def test_instructions_stand_where_mteb_puts_them(bert):
    from polyrank.interop.mteb.inputs import contexts_of

    rows = [
        {"id": "a", "text": "print", "instruction": "in python"},
        {"id": "b", "text": ["print", "it"], "instruction": "in python"},
        {"id": "c", "text": "print", "instruction": None},
    ]
    assert contexts_of(rows) == {
        "a": "print in python",
        "b": ["in python print", "it"],
        "c": "print",
    }


def test_each_side_has_its_prompt(as_sentence_transformer):
    model, _ = as_sentence_transformer
    adapted = interop.model(model)
    batches = [{"text": TEXTS[:3]}, {"text": TEXTS[3:]}]
    contexts = adapted.encode(batches, prompt_type="query")
    candidates = adapted.encode(batches, prompt_type="document")
    assert np.array_equal(contexts, model.encode_contexts(TEXTS).numpy())
    assert np.array_equal(candidates, model.encode_candidates(TEXTS).numpy())
    assert np.array_equal(adapted.encode(batches), candidates)
    assert not np.allclose(contexts, candidates, atol=1e-3)
    assert adapted.mteb_model_meta.use_instructions


def test_similarities(bert):
    for variant, settings in (("bi", {}), ("bi", {"unit_length": False}), ("poly-learnt", {})):
        model = load_variant(variant, bert, **settings)
        adapted = interop.model(model)
        contexts = adapted.encode([{"text": TEXTS}], prompt_type="query")
        candidates = adapted.encode([{"text": TEXTS}])
        expected = model.score(TEXTS, TEXTS)
        assert torch.allclose(adapted.similarity(contexts, candidates), expected, atol=1e-5)
        paired = adapted.similarity_pairwise(contexts, candidates)
        assert torch.allclose(paired, expected.diag(), atol=1e-5)
        one = adapted.similarity(candidates[0], candidates)
        assert one.shape == (1, len(TEXTS))
        assert one[0, 0] == pytest.approx(1, abs=1e-5)


ENCODING = (
    "MockSTSTask",
    "MockClassificationTask",
    "MockPairClassificationTask",
    "LegacyMockClusteringFastTask",
    "MockBitextMiningTask",
    "MockSummarizationTask",
)


@pytest.mark.parametrize("name", ENCODING)
def test_tasks_that_encode(mteb, name, bert, tmp_path):
    """A bi-encoder has the scores of the same SentenceTransformer; a poly-encoder has some."""
    from mteb.mocks import mock_tasks
    from sentence_transformers import SentenceTransformer

    from polyrank.interop.export import export

    kind = getattr(mock_tasks, name)
    model = load_variant("bi", bert, shared_towers=True)
    export(model, tmp_path / "st", to="sentence-transformers")
    same = SentenceTransformer(str(tmp_path / "st"), device="cpu")
    ours = scores(interop.evaluate(model, kind()))["main_score"]
    theirs = scores(mteb.evaluate(same, kind(), cache=None, co2_tracker=False))["main_score"]
    assert ours == pytest.approx(theirs, abs=1e-5)
    poly = interop.evaluate(load_variant("poly-learnt", bert), kind())
    assert np.isfinite(scores(poly)["main_score"])


def test_results_are_mtebs_and_are_kept(mteb, bert, tmp_path, monkeypatch):
    model = load_variant("bi", bert)
    made = interop.evaluate(model, [make_task(), make_task("Reranking", name="Other")],
                            output=tmp_path / "results", name="me/model")  # fmt: skip
    revision = model.fingerprint()[:12]
    files = tmp_path / "results" / "results" / "me__model" / revision
    kept = json.loads((files / "OwnTask.json").read_text(encoding="utf-8"))
    assert kept["scores"]["test"][0]["main_score"] == scores_of(made, "OwnTask")
    loaded = mteb.ResultCache(tmp_path / "results").load_task_result("Other", "me/model", revision)
    assert loaded.get_score() == scores_of(made, "Other")

    def refuse(*arguments, **settings):
        raise AssertionError("it ran again")

    monkeypatch.setattr("polyrank.interop.mteb.adapters.VectorAdapter.search", refuse)
    again = interop.evaluate(model, make_task(), output=tmp_path / "results", name="me/model")
    assert scores_of(again, "OwnTask") == scores_of(made, "OwnTask")
    other = load_variant("bi", bert, projection=8)
    with pytest.raises(AssertionError, match="it ran again"):
        interop.evaluate(other, make_task(), output=tmp_path / "results", name="me/model")


def scores_of(result, name):
    return next(each.get_score() for each in result.task_results if each.task_name == name)


def test_names(bert, tmp_path, hub):
    model = load_variant("bi", bert)
    model.save_pretrained(tmp_path / "mine")
    hub.add("some/model", tmp_path / "mine")
    revision = model.fingerprint()[:12]
    named = {tmp_path / "mine": "polyrank/mine", "some/model": "some/model"}
    for source, name in named.items():
        meta = interop.model(source).mteb_model_meta
        assert (meta.name, meta.revision) == (name, revision)
    cross = load_variant("cross", bert)
    reranked = interop.model(model, reranker=cross).mteb_model_meta
    assert reranked.revision == f"{revision}-{cross.fingerprint()[:12]}"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("SciFacts", "no task and no benchmark 'SciFacts'. Did you mean 'SciFact"),
        ("Banking77", "Did you mean 'Banking77Classification'"),
        ("MTEB(eng, v9)", "Did you mean 'MTEB"),
        ("xyzzy plugh", r"mteb\.get_tasks\(\) in Python lists them"),
    ],
)
def test_an_unknown_task(name, words, bert, monkeypatch):
    monkeypatch.setattr(torch, "manual_seed", lambda seed: None)  # once a task: seconds
    with pytest.raises(UsageError, match=words):
        interop.evaluate(load_variant("bi", bert), name)
    with pytest.raises(UsageError, match="There is no task to evaluate on"):
        interop.evaluate(load_variant("bi", bert), [])


def test_the_tasks_of_a_benchmark(monkeypatch):
    monkeypatch.setattr(torch, "manual_seed", lambda seed: None)  # once a task: seconds
    from polyrank.interop.mteb.evaluation import tasks_of

    names = {task.metadata.name for task in tasks_of(["NanoBEIR"])}
    assert "NanoSciFactRetrieval" in names


def test_data_that_cannot_be_downloaded(bert):
    with pytest.raises(DataError, match=r"task SciFact cannot be loaded: .* Connect to the net"):
        interop.evaluate(load_variant("bi", bert), "SciFact")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MockSTSTask", "of the type STS needs vectors, which a cross-encoder does not have. Give"),
        ("MockImageClassificationTask", "has image, but models of polyrank read text. Leave it"),
    ],
)
def test_tasks_that_a_cross_encoder_cannot_do(name, words, bert):
    from mteb.mocks import mock_tasks

    with pytest.raises(UsageError, match=words):
        interop.evaluate(load_variant("cross", bert), getattr(mock_tasks, name)())


def test_models_that_do_not_fit(bert):
    cross, bi = load_variant("cross", bert), load_variant("bi", bert)
    with pytest.raises(UsageError, match="OwnTask searches a corpus, which a cross-encoder cannot"):
        interop.evaluate(cross, make_task())
    with pytest.raises(UsageError, match="A reranker must be a cross-encoder, got a bi-encoder"):
        interop.model(bi, reranker=bi)
    with pytest.raises(UsageError, match="A cross-encoder finds nothing that a reranker could"):
        interop.model(cross, reranker=cross)
    classes = CrossEncoder.from_pretrained(bert, task="classify", num_labels=3, device="cpu")
    with pytest.raises(UsageError, match="task 'rank' or 'regress', got one with 'classify'"):
        interop.model(classes)


def test_a_missing_package_is_named_with_its_command(bert, monkeypatch):
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(MissingExtraError, match=r'pip install "polyrank\[mteb\]"'):
        interop.model(load_variant("bi", bert))


def test_nothing_is_measured_of_the_machine(bert, monkeypatch):
    """MTEB tracks emissions if codecarbon is installed; here it does not."""
    tracker = ModuleType("codecarbon")
    tracker.EmissionsTracker = None  # cannot be called
    monkeypatch.setitem(sys.modules, "codecarbon", tracker)
    result = interop.evaluate(load_variant("bi", bert), make_task())
    assert result.task_results[0].kg_co2_emissions is None


def test_the_command(mteb, bert, tmp_path, capsys, monkeypatch):
    load_variant("bi", bert).save_pretrained(tmp_path / "mine")
    monkeypatch.setattr(mteb, "get_task", lambda name: make_task(name=name))
    made = ["evaluate", tmp_path / "mine", "--mteb", "One", "--mteb", "Two", "--dtype", "float32"]
    made += ["--output", tmp_path / "results"]
    assert run([*map(str, made), "--json", "--ks", "3"], commands()) == 0
    said = capsys.readouterr()
    assert "--ks has no effect with --mteb" in said.err
    one, two = json.loads(said.out)["mteb"]
    assert (one["task_name"], two["task_name"]) == ("One", "Two")
    files = list((tmp_path / "results").rglob("One.json"))
    assert len(files) == 1
    kept = json.loads(files[0].read_text(encoding="utf-8"), parse_constant=lambda _: None)
    assert kept == one
    assert run(list(map(str, made)), commands()) == 0
    said = capsys.readouterr()
    score = one["scores"]["test"][0]["main_score"]
    assert f"One                            {score:.4f}" in said.out + said.err


def test_bad_calls_of_the_command(bert, tmp_path, capsys):
    load_variant("bi", bert).save_pretrained(tmp_path / "mine")
    for arguments, words in (
        (["evaluate", tmp_path / "mine"], "--data is required and missing"),
        (["evaluate", "bm25", "--mteb", "SciFact"], "bm25 is not a model for MTEB"),
        (["evaluate", tmp_path / "mine", "--mteb", "SciFacts"], "Did you mean"),
        (["evaluate", tmp_path / "mine", "--mteb", "SciFact"], "cannot be loaded"),
    ):
        assert run(list(map(str, arguments)), commands()) == 2
        assert words in capsys.readouterr().err

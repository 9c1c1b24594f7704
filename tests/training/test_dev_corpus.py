"""Dev data that are searched: a corpus with judgements, or all responses of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from polyrank import BiEncoder
from polyrank.cli.main import commands, run
from polyrank.errors import UsageError
from polyrank.evaluation.retrieval import evaluate_retrieval
from polyrank.evaluation.tasks import with_all_candidates
from polyrank.records import Candidate, Example, RetrievalSet
from polyrank.runtime import set_seed
from polyrank.training.config import TrainingConfig
from polyrank.training.dev_evaluation import evaluation_of
from polyrank.training.model_card import Provenance
from polyrank.training.objectives.registry import ObjectiveConfig, build
from polyrank.training.run import train
from tiny_encoders import WORDS, load_variant

EXAMPLES = [
    Example(context=f"what is the {word}", response=f"{word} {WORDS[n]}")
    for n, word in enumerate(WORDS[8:40])
]
CORPUS = RetrievalSet(
    corpus=[Candidate(f"d{n}", one.response) for n, one in enumerate(EXAMPLES)],
    queries={f"q{n}": one.context for n, one in enumerate(EXAMPLES[:12])},
    judgements={f"q{n}": {f"d{n}": 1} for n in range(12)},
    split="dev",
)


def config(**settings: Any) -> TrainingConfig:
    return TrainingConfig(
        batch_size=8, learning_rate=1e-3, evaluations=3, **{"max_steps": 6, **settings}
    )


def fresh(bert: str) -> BiEncoder:
    set_seed(0)
    return BiEncoder.from_pretrained(bert, dtype="float32", device="cpu")


def test_the_figures_are_those_of_a_search_of_the_whole_corpus(bert: str) -> None:
    model, given = fresh(bert), config(metric="recall@3")
    setup = build(model, EXAMPLES, given, ObjectiveConfig())
    evaluation = evaluation_of(setup, CORPUS, given)
    assert evaluation is not None
    assert evaluation.metric == "recall@3"
    found = evaluation.measure(model)
    expected = evaluate_retrieval(model, CORPUS, metrics=("recall@3", "recall@20", "mrr@10"))
    assert expected.means().items() <= found.items()
    examples = evaluation_of(setup, with_candidates(), config())
    assert examples is not None
    assert found["loss"] == pytest.approx(examples.measure(model)["loss"])
    default = evaluation_of(setup, CORPUS, config())
    assert default is not None
    assert default.metric == "ndcg@10"


def with_candidates() -> list[Example]:
    return [
        Example(context=one.context, response=one.response, candidates=(one.response, "no"), gold=0)
        for one in EXAMPLES[:12]
    ]


@pytest.mark.parametrize("metric", ["ndcg@10", "recall@20", "mrr@5", "map"])
def test_the_best_checkpoint_by_a_figure_of_the_corpus(
    metric: str, bert: str, tmp_path: Path
) -> None:
    output = tmp_path / "model"
    provenance = Provenance(train="train.jsonl", dev="corpus")
    result = train(
        fresh(bert), EXAMPLES, output, config(metric=metric), dev=CORPUS, provenance=provenance
    )
    evaluated = [entry for entry in result.history if f"eval_{metric}" in entry]
    best = max(evaluated, key=lambda entry: entry[f"eval_{metric}"])
    assert result.figures[metric] == best[f"eval_{metric}"]
    saved = BiEncoder.from_pretrained(output, dtype="float32", device="cpu")
    assert evaluate_retrieval(saved, CORPUS, metrics=[metric]).means()[metric] == pytest.approx(
        result.figures[metric]
    )
    card = (output / "README.md").read_text(encoding="utf-8")
    assert "| dev | `corpus` | 12 queries of 32 documents |" in card


@pytest.mark.parametrize("metric", ["ndcg@2", "mrr@1"])
def test_the_best_checkpoint_of_examples_by_any_figure(
    metric: str, bert: str, tmp_path: Path
) -> None:
    result = train(
        fresh(bert), EXAMPLES, tmp_path / "model", config(metric=metric), dev=with_candidates()
    )
    best = max(entry.get(f"eval_{metric}", 0) for entry in result.history)
    assert result.figures[metric] == best


def test_what_cannot_be_searched_or_measured_is_refused(bert: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="spearman is for labelled pairs, but the dev data are a"):
        train(fresh(bert), EXAMPLES, tmp_path / "model", config(metric="spearman"), dev=CORPUS)
    with pytest.raises(UsageError, match="metric must be loss, recall@K, ndcg@K, mrr@K"):
        config(metric="ndcg")


def test_a_cross_encoder_ranks_candidates_drawn_from_the_corpus(bert: str, tmp_path: Path) -> None:
    cross: Any = load_variant("cross", bert)
    said: list[str] = []
    settings = config(num_negatives=2, max_steps=1)
    result = train(cross, EXAMPLES, tmp_path / "model", settings, dev=CORPUS, say=said.append)
    assert "recall@1" in result.figures
    assert any("A cross-encoder cannot search a corpus" in words for words in said)


def test_another_corpus_is_another_run(bert: str, tmp_path: Path) -> None:
    identities = []
    for number, dev in enumerate((CORPUS, CORPUS.first(5))):
        folder = tmp_path / str(number)
        train(fresh(bert), EXAMPLES, folder, config(max_steps=1), dev=dev)
        record = json.loads((folder / "training.json").read_text(encoding="utf-8"))
        identities.append(record["identity"]["dev"])
    assert identities[0] != identities[1]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The same examples as a file, and as a folder in BEIR's layout."""
    found = {"examples": tmp_path / "examples.jsonl", "corpus": tmp_path / "corpus"}
    write(
        found["examples"],
        [{"context": one.context, "response": one.response} for one in EXAMPLES],
    )
    (found["corpus"] / "qrels").mkdir(parents=True)
    write(found["corpus"] / "corpus.jsonl", [{"_id": d.id, "text": d.text} for d in CORPUS.corpus])
    write(
        found["corpus"] / "queries.jsonl",
        [{"_id": query, "text": text} for query, text in CORPUS.queries.items()],
    )
    rows = "".join(f"q{n}\td{n}\t1\n" for n in range(12))
    (found["corpus"] / "qrels" / "test.tsv").write_text(f"q\tc\tscore\n{rows}", encoding="utf-8")
    return found


def write(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def answer(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[dict[str, Any], str]:
    code = run([*map(str, arguments), "--json", "--device", "cpu"], commands())
    out, err = capsys.readouterr()
    assert code == 0, err
    return dict(json.loads(out)), err


FAST = ["--batch-size", "8", "--max-steps", "2", "--evaluations", "1", "--num-negatives", "2"]


def test_the_command_searches_the_corpus(
    bert: str, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    start = ["train", "--base", bert, "--train", files["examples"], "--dev", files["corpus"], *FAST]
    trained, said = answer(
        capsys, *start, "--arch", "bi", "--output", model, "--metric", "recall@20"
    )
    assert "12 questions of 32 documents for dev" in said
    assert "dev R@20" in said
    found, _ = answer(capsys, "evaluate", model, "--data", files["corpus"])
    for name in ("recall@20", "ndcg@10", "recall@100", "map"):
        assert trained["dev"][name] == pytest.approx(found[name])
    cross, said = answer(
        capsys, *start, "--arch", "cross", "--output", tmp_path / "cross", "--metric", "ndcg@10"
    )
    assert "cannot search a corpus: each dev question gets 20 candidates" in said
    assert {"ndcg@10", "recall@10"} < set(cross["dev"])
    assert "recall@20" not in cross["dev"]
    drawn, said = answer(
        capsys, *start, "--arch", "bi", "--output", tmp_path / "drawn", "--dev-candidates", "5"
    )
    assert "12 for dev" in said
    assert "recall@10" not in drawn["dev"]


def test_the_command_searches_all_responses_of_a_file(
    bert: str, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, data = tmp_path / "model", files["examples"]
    trained, said = answer(
        capsys, "train", "--arch", "poly", "--num-codes", "3", "--base", bert, "--train", data,
        "--dev", data, "--dev-candidates", "all", "--dev-limit", "10", "--output", model, *FAST,
    )  # fmt: skip
    assert "10 questions of 32 documents for dev" in said
    found, _ = answer(
        capsys, "evaluate", model, "--data", data, "--num-candidates", "all", "--limit", "10"
    )
    assert trained["dev"]["recall@5"] == pytest.approx(found["recall@5"])


def test_all_three_are_not_trained_twice(
    bert: str, files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "--arch", "all", "--base", bert, "--train", files["examples"], *FAST]
    command += ["--dev", files["corpus"], "--output", tmp_path / "models", "--share", "75%"]
    first, _ = answer(capsys, *command)
    again, said = answer(capsys, *command)
    assert again == first
    assert said.count("is trained already") == 3


def test_examples_as_a_corpus() -> None:
    again = Example(context="again", response=EXAMPLES[0].response, id="own")
    twice = [*EXAMPLES[:3], again]
    found = with_all_candidates(twice, "dev.jsonl", source=[*EXAMPLES, again])
    assert [each.text for each in found.corpus] == [one.response for one in EXAMPLES]
    assert len(found.queries) == 4
    assert [list(grades) for grades in found.judgements.values()][3] == [found.corpus[0].id]
    named = with_all_candidates(twice[3:], "dev.jsonl")
    assert list(named.queries) == ["own"]


def test_every_response_to_the_same_context_is_right() -> None:
    other = Example(context=EXAMPLES[0].context, response="something else")
    found = with_all_candidates(EXAMPLES[:2], "dev.jsonl", source=[*EXAMPLES, other])
    texts = {each.id: each.text for each in found.corpus}
    right = [{texts[one] for one in grades} for grades in found.judgements.values()]
    assert right == [{EXAMPLES[0].response, "something else"}, {EXAMPLES[1].response}]

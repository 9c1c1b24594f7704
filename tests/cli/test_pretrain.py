"""`polyrank pretrain` from files to a base that `polyrank train` takes."""

import json

import pytest
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from launching import launch
from polyrank.cli.main import commands, run
from polyrank.data.examples import write_examples
from polyrank.models.cross_encoder import CrossEncoder
from polyrank.records import Example
from polyrank.training.recipes import PRETRAINING
from tiny_encoders import WORDS

pytest.importorskip("pyarrow")
SMALL = ["--num-layers", "1", "--width", "16", "--num-heads", "2", "--positions", "64"]
SMALL += ["--vocabulary", "300", "--projection", "8", "--max-candidate-length", "48"]
RUN = ["--batch-size", "8", "--max-steps", "4", "--evaluations", "2", "--dtype", "float32"]
RUN += ["--held-out", "0.3", "--held-out-pairs", "20", "--device", "cpu"]


def sentence(number):
    return f"The {WORDS[number % 30]} of number {number} is a {WORDS[number % 7]} indeed."


def article(number):
    return {
        "id": f"a{number}",
        "title": f"Title {number}",
        "sections": [
            {"paragraphs": [f"{sentence(number)} {sentence(number + 1)}"]},
            {
                "heading": "More",
                "paragraphs": [
                    {
                        "text": f"See Title {number * 7 % 20}. {sentence(number + 2)} And more.",
                        "links": [f"Title {number * 7 % 20}"],
                    }
                ],
            },
        ],
    }


@pytest.fixture
def corpora(tmp_path):
    articles, turns = tmp_path / "articles.jsonl", tmp_path / "turns.jsonl"
    articles.write_text("".join(json.dumps(article(n)) + "\n" for n in range(20)))
    talk = [{"id": f"c{n}", "turns": [sentence(n), "yes", sentence(n + 3)]} for n in range(12)]
    turns.write_text("".join(json.dumps(one) + "\n" for one in talk))
    for source, name, language in ((articles, "wiki", ["--language", "en"]), (turns, "talk", [])):
        made = ["corpus", str(source), "--output", str(tmp_path / name), *language]
        assert run(made, commands()) == 0
    return tmp_path


def pretrain(corpora, *arguments):
    given = ["pretrain", "--corpus", f"{corpora / 'wiki'},{corpora / 'talk'}", *arguments]
    return run([*map(str, given)], commands())


def test_from_nothing_to_a_base_of_all_architectures(corpora, capsys):
    out = corpora / "encoder"
    tasks = "ict,bfs,wlp,mlm,cmae,next_sentence,next_utterance"
    capsys.readouterr()
    assert pretrain(corpora, "--tasks", tasks, "--output", out, *SMALL, *RUN, "--json") == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert (found["steps"], found["pairs"]) == (4, 32)
    assert {"loss", "ict_recall@1", "mlm_masked", "next_utterance_follows"} <= found[
        "held_out"
    ].keys()
    assert "Making a vocabulary of at most 300 pieces" in captured.err
    assert not [path.name for path in corpora.iterdir() if path.name.startswith(".encoder")]
    card = ModelCard.load(out / "README.md").data
    assert card.language == ["en"]  # of the articles; that of the conversations is not known
    assert {one.metric_type for one in card.eval_results} == found["held_out"].keys()
    examples = [Example(context=sentence(n), response=sentence(n + 1)) for n in range(16)]
    write_examples(corpora / "train.jsonl", examples)
    arguments = ["train", "--arch", "all", "--base", out, "--train", corpora / "train.jsonl"]
    arguments += ["--output", corpora / "models", "--max-steps", "1", "--batch-size", "4"]
    arguments += ["--dtype", "float32", "--device", "cpu"]
    assert run([*map(str, arguments)], commands()) == 0
    cross = CrossEncoder.from_pretrained(corpora / "models" / "cross", device="cpu")
    assert cross.tower.width == 16

    more = ["--base", out, "--tasks", "ict", "--output", corpora / "continued", *RUN]
    assert pretrain(corpora, *more, "--num-layers", "9") == 0
    assert "--num-layers has no effect with --base" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tasks", "said", "equal"),
    [
        (
            "mlm",
            "Two towers: pairs of mlm are of neither side, so one encoder is trained, and",
            True,
        ),
        ("ict,mlm", "Two towers: each is trained on half of the pairs of mlm.", False),
    ],
)
def test_two_towers_are_both_trained(corpora, capsys, tasks, said, equal):
    out = corpora / "encoder"
    given = ["--tasks", tasks, "--no-shared-towers", "--output", out, *SMALL, *RUN]
    assert pretrain(corpora, *given) == 0
    captured = capsys.readouterr()
    assert said in captured.out
    drawn = (
        "No task compares vectors, so the projection to 8 stays as it was drawn." in captured.err
    )
    assert drawn == equal
    weights = load_file(out / "model.safetensors")
    candidate = {name for name in weights if name.startswith("candidate_tower.")}
    assert candidate
    same = [
        bool((weights[name] == weights[name.replace("candidate", "context")]).all())
        for name in candidate
    ]
    assert all(same) if equal else sum(same) < 0.2 * len(same)


def test_an_interrupted_run_goes_on_from_the_same_new_encoder(corpora, monkeypatch, capsys):
    out = corpora / "encoder"
    arguments = ["--tasks", "ict,mlm", "--output", out, *SMALL, *RUN]
    assert pretrain(corpora, *arguments) == 0
    whole = (out / "model.safetensors").read_bytes()

    from polyrank.training.pretraining import held_out

    ranked, calls = held_out.ranked, []

    def stop(*given):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return ranked(*given)

    monkeypatch.setattr(held_out, "ranked", stop)
    other = corpora / "other"
    cut = ["--tasks", "ict,mlm", "--output", other, *SMALL, *RUN]
    assert pretrain(corpora, *cut) == 130
    assert not other.exists()
    monkeypatch.setattr(held_out, "ranked", ranked)
    capsys.readouterr()
    assert pretrain(corpora, *cut) == 0
    assert "Resuming after step 2 of 4." in capsys.readouterr().out
    assert (other / "model.safetensors").read_bytes() == whole


def test_two_processes_train_what_one_does(corpora, capsys):
    given = ["pretrain", "--corpus", f"{corpora / 'wiki'},{corpora / 'talk'}", *SMALL, *RUN]
    given += ["--tasks", "ict,mlm,next_utterance", "--json"]
    capsys.readouterr()
    assert run([*given, "--output", str(corpora / "one")], commands()) == 0
    one = json.loads(capsys.readouterr().out)
    started = launch("-m", "polyrank", *given, "--output", corpora / "two")
    assert started.returncode == 0, started.stderr
    two = json.loads(started.stdout)
    assert two["pairs"] == one["pairs"] == 32
    assert two["held_out"] == pytest.approx(one["held_out"], abs=0.051)  # one rank in 20
    logs = [(corpora / name / "log.jsonl").read_text().splitlines() for name in ("one", "two")]
    losses = [[found["loss"] for found in map(json.loads, log) if "loss" in found] for log in logs]
    assert len(losses[0]) == 4
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


def test_preview_shows_pairs_and_figures(corpora, bert, capsys):
    look = ["--preview", "--preview-pairs", "2", "--base", bert, "--tasks", "wlp,next_utterance"]
    capsys.readouterr()
    assert pretrain(corpora, *look) == 0
    shown = capsys.readouterr().out
    assert "wlp" in shown
    assert "24.9M" in shown
    assert "Title" in shown
    assert "next_utterance 2" in shown
    assert pretrain(corpora, "--preview", "--base", bert, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    usual = ["ict", "bfs", "wlp", "mlm", "next_utterance"]
    assert [row["task"] for row in found["tasks"]] == usual
    assert all(row["second_tokens"] > row["second_words"] > 0 for row in found["tasks"])
    assert {len(lines) for lines in found["preview"].values()} == {9}


def test_a_preview_makes_no_vocabulary(corpora, monkeypatch, capsys):
    def refused(*_, **__):
        raise AssertionError("a vocabulary is made")

    monkeypatch.setattr("polyrank.tokens.vocabulary.train_tokenizer", refused)
    capsys.readouterr()
    assert pretrain(corpora, "--preview", "--json") == 0
    captured = capsys.readouterr()
    assert all(row["first_tokens"] is None for row in json.loads(captured.out)["tasks"])
    assert "With --base MODEL, its tokens are counted as well." in captured.err


def test_without_tasks_those_that_the_corpus_can_give_are_taken(corpora, capsys):
    bare = corpora / "bare.jsonl"
    sections = [[{"paragraphs": [f"{sentence(n)} {sentence(n + 1)}"]}] for n in range(9)]
    rows = [{**article(n), "sections": one} for n, one in enumerate(sections)]
    bare.write_text("".join(json.dumps(row) + "\n" for row in rows))
    short = corpora / "short.jsonl"
    rows = [{"title": f"T{n}", "text": sentence(n)} for n in range(9)]
    short.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for path in (bare, short):
        assert run(["corpus", str(path), "--output", str(path.with_suffix(""))], commands()) == 0
    capsys.readouterr()

    def tasks_of(name):
        given = ["pretrain", "--corpus", str(corpora / name), "--preview", "--json"]
        assert run(given, commands()) == 0
        captured = capsys.readouterr()
        return [row["task"] for row in json.loads(captured.out)["tasks"]], captured.err

    found, said = tasks_of("talk")
    assert found == ["mlm", "next_utterance"]
    assert "Tasks for this corpus: mlm, next_utterance.\n" in said
    assert tasks_of("wiki")[0] == ["ict", "bfs", "wlp"]
    found, said = tasks_of("bare")
    assert found == ["ict"]
    assert "Tasks for this corpus: ict; not bfs, which needs articles with a first" in said
    assert "; not wlp, which needs links between its articles." in said
    assert tasks_of("short")[0] == ["mlm"]


def test_conversations_alone_make_an_encoder_without_a_projection(corpora, capsys):
    talk = ["--corpus", str(corpora / "talk")]
    assert shown(capsys, *talk)["projection"] is None
    assert shown(capsys, "--corpus", str(corpora / "wiki"))["projection"] == 512
    assert shown(capsys, *talk, "--unrelated-utterances", "0")["projection"] == 512
    out = corpora / "encoder"
    small = [one for one in SMALL if one not in ("--projection", "8")]
    given = ["pretrain", *talk, "--output", str(out), *small, *RUN]
    assert run(given, commands()) == 0
    assert "on mlm, next_utterance: 32 pairs" in capsys.readouterr().out
    assert json.loads((out / "polyrank.json").read_text())["settings"]["projection"] is None


def test_an_interrupted_preview_says_that_nothing_was_changed(corpora, bert, monkeypatch, capsys):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("polyrank.pretraining.statistics.statistics", stop)
    capsys.readouterr()
    assert pretrain(corpora, "--preview", "--base", bert) == 130
    assert "Nothing was changed." in capsys.readouterr().err


def shown(capsys, *arguments):
    assert run(["pretrain", *arguments, "--show-config", "--json"], commands()) == 0
    found = capsys.readouterr()
    return json.loads(found.out)["config"]


@pytest.mark.parametrize(
    ("name", "published"),
    [
        (
            "two-tower-pretraining",
            {
                "tasks": "ict,bfs,wlp",
                "mix_tasks": True,
                "keep_sentence": 0.0,
                "any_section": True,
                "any_passage": True,
                "logq": True,
                "reduction": "first",
                "projection": 512,
                "similarity": "dot",
                "max_context_length": 64,
                "max_candidate_length": 288,
                "batch_size": 8192,
                "max_steps": 100_000,
                "learning_rate": 1e-4,
                "new_learning_rate": 1e-4,
                "warmup": 0.1,
                "schedule": "linear",
            },
        ),
        (
            "poly-encoder-pretraining",
            {"learning_rate": 2e-4, "beta2": 0.98, "schedule": "inverse_sqrt", "projection": None},
        ),
    ],
)
def test_the_papers_recipes_are_shown(name, published, capsys):
    settings = shown(capsys, "--recipe", name)
    assert {setting: settings[setting] for setting in published} == published
    own = PRETRAINING[name].settings()
    assert {setting: settings[setting] for setting in own if setting != "arch"} == {
        setting: value for setting, value in own.items() if setting != "arch"
    }


def test_a_projection_is_made_where_a_task_trains_it(capsys):
    def projection(tasks, *more):
        return shown(capsys, "--tasks", tasks, *more)["projection"]

    assert projection("mlm,ict") == 512
    assert projection("mlm,next_sentence,next_utterance") is None
    assert projection("mlm,next_utterance", "--unrelated-utterances", "0") == 512
    assert projection("mlm", "--projection", "64") == 64
    assert "projection" not in shown(capsys, "--base", "some/encoder")


def test_bad_input_is_one_message(corpora, capsys):
    capsys.readouterr()

    def error(*arguments):
        assert pretrain(corpora, *arguments) == 2
        return capsys.readouterr().err

    assert "--output is required" in error()
    assert "no task 'itc'" in error("--tasks", "itc", "--preview")
    bare = corpora / "bare.jsonl"
    bare.write_text(json.dumps({"title": "One", "text": "A single sentence stands here."}) + "\n")
    assert run(["corpus", str(bare), "--output", str(corpora / "bare")], commands()) == 0
    capsys.readouterr()
    given = ["pretrain", "--corpus", str(corpora / "bare"), "--tasks", "wlp", "--preview"]
    assert run(given, commands()) == 2
    assert "The task wlp needs" in capsys.readouterr().err
    given = ["pretrain", "--corpus", str(corpora / "talk"), "--tasks", "ict"]
    for more in (["--preview"], ["--output", str(corpora / "none")]):
        assert run([*given, *more], commands()) == 2
        found = capsys.readouterr()
        assert "The task ict needs a corpus of articles, got conversations" in found.err
        assert "vocabulary" not in found.out, "nothing was made before"

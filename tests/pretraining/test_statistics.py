import pytest
from tiny_corpora import article, paragraph, random_articles, random_conversations, tables_of

from polyrank.pretraining.registry import TASKS, TaskSettings, make_task
from polyrank.pretraining.statistics import preview, statistics, statistics_lines
from polyrank.pretraining.tasks.next_utterance import NextUtteranceSettings


def test_means_are_those_of_all_pairs_where_there_are_few(tmp_path):
    first = paragraph("One two three four. Five six seven eight nine ten.")
    tables = tables_of([article("A title", [first])], tmp_path)
    task = make_task("ict", tables)
    found = statistics(task, count_tokens=len)
    assert found.pairs == found.sampled == 2
    assert found.first_words == 5
    lengths = [len(f"A title {task[item].second}".split()) for item in range(2)]
    assert found.second_words == sum(lengths) / 2
    texts = [f"A title [SEP] {task[item].second}" for item in range(2)]
    assert found.second_tokens == sum(map(len, texts)) / 2
    assert found.positives is None


def test_a_sample_has_different_pairs_and_depends_on_the_seed_alone(tmp_path):
    tables = tables_of(random_articles(40), tmp_path)
    task = make_task("wlp", tables)
    assert statistics(task, sample=20) == statistics(make_task("wlp", tables), sample=20)
    assert statistics(task, sample=20).sampled == 20
    assert statistics(task, sample=10**6).sampled == len(task)
    assert statistics(task, sample=20).first_tokens is None


def test_the_share_of_what_follows_is_told(tmp_path):
    tables = tables_of(random_conversations(100), tmp_path)
    assert statistics(make_task("next_utterance", tables)).positives == pytest.approx(0.5, abs=0.08)
    classes = NextUtteranceSettings(unrelated_utterances=0.2, related_utterances=0.7)
    task = make_task("next_utterance", tables, settings=TaskSettings(next_utterance=classes))
    labels = [pair.label for pair in task]
    assert statistics(task).positives == labels.count(1) / len(labels)
    told = {line.partition(", ")[2] for line in preview(task, 60)[::3]}
    assert told == {"follows", "does not follow", "of the same conversation"}


def test_a_task_without_pairs_has_statistics(tmp_path):
    tables = tables_of([article("A", [paragraph("One sentence.")])], tmp_path)
    row = statistics(make_task("wlp", tables), count_tokens=len)
    assert (row.pairs, row.sampled, row.first_words, row.second_tokens) == (0, 0, 0, 0)
    assert preview(make_task("wlp", tables)) == []
    assert len(statistics_lines([row])) == 2


def test_the_table_shows_the_papers_figures(tmp_path):
    tables = tables_of(random_articles(20), tmp_path)
    rows = [
        statistics(make_task(name, tables), count_tokens=lambda text: len(text.split()))
        for name in ("mlm", "ict", "bfs", "wlp")
    ]
    lines = statistics_lines(rows)
    assert [line.split()[0] for line in lines[1:]] == ["mlm", "ict", "bfs", "wlp"]
    assert "50.2M" in lines[2]
    assert "30.4 / 193.9" in lines[2]
    assert "50.2M" not in lines[1]
    assert len({len(line) for line in lines[2:]}) == 1
    assert {name for name in TASKS if TASKS[name].paper} == {"ict", "bfs", "wlp"}


def test_a_preview_shows_both_texts_on_a_line_each(tmp_path):
    lines = preview(make_task("bfs", tables_of(random_articles(20), tmp_path / "1")), 3)
    assert len(lines) == 9
    assert lines[0] == "bfs 1"
    assert lines[1].startswith("  < Fact")
    assert "x [SEP] Fact" in lines[2]
    tables = tables_of(random_conversations(20), tmp_path / "2")
    lines = preview(make_task("next_utterance", tables), 8)
    assert {line.partition(", ")[2] for line in lines[::3]} == {"follows", "does not follow"}
    assert not any("\n" in line for line in lines)

from __future__ import annotations

import gzip
import json

import pytest
from dump_files import dump, page, prose

from polyrank.cli.corpus import corpus
from polyrank.cli.main import run
from polyrank.pretraining.corpus.store import Corpus


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "wiki.xml"
    pages = [page("Thing 1", prose(1)), page("Old 1", redirect="Thing 1")]
    path.write_text(dump(*pages, page("List of things"), page("Bad").replace("<ns>", "<n")))
    return path


def call(*arguments):
    return run(["corpus", *map(str, arguments)], [corpus])


def test_the_command_says_what_it_made_and_what_it_dropped(source, tmp_path, capsys):
    assert call(source, "--output", tmp_path / "corpus", "--processes", 1) == 0
    said = capsys.readouterr().out
    assert "articles                     1" in said
    assert "broken XML" in said
    assert "'Bad' at byte" in said
    assert "List of things" in said


def test_one_object_for_programs(source, tmp_path, capsys):
    assert call(source, "--output", tmp_path / "corpus", "--processes", 1, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    counts = {"articles": 1, "redirects": 1, "sections": 2, "paragraphs": 3, "sentences": 5}
    assert {name: result[name] for name in counts} == counts
    assert (result["links"], result["redirected_links"]) == (4, 1)
    assert result["dropped"] == {"broken XML": 1, "list": 1}
    assert result["damage"] is None


def test_a_damaged_dump_is_an_error_or_a_warning(source, tmp_path, capsys):
    source.write_text(source.read_text().replace("</mediawiki>", ""))
    output = tmp_path / "corpus"
    assert call(source, "--output", output, "--processes", 1) == 2
    assert "--keep-going" in capsys.readouterr().err
    assert call(source, "--output", output, "--processes", 1, "--keep-going") == 0
    assert "Warning: It holds only what could be read." in capsys.readouterr().err


def test_bad_options_are_named(source, tmp_path, capsys):
    assert call(source, "--output", tmp_path / "c", "--processes", 0) == 2
    assert call(source, "--output", tmp_path / "c", "--format", "wikis") == 2
    assert "wikipedia" in capsys.readouterr().err


def test_posts_and_comments_of_a_folder_become_one_corpus(tmp_path, capsys):
    folder = tmp_path / "dumps"
    folder.mkdir()
    comment = {"id": "c", "parent_id": "t3_p", "link_id": "t3_p", "author": "a", "body": "I do so."}
    (folder / "RC_2019-06.jsonl").write_text(json.dumps(comment) + "\n")
    post = {"id": "p", "author": "b", "title": "Do you?", "selftext": "Or not?"}
    with gzip.open(folder / "RS_2019-06.jsonl.gz", "wt") as handle:
        handle.write(json.dumps(post) + "\n")
    (folder / "notes.txt").write_text("Not of Reddit.")
    pattern, output = folder / "R*", tmp_path / "corpus"
    assert call(folder, "--format", "reddit", "--output", tmp_path / "one") == 0
    assert call(pattern, "--output", tmp_path / "two") == 0
    capsys.readouterr()
    assert call(*sorted(folder.glob("R*")), "--output", output, "--json") == 0
    assert json.loads(capsys.readouterr().out)["turns"] == 2
    talks = [list(Corpus.open(tmp_path / name)) for name in ("one", "two", "corpus")]
    assert talks[0] == talks[1] == talks[2]
    assert [turn.text for turn in talks[0][0].turns] == ["Do you?\nOr not?", "I do so."]
    assert call(*sorted(folder.glob("R*")), "--output", output) == 0, "it is opened"
    assert call(folder / "RC_2019-06.jsonl", "--output", output) == 2
    assert "made from another source" in capsys.readouterr().err

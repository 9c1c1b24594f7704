from __future__ import annotations

import json

import pytest
from dump_files import dump, page, prose

from polyrank.cli.corpus import corpus
from polyrank.cli.main import run


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
    assert call(source, "--output", tmp_path / "c", "--kind", "wikis") == 2
    assert "wikipedia" in capsys.readouterr().err

"""The journal of a long job: whole blocks only, one writer, one identity."""

import pytest

from polyrank.errors import UsageError
from polyrank.training.journal import BLOCKS, LINES, open_journal

JOB = {"identity": {"data": "abc", "settings": {"k": 1}}, "restart": False, "job": "mining"}


@pytest.fixture
def written(tmp_path):
    """A journal of three blocks with two lines each."""
    with open_journal(tmp_path / ".work", **JOB) as journal:
        for number in range(3):
            journal.append([f"{number} ä", f"{number} b"], {"read": 5})
    return tmp_path / ".work"


def test_it_goes_on_and_finishes(written, tmp_path):
    output = tmp_path / "out.jsonl"
    output.write_text("before")
    with open_journal(written, **JOB) as journal:
        assert journal.total("read") == 15
        journal.append([], {"read": 2})
        assert output.read_text() == "before"
        assert len(list(journal.lines())) == 6
        journal.finish(output)
    assert output.read_text(encoding="utf-8") == "0 ä\n0 b\n1 ä\n1 b\n2 ä\n2 b\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]


@pytest.mark.parametrize(
    ("name", "cut", "blocks"),
    [(LINES, 1, 2), (LINES, 100, 0), (BLOCKS, 1, 2), (BLOCKS, 30, 1), (LINES, 0, 3)],
)
def test_what_was_not_written_whole_is_cut_off(name, cut, blocks, written):
    path = written / name
    path.write_bytes(path.read_bytes()[: -cut or None])
    with open_journal(written, **JOB) as journal:
        assert journal.total("read") == 5 * blocks
        assert list(journal.lines()) == [f"{n} {x}" for n in range(blocks) for x in "äb"]
        journal.append(["new"], {"read": 1})
    with open_journal(written, **JOB) as journal:
        assert list(journal.lines())[-1] == "new"


def test_one_writer_at_a_time(written):
    with open_journal(written, **JOB):  # noqa: SIM117 - the second must fail inside of the first
        with pytest.raises(UsageError, match="Another process works on the mining"):
            with open_journal(written, **JOB):
                pass
    with open_journal(written, **JOB):
        pass


def test_another_identity(written):
    other = JOB | {"identity": {"data": "abc", "settings": {"k": 2}}}
    with (
        pytest.raises(UsageError, match="unfinished mining with another settings lies in"),
        open_journal(written, **other),
    ):
        pass
    with open_journal(written, **(other | {"restart": True})) as journal:
        assert journal.blocks == []

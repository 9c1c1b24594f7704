"""Long jobs: identity, lock, journal, resumption, and what stays after an error."""

import json

import pytest

from polyrank.errors import StorageError, UsageError
from polyrank.jobs import (
    JOURNAL,
    LINES,
    Job,
    LineJournal,
    Results,
    differences,
    digest_of,
    has_leftovers,
    tidy,
    working,
)

WORDS = {"source": "another source ({})", "settings": "other settings"}


def job_of(folder, *, source="ab12", described="notes.txt", **settings):
    return Job(
        output=folder / "out",
        doing="counting",
        noun="count",
        identity={"source": source, "settings": {"size": 1, **settings}},
        words=WORDS,
        described={"source": described},
    )


def count(job, stop, **options):
    """Note every number below `stop`, as a job that resumes; the output is a folder."""
    with working(job, **options) as work:
        journal = work.journal()
        resumed_at = len(journal)
        for number in range(resumed_at, stop):
            journal.append({"number": number})
            if number == 2 and stop != 3:
                raise KeyboardInterrupt
        fresh = work.folder / "fresh"
        fresh.mkdir()
        (fresh / "numbers").write_text(json.dumps([note["number"] for note in journal.notes]))
        work.place_folder(fresh)
    return resumed_at


def stopped(job, act, error):
    """Run `act` on the work of a job, which then fails with `error`."""
    with working(job) as work:
        act(work)
        raise error


def interrupted(job, **options):
    with pytest.raises(KeyboardInterrupt):
        count(job, 5, **options)


def test_an_interrupted_job_resumes_and_leaves_nothing_beside_its_output(tmp_path):
    job = job_of(tmp_path)
    interrupted(job)
    assert job.work == tmp_path / ".out.counting"
    assert not job.output.exists()
    assert count(job, 5) == 3
    assert json.loads((job.output / "numbers").read_text()) == [0, 1, 2, 3, 4]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_restart_discards_what_was_done(tmp_path):
    interrupted(job_of(tmp_path))
    assert count(job_of(tmp_path), 3, restart=True) == 0


def test_unfinished_work_of_another_job_is_refused_in_words_or_discarded(tmp_path):
    interrupted(job_of(tmp_path, described="mine.txt"))
    other = job_of(tmp_path, source="cd34", size=2)
    words = r"unfinished count with another source \(mine.txt\), other settings \(size = 1\)"
    with pytest.raises(UsageError, match=words):
        count(other, 3)
    assert count(other, 3, other="discard") == 0


def test_what_is_only_described_does_not_tell_jobs_apart(tmp_path):
    interrupted(job_of(tmp_path, described="mine.txt"))
    assert count(job_of(tmp_path, described="renamed.txt"), 5) == 3


def test_two_processes_cannot_work_on_one_output(tmp_path):
    job = job_of(tmp_path)
    with working(job), pytest.raises(UsageError, match="Another process is counting"):
        count(job, 1)


def test_a_failure_keeps_the_folder_only_if_something_is_done(tmp_path):
    job = job_of(tmp_path)
    with pytest.raises(ValueError, match="early"):
        stopped(job, lambda work: work.journal(), ValueError("early"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="late"):
        stopped(job, lambda work: work.keep(), ValueError("late"))
    assert job.work.is_dir()


def test_a_full_disk_says_where_to_resume(tmp_path):
    full = StorageError("The disk is full.", "Free some space.")
    with pytest.raises(StorageError, match="again to resume from"):
        stopped(job_of(tmp_path), lambda work: work.journal().append({"done": 1}), full)


@pytest.mark.parametrize("torn", [b'{"number": 1', b'{"number": 1}', b"\xff\xfe\n", b"[1]\n"])
def test_a_torn_note_is_cut_off(tmp_path, torn):
    job = job_of(tmp_path)
    interrupted(job)
    path = job.work / "journal.jsonl"
    path.write_bytes(path.read_bytes()[: len(b'{"number": 0}\n')] + torn)
    found = []
    with pytest.raises(KeyboardInterrupt):
        stopped(job, lambda work: found.extend(work.journal().notes), KeyboardInterrupt())
    assert found == [{"number": 0}]
    assert path.read_bytes() == b'{"number": 0}\n'


def test_a_note_whose_piece_is_gone_does_not_count_nor_those_behind_it(tmp_path):
    job = job_of(tmp_path)
    interrupted(job)
    found = []

    def read(work):
        found.extend(work.journal(lambda note: note["number"] != 1).notes)

    with pytest.raises(KeyboardInterrupt):
        stopped(job, read, KeyboardInterrupt())
    assert found == [{"number": 0}]


@pytest.mark.parametrize("damage", ["{", "[]", '{"identity": 1}', ""])
def test_a_folder_that_does_not_say_its_job_is_begun_anew(tmp_path, damage):
    job = job_of(tmp_path)
    interrupted(job)
    (job.work / "job.json").write_text(damage)
    assert count(job, 3) == 0


def test_lines_behind_the_last_note_are_cut_off(tmp_path):
    journal = LineJournal(tmp_path)
    journal.append_lines(["é", "b"], {"read": 2})
    journal.append_lines(["c"], {"read": 3})
    with open(journal.file, "ab") as handle:
        handle.write(b"half a li")
    again = LineJournal(tmp_path)
    assert list(again.lines()) == ["é", "b", "c"]
    assert again.total("read") == 5
    journal.file.write_bytes("é\nb\n".encode())  # the lines of the last note never came
    assert list(LineJournal(tmp_path).lines()) == ["é", "b"]


@pytest.mark.parametrize(
    ("name", "cut", "pieces"),
    [(LINES, 1, 2), (LINES, 100, 0), (JOURNAL, 1, 2), (JOURNAL, 30, 1), (LINES, 0, 3)],
)
def test_a_piece_that_was_not_written_whole_is_cut_off(name, cut, pieces, tmp_path):
    journal = LineJournal(tmp_path)
    for number in range(3):
        journal.append_lines([f"{number} ä", f"{number} b"], {"read": 5})
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[: -cut or None])
    journal = LineJournal(tmp_path)
    assert journal.total("read") == 5 * pieces
    assert list(journal.lines()) == [f"{n} {x}" for n in range(pieces) for x in "äb"]
    journal.append_lines(["new"], {"read": 1})
    assert list(LineJournal(tmp_path).lines())[-1] == "new"


def test_the_output_may_be_a_file(tmp_path):
    job = job_of(tmp_path)
    job.output.write_text("old")
    with working(job) as work:
        journal = work.line_journal()
        journal.append_lines(["new"], {})
        work.place_file(journal.file)
    assert job.output.read_text() == "new\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_tidy_removes_what_a_killed_process_left(tmp_path):
    job = job_of(tmp_path)
    count(job, 3)
    (tmp_path / ".out.old-x").mkdir()
    interrupted(job_of(tmp_path))
    assert has_leftovers(job)
    tidy(job)
    assert not has_leftovers(job)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_tidy_leaves_a_job_at_work_alone(tmp_path):
    job = job_of(tmp_path)
    with working(job) as work:
        tidy(job)
        assert work.folder.is_dir()


def test_differences_name_values_that_only_one_job_has(tmp_path):
    old = {"identity": {"source": "ab12", "settings": {"size": 1, "gone": 3}, "teacher": "x"}}
    words = differences(job_of(tmp_path), old)
    assert words == "other settings (gone = 3), another teacher"


def test_digests_depend_on_order_and_on_where_values_end():
    assert digest_of(["ab", "c"]) != digest_of(["a", "bc"])
    assert digest_of(["a", "b"]) != digest_of(["b", "a"])
    assert digest_of(iter(["a", "b"])) == digest_of(["a", "b"])


def test_results_are_kept_by_all_that_they_depend_on(tmp_path):
    results = Results(tmp_path / "kept")
    assert results.get(["scores", 1], list) is None
    results.put(["scores", 1], [0.5])
    assert results.get(["scores", 1], list) == [0.5]
    assert results.get(["scores", 2], list) is None
    results.path(["scores", 1], tmp_path / "kept").write_text("{")
    assert results.get(["scores", 1], list) is None

"""What people see of long work: on a terminal, in a log, and of processes that work for others."""

import io
import os
import sys

import pytest

from polyrank.display import meter as meter_module
from polyrank.display import screen as screen_module
from polyrank.display.meter import Meter, last_line, live_line, plain_line
from polyrank.display.screen import SCREEN
from polyrank.display.words import clock, per_time, size, span
from polyrank.progress import bar, hidden, paused, reporting, watched

NO_TERMINALS = pytest.mark.skipif(os.name == "nt", reason="no pseudo-terminals")


@pytest.fixture
def now(monkeypatch):
    """A clock that only the test moves, with a screen that nothing but the test draws."""

    class Clock:
        time = 1000.0

        def monotonic(self):
            return self.time

        def after(self, seconds):
            self.time += seconds
            SCREEN.draw()

    made = Clock()
    monkeypatch.setattr(meter_module, "time", made)
    monkeypatch.setattr(screen_module, "TICK", 1e6)
    return made


def a_meter(**settings):
    nothing = {"memory": lambda: None, "figures": dict}
    return Meter("Encoding", **{**nothing, "unit": "texts", **settings})


def steadily(meter, now, seconds, per_second):
    """Let work be done evenly."""
    for _ in range(seconds):
        now.time += 1
        meter.add(per_second)


def test_numbers_in_words():
    assert [size(n) for n in (12, 812e6, 1.44e9, 12.4e9, 3e12)] == [
        "12 bytes",
        "812 MB",
        "1.4 GB",
        "12 GB",
        "3.0 TB",
    ]
    assert [clock(n) for n in (0, 59.6, 245, 3753, 97200)] == [
        "0 s",
        "1:00",
        "4:05",
        "1:02:33",
        "1 d 3 h",
    ]
    assert [span(n) for n in (3.21, 42, 60, 99, 7500, 97200)] == [
        "3.2 s",
        "42 s",
        "1 min",
        "1 min 39 s",
        "2 h 5 min",
        "1 d 3 h",
    ]
    rates = [per_time(n, "texts") for n in (12480, 3.44, 0.2, 0.001)]
    assert rates == ["12,480/s", "3.4/s", "12/min", "3.6/h"]
    assert per_time(120e6, "bytes") == "120 MB/s"


def test_the_rate_counts_only_what_is_new(now):
    meter = a_meter(total=10_000, done=9_000)
    steadily(meter, now, 5, 100)
    meter.add(300, new=False)  # found on the disk
    assert meter.done == 9_800
    assert meter.rate == meter.mean_rate == 100
    assert meter.left == 2
    assert plain_line(meter) == "Encoding: 9,800 of 10,000 texts (98%), 100/s, 5.0 s, 2.0 s left"
    meter.add(200)
    assert last_line(meter) == "Encoding: 700 texts in 5.0 s, 140/s"


def test_the_rate_follows_the_last_half_minute(now):
    meter = a_meter(total=100_000)
    steadily(meter, now, 60, 10)
    steadily(meter, now, 60, 100)
    assert meter.rate == 100
    assert meter.mean_rate == 55


def test_work_that_reports_seldom_has_a_steady_rate(now):
    meter = a_meter(total=100)
    for _ in range(9):
        now.time += 60
        meter.add(6)
        now.time += 5  # looked at between two reports
        assert meter.rate == pytest.approx(6 / 65, rel=0.1)


def test_nested_work_is_left_out_of_the_rate(now):
    with bar("Training", total=100, unit="steps", own_time=True) as task:
        meter = SCREEN.shown[0][0]
        steadily(meter, now, 10, 2)
        with bar("Scoring pairs", total=10, unit="pairs"):
            now.time += 10
            with bar("Searching", unit="queries"):
                now.time += 10
        task.tell(2, True)
        assert meter.rate == pytest.approx(2.2)
        assert meter.nested == 20
        assert meter.left == pytest.approx(78 * 30 / 22)  # there will be more nested work


def test_nested_work_that_is_the_work_counts(now, capsys):
    with bar("Predicting", unit="rows", memory=lambda: None) as task:
        for _ in range(3):
            with bar("Scoring pairs", total=10, unit="pairs"):
                now.time += 10
            task(100)
        assert SCREEN.shown[0][0].rate == 10
    assert capsys.readouterr().err == "Predicting: 300 rows in 30 s, 10/s\n"


def test_a_total_that_is_unknown_or_wrong(now):
    meter = a_meter()
    steadily(meter, now, 4, 5)
    assert plain_line(meter) == "Encoding: 20 texts, 5.0/s, 4.0 s"
    assert live_line(meter, 80) == "Encoding  20 texts  5.0/s  4 s"
    low = a_meter(total=10)
    steadily(low, now, 4, 5)
    assert low.left is None
    assert low.share is None
    assert live_line(low, 80) == "Encoding  20 texts  5.0/s  4 s"


@pytest.mark.parametrize("width", range(8, 130))
def test_a_line_fits_any_width_and_keeps_what_matters(now, width):
    figures = {"loss": "2.310", "dev R@1": "0.553", "lr": "4.2e-05"}
    meter = a_meter(
        total=1000,
        unit="steps",
        rate=("pairs", 64),
        memory=lambda: 3_100_000_000,
        figures=lambda: figures,
    )
    steadily(meter, now, 40, 4)
    line = live_line(meter, width)
    assert len(line) <= width
    assert "16%" in line or width < 16
    assert ("3:30 left" in line) == (width >= 24)
    assert ("loss 2.310" in line) == (width >= 36)
    assert ("256 pairs/s" in line) == (width >= 60)
    if width >= 110:
        assert "160/1,000" in line
        assert "lr 4.2e-05" in line
        assert "peak 3.1 GB" in line


def test_a_log_gets_a_line_now_and_then(now, capsys):
    with bar("Encoding", total=4000, unit="texts", memory=lambda: 2_000_000_000) as task:
        for second in range(1, 41):
            task(100)
            now.after(1)
            if second == 4:
                assert capsys.readouterr().err == ""
    told = capsys.readouterr().err
    assert told == (
        "Encoding: 500 of 4,000 texts (12%), 125/s, 5.0 s, 28 s left, peak 2.0 GB\n"
        "Encoding: 1,500 of 4,000 texts (37%), 107/s, 15 s, 23 s left, peak 2.0 GB\n"
        "Encoding: 3,500 of 4,000 texts (87%), 100/s, 35 s, 5.0 s left, peak 2.0 GB\n"
        "Encoding: 4,000 texts in 40 s, 100/s, peak 2.0 GB\n"
    )
    assert set(told) - set(map(chr, range(32, 127))) == {"\n"}


def test_a_long_run_has_few_lines(now, capsys):
    with bar("Encoding", total=40_000, unit="texts", memory=lambda: None) as task:
        for _ in range(40_000):
            task(1)
            now.after(1)
    assert len(capsys.readouterr().err.splitlines()) < 75  # eleven hours


def test_short_work_is_not_shown(now, capsys):
    with bar("Encoding", total=10, unit="texts") as task:
        task(10)
        now.after(1.9)
    assert capsys.readouterr() == ("", "")


def test_nested_work_that_is_short_has_no_lines(now, capsys):
    with bar("Training", total=10, unit="steps", lines=False):
        with bar("Scoring pairs", total=10, unit="pairs"):
            now.after(20)
        with bar("Searching", total=100, unit="queries", memory=lambda: None) as task:
            task(50)
            now.after(30)
            task(50)
    assert capsys.readouterr().err.splitlines() == [
        "  Searching: 50 of 100 queries (50%), 30 s",
        "  Searching: 100 queries in 30 s, 3.3/s",
    ]


def test_work_that_fails_is_not_said_to_be_done(now, capsys):
    def work():
        with bar("Encoding", total=10, unit="texts") as task:
            task(5)
            now.time += 10
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert capsys.readouterr().err == ""
    assert SCREEN.shown == []


@pytest.mark.parametrize("stream", ["none", "closed", "full"])
def test_nobody_is_told_where_standard_error_is_gone(now, monkeypatch, stream):
    class Full(io.StringIO):
        def write(self, text):
            raise OSError

    gone = {"none": None, "closed": io.StringIO(), "full": Full()}[stream]
    if stream == "closed":
        gone.close()
    monkeypatch.setattr(sys, "stderr", gone)
    with bar("Encoding", total=100, unit="texts") as task:
        task(50)
        now.after(10)
        task(50)
    assert task.done == 100


def test_the_same_work_inside_counts_once(now, capsys):
    heard = []
    with reporting(heard.append), bar("Encoding", total=30, unit="texts") as task:
        with task.folding():
            with bar(None, unit="texts") as inner:
                inner(4)
                inner(5)
            with bar("Encoding", unit="texts", memory=lambda: 7) as inner:
                inner.skip(1)
            with bar("Reading", unit="texts") as other:
                other(100)
            with bar(None, unit="pairs") as other:
                other(100)
        task.reach(20)
        task.reach(15)
    mine = [report for report in heard if report.description == "Encoding"]
    assert [(each.advance, each.is_new) for each in mine] == [
        (4, True),
        (5, True),
        (1, False),
        (10, True),
    ]
    assert mine[-1].peak_memory == 7
    assert task.done == 20


def test_hidden_and_paused_work_is_not_drawn(now, capsys):
    assert not watched()
    with hidden(), bar("Encoding", total=100, unit="texts") as task:
        assert not watched()
        task(100)
    with bar("Comparing", total=2, unit="models"):
        assert watched()
        with paused():
            assert SCREEN.still == 1
        assert SCREEN.still == 0
    assert SCREEN.shown == []


PROGRAM = """
import sys
from polyrank.display import screen
screen.DELAY = screen.NESTED_DELAY = 0
from polyrank.progress import bar
"""
NESTED = """
print("Before.")
with bar("Training", total=200, unit="steps") as task:
    task(50)
    task.show(loss="2.310")
    input()
    print("x" * 100)
    print("Warning: y", file=sys.stderr)
    input()
    with bar("Scoring pairs", total=1000, unit="pairs") as inner:
        inner(10)
        input()
print("After.")
"""


@NO_TERMINALS
@pytest.mark.parametrize("width", [80, 40, 24])
def test_a_terminal_shows_one_line_and_words_above_it(width, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")  # the size of the terminal counts, not what was exported

    from tests.terminal import Terminal

    def training(line):
        return (
            line.startswith("Training")
            and "25%" in line
            and ("loss 2.310" in line) >= (width >= 40)
        )

    with Terminal(PROGRAM + NESTED, width) as terminal:
        seen = terminal.until(lambda lines: len(lines) == 2 and training(lines[1]))
        assert seen[0] == "Before."
        terminal.press()
        seen = terminal.until(lambda lines: lines[-2:-1] == ["Warning: y"] and training(lines[-1]))
        assert "".join(seen[1:-2]) == "x" * 100  # as long as it is, and not broken into words
        terminal.press()
        seen = terminal.until(lambda lines: lines[-1].startswith("  Scoring"))
        assert training(seen[-2])
        terminal.press()
        assert terminal.wait() == 0
        assert terminal.lines[-1] == "After."
        assert sum(line.startswith("Training: 50") for line in terminal.lines) == 1
        assert not any(line.startswith("Training  ") for line in terminal.lines)


@NO_TERMINALS
def test_another_width_leaves_nothing_behind():
    from tests.terminal import Terminal

    with Terminal(PROGRAM + NESTED, 80) as terminal:
        terminal.until(lambda lines: len(lines) == 2)
        for width in (40, 100, 30):
            terminal.resize(width)
            least = width - 20
            terminal.until(lambda lines, w=least: len(lines) == 2 and w < len(lines[1]) < w + 20)
        terminal.press()
        terminal.press()
        terminal.press()
        assert terminal.wait() == 0
        assert terminal.lines[-1] == "After."
        assert not any(line.startswith("Training  ") for line in terminal.lines)


@NO_TERMINALS
def test_ctrl_c_leaves_the_terminal_clean():
    from tests.terminal import Terminal

    program = (
        PROGRAM
        + """
import signal
import time
try:
    with bar("Training", total=200, unit="steps") as task:
        task(50)
        time.sleep(60)
except KeyboardInterrupt:
    print("\\nInterrupted.", file=sys.stderr)
print(type(sys.stderr).__name__, type(sys.stdout).__name__)
"""
    )
    with Terminal(program, echo=True) as terminal:
        terminal.until(lambda lines: len(lines) == 1 and "25%" in lines[0])
        terminal.press(b"\x03")
        assert terminal.wait() == 0
        assert [line for line in terminal.lines if line != "^C"] == [
            "Interrupted.",
            "TextIOWrapper TextIOWrapper",
        ]


@NO_TERMINALS
@pytest.mark.parametrize("term", ["dumb", "xterm-256color"])
def test_no_colour_and_dumb_terminals(term):
    from tests.terminal import Terminal

    program = (
        PROGRAM
        + """
with bar("Training", total=200, unit="steps") as task:
    task(50)
    input()
print("After.")
"""
    )
    with Terminal(program, TERM=term, NO_COLOR="1") as terminal:
        written = []
        feed, terminal.stream.feed = terminal.stream.feed, None
        terminal.stream.feed = lambda data: (written.append(data), feed(data))
        if term != "dumb":
            terminal.until(lambda lines: len(lines) == 1)
        terminal.press()
        assert terminal.wait() == 0
        told = b"".join(written)
        assert (b"\x1b" in told) == (term != "dumb")
        assert b"\x1b[3" not in told, "no colours"


@NO_TERMINALS
def test_what_goes_to_a_file_is_not_drawn_over(tmp_path):
    from tests.terminal import Terminal

    result = tmp_path / "result.json"
    with open(result, "wb") as file, Terminal(PROGRAM + NESTED, 80, stdout=file) as terminal:
        for _ in range(2):
            terminal.until(lambda lines: lines and lines[-1].startswith("Training"))
            terminal.press()
        terminal.until(lambda lines: lines and lines[-1].startswith("  Scoring"))
        terminal.press()
        assert terminal.wait() == 0
        assert [line[:12] for line in terminal.lines] == ["Warning: y", "Training: 50"]
    assert result.read_text() == "Before.\n" + "x" * 100 + "\nAfter.\n"


@NO_TERMINALS
def test_one_line_about_long_work_stays_on_a_terminal():
    from tests.terminal import Terminal

    program = (
        PROGRAM
        + """
with bar("Training", total=200, unit="steps", memory=lambda: None) as task:
    task(200)
    with bar("Scoring pairs", total=1000, unit="pairs") as inner:
        inner(10)
    input()
with bar("Searching", total=2, lines=False) as task:
    task(2)
    input()
print("After.")
"""
    )
    with Terminal(program) as terminal:
        terminal.until(lambda lines: len(lines) == 1 and "100%" in lines[0])
        terminal.press()
        terminal.until(lambda lines: lines and lines[-1].startswith("Searching"))
        terminal.press()
        assert terminal.wait() == 0
        assert [line[:22] for line in terminal.lines] == ["Training: 200 steps in", "After."]


def test_reports_cost_the_work_next_to_nothing(now):
    with bar("Encoding", total=10**6, unit="texts") as task:
        meter = SCREEN.shown[0][0]
        for _ in range(10_000):
            task(1)
        assert len(meter.marks) == 1, "marks are set by time, however often is reported"


def test_a_forked_process_has_a_screen_of_its_own():
    if not hasattr(os, "fork"):
        pytest.skip("no fork")
    with bar("Encoding", total=10, unit="texts"):
        shown = list(SCREEN.shown)
        lock = SCREEN.lock
        screen_module.begin_after_fork()
        assert SCREEN.shown == []
        assert SCREEN.lock is not lock
        SCREEN.shown[:] = shown

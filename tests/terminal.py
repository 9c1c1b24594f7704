"""A pseudo-terminal that a test looks at as a person would."""

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

import pyte

HEIGHT = 12


class Terminal:
    """A Python program on a terminal, and what it shows there.

    The program waits, at `input()`, for `press`, so that nothing depends on time.
    """

    def __init__(self, program, width=80, stdout=None, echo=False, **environment):
        self.screen = pyte.Screen(width, HEIGHT)
        self.stream = pyte.ByteStream(self.screen)
        self.ours, theirs = pty.openpty()
        self.resize(width)
        if not echo:
            attributes = termios.tcgetattr(theirs)
            attributes[3] &= ~termios.ECHO
            termios.tcsetattr(theirs, termios.TCSANOW, attributes)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=theirs,
            stdout=theirs if stdout is None else stdout,
            stderr=theirs,
            preexec_fn=controlling,  # noqa: PLW1509
            env={**os.environ, "TERM": "xterm-256color", **environment},
        )
        os.close(theirs)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.wait()
        os.close(self.ours)

    def resize(self, width):
        """Another width, as when a person drags the window."""
        size = struct.pack("HHHH", HEIGHT, width, 0, 0)
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, size)
        if width != self.screen.columns:
            self.screen.resize(HEIGHT, width)

    def press(self, keys=b"\n"):
        """Type something."""
        os.write(self.ours, keys)

    @property
    def lines(self):
        """The lines that are not blank."""
        return [line.rstrip() for line in self.screen.display if line.strip()]

    def read(self, seconds):
        """Take what the program has written; whether there was anything."""
        if not select.select([self.ours], [], [], seconds)[0]:
            return False
        with contextlib.suppress(OSError):  # Linux says so that the other side is closed
            if data := os.read(self.ours, 1 << 16):
                self.stream.feed(data)
                return True
        raise EOFError

    def until(self, is_right):
        """Wait until the lines are right, and return them."""
        end = time.monotonic() + 60
        while not is_right(self.lines):
            assert time.monotonic() < end, self.lines
            try:
                self.read(0.1)
            except EOFError:
                assert is_right(self.lines), self.lines
        return self.lines

    def wait(self):
        """Let the program end; its exit code."""
        with contextlib.suppress(EOFError):
            while True:
                self.read(60)
        return self.process.wait(60)


def controlling():
    """Make standard input the terminal of the process, so that Ctrl-C there reaches it."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)

"""A program in a terminal: a pty whose screen pyte keeps, as a person would see it."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pyte


class Terminal:
    """`with Terminal(words, rows=24, columns=80) as terminal:` starts the program."""

    def __init__(self, words, rows, columns, env=None):
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.received = b""
        self.master, slave = pty.openpty()
        self._set_size(rows, columns)
        self.process = subprocess.Popen(
            words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=self._become_foreground,
            env={**os.environ, "TERM": "linux", "LANG": "C.UTF-8",
                 # A shell may export these. The terminal has another size.
                 "LINES": "50", "COLUMNS": "132", **(env or {})})
        os.close(slave)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)

    def _become_foreground(self):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        # A test that runs in the background of a script has inherited that Ctrl-C is ignored.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def _set_size(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows, columns):
        self.screen.resize(rows, columns)
        self.screen.erase_in_display(2)
        self._set_size(rows, columns)

    def type(self, text):
        os.write(self.master, text.encode())

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    @property
    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    def read(self, timeout=0.1):
        """Takes what the program has written; False at its end."""
        if not select.select([self.master], [], [], timeout)[0]:
            return True
        with contextlib.suppress(OSError):  # EIO: nobody has the other side any more
            if data := os.read(self.master, 65536):
                self.received += data
                self.stream.feed(data)
                return True
        return False

    def wait_for(self, wanted, timeout=30):
        """Until the screen shows the text, or until `wanted(text)`."""
        is_there = wanted if callable(wanted) else lambda text: wanted in text
        deadline = time.monotonic() + timeout
        while not is_there(self.text):
            assert time.monotonic() < deadline, f"not on the screen: {wanted}\n{self.text}"
            assert self.read() or is_there(self.text), f"ended without {wanted}\n{self.text}"

    def wait_ended(self, timeout=30):
        """Its exit code, once it has ended and all that it wrote was read."""
        deadline = time.monotonic() + timeout
        while self.read():
            assert time.monotonic() < deadline, f"has not ended\n{self.text}"
        return self.process.wait(timeout)

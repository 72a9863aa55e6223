"""System calls of a running process that the kernel answers with an error."""

import contextlib
import pathlib
import subprocess

from support.waiting import wait_until


@contextlib.contextmanager
def failing_calls(pid, inject, log):
    """Answers the calls of the process `pid` as `inject` says (an expression of strace's --inject).

    Every thread is traced before the block begins. strace attaches to one thread after the other,
    and any of them may make the next call. Yields the tracer, a Popen, and ends it afterwards.
    """
    calls = inject.split(":", 1)[0]
    with subprocess.Popen(
            ["strace", "-f", "-q", "-o", str(log), "-p", str(pid),
             "-e", f"trace={calls}", "-e", f"inject={inject}"], stderr=subprocess.PIPE) as tracer:

        def attached():
            assert tracer.poll() is None, tracer.stderr.read()
            mark = f"TracerPid:\t{tracer.pid}\n"
            try:
                threads = pathlib.Path(f"/proc/{pid}/task").iterdir()
                return all(mark in (thread / "status").read_text() for thread in threads)
            except FileNotFoundError:  # A thread ended.
                return False

        try:
            wait_until(attached, "strace to attach to every thread")
            yield tracer
        finally:
            tracer.terminate()

"""Waiting for what happens by itself."""

import time

PATIENCE_SECONDS = 120


def wait_until(condition, what="the condition"):
    """Polls. No test depends on the limit, because a case that reaches it has failed anyway."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting for {what}"
        time.sleep(0.02)

"""What the clients of chaos.py have been told together, and what is right.

Every client does the same deterministic programs again and again: step `i` of shape `s` has one
result, that of a server which nothing disturbs, to the bit. So a lost, doubled, reordered or
damaged step, sample or checkpoint shows in the first number that comes after it.
"""

import collections
import threading
import time

# Tokens above 64 KiB, so that the body has a file or row of its own.
LARGE = 1200


class Wrong(Exception):
    """An invariant does not hold."""


class History:
    """What all clients together have seen."""

    def __init__(self):
        self._lock = threading.Lock()
        self.acknowledged = collections.Counter()  # by operation
        self.failed = collections.Counter()  # by reason
        self.violations = []
        self.progress = {}  # client: when its last result came
        self.stopping = threading.Event()

    def note(self, client, operation):
        with self._lock:
            self.acknowledged[operation] += 1
            self.progress[client] = time.monotonic()

    def record_failure(self, reason):
        with self._lock:
            self.failed[reason] += 1

    def violate(self, invariant, what):
        with self._lock:
            self.violations.append(f"{invariant}: {what}")
            print(f"VIOLATION {invariant}: {what}", flush=True)
        self.stopping.set()

    def total(self):
        with self._lock:
            return self.acknowledged.total()


def passes_of(shape, step):
    """(tokens, number of datums) of the two gradients of a step; numbers tell them all apart."""
    first = 20 + 31 * shape + step
    large = LARGE if step % 12 == 7 else 1 + shape
    return ((first, 31, 32), large), ((40, first, 42), 1)


def rank_of(shape):
    return 2 + 2 * shape


class Unlucky(Exception):
    """A request failed for a reason that was done to it; the program begins again."""


class Table:
    """What is right: of each shape and step, the numbers, logprobs and samples."""

    def __init__(self):
        self.numbers, self.logprobs, self.tokens, self.sdk_losses = {}, {}, {}, {}

    def check(self, kind, key, value, is_calm, what):
        known = getattr(self, kind)
        if is_calm:
            known.setdefault(key, value)
        if known[key] != value:
            raise Wrong("I2", f"{what}: {kind} of (shape, step) {key} are {value}, "
                              f"undisturbed {known[key]}")

"""What slow-loris clients cost the others: p50 and p99 of small requests, alone and beside 1,000
connections that send a header byte by byte.

Rounds with and without them alternate, and what is printed is the median of the rounds' ratios: the
machine's own noise is in both. Between the rounds all slow connections are closed and opened again.
Run: .venv/bin/python tests/bench/slow_clients.py
"""

import argparse
import http.client
import multiprocessing
import os
import resource
import socket
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402

HEAD = b"POST /api/v1/create_session HTTP/1.1\r\nHost: localhost\r\nX-API-Key: tml-slow\r\nX-Slow: "
# Below the gateway's head_timeout of 10 s, so that some are always in the middle of a head.
SECONDS_PER_BYTE = 2


def open_slow(port):
    one = socket.create_connection(("127.0.0.1", port))
    one.setblocking(False)
    one.send(HEAD)
    return one


def run_slow_clients(port, count, ready, stopping, reopened):
    """`count` connections, each sending a byte of a head now and then; opened again when closed."""
    sockets = [open_slow(port) for _ in range(count)]
    ready.set()
    while True:
        for i, one in enumerate(sockets):
            if i % 50 == 0 and stopping.wait(50 * SECONDS_PER_BYTE / count):
                return
            try:
                one.send(b"x")
            except OSError:
                one.close()
                sockets[i] = open_slow(port)
                reopened.value += 1


class SlowClients:
    """A process of its own: what the clients cost themselves is not the measured client's."""

    def __init__(self, port, count):
        self._ready, self._stopping = multiprocessing.Event(), multiprocessing.Event()
        self._reopened = multiprocessing.Value("q", 0)
        self._process = multiprocessing.Process(
            target=run_slow_clients,
            args=(port, count, self._ready, self._stopping, self._reopened))

    def __enter__(self):
        self._process.start()
        self._ready.wait()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self._process.join()

    @property
    def reopened(self):
        return self._reopened.value


def measure_round(server, count):
    """Seconds of each of `count` requests over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    headers = {"X-API-Key": server.api_key}
    seconds = []
    for _ in range(count):
        begin = time.perf_counter()
        connection.request("GET", "/api/v1/get_server_capabilities", headers=headers)
        answer = connection.getresponse()
        answer.read()
        seconds.append(time.perf_counter() - begin)
        assert answer.status == 200, answer.status
    connection.close()
    return seconds


def percentile(values, q):
    return sorted(values)[min(len(values) - 1, int(q * len(values)))]


def measure(args):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with LatheServer(tiny_model()) as server:
        measure_round(server, args.requests)
        alone, beside, reopened = [], [], 0
        for _ in range(args.rounds):
            alone.append(measure_round(server, args.requests))
            with SlowClients(server.port, args.slow) as slow:
                time.sleep(1)
                beside.append(measure_round(server, args.requests))
                reopened += slow.reopened
    for name, rounds in (("alone", alone), (f"beside {args.slow} slow clients", beside)):
        print(f"{name:28s} p50 {statistics.median(percentile(r, 0.5) for r in rounds) * 1e3:.3f} ms"
              f"  p99 {statistics.median(percentile(r, 0.99) for r in rounds) * 1e3:.3f} ms")
    for q in (0.5, 0.99):
        ratios = [percentile(b, q) / percentile(a, q) for a, b in zip(alone, beside)]
        print(f"ratio of p{q * 100:g}: {statistics.median(ratios):.3f} "
              f"(rounds {', '.join(f'{ratio:.2f}' for ratio in ratios)})")
    print(f"slow connections the gateway closed and that came back: {reopened}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--slow", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=7)
    measure(parser.parse_args())

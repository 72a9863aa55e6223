#!/usr/bin/env python3
"""The hostile half of the soak: tenants that are slow, send bombs, flood, guess keys, read no answer
or vanish. Started by soak.py; reads one line of JSON, prints a line when it begins, goes on until its
input ends, and prints what it was answered, by kind.

Its connections come from other addresses than those of the honest half, but for gRPC."""

import collections
import contextlib
import http.client
import json
import random
import socket
import sys
import threading
import time

import grpc
import zstandard

from support.hostile_bodies import HOSTILE, IDS, nested

JSON = {"Content-Type": "application/json"}
BOMB = {"Content-Type": "application/x-protobuf", "Content-Encoding": "zstd"}
LORA = {"rank": 8, "seed": 1, "train_unembed": True, "train_mlp": True, "train_attn": True}
ADAM = {"learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.95, "eps": 1e-12, "weight_decay": 0.0,
        "grad_clip_norm": 0.0}
STREAM_SECONDS = 20


def zeros(num_mib):
    """Compressed; never whole in memory."""
    stream = zstandard.ZstdCompressor().compressobj()
    return b"".join(stream.compress(bytes(1 << 20)) for _ in range(num_mib)) + stream.flush()


class Hostile:
    """What one thread does for its tenants, one after the other, until `over` is set."""

    # Threads of a kind; 0: one for each tenant. Those that mostly wait cost little.
    num_threads = 0

    def __init__(self, number, target, keys, over, counts):
        self.port, self.grpc_port, self.base_model = target
        self.address = (f"127.0.1.{1 + number % 250}", 0)
        self.keys, self.over, self.counts = keys, over, counts
        self.random = random.Random(number)
        self.connection = None
        self.key = keys[0]

    def run(self):
        while not self.over.is_set():
            for self.key in self.keys:
                if self.over.is_set():
                    return
                try:
                    self.once()
                except (OSError, http.client.HTTPException, grpc.RpcError) as error:
                    self.counts[type(error).__name__] += 1
                    self.connection = None
                    self.over.wait(0.1)

    def call(self, path, body, headers=JSON, key=None):
        """Status and bytes of an answer."""
        if self.connection is None:
            self.connection = http.client.HTTPConnection(
                "127.0.0.1", self.port, timeout=60, source_address=self.address)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.connection.request("POST", f"/api/v1/{path}", content,
                                {"X-API-Key": key or self.key, **headers})
        answer = self.connection.getresponse()
        text = answer.read()
        self.counts[str(answer.status)] += 1
        if answer.status >= 500:
            self.counts[f"{path}: {text[:80]!r}"] += 1
        return answer.status, text

    def make(self, path, body):
        """JSON of an answer; None: refused."""
        status, text = self.call(path, body)
        return json.loads(text) if status == 200 else None

    def new_model(self):
        """Id of a model that is being created; None: refused."""
        session = self.make("create_session", {"tags": [], "sdk_version": "hostile"})
        if session is None:
            return None
        made = self.make("create_model", {
            "session_id": session["session_id"], "model_seq_id": 0,
            "base_model": self.base_model, "lora_config": LORA})
        return made and f"{session['session_id']}:train:0"

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), 30, self.address)

    def head(self, path, length):
        return (f"POST /api/v1/{path} HTTP/1.1\r\nHost: lathe\r\nX-API-Key: {self.key}\r\n"
                f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n").encode()


def datum(tokens):
    count = len(tokens)
    return {"model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens}]},
            "loss_fn_inputs": {
                "target_tokens": {"data": tokens, "dtype": "int64", "shape": [count]},
                "weights": {"data": [1.0] * count, "dtype": "float32", "shape": [count]}}}


def gradient(model_id, seq_id, num_tokens=64):
    return {"forward_backward_input": {"data": [datum([5] * num_tokens)],
                                       "loss_fn": "cross_entropy"},
            "model_id": model_id, "seq_id": seq_id}


class Slow(Hostile):
    """Heads, bodies and answers a byte at a time."""

    def once(self):
        connections = [self.connect() for _ in range(8)]
        try:
            for i, connection in enumerate(connections):
                connection.sendall(self.head("forward_backward", 1_000_000)[:None if i % 2 else 60])
            for _ in range(20):
                if self.over.wait(0.25):
                    return
                for connection in connections:
                    with contextlib.suppress(OSError):
                        connection.sendall(b"a")
        finally:
            for connection in connections:
                connection.close()
            self.counts["connections"] += len(connections)


class Unread(Hostile):
    """Many large answers, of which none is read."""

    def once(self):
        question = (f"GET /api/v1/get_server_capabilities HTTP/1.1\r\nHost: lathe\r\n"
                    f"X-API-Key: {self.key}\r\n\r\n").encode()
        connections = [self.connect() for _ in range(4)]
        try:
            for connection in connections:
                connection.settimeout(0.5)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                with contextlib.suppress(OSError):
                    connection.sendall(question * 2000)
            self.over.wait(3)
        finally:
            for connection in connections:
                connection.close()
            self.counts["connections"] += len(connections)


class Bombs(Hostile):
    """Small bodies that inflate to hundreds of MiB, or parse to millions of parts."""

    num_threads = 3

    bodies = []

    @classmethod
    def prepare(cls, count):
        cls.bodies = [zeros(1024)] + [zstandard.compress(body + IDS)
                                      for body in list(HOSTILE.values())[:count]]

    def once(self):
        self.call("forward_backward", self.random.choice(self.bodies), BOMB)
        self.over.wait(0.2)


class Floods(Hostile):
    """Requests as fast as they are taken, whose results nobody fetches."""

    num_threads = 3

    def once(self):
        model_id = self.new_model()
        if model_id is None:
            self.over.wait(0.5)
            return
        for i in range(200):
            if self.over.is_set():
                return
            if i % 4 == 3:
                body = {"adam_params": ADAM, "model_id": model_id, "seq_id": 1 + i}
                status, _ = self.call("optim_step", body)
            else:
                status, _ = self.call("forward_backward", gradient(model_id, 1 + i))
            if status == 429:
                self.over.wait(0.05)


class Searches(Hostile):
    """Listings and searches without end."""

    num_threads = 3

    def once(self):
        self.call("sessions/search", {"display_name": "absent"})
        self.call("create_session", {"tags": ["x"] * 10, "sdk_version": "hostile"})


class Guesses(Hostile):
    """Wrong keys, over HTTP as fast as they are refused, and over gRPC."""

    num_threads = 3

    def once(self):
        for _ in range(20):
            if self.over.is_set():
                return
            self.call("sessions/search", {}, key=f"tml-{self.random.getrandbits(128):032x}")
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}") as channel:
            call = channel.unary_unary("/lathe.v1.Engine/ForwardBackward")
            try:
                call(nested(1, b"m" * 1_000_000), metadata=[("x-api-key", "tml-wrong")], timeout=30)
            except grpc.RpcError as error:
                self.counts[error.code().name] += 1
        self.over.wait(1)


class Streams(Hostile):
    """Watch streams of gRPC: much is asked and no answer is read."""

    def messages(self, end):
        message = nested(1, nested(1, b"x" * 50_000))
        while not self.over.is_set() and time.monotonic() < end:
            self.counts["messages"] += 1
            yield message

    def once(self):
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"127.0.0.1:{self.grpc_port}", options) as channel:
            end = time.monotonic() + STREAM_SECONDS
            call = channel.stream_stream("/lathe.v1.Engine/Watch")(
                self.messages(end), metadata=[("x-api-key", self.key)])
            self.over.wait(STREAM_SECONDS)
            call.cancel()
        self.counts["streams"] += 1


class Vanishes(Hostile):
    """Leaves work with a gap and half a request behind."""

    def once(self):
        model_id = self.new_model()
        if model_id is not None:
            self.call("forward_backward", gradient(model_id, 1))
            self.call("forward_backward", gradient(model_id, 3))
        content = json.dumps(gradient(model_id or "absent", 4)).encode()
        with self.connect() as connection:
            connection.sendall(self.head("forward_backward", len(content)) + content[:50])
        self.connection.close()
        self.connection = None
        self.over.wait(0.2)


KINDS = (Slow, Unread, Bombs, Floods, Searches, Guesses, Streams, Vanishes)


def main():
    task = json.loads(sys.stdin.readline())
    over = threading.Event()
    target = (task["port"], task["grpc_port"], task["base_model"])
    counts = {kind.__name__: collections.Counter() for kind in KINDS}
    threads = []
    for place, kind in enumerate(KINDS):
        keys = task["api_keys"][place::len(KINDS)]
        num_threads = min(kind.num_threads or len(keys), len(keys))
        for i in range(num_threads):
            client = kind(len(threads), target, keys[i::num_threads], over, counts[kind.__name__])
            threads.append(threading.Thread(target=client.run, name=kind.__name__, daemon=True))
    Bombs.prepare(task["bodies"])
    print("ready", flush=True)
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join(60)
        if not thread.is_alive():
            continue
        counts[thread.name]["waits for an answer that never comes"] += 1
    print(json.dumps(counts))


if __name__ == "__main__":
    main()

"""Refused bodies cost the gateway no more than what it holds of them at one time."""

import threading

import zstandard

from support.process_memory import PeakMemory
from support.raw_api import RawApi

BODY_BYTES = 40 << 20  # above 32 MiB malloc gives memory back at once
PROTO = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}


def test_fifty_bodies_that_cannot_be_read(api):
    memory = PeakMemory(api.server)
    body = b"\xff" * BODY_BYTES
    for _ in range(50):
        assert api.post("forward_backward", content=body, headers=PROTO).status_code == 400
    assert memory.growth() <= 2 * BODY_BYTES


def test_an_idle_connection_holds_no_body(api):
    clients = [RawApi(api.server) for _ in range(8)]
    memory = PeakMemory(api.server)
    for client in clients:
        for path, headers in (("forward_backward", PROTO), ("forward_backward", JSON)):
            assert client.post(path, content=b"\xff" * BODY_BYTES, headers=headers).status_code == 400
    assert memory.growth() <= 3 * BODY_BYTES
    for client in clients:
        client.close()


def test_large_bodies_on_every_kind_of_route(api):
    """Refused for the key, the route, the size, the encoding and the text."""
    body = b"\xff" * BODY_BYTES
    garbage = [("asample", JSON, 413), ("forward_backward", JSON, 400), ("get_info", JSON, 413),
               ("telemetry", JSON, 413), ("retrieve_future", JSON, 413), ("no_such_route", JSON, 404),
               ("forward_backward", {**PROTO, "Content-Encoding": "gzip"}, 415),
               ("forward_backward", {**PROTO, "Content-Encoding": "zstd"}, 400),
               ("forward_backward", {**PROTO, "X-API-Key": "tml-wrong"}, 401)]
    for path, headers, status in garbage:
        memory = PeakMemory(api.server)
        for _ in range(3):
            assert api.post(path, content=body, headers=headers).status_code == status, path
        assert memory.growth() <= 2 * BODY_BYTES, path


def test_json_of_many_small_values(api):
    """The costliest text there is: the parser's own tables are fourteen times what it reads, so it
    reads no more than 16 MiB at once."""
    piece = 16 << 20
    for body in (b"[" * piece, b"[" + b"0," * (piece // 2 - 1)):
        memory = PeakMemory(api.server)
        for _ in range(3):
            assert api.post("asample", content=body, headers=JSON).status_code == 400
        assert memory.growth() <= 14 * piece
    inside = b'{"forward_backward_input": {"loss_fn": "ppo", "data": ['
    for body in (b"[" * BODY_BYTES, b"[" + b"0," * (BODY_BYTES // 2), inside + b"0," * (BODY_BYTES // 2),
                 inside + b"[" * BODY_BYTES, inside + b'{"x": [' + b"0," * (BODY_BYTES // 2),
                 b'{"x": [' + b"0," * (BODY_BYTES // 2) + b"0]}"):
        memory = PeakMemory(api.server)
        for _ in range(3):
            assert api.post("forward_backward", content=body, headers=JSON).status_code in (400, 413)
        assert memory.growth() <= 2 * BODY_BYTES


def test_json_of_data(api):
    """What a program without the SDK sends, as large as it may be: twice the body at most.

    Each request is measured alone, because malloc keeps pieces of earlier ones for later ones."""
    numbers = ", ".join(["151643"] * 20_000)
    floats = ", ".join(["-0.0123"] * 20_000)
    datum = (f'{{"model_input": {{"chunks": [{{"type": "encoded_text", "tokens": [{numbers}]}}]}}, '
             f'"loss_fn_inputs": {{"target_tokens": {{"data": [{numbers}], "dtype": "int64"}}, '
             f'"weights": {{"data": [{floats}], "dtype": "float32"}}}}}}')
    num_datums = (100 << 20) // len(datum)
    body = ('{"forward_backward_input": {"loss_fn": "cross_entropy", "data": ['
            + ", ".join([datum] * num_datums) + ']}, "model_id": "absent", "seq_id": 1}').encode()
    for _ in range(3):
        memory = PeakMemory(api.server)
        assert api.post("forward_backward", content=body, headers=JSON).status_code == 404
        print(f"{len(body) >> 20} MB of JSON took {memory.growth() / len(body):.2f} times its size")
        assert memory.growth() <= 2 * len(body)


def test_bombs_are_not_inflated(api):
    memory = PeakMemory(api.server)
    bomb = zstandard.compress(b"\0" * (1 << 30))
    for _ in range(20):
        answer = api.post("forward_backward", content=bomb, headers={
            **PROTO, "Content-Encoding": "zstd"})
        assert answer.status_code == 413
    # The ratio counts from 8 MiB on.
    assert memory.growth() <= 32 << 20


def test_unfinished_heads_and_bodies_hold_little(api):
    """What a connection sends before it is let in is bounded: 200 of them, 32 KiB each."""
    import socket
    memory = PeakMemory(api.server)
    connections = []
    for i in range(200):
        connection = socket.create_connection(("127.0.0.1", api.server.port), timeout=30)
        connection.sendall(b"POST /api/v1/forward_backward HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 7000)
        connections.append(connection)
    assert api.get("healthz").status_code == 200
    assert memory.growth() <= 200 * (64 << 10)
    for connection in connections:
        connection.close()


def test_others_are_served_meanwhile(api):
    """While large bodies are refused on one key, another one's requests pass."""
    body = b"\xff" * BODY_BYTES
    flooding = RawApi(api.server)
    ended = threading.Event()

    def flood():
        for _ in range(5):
            flooding.post("forward_backward", content=body, headers=PROTO)
        ended.set()

    thread = threading.Thread(target=flood)
    thread.start()
    num_served = 0
    while not ended.is_set():
        assert api.get("get_server_capabilities").status_code == 200
        num_served += 1
    thread.join()
    assert num_served > 5

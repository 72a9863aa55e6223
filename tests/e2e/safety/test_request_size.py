"""A request costs the gateway at most three times its inflated body and 64 MiB, however many parts the
body has, and without a key 64 KiB.

Each case is answered while another client is served. Memory is that of the process at its peak."""

import pytest
import zstandard
from conftest import refused

from support.hostile_bodies import HOSTILE, IDS, MIB
from support.process_memory import PeakMemory
from support.raw_api import RawApi

PROTO = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
ZSTD = {"Content-Encoding": "zstd"}


@pytest.fixture
def memory(api):
    # The first requests make pools and caches.
    for path in ("forward_backward", "asample"):
        api.post(path, content=b"{}" * 300_000, headers=JSON)
    return PeakMemory(api.server)


def bound(body):
    return 3 * len(body) + 64 * MIB


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("encoding", [{}, ZSTD])
def test_protobuf_of_many_parts(api, memory, name, encoding):
    body = HOSTILE[name] + IDS
    sent = zstandard.compress(body) if encoding else body
    answer = api.post("forward_backward", content=sent, headers={**PROTO, **encoding})
    # A body that is read is refused by the engine, which has no such model.
    assert answer.status_code in (400, 404, 413), answer.text
    print(f"{name}: {memory.growth() / MIB:.0f} MiB for {len(sent)} bytes, {len(body) / MIB:.0f} MiB inflated")
    assert memory.growth() <= bound(body)


INPUT = b'{"forward_backward_input": {"loss_fn": "ppo", "data": [%s]}, "model_id": "absent", "seq_id": 1}'


@pytest.mark.parametrize("path, body", [
    ("forward_backward", INPUT % (b'{"model_input": {"chunks": [%s]}, "loss_fn_inputs": {}}' %
                                  b",".join([b'{"type": "x"}'] * 1_000_000))),
    ("forward_backward", INPUT % b",".join([
        b'{"model_input": {"chunks": [%s]}, "loss_fn_inputs": {}}' % b",".join([b'{"type": "x"}'] * 1000)] * 2000)),
    ("forward_backward", INPUT % b",".join([b'{"model_input": {"chunks": []}, "loss_fn_inputs": {}}'] * 500_000)),
    ("forward_backward", INPUT % (b'{"model_input": {"chunks": []}, "loss_fn_inputs": {"a": {"data": [%s], '
                                  b'"dtype": "int64"}}}' % b",".join([b"1"] * 4_000_000))),
    ("forward_backward", INPUT % (b'{"x": [%s]}' % b",".join([b"[1]"] * 3_000_000))),
    ("forward_backward", INPUT % (b'{"x": [%s]}' % b",".join([b"{}"] * 3_000_000))),
    ("asample", b'{"x": [%s]}' % b",".join([b"{}"] * 3_000_000)),
    ("asample", b'{"x": [%s]}' % b",".join([b"[1]"] * 3_000_000)),
    ("asample", b'{"x": {%s}}' % b",".join([b'"a":1'] * 2_000_000)),
    ("retrieve_futures", b'{"x": [%s]}' % b",".join([b"{}"] * 2_000_000)),
    ("retrieve_futures", b'{"x": {%s}}' % b",".join([b'"%06d":1' % i for i in range(700_000)])),
], ids=lambda value: value if isinstance(value, str) else "")
def test_json_of_many_parts(api, memory, path, body):
    answer = api.post(path, content=body, headers=JSON)
    assert answer.status_code in (400, 404, 413), answer.text
    print(f"{path}: {memory.growth() / MIB:.0f} MiB for {len(body) / MIB:.0f} MiB")
    assert memory.growth() <= bound(body)


@pytest.mark.parametrize("path", ["retrieve_future", "create_session", "telemetry", "client/config",
                                  "session_heartbeat", "asample", "retrieve_futures"])
def test_json_that_inflates(api, memory, path):
    """Nothing beyond the bound of the route, at any ratio."""
    body = b'{"a": [' + b"{}," * (20 * MIB) + b"{}]}"
    answer = api.post(path, content=zstandard.compress(body), headers={**JSON, **ZSTD})
    refused(answer, 413, "decompressed_too_large", "/api/v1/" + path)
    # The window and the output of zstd; nothing is parsed.
    assert memory.growth() <= 64 * MIB


def test_bodies_without_a_key(api):
    """Neither read nor inflated: of public routes, of others and of unknown ones."""
    anonymous = RawApi(api.server, key="")
    body = zstandard.compress(b'{"a": [' + b"{}," * (20 * MIB) + b"{}]}")
    anonymous.request("GET", "/livez")
    memory = PeakMemory(api.server)
    for method, path, status in [("GET", "/livez", 400), ("GET", "/docs", 400), ("GET", "/archive/x", 400),
                                 ("GET", "/traces/x", 400), ("POST", "forward_backward", 401),
                                 ("POST", "retrieve_future", 401), ("POST", "no_such_route", 404)] * 5:
        answer = anonymous.request(method, path, content=body, headers={**JSON, **ZSTD})
        assert answer.status_code == status, answer.text
    anonymous.close()
    assert memory.growth() <= 4 * MIB


def test_routes_that_take_no_body(api):
    for method, path in [("GET", "/livez"), ("GET", "/readyz"), ("GET", "healthz"), ("GET", "sessions"),
                         ("GET", "get_server_capabilities"), ("DELETE", "auth/apikey/me"),
                         ("POST", "training_runs/a:train:0/checkpoints/weights/b/publish")]:
        answer = api.request(method, path, content=b"{}")
        refused(answer, 400, "body_not_allowed", method, "takes no body")

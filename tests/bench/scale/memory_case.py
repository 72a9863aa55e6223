"""Case `memory` of scale_bench.py: the most memory that hostile bodies and connections cost."""

import contextlib
import http.client
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import zstandard

from hostile_clients import zeros
from null_service import NullService
from result import Broken, Row
from support.hostile_bodies import HOSTILE, IDS
from support.lathe_server import free_port
from support.process_memory import PeakMemory

MIB = 1 << 20
KIB = 1 << 10
PROTO = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
ZSTD = {"Content-Encoding": "zstd"}
# The limits of a process, by the inflated bytes of one body; MARGIN comes once more.
FACTORS = {"gateway": 3, "engine": 2}
MARGIN = 64 * MIB
PROCESSES = tuple(FACTORS)
# Expected answers: the body names no model, is wrong, too large, or one too many.
REFUSALS = (400, 404, 413, 429)
AT_ONCE = 12
BUDGET = 2 << 30  # of all bodies in flight; one key gets half of it
LARGE_MB, LARGE_CLIENTS = 50, 4  # of the op `bodies`
GRPC_CONNECTIONS = 200


def post(service, key, path, body, headers):
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    with contextlib.closing(connection):
        connection.request("POST", f"/api/v1/{path}", body, {"X-API-Key": key, **headers})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status not in REFUSALS:
            raise Broken(f"{path} of {len(body)} bytes: {answer.status} {text[:200]!r}")
        return answer.status


def peaks(service):
    return {name: PeakMemory(service, name) for name in PROCESSES}


def one_at_a_time(service, key, args):
    """Each body as it is and compressed: the one that takes most of its bound."""
    worst = {name: (0.0, "") for name in PROCESSES}
    chosen = list(HOSTILE)[:args.size.hostile_bodies]
    for name in chosen:
        body = HOSTILE[name] + IDS
        for headers in (PROTO, {**PROTO, **ZSTD}):
            sent = zstandard.compress(body) if headers is not PROTO else body
            memory = peaks(service)
            post(service, key, "forward_backward", sent, headers)
            for process, one in memory.items():
                share = one.growth() / (FACTORS[process] * len(body) + MARGIN)
                text = (f"{name}: {one.growth() / MIB:.0f} MiB for {len(body) / MIB:.0f} MiB, "
                        f"{len(sent):,} bytes on the wire")
                worst[process] = max(worst[process], (share, text))
    for process, (share, text) in worst.items():
        yield Row(f"{len(chosen)} hostile bodies, {process}: of {FACTORS[process]} x inflated + "
                  "64 MiB", "100 %", f"{100 * share:.0f} % ({text})", share <= 1)


def bombs(service, key):
    memory = peaks(service)
    bomb = zeros(1024)
    values = zstandard.compress(b'{"a": [' + b"{}," * (20 * MIB) + b"{}]}")
    for _ in range(3):
        post(service, key, "forward_backward", bomb, {**PROTO, **ZSTD})
        for path in ("retrieve_future", "create_session", "telemetry", "asample"):
            post(service, key, path, values, {**JSON, **ZSTD})
    for name, one in memory.items():
        yield Row(f"zstd bombs of 1 GiB and 60 MiB, {name}", "64 MiB",
                  f"{one.growth() / MIB:.0f} MiB", one.growth() <= MARGIN)


def at_once(service, key):
    bodies = [HOSTILE[name] + IDS for name in (
        "one large text", "one large string", "chunks of text within their bound",
        "tensors within their bound")]
    memory = PeakMemory(service)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        statuses = list(pool.map(
            lambda i: post(service, key, "forward_backward", bodies[i % len(bodies)], PROTO),
            range(3 * AT_ONCE)))
    counts = ", ".join(f"{statuses.count(one)} x {one}" for one in sorted(set(statuses)))
    bound = BUDGET + MARGIN
    yield Row(f"{AT_ONCE} hostile bodies at once, gateway: budget + 64 MiB",
              f"{bound / MIB:.0f} MiB", f"{memory.growth() / MIB:.0f} MiB ({counts})",
              memory.growth() <= bound)


def accepted(service, args):
    """A body of each of four clients. The engine keeps them, because a recovery would need them."""
    load = service.load("sender")
    load.run(op="steps", clients=1, seconds=0.1)
    memory = peaks(service)
    megabytes = LARGE_MB if args.scale == "full" else 2
    sent = load.run(op="bodies", megabytes=megabytes, per_second=20, seconds=LARGE_CLIENTS / 20)
    load.close()
    num_sent = sent["bodies"]["requests"]
    for name, factor in FACTORS.items():
        bound, growth = factor * num_sent * sent["body_bytes"] + MARGIN, memory[name].growth()
        yield Row(f"{num_sent} accepted bodies of {megabytes} MB at once, {name}: {factor} x these "
                  "+ 64 MiB", f"{bound / MIB:.0f} MiB", f"{growth / MIB:.0f} MiB", growth <= bound)


def http_connections(service, count):
    """Some stop within their head, the others within a body that nobody has asked for."""
    head = b"POST /api/v1/forward_backward HTTP/1.1\r\nHost: localhost\r\n"
    parts = (head + b"X: " + b"a" * 7000,
             head + b"Content-Length: 100000000\r\n\r\n" + b"a" * 60_000)
    with contextlib.ExitStack() as stack:
        for i in range(count):
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", service.port), timeout=30))
            with contextlib.suppress(ConnectionError):  # refused before it was all sent
                connection.sendall(parts[i % 2])
        yield


def grpc_connections(service, count):
    channels = []
    for _ in range(count):
        channel = grpc.insecure_channel(service.grpc_address,
                                        options=[("grpc.use_local_subchannel_pool", 1)])
        channels.append(channel)
        call = channel.stream_stream("/lathe.v1.Engine/Watch")(iter([b"\x0a\x03\x0a\x01x"]))
        with contextlib.suppress(grpc.RpcError):
            next(call)
    yield
    for channel in channels:
        channel.close()


def without_key(service, args):
    most = args.size.connections
    for name, opened, count in (("HTTP", http_connections, most),
                                ("gRPC", grpc_connections, min(most, GRPC_CONNECTIONS))):
        memory = peaks(service)
        with contextlib.contextmanager(opened)(service, count):
            time.sleep(1)
            for process, one in memory.items():
                growth = one.growth() / count
                yield Row(f"{count} {name} connections without a key, {process}, each", "64 KiB",
                          f"{growth / KIB:.1f} KiB", growth <= 64 * KIB)


def memory(store, args):
    grpc_port = free_port()
    gateway = ("--grpc-listen", f"127.0.0.1:{grpc_port}", "--max-inflight-bytes", str(BUDGET))
    with NullService(store, gateway=gateway) as service:
        service.grpc_address = f"127.0.0.1:{grpc_port}"
        key = service.key()
        for path in ("forward_backward", "asample"):  # makes pools and caches
            post(service, key, path, b"{}" * 300_000, JSON)
        yield from without_key(service, args)
        yield from one_at_a_time(service, key, args)
        yield from bombs(service, key)
        yield from at_once(service, key)
        yield from accepted(service, args)
        for name, process in service.processes.items():
            if process.poll() is not None:
                raise Broken(f"{name} ended:\n{service.log(name)[-2000:]}")

"""gRPC clients that do not read, or have no key, cost the processes little."""

import threading
import time

import grpc
import pytest
from support.lathe_server import LatheServer, free_port, tiny_model
from support.process_memory import PeakMemory

ID_BYTES = 50_000
NUM_REQUESTS = 6000


@pytest.fixture(scope="module")
def lathe():
    port = free_port()
    with LatheServer(tiny_model(), args=["--grpc-listen", f"127.0.0.1:{port}"]) as server:
        server.grpc_address = f"127.0.0.1:{port}"
        yield server


def field(number, value):
    """A length-delimited protobuf field."""
    size, head = len(value), bytes([number << 3 | 2])
    while size >= 0x80:
        head += bytes([size & 0x7F | 0x80])
        size >>= 7
    return head + bytes([size]) + value


class Flood:
    """Subscribes to ids of 50 kB on one Watch stream, whose answers repeat them, and reads none."""

    def __init__(self, channel, key):
        self.num_sent = 0
        self.is_over = threading.Event()
        message = field(1, field(1, b"x" * ID_BYTES))
        metadata = [("x-api-key", key)] if key else []
        self.call = channel.stream_stream("/lathe.v1.Engine/Watch")(self.messages(message),
                                                                   metadata=metadata)

    def messages(self, message):
        for _ in range(NUM_REQUESTS):
            if self.is_over.is_set():
                return
            self.num_sent += 1
            yield message

    def settle(self):
        """Until the stream takes nothing more."""
        last = -1
        while last != self.num_sent:
            last = self.num_sent
            time.sleep(1)

    def end(self):
        self.is_over.set()
        self.call.cancel()


@pytest.mark.parametrize("has_key", [True, False])
def test_a_stream_that_is_not_read_fills_no_memory(lathe, has_key):
    gateway, engine = PeakMemory(lathe), PeakMemory(lathe, "engine")
    with grpc.insecure_channel(lathe.grpc_address) as channel:
        floods = [Flood(channel, lathe.api_key if has_key else "") for _ in range(4)]
        for flood in floods:
            flood.settle()
        if has_key:
            assert all(flood.num_sent < NUM_REQUESTS / 2 for flood in floods)
        else:
            assert all(flood.call.code() == grpc.StatusCode.UNAUTHENTICATED for flood in floods)
        print(f"gateway {gateway.growth() >> 20} MiB, engine {engine.growth() >> 20} MiB")
        assert gateway.growth() <= 64 << 20
        assert engine.growth() <= 64 << 20
        for flood in floods:
            flood.end()


def test_a_large_message_without_a_key_is_not_read(lathe):
    memory = PeakMemory(lathe)
    body = field(1, b"m" * (100 << 20))
    with grpc.insecure_channel(lathe.grpc_address,
                               options=[("grpc.max_send_message_length", -1)]) as channel:
        call = channel.unary_unary("/lathe.v1.Engine/ForwardBackward")
        for _ in range(3):
            with pytest.raises(grpc.RpcError) as error:
                call(body, metadata=[("x-api-key", "tml-wrong")], timeout=60)
            assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert memory.growth() <= 16 << 20

"""What a forward_backward of 100 MB costs the gateway's memory, in each form a client may send.

The model does not exist, so the engine refuses what it has received and no worker computes; the
gateway has read, parsed and handed on the whole body by then. Goal: 3 times the body.
Run: .venv/bin/python tests/bench/gateway/body_memory.py [--mb 100]
"""

import argparse
import json
import os
import pathlib
import random
import struct
import sys

import zstandard
from tinker.proto import tinker_public_pb2

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402
from support.raw_api import RawApi  # noqa: E402

DATUM_TOKENS = 1063
# Drawn, then repeated: more of them than zstd looks back at.
NUM_DATUMS = 300
NAME, SEQ_ID, LOSS = "bench:train:0", 1, "cross_entropy"


def draw(seed):
    """Tokens, targets and weights of one datum."""
    rng = random.Random(seed)
    tokens = [rng.randrange(151936) for _ in range(DATUM_TOKENS + 1)]
    return tokens[:-1], tokens[1:], [round(rng.random(), 6) for _ in range(DATUM_TOKENS)]


def protobuf_body(num_bytes):
    drawn = [draw(seed) for seed in range(NUM_DATUMS)]
    request = tinker_public_pb2.ForwardBackwardRequest(model_id=NAME, seq_id=SEQ_ID, loss_fn=LOSS)
    while request.ByteSize() < num_bytes:
        for seed in range(NUM_DATUMS):
            tokens, targets, weights = drawn[seed]
            datum = request.data.add()
            datum.model_input.add().encoded_text.tokens = struct.pack(f"<{len(tokens)}i", *tokens)
            for name, dtype, code, values in (("target_tokens", "DTYPE_INT64", "q", targets),
                                              ("weights", "DTYPE_FLOAT32", "f", weights)):
                tensor = datum.loss_fn_inputs[name]
                tensor.dtype = tinker_public_pb2.DType.Value(dtype)
                tensor.dense = struct.pack(f"<{len(values)}{code}", *values)
    return request.SerializeToString()


def json_body(num_bytes):
    tensor = lambda data, dtype: {"data": data, "dtype": dtype, "shape": [len(data)]}
    block = ",".join(json.dumps({
        "model_input": {"chunks": [{"type": "encoded_text", "tokens": tokens}]},
        "loss_fn_inputs": {"target_tokens": tensor(targets, "int64"),
                           "weights": tensor(weights, "float32")}}, separators=(",", ":"))
        for tokens, targets, weights in map(draw, range(NUM_DATUMS)))
    data = ",".join([block] * (num_bytes // len(block) + 1))
    return (f'{{"forward_backward_input":{{"loss_fn":"{LOSS}","data":[{data}]}},'
            f'"model_id":"{NAME}","seq_id":{SEQ_ID}}}').encode()


class Memory:
    def __init__(self, server):
        self.process = pathlib.Path("/proc", str(server.pids()["gateway"]))

    def peak(self):
        status = (self.process / "status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    def growth(self, call):
        (self.process / "clear_refs").write_text("5")  # the peak becomes the present size
        begin = self.peak()
        call()
        return self.peak() - begin


def measure(args):
    num_bytes = args.mb * 1_000_000
    with LatheServer(tiny_model()) as server:
        api, memory = RawApi(server), Memory(server)
        for kind, make in (("x-protobuf", protobuf_body), ("json", json_body)):
            body = make(num_bytes)
            for name, sent, headers in ((kind, body, {}), (
                    kind + ", zstd", zstandard.compress(body), {"Content-Encoding": "zstd"})):
                statuses = []
                growth = memory.growth(lambda: statuses.append(api.post(
                    "forward_backward", content=sent,
                    headers={"Content-Type": "application/" + kind, **headers}).status_code))
                print(f"{name:18s} {len(sent) / 1e6:6.1f} MB sent, {len(body) / 1e6:6.1f} MB inflated: "
                      f"{growth / 1e6:6.1f} MB more, {growth / len(body):.2f} times the body "
                      f"(answered {statuses[0]})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=100)
    measure(parser.parse_args())

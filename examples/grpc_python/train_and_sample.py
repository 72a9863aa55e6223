#!/usr/bin/env python3
"""Trains and samples over gRPC, without the tinker SDK.

    lathe up --model NAME=PATH --grpc-listen 127.0.0.1:8090
    pip install -r examples/grpc_python/requirements.txt
    python examples/grpc_python/train_and_sample.py --address 127.0.0.1:8090 --api-key KEY

Teaches a LoRA adapter to go round a ring of six token ids, then streams a sample from it, token by
token. Ends with 1 when the sample does not follow the ring. `--ca FILE` speaks TLS, with `--cert`
and `--key` it shows a client certificate too.
"""

import argparse
import pathlib
import sys
import tempfile
import time

import grpc
import numpy

from make_stubs import make_stubs

_stubs = tempfile.mkdtemp(prefix="lathe-stubs-")
make_stubs(pathlib.Path(_stubs))
sys.path.insert(0, _stubs)

from protos.lathe.v1 import engine_pb2, engine_pb2_grpc  # noqa: E402
from protos.lathe.v1 import streaming_pb2, streaming_pb2_grpc  # noqa: E402
from protos.lathe.v1 import types_pb2  # noqa: E402

RING = [11, 12, 13, 14, 15, 16]
# GetResult waits this long at the server; the call's own deadline is a little longer.
WAIT_MS = 20_000
# How long an engine may be away.
RECONNECT_SECONDS = 60


def packed(values, dtype) -> bytes:
    """Arrays travel as little-endian bytes."""
    return numpy.asarray(values, dtype=numpy.dtype(dtype).newbyteorder("<")).tobytes()


def ring_tokens(start: int, length: int) -> list[int]:
    return [RING[(start + i) % len(RING)] for i in range(length)]


def ring_datum(start: int) -> types_pb2.Datum:
    tokens = ring_tokens(start, 13)
    targets = types_pb2.Tensor(dtype=types_pb2.DTYPE_INT64, dense=packed(tokens[1:], "i8"))
    weights = types_pb2.Tensor(dtype=types_pb2.DTYPE_FLOAT32, dense=packed([1.0] * 12, "f4"))
    return types_pb2.Datum(
        model_input=[types_pb2.Chunk(tokens=packed(tokens[:-1], "i4"))],
        # Sorted by name.
        loss_fn_inputs=[types_pb2.NamedTensor(name="target_tokens", tensor=targets),
                        types_pb2.NamedTensor(name="weights", tensor=weights)])


class Lathe:
    """The calls this example needs. Every call carries the key in the metadata `x-api-key`."""

    def __init__(self, channel: grpc.Channel, api_key: str):
        self._engine = engine_pb2_grpc.EngineStub(channel)
        self._streaming = streaming_pb2_grpc.StreamingStub(channel)
        self._metadata = [("x-api-key", api_key)]

    def call(self, method: str, request, timeout: float = 30):
        return getattr(self._engine, method)(request, metadata=self._metadata, timeout=timeout)

    def result(self, request_id: str) -> types_pb2.OperationResult:
        """Polls until the operation is done; a failed operation raises."""
        request = engine_pb2.GetResultRequest(request_id=request_id, wait_ms=WAIT_MS)
        while True:
            response = self.call("GetResult", request, timeout=WAIT_MS / 1000 + 5)
            if not response.HasField("result"):
                continue
            if response.result.HasField("error"):
                raise RuntimeError(f"{request_id}: {response.result.error.message}")
            return response.result

    def run(self, method: str, request) -> types_pb2.OperationResult:
        return self.result(self.call(method, request).request_id)

    def sample_tokens(self, request: engine_pb2.SampleRequest):
        """Yields (sample index, tokens, stop); leaving the loop early cancels the sample.

        A stream that was cut by a restart of the engine goes on: the same request again gives the
        same tokens from the first, and those that are known are passed over.
        """
        known: dict[int, int] = {}  # tokens so far, by sample
        give_up_at = time.monotonic() + RECONNECT_SECONDS
        while True:
            stream = self._streaming.SampleStream(request, metadata=self._metadata, timeout=120)
            try:
                for response in stream:
                    give_up_at = time.monotonic() + RECONNECT_SECONDS
                    if not response.HasField("tokens"):
                        continue
                    update = response.tokens
                    tokens = numpy.frombuffer(update.tokens, "<i4").tolist()
                    tokens = tokens[max(0, known.get(update.sample_index, 0) - update.token_index):]
                    known[update.sample_index] = known.get(update.sample_index, 0) + len(tokens)
                    if tokens or update.stop:
                        yield update.sample_index, tokens, update.stop
                return
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > give_up_at:
                    raise
                time.sleep(0.2)
            finally:
                stream.cancel()


def train(lathe: Lathe, session_id: str, base_model: str, steps: int, learning_rate: float) -> str:
    """Returns the id of a sampling session over the trained weights."""
    lora = types_pb2.LoraConfig(rank=8, seed=0, train_attn=True, train_mlp=True, train_unembed=True)
    model = lathe.run("CreateModel", engine_pb2.CreateModelRequest(
        session_id=session_id, model_seq_id=0, base_model=base_model, lora_config=lora))
    model_id = model.create_model.model_id
    data = [ring_datum(start) for start in range(len(RING))]
    num_targets = 12 * len(data)
    seq_id = 0  # of the model's operations: 1, 2, …; the server keeps their order
    for step in range(steps):
        forward_backward = lathe.call("ForwardBackward", engine_pb2.ForwardBackwardRequest(
            model_id=model_id, seq_id=seq_id + 1, data=data,
            loss=types_pb2.LossSpec(name="cross_entropy")))
        # Sent at once: the step waits for its gradient at the server.
        optim_step = lathe.call("OptimStep", engine_pb2.OptimStepRequest(
            model_id=model_id, seq_id=seq_id + 2, adam_params=types_pb2.AdamParams(
                learning_rate=learning_rate, beta1=0.9, beta2=0.95, eps=1e-8)))
        seq_id += 2
        metrics = lathe.result(forward_backward.request_id).forward_backward.metrics
        loss = next(metric.value for metric in metrics if metric.name == "loss:sum") / num_targets
        lathe.result(optim_step.request_id)
        print(f"step {step:2d}  loss {loss:7.4f}", flush=True)
    saved = lathe.run("SaveWeightsForSampler", engine_pb2.SaveWeightsForSamplerRequest(
        model_id=model_id, seq_id=seq_id + 1, sampling_session_seq_id=0))
    return saved.save_weights_for_sampler.sampling_session_id


def sample(lathe: Lathe, sampling_session_id: str, num_tokens: int) -> bool:
    request = engine_pb2.SampleRequest(
        sampling_session_id=sampling_session_id, seq_id=0, num_samples=1,
        prompt=[types_pb2.Chunk(tokens=packed(RING, "i4"))],
        params=types_pb2.SamplingParams(max_tokens=num_tokens, temperature=0, top_k=-1, top_p=1))
    tokens = []
    for _, more, stop in lathe.sample_tokens(request):
        tokens += more
        print(f"sampled {tokens}", flush=True)
        if stop == streaming_pb2.SAMPLE_STOP_LENGTH:
            print("stopped by max_tokens")
    return tokens == ring_tokens(0, num_tokens)


def open_channel(args: argparse.Namespace) -> grpc.Channel:
    # The default of 4 MiB is less than a large training request or result.
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    if not args.ca:
        return grpc.insecure_channel(args.address, options)
    read = pathlib.Path.read_bytes
    credentials = grpc.ssl_channel_credentials(
        root_certificates=read(args.ca),
        private_key=read(args.key) if args.key else None,
        certificate_chain=read(args.cert) if args.cert else None)
    return grpc.secure_channel(args.address, credentials, options)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", required=True, help="HOST:PORT of --grpc-listen")
    parser.add_argument("--api-key", required=True)
    parser.add_argument("--ca", type=pathlib.Path, help="PEM file: trust this and speak TLS")
    parser.add_argument("--cert", type=pathlib.Path, help="PEM file of a client certificate")
    parser.add_argument("--key", type=pathlib.Path, help="PEM file of its private key")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--learning-rate", type=float, default=4e-3,
                        help="high, for a tiny model; a real one wants about 1e-4")
    return parser.parse_args()


def main() -> int:
    args = parse_arguments()
    with open_channel(args) as channel:
        lathe = Lathe(channel, args.api_key)
        try:
            models = lathe.call("GetCapabilities", engine_pb2.GetCapabilitiesRequest()).models
            session = lathe.call("CreateSession", engine_pb2.CreateSessionRequest(
                ordering=engine_pb2.SESSION_ORDERING_SERIAL))
            sampling_session_id = train(lathe, session.session_id, models[0].name, args.steps,
                                        args.learning_rate)
            is_right = sample(lathe, sampling_session_id, args.tokens)
            lathe.call("FinishSession", engine_pb2.FinishSessionRequest(
                session_id=session.session_id, reason="success"))
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}", file=sys.stderr)
            return 1
    print("the sample follows the ring" if is_right else "the sample leaves the ring")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())

"""A SampleStream that a crash cuts goes on with the same tokens."""

import importlib
import itertools

import grpc
import numpy
import pytest
from support.lathe_server import ROOT, LatheServer, free_port, tiny_model

PROMPT = [30, 31, 32, 33]
TOKENS = 2000
# Makes that many passes some seconds: far from done when a process that was killed is back.
SLOW = {"LATHE_FAIL_POINTS": "worker.decode.pass=sleep:3"}
SAMPLES = 2
ARRIVED = 40  # tokens, before that


@pytest.fixture(scope="module")
def example():
    """The module of the example, with the stubs it makes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples" / "grpc_python"))
        yield importlib.import_module("train_and_sample")


@pytest.fixture(scope="module")
def server():
    port = free_port()
    with LatheServer(tiny_model(), args=["--grpc-listen", f"127.0.0.1:{port}"],
                     env=SLOW) as running:
        running.grpc_address = f"127.0.0.1:{port}"
        yield running


class Sampler:
    """A client with a sampling session of the base model, and what a seed gives undisturbed."""

    def __init__(self, example, server, channel):
        self.example, self.lathe = example, example.Lathe(channel, server.api_key)
        pb2 = example.engine_pb2
        session = self.lathe.call("CreateSession", pb2.CreateSessionRequest()).session_id
        self.id = self.lathe.call("CreateSamplingSession", pb2.CreateSamplingSessionRequest(
            session_id=session, sampling_session_seq_id=0,
            base_model=server.model_name)).sampling_session_id
        self.seq_ids = itertools.count()
        result = self.lathe.run("Sample", self.request()).sample
        self.expected = [numpy.frombuffer(sequence.tokens, "<i4").tolist()
                         for sequence in result.sequences]

    def request(self):
        types_pb2 = self.example.types_pb2
        return self.example.engine_pb2.SampleRequest(
            sampling_session_id=self.id, seq_id=next(self.seq_ids), num_samples=SAMPLES,
            prompt=[types_pb2.Chunk(tokens=numpy.array(PROMPT, "<i4").tobytes())],
            params=types_pb2.SamplingParams(temperature=1, top_k=-1, top_p=1, seed=5,
                                            max_tokens=TOKENS,
                                            stop_strings=types_pb2.StopStrings()))

    def read(self, request, interrupt=None):
        """Tokens by sample; `interrupt` is called once some have arrived. Sees to it that the rest
        comes as it is sampled: the result alone would be one message for each sample."""
        tokens = [[] for _ in range(SAMPLES)]
        ends, num_messages = [0] * SAMPLES, 0
        for index, more, stop in self.lathe.sample_tokens(request):
            tokens[index] += more
            ends[index] += bool(stop)
            num_messages += 1
            if interrupt and len(tokens[0]) >= ARRIVED:
                assert len(tokens[0]) < TOKENS, "the sample was over before the crash"
                interrupt()
                interrupt, num_messages = None, 0
        assert interrupt is None
        print(f"{num_messages} messages")
        assert num_messages > 2 * SAMPLES
        assert ends == [1] * SAMPLES
        return tokens


@pytest.fixture(scope="module")
def sampler(example, server):
    with grpc.insecure_channel(server.grpc_address) as channel:
        yield Sampler(example, server, channel)


@pytest.mark.parametrize("process", ["engine", "worker"])
def test_a_stream_goes_on_after_a_crash(server, sampler, process):
    def crash():
        server.wait_restarted(process, server.kill(process))

    assert sampler.read(sampler.request(), crash) == sampler.expected


def test_a_stream_of_a_sample_that_runs_begins_at_its_first_token(server, sampler):
    request = sampler.request()
    sampler.lathe.call("Sample", request)
    assert sampler.read(request) == sampler.expected

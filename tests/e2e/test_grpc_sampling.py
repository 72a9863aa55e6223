"""What a sample asks for, over gRPC: scores in the stream's last message, stops of any bytes."""

import sys

import grpc
import numpy
import pytest
import transformers
from support.lathe_server import ROOT, LatheServer, free_port, tiny_model

PROMPT = [30, 31, 32, 33]


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stubs")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples" / "grpc_python"))
        from make_stubs import make_stubs
        make_stubs(folder)
        patch.syspath_prepend(str(folder))
        from protos.lathe.v1 import (engine_pb2, engine_pb2_grpc, streaming_pb2_grpc, types_pb2)
        yield engine_pb2, engine_pb2_grpc, streaming_pb2_grpc, types_pb2


@pytest.fixture(scope="module")
def server():
    port = free_port()
    with LatheServer(tiny_model(), args=["--grpc-listen", f"127.0.0.1:{port}"]) as running:
        running.grpc_address = f"127.0.0.1:{port}"
        yield running


@pytest.fixture(scope="module")
def stream(stubs, server):
    """Streams one sample with `params` and other fields; (events, end)."""
    engine_pb2, engine_pb2_grpc, streaming_pb2_grpc, types_pb2 = stubs
    with grpc.insecure_channel(server.grpc_address) as channel:
        engine = engine_pb2_grpc.EngineStub(channel)
        key = [("x-api-key", server.api_key)]
        session = engine.CreateSession(engine_pb2.CreateSessionRequest(), metadata=key, timeout=20)
        sampler = engine.CreateSamplingSession(engine_pb2.CreateSamplingSessionRequest(
            session_id=session.session_id, sampling_session_seq_id=0,
            base_model=server.model_name), metadata=key, timeout=20).sampling_session_id
        seq_ids = iter(range(1000))

        def call(params, **fields):
            request = engine_pb2.SampleRequest(
                sampling_session_id=sampler, seq_id=next(seq_ids), num_samples=1,
                prompt=[types_pb2.Chunk(tokens=numpy.array(PROMPT, "<i4").tobytes())],
                params=types_pb2.SamplingParams(
                    **{"temperature": 1, "top_k": -1, "top_p": 1, "seed": 3, "max_tokens": 40,
                       **params}), **fields)
            events = list(streaming_pb2_grpc.StreamingStub(channel).SampleStream(
                request, metadata=key, timeout=60))
            tokens = b"".join(event.tokens.tokens for event in events)
            return numpy.frombuffer(tokens, "<i4").tolist(), events, events[-1].end

        yield call


def test_the_streams_end_has_every_score(stream, stubs):
    types_pb2 = stubs[3]
    targets = types_pb2.Tensor(dtype=types_pb2.DTYPE_INT64, shape=[3, 1],
                               dense=numpy.array([31, -1, 33], "<i8").tobytes())
    tokens, events, end = stream(
        {"max_tokens": 5, "min_p": 0.01, "stop_strings": types_pb2.StopStrings()},
        prompt_logprobs=True, topk_sample_logprobs=2, target_prompt_logprobs=targets,
        prompt_alt_tokens_k=4)
    prompt_logprobs = numpy.frombuffer(end.prompt_logprobs, "<f4")
    scored = numpy.frombuffer(end.target_prompt_logprobs.dense, "<f4")
    assert scored.tolist() == [prompt_logprobs[1], 0.0, prompt_logprobs[3]]
    assert list(end.target_prompt_logprobs.shape) == [3, 1]
    assert list(end.prompt_alt_tokens.tokens.shape) == [3, 4]
    assert len(end.prompt_alt_tokens.logprobs.dense) == 3 * 4 * 4
    (top,) = end.topk_sample_logprobs
    assert (top.length, top.k) == (len(tokens), 2) == (5, 2)


def test_a_stop_of_bytes_that_are_no_text_ends_a_sample(stream, stubs, server):
    types_pb2 = stubs[3]
    tokenizer = transformers.AutoTokenizer.from_pretrained(server.model)
    byte_of = {symbol: byte for byte, symbol in
               transformers.convert_slow_tokenizer.bytes_to_unicode().items()}
    free, _, _ = stream({"stop_strings": types_pb2.StopStrings()})
    pieces = [bytes(byte_of[symbol] for symbol in tokenizer.convert_ids_to_tokens(token))
              for token in free if token not in tokenizer.all_special_ids]
    lone = next(bytes([byte]) for piece in pieces for byte in piece if byte >= 0x80)
    with pytest.raises(UnicodeDecodeError):
        lone.decode()
    got, events, _ = stream({"stop_strings": types_pb2.StopStrings(values=[lone])})
    first = next(i for i, token in enumerate(free) if token not in tokenizer.all_special_ids
                 and lone in bytes(byte_of[symbol] for symbol in
                                   tokenizer.convert_ids_to_tokens(token)))
    assert got == free[:first + 1]
    assert events[-2].tokens.stop == 1  # SAMPLE_STOP_STOPPED

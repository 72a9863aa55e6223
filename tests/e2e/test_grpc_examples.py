"""The gRPC examples run as users run them, and what probes and tools rely on answers."""

import re
import subprocess
import sys

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from support.lathe_server import ROOT, LatheServer, free_port, tiny_model

NODE_EXAMPLE = ROOT / "examples" / "grpc_node"


@pytest.fixture(scope="module")
def server():
    port = free_port()
    with LatheServer(tiny_model(), args=["--grpc-listen", f"127.0.0.1:{port}"],
                     env={"LATHE_GATEWAY__REFLECTION": "true"}) as running:
        running.grpc_address = f"127.0.0.1:{port}"
        yield running


def check_output(output):
    losses = [float(value) for value in re.findall(r"^step .* loss +([\d.]+)", output, re.M)]
    assert len(losses) == 12
    assert losses[-1] < losses[0] / 4
    sampled = re.findall(r"^sampled \[(.*)\]$", output, re.M)
    assert len(sampled) > 1, "the tokens came all at once"
    assert len(sampled[-1].split(",")) == 8
    assert "the sample follows the ring" in output


def run(command, cwd=ROOT):
    result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    return result.returncode, result.stdout + result.stderr


def test_python_example_trains_and_streams(server):
    code, output = run([sys.executable, "examples/grpc_python/train_and_sample.py",
                        "--address", server.grpc_address, "--api-key", server.api_key])
    assert code == 0, output
    check_output(output)


def test_node_example_trains_and_streams(server):
    code, output = run(["node", str(NODE_EXAMPLE / "train_and_sample.js"),
                        "--address", server.grpc_address, "--api-key", server.api_key])
    assert code == 0, output
    check_output(output)


def test_examples_name_the_error_of_a_wrong_key(server):
    for command in ([sys.executable, "examples/grpc_python/train_and_sample.py"],
                    ["node", str(NODE_EXAMPLE / "train_and_sample.js")]):
        code, output = run([*command, "--address", server.grpc_address, "--api-key", "tml-wrong"])
        assert code == 1, output
        assert "UNAUTHENTICATED" in output


def test_health_answers_by_service(server):
    with grpc.insecure_channel(server.grpc_address) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "lathe.v1.Engine", "lathe.v1.Streaming"):
            answer = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING, service
        with pytest.raises(grpc.RpcError) as error:
            health.Check(health_pb2.HealthCheckRequest(service="lathe.v1.Admin"), timeout=10)
        assert error.value.code() == grpc.StatusCode.NOT_FOUND


def test_reflection_lists_the_public_services(server):
    with grpc.insecure_channel(server.grpc_address) as channel:
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (answer,) = reflection.ServerReflectionInfo(iter([request]), timeout=10)
        names = {service.name for service in answer.list_services_response.service}
    assert {"lathe.v1.Engine", "lathe.v1.Streaming", "grpc.health.v1.Health"} <= names
    assert "lathe.v1.Admin" not in names
    assert "lathe.v1.WorkerPool" not in names


def test_error_details_are_a_google_rpc_status(server, tmp_path):
    sys.path.insert(0, str(ROOT / "examples" / "grpc_python"))
    from make_stubs import make_stubs
    make_stubs(tmp_path)
    sys.path.insert(0, str(tmp_path))
    from google.protobuf import any_pb2
    from protos.lathe.v1 import engine_pb2, engine_pb2_grpc, types_pb2
    with grpc.insecure_channel(server.grpc_address) as channel:
        with pytest.raises(grpc.RpcError) as raised:
            engine_pb2_grpc.EngineStub(channel).GetModel(
                engine_pb2.GetModelRequest(model_id="absent"),
                metadata=[("x-api-key", server.api_key)], timeout=10)
    error = raised.value
    assert error.code() == grpc.StatusCode.NOT_FOUND
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    # google.rpc.Status: code = 1, message = 2, details = 3; read without its Python package.
    any_detail = any_pb2.Any.FromString(details[details.index(b"type.googleapis.com") - 2:])
    lathe_error = types_pb2.Error()
    assert any_detail.Unpack(lathe_error)
    assert lathe_error.code == "not_found"
    assert lathe_error.field == "model_id"
    assert lathe_error.category == types_pb2.ERROR_CATEGORY_USER

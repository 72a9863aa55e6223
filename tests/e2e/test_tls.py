"""TLS and mTLS of the two public listeners, the exchange of certificates while they run, and who may
open an address that other machines reach."""

import os
import pathlib
import re
import socket
import ssl
import subprocess
import sys

import httpx
import pytest
from support.certificates import Authority
from support.lathe_server import BIN, ROOT, LatheServer, free_port, tiny_model
from support.waiting import wait_until

SDK_PROGRAM = """
import sys, tinker
from tinker import types
service = tinker.ServiceClient(base_url=sys.argv[1], api_key=sys.argv[2])
client = service.create_lora_training_client(base_model="tiny", rank=4)
client = client.result() if hasattr(client, "result") else client
datum = types.Datum(model_input=types.ModelInput.from_ints([1, 2, 3]),
                    loss_fn_inputs={"target_tokens": [2, 3, 4], "weights": [1.0, 1.0, 1.0]})
print("loss", client.forward_backward([datum], "cross_entropy").result().metrics["loss:sum"])
"""


class TlsServer(LatheServer):
    def __init__(self, authority, *args):
        self.grpc_port = free_port()
        super().__init__(tiny_model(), args=[
            "--grpc-listen", f"127.0.0.1:{self.grpc_port}", "--tls-cert", authority.cert("server"),
            "--tls-key", authority.key("server"), *args])
        self.url = f"https://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    made = Authority(tmp_path_factory.mktemp("tls"))
    made.issue("server")
    made.issue("client")
    return made


@pytest.fixture(scope="module")
def server(authority):
    with TlsServer(authority) as running:
        yield running


@pytest.fixture(scope="module")
def mutual(tmp_path_factory):
    """A server that asks for client certificates, with an authority of its own."""
    made = Authority(tmp_path_factory.mktemp("mtls"))
    made.issue("server")
    made.issue("client")
    with TlsServer(made, "--tls-client-ca", made.ca) as running:
        running.authority = made
        yield running


def client_context(authority, certificate=None):
    context = ssl.create_default_context(cafile=authority.ca)
    if certificate:
        context.load_cert_chain(certificate.cert("client"), certificate.key("client"))
    return context


def health(server, context):
    with httpx.Client(verify=context, timeout=10) as client:
        return client.get(server.url + "/api/v1/healthz")


def served_certificate(port, authority, alpn=None):
    context = ssl.create_default_context(cafile=authority.ca)
    if alpn:
        context.set_alpn_protocols(alpn)
    with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
        with context.wrap_socket(raw, server_hostname="127.0.0.1") as tls:
            return tls.getpeercert()["serialNumber"], tls.selected_alpn_protocol()


def serial_of(path):
    """The serial number of the certificate in the file."""
    text = subprocess.run(["openssl", "x509", "-noout", "-serial", "-in", path], check=True,
                          capture_output=True, text=True).stdout
    return text.strip().removeprefix("serial=")


def serves_another(port, authority, alpn, before):
    return served_certificate(port, authority, alpn)[0] != before


@pytest.mark.each_sdk
def test_the_sdk_trains_over_https(server, authority):
    assert f"ready    API {server.url}" in server.output()
    result = subprocess.run([sys.executable, "-c", SDK_PROGRAM, server.url, server.api_key],
                            env={**os.environ, "SSL_CERT_FILE": authority.ca},
                            capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr
    assert re.search(r"^loss \d", result.stdout, re.M)


def test_answers_under_tls_say_so(server, authority):
    answer = health(server, client_context(authority))
    assert answer.status_code == 200
    assert answer.headers["strict-transport-security"] == "max-age=31536000"


def test_a_client_that_trusts_another_authority_refuses(server, tmp_path, authority):
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        health(server, client_context(Authority(tmp_path)))
    assert health(server, client_context(authority)).status_code == 200


def test_plain_http_gets_no_answer(server, authority):
    with pytest.raises(httpx.TransportError):
        httpx.get(server.url.replace("https", "http") + "/api/v1/healthz", timeout=10)
    assert health(server, client_context(authority)).status_code == 200


def test_only_http_1_1_is_spoken(server, authority):
    assert served_certificate(server.port, authority, ["h2", "http/1.1"])[1] == "http/1.1"
    with pytest.raises(ssl.SSLError):
        served_certificate(server.port, authority, ["h2"])


def test_old_tls_is_refused(server, authority):
    context = client_context(authority)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(httpx.ConnectError):
        health(server, context)


def test_a_large_body_passes(server, authority):
    """Many TLS records; the answer shows that the content was read."""
    body = b'{"model_id": "' + b"x" * (8 << 20) + b'"}'
    with httpx.Client(verify=client_context(authority), timeout=60) as client:
        answer = client.post(server.url + "/api/v1/forward_backward", content=body,
                             headers={"x-api-key": server.api_key,
                                      "content-type": "application/json"})
        # Too much beside the data, which it has to read to know.
        assert answer.status_code == 413 and f"{len(body)} bytes" in answer.text, answer.text[:500]
        assert client.get(server.url + "/api/v1/healthz").status_code == 200


@pytest.mark.parametrize("listener", ["port", "grpc_port"])
def test_an_exchanged_certificate_is_served_without_a_restart(server, authority, listener):
    alpn = ["h2"] if listener == "grpc_port" else None
    port = getattr(server, listener)
    pids = server.pids()
    before = served_certificate(port, authority, alpn)[0]
    with httpx.Client(verify=client_context(authority), timeout=10) as open_before:
        assert open_before.get(server.url + "/api/v1/healthz").status_code == 200
        authority.issue("server")
        wait_until(lambda: serves_another(port, authority, alpn, before))
        # Who was connected stays so.
        assert open_before.get(server.url + "/api/v1/healthz").status_code == 200
    assert server.pids() == pids


@pytest.mark.parametrize("broken, content", [
    ("cert", lambda authority: b"no certificate"),
    # Of another pair, as between two steps of an exchange.
    ("key", lambda authority: pathlib.Path(authority.key("client")).read_bytes())])
@pytest.mark.parametrize("listener, program, alpn", [("port", "gateway", None),
                                                     ("grpc_port", "gateway", ["h2"])])
def test_files_that_cannot_be_used_leave_the_last_certificate(server, authority, listener, program,
                                                              alpn, broken, content):
    port = getattr(server, listener)
    before = serial_of(authority.cert("server"))
    # The case before may have exchanged the files a moment ago.
    wait_until(lambda: served_certificate(port, authority, alpn)[0] == before)
    path = pathlib.Path(getattr(authority, broken)("server"))
    log = pathlib.Path(server.data_dir, "logs", program + ".log")
    complaint = "tls files cannot be used"
    num_before = log.read_text().count(complaint)
    good = path.read_bytes()
    path.write_bytes(content(authority))
    try:
        def complained():
            assert served_certificate(port, authority, alpn)[0] == before
            return log.read_text().count(complaint) > num_before

        wait_until(complained)
        for _ in range(20):
            assert served_certificate(port, authority, alpn)[0] == before
    finally:
        path.write_bytes(good)
    assert served_certificate(port, authority, alpn)[0] == before


def test_https_with_client_certificates(mutual, authority):
    own = mutual.authority
    assert health(mutual, client_context(own, certificate=own)).status_code == 200
    with pytest.raises(httpx.TransportError):
        health(mutual, client_context(own))
    # Of an authority the server does not trust.
    with pytest.raises(httpx.TransportError):
        health(mutual, client_context(own, certificate=authority))
    assert health(mutual, client_context(own, certificate=own)).status_code == 200


def run_grpc_example(server, authority, certificate=None):
    command = [sys.executable, "examples/grpc_python/train_and_sample.py", "--address",
               f"127.0.0.1:{server.grpc_port}", "--api-key", server.api_key, "--ca", authority.ca]
    if certificate:
        command += ["--cert", certificate.cert("client"), "--key", certificate.key("client")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    return result.returncode, result.stdout + result.stderr


def test_grpc_over_tls(server, authority, tmp_path):
    code, output = run_grpc_example(server, authority)
    assert code == 0, output
    assert "the sample follows the ring" in output
    code, output = run_grpc_example(server, Authority(tmp_path))
    assert code == 1, output
    assert "UNAVAILABLE" in output


def test_grpc_with_client_certificates(mutual, authority):
    code, output = run_grpc_example(mutual, mutual.authority, certificate=mutual.authority)
    assert code == 0, output
    for certificate in (None, authority):
        code, output = run_grpc_example(mutual, mutual.authority, certificate=certificate)
        assert code == 1, output
        assert "UNAVAILABLE" in output


def run_program(name, *args):
    return subprocess.run([str(BIN / name), *args], capture_output=True, text=True, timeout=30)


def test_open_addresses_need_tls_or_the_switch(tmp_path):
    data = ["--data-dir", str(tmp_path)]
    for program, option in (
            (["lathe", "up", "--model", f"tiny={tiny_model()}", "--listen", "0.0.0.0:0"], "listen"),
            (["lathe", "up", "--model", f"tiny={tiny_model()}", "--listen", "127.0.0.1:0",
              "--grpc-listen", "0.0.0.0:0"], "grpc_listen"),
            (["lathe-gateway", "--engine", "unix:/nowhere", "--listen", "0.0.0.0:0"], "listen"),
            (["lathe-engine", "--grpc-listen", "[::]:0"], "grpc_listen")):
        result = run_program(*program, *data)
        output = result.stdout + result.stderr
        assert result.returncode == 78, output
        assert f"{option} is '" in output and "there is no TLS" in output
        assert "insecure-i-know" in output


def test_the_switch_opens_an_address_without_tls(tmp_path):
    process = subprocess.Popen([str(BIN / "lathe-gateway"), "--engine", "unix:/nowhere", "--listen",
                                "0.0.0.0:0", "--insecure-i-know", "--data-dir", str(tmp_path)],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert any("listening" in line for line in process.stdout)
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


@pytest.mark.parametrize("missing", ["key", "cert"])
def test_half_of_a_pair_is_a_configuration_error(tmp_path, authority, missing):
    given = "cert" if missing == "key" else "key"
    result = run_program("lathe", "up", "--model", f"tiny={tiny_model()}", "--data-dir",
                         str(tmp_path), f"--tls-{given}", getattr(authority, given)("server"))
    assert result.returncode == 78, result.stdout + result.stderr
    assert f"tls_{given} is given and tls_{missing} is not" in result.stdout + result.stderr


@pytest.mark.parametrize("options, complaint", [
    (["--worker-listen", "10.9.8.7:1"], "worker_listen is '10.9.8.7:1', which other machines reach"),
    (["--worker-listen", "127.0.0.1:1", "--worker-client-ca", "CA"], "tls_cert is missing"),
    (["--worker-client-ca", "CA", "--tls-cert", "CERT", "--tls-key", "KEY"],
     "worker_listen is missing"),
    (["--worker-listen", "127.0.0.1:1", "--tls-cert", "CERT", "--tls-key", "KEY"],
     "worker_client_ca is missing"),
    (["--worker-listen", "127.0.0.1:1", "--worker-client-ca", "KEY", "--tls-cert", "CERT",
      "--tls-key", "KEY"], "worker_client_ca 'KEY' cannot be used: "),
])
def test_workers_of_other_machines_need_certificates(authority, tmp_path, options, complaint):
    files = {"CA": authority.ca, "CERT": authority.cert("server"), "KEY": authority.key("server")}
    result = run_program("lathe-engine", "--data-dir", str(tmp_path),
                         *(files.get(option, option) for option in options))
    assert result.returncode == 78
    for name, path in files.items():
        complaint = complaint.replace(f"'{name}'", f"'{path}'")
    assert complaint in result.stdout + result.stderr


@pytest.mark.parametrize("program, options", [
    ("lathe-gateway", ["--listen", "127.0.0.1:0"]),
    ("lathe-worker", ["--model", "tiny=/none"]),
])
def test_an_engine_on_another_machine_is_dialled_with_tls(program, options, tmp_path):
    result = run_program(program, "--engine", "10.9.8.7:1", "--data-dir", str(tmp_path), *options)
    assert result.returncode == 78
    assert "engine_ca is empty and engine '10.9.8.7:1' is another machine" in (
        result.stdout + result.stderr)

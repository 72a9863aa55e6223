"""`lathe certs`: its certificates carry engine, gateway and worker of several machines."""

import os
import pathlib
import shutil
import ssl
import stat
import subprocess
import tempfile

import httpx
import pytest
from support.lathe_server import BIN, free_port, tiny_model
from support.raw_api import RawApi, RawModel
from support.waiting import wait_until

USAGE, CONFIGURATION = 2, 78
HOST = "127.0.0.1"


def certs(*words):
    return subprocess.run([str(BIN / "lathe"), "certs", *map(str, words)], capture_output=True,
                          text=True, timeout=60)


def openssl(*words):
    return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True,
                          text=True).stdout


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_init_is_idempotent_and_its_files_are_their_owner_s(tmp_path):
    folder = tmp_path / "deep" / "tls"
    words = ("init", "--out", folder, "--name", "engine=engine-a.lathe,*.engines.lathe,10.0.0.2",
             "--name", "worker")
    first = certs(*words)
    assert first.returncode == 0, first.stderr
    assert first.stdout.count("issued") == 3 and "PRIVATE" not in first.stdout
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    before = contents(folder)
    again = certs(*words)
    assert again.stdout.count("kept") == 3, again.stdout
    assert contents(folder) == before
    shown = openssl("x509", "-noout", "-ext", "subjectAltName", "-in", folder / "engine.crt")
    assert "DNS:engine-a.lathe, DNS:*.engines.lathe, IP Address:10.0.0.2" in shown
    for purpose in ("sslserver", "sslclient"):
        openssl("verify", "-x509_strict", "-purpose", purpose, "-CAfile", folder / "ca.crt",
                folder / "engine.crt")


def test_renew_replaces_what_ends_soon_under_its_names(tmp_path):
    certs("init", "--out", tmp_path, "--name", "short=a,10.0.0.2", "--life", "800h")
    certs("init", "--out", tmp_path, "--name", "long=b")
    before = contents(tmp_path)
    assert certs("renew", "--out", tmp_path).stdout.count("kept") == 3
    answer = certs("renew", "--out", tmp_path, "--renew-before", "801h")
    assert answer.returncode == 0, answer.stderr
    assert "short.crt issued" in answer.stdout and "long.crt kept" in answer.stdout
    after = contents(tmp_path)
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {"short.crt", "short.key"}
    shown = openssl("x509", "-noout", "-ext", "subjectAltName", "-in", tmp_path / "short.crt")
    assert "DNS:a, IP Address:10.0.0.2" in shown


@pytest.mark.parametrize("words, code, message", [
    ((), USAGE, "init --out DIR"),
    (("init", "--out", "DIR"), USAGE, "--name is missing"),
    (("init", "--out", "DIR", "--name", "a b"), USAGE, "'a b' is no DNS name"),
    (("init", "--out", "DIR", "--name", "ca"), USAGE, "'ca' cannot be the name"),
    (("init", "--out", "DIR", "--name", "a", "--life", "24h"), USAGE, "life is 24h"),
    (("init", "--out", "/proc/none", "--name", "a"), 73, "cannot make /proc/none"),
])
def test_what_is_refused_is_named(tmp_path, words, code, message):
    answer = certs(*(tmp_path / "tls" if word == "DIR" else word for word in words))
    assert answer.returncode == code and message in answer.stderr, answer.stderr


class TlsService:
    """An engine, a gateway and a worker that know each other by network only, over TLS."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.tls = self.folder / "tls"
        self.ports = {name: free_port() for name in ("gateways", "workers", "api")}
        self.url = f"https://{HOST}:{self.ports['api']}"
        self.model_name = "tiny"
        self.data_dir = str(self.folder / "data")
        self.processes = {}

    def start(self, name, *words):
        log = open(self.folder / f"{name}.log", "ab")
        self.processes[name] = subprocess.Popen(
            [str(BIN / f"lathe-{name}"), *map(str, words), "--data-dir", self.data_dir],
            stdout=log, stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"})

    def engine_tls(self, name):
        return ["--engine-ca", self.tls / "ca.crt", "--engine-cert", self.tls / f"{name}.crt",
                "--engine-key", self.tls / f"{name}.key"]

    def start_all(self):
        run = self.folder / "data" / "run"
        self.start("engine", "--grpc-listen", f"{HOST}:{self.ports['gateways']}",
                   "--tls-cert", self.tls / "engine.crt", "--tls-key", self.tls / "engine.key",
                   "--tls-client-ca", self.tls / "ca.crt",
                   "--worker-listen", f"{HOST}:{self.ports['workers']}",
                   "--worker-client-ca", self.tls / "ca.crt")
        wait_until(lambda: (run / "gateway.secret").exists() and (run / "secret").exists(),
                   "the engine's secrets")
        self.start("gateway", "--engine", f"{HOST}:{self.ports['gateways']}",
                   *self.engine_tls("gateway"), "--secret-file", run / "gateway.secret",
                   "--listen", f"{HOST}:{self.ports['api']}",
                   "--tls-cert", self.tls / "gateway.crt", "--tls-key", self.tls / "gateway.key")
        self.start("worker", "--engine", f"{HOST}:{self.ports['workers']}",
                   *self.engine_tls("worker"), "--secret-file", run / "secret", "--model",
                   f"tiny={tiny_model()}", "--device", "cpu", "--threads", "1")

    def verb(self, *words):
        return subprocess.run([str(BIN / "lathe"), *words, "--data-dir", self.data_dir],
                              capture_output=True, text=True, timeout=60)

    def logs(self):
        return "\n".join((self.folder / f"{name}.log").read_text()[-2000:]
                         for name in self.processes)

    def stop(self):
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(60)


@pytest.fixture(scope="module")
def service():
    # A short path, because the length of socket paths is limited.
    folder = tempfile.mkdtemp(prefix="certs-", dir="/tmp")
    running = TlsService(folder)
    made = certs("init", "--out", running.tls, "--name", f"engine=engine-a,{HOST}",
                 "--name", f"gateway=api.lathe,{HOST}", "--name", "worker=any-name")
    assert made.returncode == 0, made.stderr
    try:
        running.start_all()
        wait_until(lambda: '"ready"' in running.verb("status", "--format", "json").stdout,
                   "a ready worker")
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


def test_engine_gateway_and_worker_work_over_these_certificates(service, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(service.tls / "ca.crt"))
    key = next(word for word in service.verb("keys", "create", "--tenant", "t").stdout.split()
               if word.startswith("tml-"))
    api = RawApi(service, key)
    model = RawModel(api)
    assert "error" not in api.result(model.forward_backward().json()), service.logs()
    # A client that does not know the authority refuses the gateway.
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(service.url + "/livez", timeout=10, verify=ssl.create_default_context())


def test_a_certificate_of_another_authority_gets_no_engine(service, tmp_path):
    other = tmp_path / "other"
    certs("init", "--out", other, "--name", f"engine={HOST}")
    for ca, name, port in ((service.tls / "ca.crt", other, "gateways"),
                           (service.tls / "ca.crt", other, "workers")):
        context = ssl.create_default_context(cafile=str(ca))
        context.load_cert_chain(str(name / "engine.crt"), str(name / "engine.key"))
        context.set_alpn_protocols(["h2"])
        assert not handshake(context, service.ports[port])
        context = ssl.create_default_context(cafile=str(ca))
        context.load_cert_chain(str(service.tls / "worker.crt"), str(service.tls / "worker.key"))
        context.set_alpn_protocols(["h2"])
        assert handshake(context, service.ports[port])


def handshake(context, port):
    """Whether the server answers after the handshake. With TLS 1.3 it refuses a client only then."""
    import socket
    with socket.create_connection((HOST, port), timeout=30) as raw:
        try:
            with context.wrap_socket(raw, server_hostname=HOST) as tls:
                tls.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
                return tls.recv(1) != b""
        except (ssl.SSLError, ConnectionError):
            return False

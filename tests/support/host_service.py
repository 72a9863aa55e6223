"""A Lathe whose parts are on hosts of their own and speak TLS: Postgres, two engines, a worker and two
gateways; clients are on another.

    with HostService(tiny_model(), folder) as service:
        service.hosts.cut("worker")

This thread is on the clients' host meanwhile.
"""

import contextlib
import pathlib

from support.certificates import Authority
from support.engine_pair import ENGINES, EnginePair
from support.hosts import Hosts
from support.postgres_cluster import PostgresCluster

GATEWAYS = ("gateway", "gateway2")
ENGINE_PORT = 7000
WORKER_PORT = 7001
PAGE_PORT = 7002
API_PORT = 7003


class HostService(EnginePair):
    """`folder`: for certificates. As EnginePair."""

    def __init__(self, model, folder, **options):
        self._open = contextlib.ExitStack()
        self.hosts = Hosts("client", "database", *ENGINES, "worker", *GATEWAYS)
        self._folder = pathlib.Path(folder)
        self._model, self._options = model, options

    def __enter__(self):
        with contextlib.ExitStack() as opening:
            opening.enter_context(self.hosts)
            self.cluster = PostgresCluster(address=self.hosts.address("database"))
            with self.hosts.on("database"):
                opening.enter_context(self.cluster)
            self.cluster.create_database("hosts")
            opening.enter_context(self.hosts.on("client"))
            self._make_certificates()
            super().__init__(self._model, store=self.cluster.tcp_url("hosts"), **self._options)
            self.url = self.gateway_url("gateway")
            super().__enter__()
            self._open = opening.pop_all()
        return self

    def __exit__(self, *error):
        self.hosts.heal()
        super().__exit__(*error)
        self._open.close()

    def _make_certificates(self):
        self.authority = Authority(self._folder / "authority")
        for name in ENGINES:
            self.authority.issue(name, [f"IP:{self.hosts.address(name)}"])
        self.authority.issue("worker", ["DNS:worker"])

    def gateway_url(self, name):
        return f"http://{self.hosts.address(name)}:{API_PORT}"

    def page(self, name):
        return f"http://{self.hosts.address(name)}:{PAGE_PORT}"

    def _start(self, name, arguments):
        with self.hosts.on(name):
            super()._start(name, arguments)

    def start_engine(self, name):
        host = self.hosts.address(name)
        self._make_run_dirs()
        self._start(name, [
            "lathe-engine", "--run-dir", self.run_dir(name),
            "--metrics-listen", f"{host}:{PAGE_PORT}", "--grpc-listen", f"{host}:{ENGINE_PORT}",
            "--worker-listen", f"{host}:{WORKER_PORT}", "--tls-cert", self.authority.cert(name),
            "--tls-key", self.authority.key(name), "--worker-client-ca", self.authority.ca,
            *self.options])

    def _engines(self, port):
        return [word for name in ENGINES
                for word in ("--engine", f"{self.hosts.address(name)}:{port}")]

    def start_worker(self, certificate=None):
        """`certificate`: (authority, name), if not its own."""
        authority, name = certificate or (self.authority, "worker")
        self._start("worker", [
            "lathe-worker", *self._engines(WORKER_PORT), "--engine-ca", self.authority.ca,
            "--engine-cert", authority.cert(name), "--engine-key", authority.key(name),
            "--secret-file", f"{self.run_dir('a')}/secret", "--model", f"tiny={self.model}",
            "--device", "cpu", "--threads", "1", "--numerics", "exact"])

    def start_gateway(self):
        for name in GATEWAYS:
            # Clients speak HTTP here; with the engines it speaks TLS.
            self._start(name, [
                "lathe-gateway", *self._engines(ENGINE_PORT), "--engine-ca", self.authority.ca,
                "--listen", f"{self.hosts.address(name)}:{API_PORT}", "--insecure-i-know"])

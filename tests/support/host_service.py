"""A Lathe whose parts are on hosts of their own and speak TLS: Postgres, two engines, the worker's ranks
and two gateways; clients are on another.

    with HostService(tiny_model(), folder, tp=2) as service:
        service.hosts.cut("worker1")      # rank 1; rank 0 is "worker"

This thread is on the clients' host meanwhile.
"""

import contextlib
import pathlib
import shutil
import threading

from support.certificates import Authority
from support.engine_pair import ENGINES, EnginePair
from support.hosts import OWN_PROCESSES, Hosts
from support.lathe_server import BIN
from support.postgres_cluster import PostgresCluster

GATEWAYS = ("gateway", "gateway2")
ENGINE_PORT = 7000
WORKER_PORT = 7001
PAGE_PORT = 7002
API_PORT = 7003


class HostService(EnginePair):
    """`folder`: for certificates. Several ranks are started again when they end, as a supervisor on
    each host does. As EnginePair."""

    def __init__(self, model, folder, tp=1, **options):
        self._open = contextlib.ExitStack()
        self.workers = ["worker", *(f"worker{rank}" for rank in range(1, tp))]
        self.exit_codes = []  # of ranks, if several: (host, code) in the order they ended
        self._stopping = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise)
        self.hosts = Hosts("client", "database", *ENGINES, *self.workers, *GATEWAYS)
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
        self._stopping.set()
        if self._supervisor.ident is not None:
            self._supervisor.join()
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
        for rank in range(len(self.workers)):
            self._start_rank(rank, *(certificate or (self.authority, "worker")))
        if len(self.workers) > 1:
            self._supervisor.start()

    def _start_rank(self, rank, authority, certificate):
        mesh = ["--tp", str(len(self.workers)), "--rank", str(rank)]
        self._start(self.workers[rank], [
            shutil.which(OWN_PROCESSES[0]), *OWN_PROCESSES[1:], str(BIN / "lathe-worker"), *mesh,
            *self._engines(WORKER_PORT), "--engine-ca", self.authority.ca,
            "--engine-cert", authority.cert(certificate), "--engine-key",
            authority.key(certificate), "--secret-file", f"{self.run_dir('a')}/secret", "--model",
            f"tiny={self.model}", "--device", "cpu", "--threads", "1", "--numerics", "exact",
            "--memory-fraction", "0.2"])

    def _supervise(self):
        while not self._stopping.wait(0.05):
            for rank, name in enumerate(self.workers):
                code = self.processes[name].poll()
                if code is None:
                    continue
                self.exit_codes.append((name, code))
                self._start_rank(rank, self.authority, "worker")

    def start_gateway(self):
        for name in GATEWAYS:
            # Clients speak HTTP here; with the engines it speaks TLS.
            self._start(name, [
                "lathe-gateway", *self._engines(ENGINE_PORT), "--engine-ca", self.authority.ca,
                "--secret-file", f"{self.run_dir('a')}/gateway.secret",
                "--listen", f"{self.hosts.address(name)}:{API_PORT}", "--insecure-i-know"])

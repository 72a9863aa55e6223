"""A Lathe in pods, as the chart or a manifest makes them. As LatheServer for clients of the API, which are on host
"client"."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

from support.helm_release import HelmRelease
from support.kube_cluster import KubeCluster
from support.lathe_server import ROOT, tiny_model
from support.postgres_cluster import PostgresCluster

# The client of the tests works offline: it takes the tokenizer from the model's folder.
CLIENT_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def models_folder(folder):
    """A claim with the tiny model under `tiny`."""
    models = pathlib.Path(folder) / "models"
    models.mkdir()
    subprocess.run(["cp", "-r", tiny_model(), str(models / "tiny")], check=True)
    return models


class PodService:
    """`engine`: prefix of the names of pods that may hold the engine that leads. `gateway`: name of the Service."""

    model_name = "tiny"

    def __init__(self, cluster, engine, gateway):
        self.cluster, self._engine = cluster, engine
        self.url = cluster.service_url(gateway)
        self.api_key = None

    def engines(self):
        return [pod for pod in self.cluster.pods() if pod.name.startswith(self._engine) and not pod.is_stopping]

    def _in_leader(self, *words):
        """Output of a command in the pod of the engine that leads; None: none leads."""
        for pod in self.engines():
            container = pod.container()
            if container.sandbox is None or container.sandbox.exit_code is not None:
                continue
            with contextlib.suppress(subprocess.TimeoutExpired):
                done = container.sandbox.run(["lathe", *words])
                if done.returncode == 0:
                    return pod, done.stdout
        return None

    def leader(self):
        """The pod; None: none leads."""
        found = self._in_leader("status", "--format", "json")
        return found and found[0]

    def status(self):
        found = self._in_leader("status", "--format", "json")
        return json.loads(found[1]) if found else {}

    def is_ready(self, num_groups=1):
        groups = self.status().get("groups", [])
        return sum(group.get("state") == "ready" for group in groups) >= num_groups

    def make_key(self, tenant="pods"):
        scopes = [word for scope in ("train", "sample", "read", "checkpoints:write") for word in ("--scope", scope)]
        _, text = self.cluster.wait(lambda: self._in_leader("keys", "create", "--tenant", tenant, *scopes), "a leader")
        self.api_key = next(word for word in text.split() if word.startswith("tml-"))
        return self.api_key

    def run_example(self, name, *arguments, timeout=300):
        """The output of a program of examples/, on host "client"."""
        done = subprocess.run(
            [sys.executable, str(ROOT / "examples" / name), *arguments], check=False, capture_output=True, text=True,
            timeout=timeout, env={**os.environ, **CLIENT_ENVIRONMENT, "TINKER_BASE_URL": self.url,
                                  "TINKER_API_KEY": self.api_key})
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:] + self.cluster.logs(1500)
        return done.stdout


@contextlib.contextmanager
def cluster_with_database(folder, num_hosts=12):
    """A KubeCluster, and a Postgres on its host "database" for the engines and for helm."""
    folder = pathlib.Path(folder)
    models = models_folder(folder)
    with KubeCluster(folder / "cluster", claims={"models": models}, num_hosts=num_hosts) as cluster:
        database = PostgresCluster({"fsync": "off"}, address=cluster.hosts.address("database"))
        with cluster.hosts.on("database"):
            database.start()
        try:
            database.create_database("lathe")
            cluster.add_secret("lathe-store", url=database.tcp_url("lathe"))
            yield cluster, database
        finally:
            # Pods end first, so that none waits for its database.
            for pod in cluster.pods():
                pod.stop(grace=0)
            database.__exit__(None, None, None)


@contextlib.contextmanager
def served_chart(folder, case=None, *values, files=(), secrets=None, engine="lathe-engine", num_groups=1, num_hosts=12):
    """A PodService of the chart, which the real helm has installed: `release` is the HelmRelease. `values` are as for
    --set, `secrets` (name: {key: text}) exist before. This thread is on host "client"."""
    with cluster_with_database(folder, num_hosts) as (cluster, database):
        for name, texts in (secrets or {}).items():
            cluster.add_secret(name, **texts)
        release = HelmRelease(cluster.api, database)
        done = release.install(case, *values, files=files, timeout="180s", check=False)
        assert done.returncode == 0, done.stderr + cluster.logs()
        with served(cluster, engine, "lathe-gateway", num_groups) as running:
            running.release = release
            yield running


@contextlib.contextmanager
def served(cluster, engine, gateway, num_groups=1):
    """A PodService of what runs in `cluster`, once its groups are ready, with a key."""
    running = PodService(cluster, engine, gateway)
    cluster.wait(lambda: running.is_ready(num_groups), "the worker groups")
    running.make_key()
    with cluster.hosts.on("client"):
        yield running

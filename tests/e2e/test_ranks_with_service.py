"""`lathe ranks --with-service`: the pods of one job are a whole service, with one command for all of them."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import httpx
import pytest
from support import plain_http
from support.lathe_server import BIN, free_port, tiny_model
from support.raw_api import RawApi
from support.stubborn_api import Program, StubbornApi
from support.waiting import wait_until

HOST = "127.0.0.1"


def lathe(*words, **environment):
    return subprocess.run([str(BIN / "lathe"), *map(str, words)], capture_output=True, text=True,
                          timeout=60, env={**os.environ, **environment})


class Job:
    """Pods on this machine: processes with run directories and environments of their own."""

    def __init__(self, pods=2):
        # A short path, because the length of socket paths is limited.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="job-", dir="/tmp"))
        self.secrets = self.folder / "secrets"
        self.ports = {name: free_port() for name in ("workers", "api", "gateway_page", "engine_page")}
        self.url = f"http://{HOST}:{self.ports['api']}"
        self.model_name = "tiny"
        self.data_dir = str(self.folder / "data")
        self.count = pods
        self.pods = {}

    def __enter__(self):
        made = lathe("secrets", "init", "--out", self.secrets)
        assert made.returncode == 0, made.stderr
        for index in reversed(range(self.count)):  # nobody waits in a certain order
            self.start(index)
        wait_until(self.is_ready, "the service")
        return self

    def __exit__(self, *_):
        for pod in self.pods.values():
            if pod.poll() is None:
                pod.terminate()
        for pod in self.pods.values():
            pod.wait(90)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, index):
        environment = {
            **os.environ, "LATHE_POD_INDEX": str(index), "LATHE_POD_COUNT": str(self.count),
            "LATHE_ENGINE__WORKER_LISTEN": f"{HOST}:{self.ports['workers']}",
            "LATHE_ENGINE__ADMIN_KEY_FILE": str(self.secrets / "admin.key"),
            "LATHE_METRICS__ENGINE_LISTEN": f"{HOST}:{self.ports['engine_page']}",
            "LATHE_METRICS__GATEWAY_LISTEN": f"{HOST}:{self.ports['gateway_page']}",
            "LATHE_GATEWAY__LISTEN": f"{HOST}:{self.ports['api']}",
            "LATHE_WORKER__NUMERICS": "exact"}
        with open(self.folder / f"pod{index}.log", "ab") as log:
            self.pods[index] = subprocess.Popen(
                [str(BIN / "lathe"), "ranks", "--ranks-per-pod", "1", "--with-service",
                 "--engine", f"{HOST}:{self.ports['workers']}", "--secret-file",
                 str(self.secrets / "worker.secret"), "--threads", "1",
                 "--data-dir", self.data_dir, "--run-dir", str(self.folder / f"run{index}"), "--",
                 "--tp", str(self.count), "--model", f"tiny={tiny_model()}", "--device", "cpu",
                 "--memory-fraction", "0.2"],
                stdout=log, stderr=log, env=environment)

    @property
    def api_key(self):
        return (self.secrets / "admin.key").read_text().strip()

    def is_ready(self):
        for index, pod in self.pods.items():
            assert pod.poll() is None, (self.folder / f"pod{index}.log").read_text()
        try:
            answer = plain_http.get(self.url + "/readyz", timeout=5)
        except httpx.TransportError:
            return False
        if answer.status_code != 200:
            return False
        status = lathe("status", "--format", "json", "--data-dir", self.data_dir, "--run-dir",
                       self.folder / "run0")
        return '"ready"' in status.stdout

    def log(self, name):
        return pathlib.Path(self.data_dir, "logs", f"{name}.log").read_text()

    def children(self, index):
        pid = self.pods[index].pid
        return [int(word) for word in
                pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.fixture(scope="module")
def job():
    with Job() as running:
        yield running


def test_the_pods_of_a_job_train_and_come_back(job):
    api = StubbornApi(job)
    program = Program(api)
    program.step()
    names = [pathlib.Path(f"/proc/{pid}/exe").readlink().name for pid in job.children(0)]
    assert sorted(names) == ["lathe-engine", "lathe-gateway", "lathe-worker"]
    assert len(job.children(1)) == 1
    engine = job.children(0)[names.index("lathe-engine")]
    os.kill(engine, signal.SIGKILL)
    program.step()
    assert engine not in job.children(0)
    program.check()
    api.close()


def test_the_key_of_the_file_is_the_admin_s_and_is_never_shown(job):
    keys = RawApi(job).get("/api/v1/get_server_capabilities")
    assert keys.status_code == 200, keys.text
    listed = lathe("keys", "list", "--data-dir", job.data_dir, "--run-dir", job.folder / "run0")
    assert listed.stdout.count("admin_key_file") == 1, listed.stdout
    secret = job.api_key.split("_")[1]
    for log in [*pathlib.Path(job.data_dir, "logs").iterdir(), *job.folder.glob("*.log")]:
        assert secret not in log.read_text(), log
    worker_secret = (job.secrets / "worker.secret").read_text().strip()
    assert (job.folder / "run0" / "secret").read_text().strip() == worker_secret
    gateway_secret = (job.secrets / "gateway.secret").read_text().strip()
    assert (job.folder / "run0" / "gateway.secret").read_text().strip() == gateway_secret


def test_a_stop_ends_gateway_ranks_and_engine():
    with Job(pods=1) as job:
        children = job.children(0)
        assert len(children) == 3
        answer = lathe("drain", "--of", "gateway", "--wait", "80s",
                       LATHE_METRICS__GATEWAY_LISTEN=f"0.0.0.0:{job.ports['gateway_page']}")
        # The gateway is supervised, so the whole pod ends.
        assert answer.returncode == 0, answer.stderr
        assert f"lathe (process {job.pods[0].pid}) has ended" in answer.stdout
        assert job.pods[0].wait(30) == 0
        assert not any(os.path.exists(f"/proc/{pid}") for pid in children)


def test_an_engine_that_refuses_its_configuration_ends_the_pod_with_its_words(tmp_path):
    answer = lathe("ranks", "--ranks-per-pod", "1", "--with-service", "--data-dir", tmp_path, "--",
                   "--model", f"tiny={tiny_model()}", "--device", "cpu",
                   LATHE_POD_INDEX="0", LATHE_POD_COUNT="1", LATHE_ENGINE__STUCK_AFTER="1s",
                   LATHE_GATEWAY__LISTEN=f"{HOST}:0")
    assert answer.returncode == 78, answer.stderr
    assert "stuck_after is 1s, minimum is 3s" in answer.stderr

"""The services of deploy/compose with a tiny model, as containers of a test's own engine.

    with ComposeService(docker, tiny_model(), images) as service:
        service.kill("worker")

As LatheServer for RawApi and its like."""

import json
import os
import pathlib
import shutil
import time

import httpx
from support import plain_http
from support.lathe_server import ROOT, free_port

FOLDER = ROOT / "deploy/compose"
ENGINES = ("engine-a", "engine-b")


class ComposeService:
    """`env`: variables as in .env.example; CONTROL_IMAGE and the like are needed."""

    model_name = "tiny"

    def __init__(self, docker, model, env, file="docker-compose.yml"):
        self.docker, self.model, self.file = docker, model, file
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # Users of the images' user must be able to read the models.
        self.models = pathlib.Path(docker.dir, "models")
        self.env = {**docker.env, "MODELS": str(self.models), "MODEL": self.model_name,
                    "MODEL_FOLDER": "tiny", "TOKENIZER": str(model), "NUMERICS": "exact",
                    "API_PORTS": str(self.port), **env}
        self.api_key = None

    def __enter__(self):
        shutil.copytree(self.model, self.models / "tiny", dirs_exist_ok=True)
        for path in [self.models, *self.models.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.up()
        return self

    def __exit__(self, *_):
        self.compose("down", "--volumes", "--timeout", "5", check=False)

    def compose(self, *arguments, **options):
        return self.docker.compose("--file", FOLDER / self.file, "--project-name",
                                   f"lathe-{self.port}", *arguments, env=self.env, **options)

    def up(self):
        """Returns once the API is served and a worker is ready."""
        begin = time.monotonic()
        try:
            self.compose("up", "--detach", "--wait", "--wait-timeout", "180", "--pull", "never")
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{self.logs()[-6000:]}") from None
        self.api_key = self.read_key()
        self.wait_ready()
        print(f"up after {time.monotonic() - begin:.1f} s")

    def read_key(self):
        return self.compose("run", "--rm", "--no-deps", "admin", "key").stdout.strip()

    def wait_ready(self, timeout=120):
        deadline = time.monotonic() + timeout
        while not self._is_ready():
            if time.monotonic() > deadline:
                raise RuntimeError(f"no worker is ready after {timeout} s:\n{self.logs()[-6000:]}")
            time.sleep(0.2)

    def leader(self):
        """Name of the engine that leads; None: neither."""
        for name in ENGINES:
            if self.exec(name, "lathe", "probe", "--ready", check=False).returncode == 0:
                return name
        return None

    def _is_ready(self):
        try:
            if plain_http.get(f"{self.url}/readyz", timeout=5).status_code != 200:
                return False
        except httpx.TransportError:
            return False
        leader = self.leader()
        if leader is None:
            return False
        told = self.exec(leader, "lathe", "status", "--format", "json", check=False)
        return told.returncode == 0 and any(group.get("state") == "ready"
                                            for group in json.loads(told.stdout).get("groups", []))

    def exec(self, service, *command, **options):
        return self.compose("exec", "--no-TTY", service, *command, **options)

    def containers(self):
        """{service: [container id]} of all containers, also ended ones."""
        names = {}
        for line in self.compose("ps", "--all", "--format", "{{.ID}} {{.Service}}").stdout.splitlines():
            container, service = line.split()
            names.setdefault(service, []).append(container)
        return names

    def container(self, service):
        return self.containers()[service][0]

    def kill(self, service):
        """`docker kill`, and a new start once it has ended: to Docker, an operator wanted the end."""
        container = self.container(service)
        self.docker.docker("kill", container)
        self.docker.docker("wait", container)
        self.docker.docker("start", container)

    def crash(self, service):
        """SIGKILL of a container's first process, as by the kernel when memory is out."""
        state = self.state(service)
        os.kill(state["State"]["Pid"], 9)
        while (now := self.state(service))["RestartCount"] <= state["RestartCount"] or \
                not now["State"]["Running"]:
            time.sleep(0.1)

    def state(self, service):
        return json.loads(self.docker.docker("inspect", self.container(service)).stdout)[0]

    def logs(self):
        return self.compose("logs", "--no-color", check=False).stdout

    def read(self, service, path):
        return self.exec(service, "/bin/cat", path).stdout

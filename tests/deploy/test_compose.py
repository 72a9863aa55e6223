"""deploy/compose: files, and a service of containers that are killed while a program trains."""

import json
import re
import subprocess
import sys
import threading
import time

import httpx
import pytest
from support import images
from support.compose_service import ENGINES, FOLDER, ComposeService
from support.lathe_server import ROOT, tiny_model
from support.raw_api import RawApi, RawModel
from support.stubborn_api import Program, StubbornApi, steps_while

COMPOSE = ROOT / ".venv-deploy/bin/docker-compose"
PATIENCE_SECONDS = 180
# A tiny random model learns only what it is trained on, at high learning rates.
SFT = ["--words", "14", "--held-out-words", "0", "--batch-size", "14", "--steps", "40",
       "--learning-rate", "3e-3"]
REQUIRED = {"MODEL": "tiny", "MODEL_FOLDER": "tiny", "DATABASE": "db:5432/lathe", "DATA": "/data",
            "MODELS": "/models"}


def compose_config(*files, env=None):
    return subprocess.run([COMPOSE, *(word for file in files for word in ("--file", FOLDER / file)),
                           "config", "--format", "json"], check=False, capture_output=True,
                          text=True, env={"PATH": "/usr/bin:/bin", **(REQUIRED if env is None else env)})


@pytest.mark.parametrize("files", [("docker-compose.yml",), ("docker-compose.yml", "cuda.yml"),
                                   ("sqlite.yml",), ("swarm.yml",)])
def test_compose_accepts_the_file(files):
    told = compose_config(*files)
    assert told.returncode == 0, told.stderr
    # Only mentions of Swarm, which Compose does not serve.
    unknown = [line for line in told.stderr.splitlines() if "Swarm" not in line]
    assert files == ("swarm.yml",) or not told.stderr, unknown
    for name, service in json.loads(told.stdout)["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        if files != ("swarm.yml",):
            assert service["security_opt"] == ["no-new-privileges:true"], name
            assert service["pids_limit"] > 0 and service["logging"]["options"]["max-size"], name
            # Only this machine reaches a port.
            assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", [])), name


def test_traces_leave_in_clear_text_only_if_the_settings_say_so():
    for given, value in ({}, "false"), ({"TRACING_INSECURE_I_KNOW": "true"}, "true"):
        told = compose_config("docker-compose.yml", env={
            **REQUIRED, **given, "TRACING_ENDPOINT": "http://otel.example:4318"})
        environments = [service.get("environment", {}) for service in json.loads(told.stdout)["services"].values()]
        traced = [env for env in environments if "LATHE_TRACING__ENDPOINT" in env]
        assert len(traced) == 3
        assert {env["LATHE_TRACING__INSECURE_I_KNOW"] for env in traced} == {value}


def test_a_missing_model_is_named():
    told = compose_config("docker-compose.yml", env={})
    assert told.returncode != 0 and "MODEL" in told.stderr and ".env.example" in told.stderr


def test_the_example_of_settings_names_every_variable():
    named = set(re.findall(r"^#?([A-Z_]+)=", (FOLDER / ".env.example").read_text(), re.MULTILINE))
    used = {name for file in ("docker-compose.yml", "sqlite.yml", "cuda.yml")
            for name in re.findall(r"\$\{([A-Z_]+)", (FOLDER / file).read_text())}
    assert named == used


@pytest.fixture(scope="module")
def service(docker, control_image, worker_image, postgres_image):
    with ComposeService(docker, tiny_model(), {
            "CONTROL_IMAGE": control_image, "WORKER_IMAGE": worker_image,
            "POSTGRES_IMAGE": postgres_image}) as running:
        yield running


@pytest.fixture(scope="module")
def program(service):
    """Its steps run through the tests; the last one compares it with a calm one."""
    api = StubbornApi(service, patience=PATIENCE_SECONDS)
    yield Program(api)
    api.close()


def test_an_example_learns_over_the_published_port(service):
    done = subprocess.run(
        [sys.executable, ROOT / "examples/sft.py", *SFT], check=False, capture_output=True, text=True,
        env={"PATH": "/usr/bin:/bin", "TINKER_BASE_URL": service.url,
             "TINKER_API_KEY": service.api_key, "HOME": "/root"})
    assert done.returncode == 0, done.stdout + done.stderr
    losses = [float(value) for value in re.findall(r"^step .* loss +([\d.]+)", done.stdout, re.M)]
    assert len(losses) == 40 and losses[-1] < losses[0] / 10


def test_killed_containers_cost_nothing(service, program):
    engines = sorted(ENGINES, key=lambda name: name != service.leader())
    for name in ("worker", *engines, "gateway", "postgres"):
        steps_while(program, lambda: service.kill(name))
    for name in ("worker", "gateway"):
        steps_while(program, lambda: service.crash(name))
    assert service.state("gateway")["RestartCount"] == 1


def test_a_new_image_of_the_gateway_changes_only_gateways(service, program):
    """Calls that were accepted are answered: none fails with an error of the server."""
    before = service.containers()
    engine = service.docker
    engine.docker("build", "--tag", "lathe-gateway:next", "-", input=(
        f"FROM {service.env['CONTROL_IMAGE']}\nLABEL org.opencontainers.image.version=next\n"))
    service.env["GATEWAY_IMAGE"] = "lathe-gateway:next"
    answers = watch_answers(program.api)
    poll = threading.Thread(target=hold_poll, args=(service, held := []))
    poll.start()
    steps_while(program, lambda: service.compose("up", "--detach", "--wait", "--pull", "never"))
    poll.join()
    after = service.containers()
    assert {name for name in before if before[name] != after[name]} == {"gateway"}
    assert service.state("gateway")["Config"]["Image"] == "lathe-gateway:next"
    assert answers and all(status < 500 for status in answers)
    assert held == ["try_again"]


def watch_answers(api):
    """List that gets the status of every answer from now on. Every request has a connection of its
    own, so that none is sent over one that the gateway is closing."""
    answers = []
    headers, url = api.http.headers, api.http.base_url
    api.http.close()
    api.http = httpx.Client(base_url=url, timeout=60, headers=headers,
                            limits=httpx.Limits(max_keepalive_connections=0),
                            event_hooks={"response": [lambda answer: answers.append(answer.status_code)]})
    return answers


def hold_poll(service, held):
    """Polls for a gradient that waits for a smaller seq_id, until its poll is answered."""
    api = RawApi(service)
    # Without the SDK's version header: its requests may overtake each other, so a missing one is
    # waited for.
    model = RawModel(api, session_id=api.made("create_session", {})["session_id"])
    model.next_seq_id()
    future = api.made("forward_backward", model.body())
    answer = api.post("retrieve_future", {"request_id": future["request_id"],
                                          "allow_metadata_only": False})
    held.append(answer.json().get("type"))
    api.close()


def test_down_and_up_finds_the_run(service, program):
    api = program.api
    saved = api.result(api.made("save_weights", {
        "model_id": program.model.model_id, "seq_id": program.model.next_seq_id(), "path": "kept"}))
    service.compose("down", "--timeout", "60")
    assert not service.containers()
    key = service.api_key
    service.up()
    assert service.api_key == key
    program.step()
    names = json.dumps(api.get(f"training_runs/{program.model.model_id}/checkpoints").json())
    assert saved["path"].rpartition("/")[2] in names
    program.check()


def test_no_secret_is_where_others_read(service):
    """Keys and passwords are in their volumes only: not in logs, arguments, variables or images."""
    secrets = {
        "key": service.api_key,
        "password": service.read("postgres", "/run/secrets/lathe/password").strip(),
        "worker": service.read("worker", "/etc/lathe/secret").strip(),
        "gateway": service.read("gateway", "/etc/lathe/gateway.secret").strip(),
        "private key": service.read("worker", "/etc/lathe/tls.key").split("\n")[1],
    }
    assert all(len(text) >= 32 for text in secrets.values())
    places = {"logs": service.logs()}
    for name, containers in service.containers().items():
        for container in containers:
            places[f"inspect {name}"] = service.docker.docker("inspect", container).stdout
            places[f"top {name}"] = service.docker.docker("top", container, "-eo",
                                                          "pid,args", check=False).stdout
    for image in ("CONTROL_IMAGE", "WORKER_IMAGE"):
        places[image] = service.docker.docker("history", "--no-trunc", service.env[image]).stdout
    assert len(places["logs"]) > 1000 and "lathe-worker" in places["top worker"]
    for place, text in places.items():
        for name, secret in secrets.items():
            assert secret not in text, f"the {name} is in: {place}"
        assert "tml-" not in text and "PRIVATE KEY" not in text, place


def test_each_service_has_only_its_own_secrets(service):
    """A gateway faces clients, so it has neither the workers' secret nor the database's password."""
    def files(name, folder):
        return set(service.exec(name, "/bin/ls", folder).stdout.split())
    assert files("gateway", "/etc/lathe") == {"ca.crt", "tls.crt", "tls.key", "gateway.secret"}
    assert files("worker", "/etc/lathe") == {"ca.crt", "tls.crt", "tls.key", "secret"}
    assert files("engine-a", "/etc/lathe") == {"ca.crt", "tls.crt", "tls.key", "pgpass"}
    mounts = {mount["Destination"] for mount in service.state("gateway")["Mounts"]}
    assert mounts == {"/etc/lathe", "/var/lib/lathe"}


def test_the_command_reaches_the_engine_that_leads(service):
    told = service.compose("run", "--rm", "--no-deps", "admin", "keys", "list").stdout
    assert "compose" in told


@pytest.mark.skipif(not images.FULL, reason="tools/check deploy runs it")
def test_one_container_with_sqlite(docker, base_image, tree):
    image = images.build(docker, "lathe")
    print(f"lathe: {images.inspect(docker, image)['Size'] / 2**20:.0f} MiB")
    with SqliteService(docker, tiny_model(), {"LATHE_IMAGE": image}, "sqlite.yml") as service:
        api = StubbornApi(service, patience=PATIENCE_SECONDS)
        program = Program(api)
        steps_while(program, lambda: service.crash("lathe"))
        program.check()
        began = time.monotonic()
        container = service.container("lathe")
        docker.docker("stop", container)
        assert service.state("lathe")["State"]["ExitCode"] == 0
        print(f"stopped after {time.monotonic() - began:.1f} s")
        told = docker.docker("logs", container).stdout
        assert "finishing accepted work" in told and "\nstopped " in told
        api.close()


class SqliteService(ComposeService):
    def read_key(self):
        return self.read("lathe", "/var/lib/lathe/admin.key").strip()

    def wait_ready(self, timeout=120):
        """`lathe up` is live once its worker is ready."""

"""swarm.yml: Docker makes its services, secrets and networks."""

import pytest
from support.compose_service import FOLDER
from support.docker_engine import CannotRun, DockerEngine, skip
from support.docker_guard import SWARM_BRIDGE

SECRETS = ("pgpass", "ca", "engine_cert", "engine_key", "worker_cert", "worker_key", "worker_secret",
           "gateway_secret")
VARIABLES = {"MODEL": "tiny", "MODEL_FOLDER": "tiny", "DATABASE": "db:5432/lathe", "DATA": "/tmp",
             "MODELS": "/tmp"}


@pytest.fixture(scope="module")
def swarm():
    """A swarm of one node. Its images are missing, so no task starts."""
    had_bridge = SWARM_BRIDGE.exists()
    try:
        with DockerEngine() as engine:
            made = engine.docker("swarm", "init", "--advertise-addr", "127.0.0.1", check=False)
            if made.returncode != 0:
                pytest.skip(f"a swarm cannot be made here: {made.stderr.strip()}")
            engine.env.update(VARIABLES)
            yield engine
    except CannotRun as reason:
        skip(str(reason))
    assert had_bridge or not SWARM_BRIDGE.exists()


def deploy(swarm):
    return swarm.docker("stack", "deploy", "--resolve-image", "never", "--compose-file",
                        FOLDER / "swarm.yml", "lathe", check=False)


def test_a_missing_secret_is_named(swarm):
    refused = deploy(swarm)
    assert refused.returncode != 0 and "lathe_" in refused.stderr and "secret" in refused.stderr


def test_the_stack_has_its_services(swarm):
    for name in SECRETS:
        swarm.docker("secret", "create", f"lathe_{name}", "-", input="x")
    made = deploy(swarm)
    assert made.returncode == 0, made.stderr
    told = swarm.docker("stack", "services", "lathe", "--format", "{{.Name}} {{.Replicas}}").stdout
    services = dict(line.split(" ", 1) for line in told.splitlines())
    assert services == {"lathe_engine-a": "0/1", "lathe_engine-b": "0/1", "lathe_worker": "0/1",
                        "lathe_gateway": "0/2 (max 1 per node)"}

"""`lathe probe`: what a container's health check and a StatefulSet's probes run."""

import os
import subprocess

import pytest
from support.engine_pair import EnginePair
from support.lathe_server import BIN, LatheServer, tiny_model
from support.postgres_cluster import PostgresCluster
from support.waiting import wait_until

HEALTHY, UNHEALTHY, USAGE = 0, 1, 2
LEASE = "2s"


def probe(*words, **environment):
    return subprocess.run([str(BIN / "lathe"), "probe", *words], capture_output=True, text=True,
                          timeout=60, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def cluster():
    with PostgresCluster() as running:
        yield running


@pytest.fixture(scope="module")
def pair(cluster):
    options = ("--lease-renewal", "500ms")
    with EnginePair(tiny_model(), cluster, options=options, lease=LEASE) as running:
        yield running


def roles(pair):
    leader = pair.wait_leader()
    standby = "b" if leader == "a" else "a"
    pair.wait_standby(standby)
    return leader, standby


def test_a_standby_serves_without_being_ready(pair):
    leader, standby = roles(pair)
    for question in ("--live", "--ready", "--serving", "--startup"):
        answer = probe(question, pair.page(leader))
        assert answer.returncode == HEALTHY, answer.stderr
        assert answer.stdout.count("\n") == 1 and answer.stderr == ""
    for question in ("--live", "--serving", "--startup"):
        assert probe(question, pair.page(standby)).returncode == HEALTHY
    answer = probe("--ready", pair.page(standby))
    assert answer.returncode == UNHEALTHY
    assert "/readyz answered 503: standby" in answer.stderr and answer.stdout == ""


def test_a_standby_that_cannot_read_the_lease_does_not_serve(pair, cluster):
    _, standby = roles(pair)
    cluster.stop()
    try:
        wait_until(lambda: probe("--serving", pair.page(standby)).returncode == UNHEALTHY,
                   "the standby to be out of order")
        assert "could not read the lease for" in probe("--serving", pair.page(standby)).stderr
        assert probe("--live", pair.page(standby)).returncode == HEALTHY
        assert probe("--startup", pair.page(standby)).returncode == HEALTHY
    finally:
        cluster.start()
    wait_until(lambda: probe("--serving", pair.page(standby)).returncode == HEALTHY,
               "the standby to be in order")


def test_without_a_url_the_configuration_of_the_process_says_where(pair, tmp_path):
    listen = f"0.0.0.0:{pair.pages['a']}"
    assert probe(LATHE_METRICS__ENGINE_LISTEN=listen).returncode == HEALTHY
    file = tmp_path / "lathe.yaml"
    file.write_text(f"metrics:\n  engine_listen: {listen}\n  gateway_listen: 0.0.0.0:1\n"
                    "engine:\n  lease: 2s\nup:\n  listen: 127.0.0.1:2\n")
    assert probe("--config", str(file), "--of", "engine").returncode == HEALTHY
    assert probe("--config", str(file), "--of", "gateway").returncode == UNHEALTHY
    answer = probe("--config", str(file))
    assert answer.returncode == USAGE
    assert "--of must be one of gateway, engine" in answer.stderr


def test_the_gateway_s_api_answers_when_it_has_no_page(pair):
    for question in ("--live", "--ready", "--serving"):
        answer = probe(question, LATHE_GATEWAY__LISTEN=f"0.0.0.0:{pair.port}")
        assert answer.returncode == HEALTHY, answer.stderr


def test_lathe_up_is_probed_on_its_first_page():
    environment = {"LATHE_UP__METRICS_LISTEN": "127.0.0.1:0"}
    with LatheServer(tiny_model(), env=environment) as server:
        # Port 0 is for tests: a probe cannot know the port.
        assert probe(**environment).returncode == USAGE
        answer = probe("--ready", LATHE_UP__LISTEN=f"0.0.0.0:{server.port}")
        assert answer.returncode == HEALTHY, answer.stderr
    answer = probe("--live", server.url)
    assert answer.returncode == UNHEALTHY and "cannot connect" in answer.stderr

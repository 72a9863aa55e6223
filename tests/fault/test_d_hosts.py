"""Hosts that lose each other: rows D13 (engine and worker), B4 (a leader that nobody reaches), C2 (a
database that is away), with every part on a host of its own and TLS between them."""

import time

import pytest
from support.certificates import Authority
from support.host_service import HostService
from support.hosts import why_not
from support.lathe_server import tiny_model
from support.stubborn_api import Program, StubbornApi, steps_while

LEASE_SECONDS = 6
# A silent worker is given up after 14 s, one whose connection broke (15 s) after 15 more.
DECLARED_DEAD_SECONDS = 36

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with HostService(tiny_model(), tmp_path_factory.mktemp("hosts"),
                     lease=f"{LEASE_SECONDS}s") as running:
        yield running


@pytest.fixture(scope="module")
def api(service):
    api = StubbornApi(service, patience=180)
    # A cut connection is not told of: what waits on it must not wait for ever.
    api.http.timeout = 50
    yield api
    api.close()


@pytest.fixture(scope="module")
def program(api):
    return Program(api)


@pytest.fixture(autouse=True)
def all_connected(service):
    """Also that both engines are there."""
    yield
    service.hosts.heal()
    leader = service.wait_leader()
    other = "b" if leader == "a" else "a"
    if service.processes[other].poll() is not None:
        service.start_engine(other)
    service.wait_standby(other)


def cut_for(service, seconds, *names):
    def disturb():
        with service.hosts.without(*names):
            time.sleep(seconds)
    return disturb


def epoch(service):
    return int(service.status()["groups"][0]["epoch"])


def test_d13_a_worker_that_is_away_for_a_moment_goes_on_where_it_was(service, program):
    worker = service.processes["worker"].pid
    before = epoch(service)
    steps_while(program, cut_for(service, 3, "worker"))
    assert service.processes["worker"].pid == worker
    assert epoch(service) == before
    program.check()


def test_d13_a_worker_that_is_away_for_long_is_formed_anew(service, program):
    before = epoch(service)
    steps_while(program, cut_for(service, DECLARED_DEAD_SECONDS, "worker"))
    assert service.processes["worker"].poll() is None  # nobody could kill it, and nobody had to
    assert epoch(service) > before
    program.check()


def test_b4_an_unreachable_leader_is_replaced_and_stays_passive(service, program):
    leader = service.wait_leader()
    other = "b" if leader == "a" else "a"

    def disturb():
        with service.hosts.without(leader):
            service.wait_leader(other_than=leader)
            assert service.leader() == other
        assert service.wait_end(leader) == 75  # it finds that it has been replaced

    steps_while(program, disturb)
    program.check()


def test_c2_a_database_that_is_away_is_waited_for(service, program):
    steps_while(program, cut_for(service, 4, "database"))
    program.check()


def test_an_unreachable_gateway_holds_no_state_of_its_own(service, api, program):
    future = program.forward_backward((20, 21, 22))
    with service.hosts.without("gateway"):
        elsewhere = StubbornApi(service, patience=180, url=service.gateway_url("gateway2"))
        elsewhere.http.timeout = 50
        result = elsewhere.result(future)
        elsewhere.close()
    assert "error" not in result, result
    assert api.result(future)["metrics"] == result["metrics"]


def test_a_worker_without_the_right_certificate_is_not_let_in(service, tmp_path):
    service.kill("worker")
    stranger = Authority(tmp_path, "stranger")
    stranger.issue("worker", ["DNS:worker"])
    service.start_worker((stranger, "worker"))
    time.sleep(4)
    states = [group["state"] for group in service.status()["groups"]]
    service.kill("worker")
    assert states == ["down"] or "ready" not in states, states
    service.start_worker()
    service._wait(service._is_ready, "the worker with its own certificate", 60)

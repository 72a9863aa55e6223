"""Ranks of one group on several hosts, over Gloo: rows D4 (killed), D5 (they lose each other), D13 (one
is away from everybody), and a new leader. TLS between all of them and the engines."""

import signal
import time

import pytest
from support.host_service import HostService
from support.hosts import why_not
from support.lathe_server import tiny_model
from support.stubborn_api import Program, StubbornApi, steps_while

# A rank whose host is silent is given up by its peers after 15 s, wherever they wait for it.
OVERDUE_SECONDS = 25

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with HostService(tiny_model(), tmp_path_factory.mktemp("ranks"), tp=2, lease="6s") as running:
        yield running


@pytest.fixture
def program(service):
    api = StubbornApi(service, patience=180)
    api.http.timeout = 50
    yield Program(api)
    api.close()
    service.hosts.heal()


def epoch(service):
    return int(service.status()["groups"][0]["epoch"])


def test_ranks_on_two_hosts_do_not_share_memory(service, program):
    program.step()
    assert "ranks communicate over Gloo" in service.log("worker1")
    program.step()
    program.check()


def test_d13_a_rank_that_is_away_for_a_moment_is_waited_for(service, program):
    before, ended = epoch(service), len(service.exit_codes)

    def disturb():
        with service.hosts.without("worker1"):
            time.sleep(3)

    steps_while(program, disturb)
    assert (epoch(service), len(service.exit_codes)) == (before, ended)
    program.check()


def test_d13_a_rank_that_is_away_for_long_costs_its_group_an_epoch(service, program):
    before, ended = epoch(service), len(service.exit_codes)

    def disturb():
        with service.hosts.without("worker1"):
            time.sleep(OVERDUE_SECONDS)

    steps_while(program, disturb)
    assert epoch(service) > before
    assert {code for _, code in service.exit_codes[ended:]} <= {75, 76}
    program.check()


def test_d5_ranks_that_lose_each_other_but_not_the_engine_form_again(service, program):
    before, ended = epoch(service), len(service.exit_codes)

    def disturb():
        with service.hosts.apart("worker", "worker1"):
            time.sleep(OVERDUE_SECONDS)

    steps_while(program, disturb)
    assert epoch(service) > before
    assert {code for _, code in service.exit_codes[ended:]} <= {75, 76}
    program.check()


@pytest.mark.parametrize("rank", ["worker", "worker1"])
def test_d4_a_rank_that_is_killed_takes_its_peer_along_and_nothing_else(service, program, rank):
    before, ended = epoch(service), len(service.exit_codes)
    steps_while(program, lambda: service.signal(rank, signal.SIGKILL))
    assert epoch(service) > before
    codes = dict(service.exit_codes[ended:])
    assert codes.pop(rank) == -9
    assert list(codes.values()) in ([75], [76])
    program.check()


def test_b4_a_new_leader_adopts_the_ranks(service, program):
    leader = service.wait_leader()
    service.wait_standby("b" if leader == "a" else "a")
    before, ended = epoch(service), len(service.exit_codes)

    def disturb():
        service.kill(leader)
        service.wait_leader(other_than=leader)

    steps_while(program, disturb)
    assert (epoch(service), len(service.exit_codes)) == (before, ended)
    program.check()
    service.start_engine(leader)
    service.wait_standby(leader)

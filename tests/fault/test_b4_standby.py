"""Row B4 of the fault table on processes: a leader that is gone, stopped or ended, and its standby."""

import signal
import threading
import time

import grpc
import pytest
from support import plain_http
from support.engine_pair import EnginePair
from support.lathe_server import tiny_model
from support.postgres_cluster import PostgresCluster
from support.raw_api import RawApi, RawModel
from support.stubborn_api import Program, StubbornApi, steps_while

LEASE_SECONDS = 6
PATIENCE_SECONDS = 120


@pytest.fixture(scope="module")
def cluster():
    with PostgresCluster() as running:
        yield running


@pytest.fixture(scope="module")
def pair(cluster):
    with EnginePair(tiny_model(), cluster, lease=f"{LEASE_SECONDS}s") as running:
        yield running


@pytest.fixture(scope="module")
def program(pair):
    """Its steps run through all tests here; the last one compares it with a calm one."""
    api = StubbornApi(pair, patience=PATIENCE_SECONDS)
    yield Program(api)
    api.close()


@pytest.fixture
def leader(pair):
    """The engine that leads; the other one stands by."""
    name = pair.wait_leader()
    other = "b" if name == "a" else "a"
    if pair.processes[other].poll() is not None:
        pair.start_engine(other)
    pair.wait_standby(other)
    return name


def other_of(name):
    return "b" if name == "a" else "a"


def test_b4_a_standby_waits_and_says_so(pair, leader):
    standby = other_of(leader)
    assert pair.probe(standby, "/livez")[0] == 200
    status, text = pair.probe(standby, "/readyz")
    assert status == 503 and "standby" in text
    assert pair.metric(standby, "lathe_engine_leader") == 0
    assert pair.metric(leader, "lathe_engine_leader") == 1
    with grpc.insecure_channel(f"unix:{pair.run_dir(standby)}/engine.sock") as channel:
        health = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert health(b"\n\x0flathe.v1.Engine", timeout=30) == b"\x08\x02"  # NOT_SERVING
        with pytest.raises(grpc.RpcError) as refusal:
            channel.unary_unary("/lathe.v1.Engine/GetCapabilities")(b"", timeout=30)
    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "not leader" in refusal.value.details()
    assert pair.run_dir(leader) in refusal.value.details()


def test_b4_a_standby_ends_by_a_signal(pair, leader):
    standby = other_of(leader)
    pair.signal(standby, signal.SIGTERM)
    assert pair.wait_end(standby) == 0
    assert pair.leader() == leader


def test_b4_a_killed_leader_is_replaced_and_nothing_is_lost(pair, program, leader):
    worker = pair.processes["worker"].pid
    term = pair.metric(leader, "lathe_engine_term")

    def disturb():
        pair.kill(leader)
        pair.wait_leader(other_than=leader)

    steps_while(program, disturb)
    assert pair.leader() == other_of(leader)
    assert pair.metric(other_of(leader), "lathe_engine_term") == term + 1
    assert pair.processes["worker"].pid == worker and pair.processes["worker"].poll() is None


def test_b4_a_leader_that_ends_cleanly_is_replaced(pair, program, leader):
    def disturb():
        pair.signal(leader, signal.SIGTERM)
        assert pair.wait_end(leader) == 0
        pair.wait_leader(other_than=leader)

    steps_while(program, disturb)
    assert "lease" not in pair.log(leader).split("stopping")[-1], "the lease was not released"


def test_b4_a_stopped_leader_is_replaced_and_changes_nothing_when_it_goes_on(
        pair, program, leader):
    """What it had in hand when it was stopped it finds out to be too late for."""
    successor = other_of(leader)

    def disturb():
        pair.signal(leader, signal.SIGSTOP)
        begin = time.monotonic()
        assert pair.wait_leader(other_than=leader) == successor
        # What clients sent it meanwhile waits in its sockets.
        late = threading.Thread(target=ask_stopped_engine, args=(pair, leader, answers))
        late.start()
        time.sleep(max(0, 3 * LEASE_SECONDS - (time.monotonic() - begin)))
        pair.signal(leader, signal.SIGCONT)
        late.join()

    answers = []
    steps_while(program, disturb)
    assert pair.wait_end(leader) == 75
    assert "another engine leads" in pair.log(leader)
    assert pair.leader() == successor
    assert answers and all(answer != "OK" for answer in answers), answers


def ask_stopped_engine(pair, name, answers):
    """Calls the engine over its own socket, with a valid key, and keeps how each call ended."""
    method = "/lathe.v1.Engine/GetCapabilities"
    with grpc.insecure_channel(f"unix:{pair.run_dir(name)}/engine.sock") as channel:
        call = channel.unary_unary(method)
        futures = [call.future(b"", metadata=[("x-api-key", pair.api_key)], timeout=30,
                               wait_for_ready=True) for _ in range(20)]
        for future in futures:
            error = future.exception()
            answers.append("OK" if error is None else error.code().name)


def test_b4_polls_and_submits_in_the_gap_are_asked_to_retry(pair, program, leader):
    api = RawApi(pair)
    model = RawModel(program.api)
    body = model.body()
    future = program.api.made("forward_backward", body)
    program.api.result(future)
    # No standby takes over.
    standby = other_of(leader)
    pair.signal(standby, signal.SIGSTOP)
    pair.kill(leader)
    try:
        deadline = time.monotonic() + 60
        while plain_http.get(pair.url + "/readyz", timeout=5).status_code != 503:
            assert time.monotonic() < deadline, "the gateway still calls itself ready"
            time.sleep(0.1)
        answer = api.post("forward_backward", body)
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["Retry-After"]) > 0
        poll = api.post("retrieve_future", {"request_id": future["request_id"]})
        assert poll.status_code == 200 and poll.json()["type"] == "try_again", poll.text
    finally:
        pair.signal(standby, signal.SIGCONT)
    again = program.api.made("forward_backward", body)
    assert again["request_id"] == future["request_id"]
    api.close()


def test_b4_steps_under_changing_leaders_are_those_of_a_calm_run(pair, program, leader):
    """Last: of all that the tests above did to one model."""
    calm = Program(program.api)
    for size in program.sizes:
        calm.step(size)
    assert len(program.numbers) > 8 and calm.numbers[0] != calm.numbers[-1]
    assert program.numbers == calm.numbers

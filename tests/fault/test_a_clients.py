"""Rows A1 to A9 and A11 of the fault table: clients, their connections, and the gateway."""

import concurrent.futures
import itertools
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import httpx
import kill_loop
import pytest
from support.faulty_proxy import Fault, FaultyProxy
from support.lathe_server import LatheServer, tiny_model
from support.metrics_page import MetricsPages
from support.raw_api import ADAM, RawApi, RawModel, datum
from support.stubborn_api import Program, StubbornApi
from support.waiting import wait_until

# Longer runs: LATHE_FAULT_ROUNDS=50.
ROUNDS = int(os.environ.get("LATHE_FAULT_ROUNDS", "1"))
OPTIONS = """
engine:
  gap_timeout: 1s
worker:
  numerics: exact
gateway:
  head_timeout: 1s
  progress_timeout: 2s
  poll_hold_seconds: 5
"""


@pytest.fixture(scope="module")
def api(server):
    yield (made := StubbornApi(server))
    made.close()


def concurrent_model(api):
    """In a session whose client may send its requests in any order, as foreign clients do."""
    session = api.made("create_session", {"tags": [], "sdk_version": "raw"})
    return RawModel(api, session_id=session["session_id"])


def step_body(model, seq_id, **changes):
    return {"model_id": model.model_id, "seq_id": seq_id, "adam_params": {**ADAM, **changes}}


def chunk_body(model, seq_id, token=30):
    return {"forward_backward_input": {"data": [datum((token, 31, 32))],
                                       "loss_fn": "cross_entropy"},
            "model_id": model.model_id, "seq_id": seq_id}


@pytest.mark.parametrize("fault", [Fault.CUT_ANSWER, Fault.CUT_REQUEST, Fault.HALF_CLOSE,
                                   Fault.DELAY])
def test_a1_lost_response_and_repeat_is_one_request(server, api, fault):
    """Every request of a program goes over connections of which a third fail so."""
    choice = random.Random(3)
    with FaultyProxy(server.port, lambda: fault if choice.random() < 0.3 else Fault.NONE,
                     delay=0.01) as proxy:
        shaky = StubbornApi(server, url=proxy.url + "/")
        shaky.http = httpx.Client(base_url=proxy.url, timeout=60, headers=shaky.http.headers,
                                  limits=httpx.Limits(max_keepalive_connections=0))
        program = Program(shaky)
        for _ in range(25 * ROUNDS):
            program.step()
        if fault in (Fault.CUT_ANSWER, Fault.CUT_REQUEST):
            assert shaky.repeats > 10 and proxy.num_faults > 10
        shaky.close()
    program.api = api
    program.check()


def test_a1_every_repetition_gets_the_same_id(server, api):
    model = RawModel(api)
    body = model.body()
    with FaultyProxy(server.port, lambda: Fault.CUT_ANSWER) as proxy:
        for _ in range(10):
            with pytest.raises(httpx.TransportError):
                httpx.post(proxy.url + "/api/v1/forward_backward", json=body,
                           headers={"X-API-Key": server.api_key})
    ids = {api.made("forward_backward", body)["request_id"] for _ in range(10)}
    assert len(ids) == 1
    api.result({"request_id": ids.pop()})


def test_a1_corrupt_answers_and_black_holes_end_in_a_repetition(server, api):
    """What a client cannot read, or never gets, it asks for again."""
    model = RawModel(api)
    faults = itertools.cycle([Fault.BLACK_HOLE, Fault.CORRUPT, Fault.NONE])
    bodies = [model.body() for _ in range(6)]
    with FaultyProxy(server.port, lambda: next(faults)) as proxy:
        for body in bodies:
            for _ in range(3):
                try:
                    httpx.post(proxy.url + "/api/v1/forward_backward", json=body, timeout=0.3,
                               headers={"X-API-Key": server.api_key})
                except (httpx.TransportError, httpx.InvalidURL, ValueError):
                    continue
    for body in bodies:
        assert "error" not in api.result(api.made("forward_backward", body))
    step = api.made("optim_step", step_body(model, model.next_seq_id()))
    alone = RawModel(api)
    for _ in bodies:
        alone.accumulate()
    assert api.result(step)["metrics"]["grad_norm"] == pytest.approx(alone.grad_norm(), rel=1e-6)


def test_a2_one_key_on_64_connections_is_one_request(server, api):
    model = RawModel(api)
    clients = [RawApi(server) for _ in range(64)]
    barrier = threading.Barrier(len(clients))

    def submit(client, body):
        barrier.wait()
        return client.made("forward_backward", body)["request_id"]

    with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
        for _ in range(10 * ROUNDS):
            body = model.body()
            ids = set(pool.map(lambda client: submit(client, body), clients))
            assert len(ids) == 1, ids
            assert "error" not in api.result({"request_id": ids.pop()})
    for client in clients:
        client.close()


def test_a3_other_content_under_one_key_is_refused_at_once(api):
    model = RawModel(api)
    first = api.made("forward_backward", chunk_body(model, 1))
    begin = time.monotonic()
    refused = api.post("forward_backward", chunk_body(model, 1, token=40))
    assert time.monotonic() - begin < 10, "the client would wait for minutes"
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "seq_id_reused"
    # The first is as it was: its gradient, and nothing else, is in the step.
    loss = api.result(first)["metrics"]["loss:sum"]
    alone = RawModel(api)
    alone.accumulate()
    model.seq_id = 1
    assert model.grad_norm() == alone.grad_norm()
    assert api.result(api.made("forward_backward", chunk_body(model, 1)))["metrics"][
        "loss:sum"] == loss


def test_a3_the_sdk_fails_at_once_and_does_not_try_for_minutes(server, api):
    tinker = pytest.importorskip("tinker")
    service = tinker.ServiceClient(base_url=server.url, api_key=server.api_key)
    training = service.create_lora_training_client(server.model_name, rank=4, seed=1)
    model_id = training.model_id
    # Somebody else's program has used the number that comes next.
    stranger = RawModel.__new__(RawModel)
    stranger.api, stranger.model_id, stranger.seq_id = api, model_id, 0
    for seq_id in range(1, 4):
        api.result(api.made("forward_backward", chunk_body(stranger, seq_id, token=50)))
    data = [tinker.types.Datum(
        model_input=tinker.types.ModelInput.from_ints([30, 31, 32]),
        loss_fn_inputs={"target_tokens": [31, 32, 33], "weights": [1.0, 1.0, 1.0]})]
    begin = time.monotonic()
    with pytest.raises(Exception, match="seq_id"):
        training.forward_backward(data, "cross_entropy").result(timeout=60)
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize("seed", range(5 * ROUNDS))
def test_a4_chunks_in_any_order_are_one_window_in_seq_order(api, seed):
    count = 12
    tokens = [20 + 7 * i for i in range(count)]
    order = random.Random(seed).sample(range(1, count + 1), count)
    if seed == 0:
        order = [*range(2, count + 1), 1]  # the first one last
    norms, losses = [], []
    for arrivals in (order, range(1, count + 1)):
        model = concurrent_model(api)
        futures = {seq_id: api.made("forward_backward",
                                    chunk_body(model, seq_id, tokens[seq_id - 1]))
                   for seq_id in arrivals}
        step = api.made("optim_step", step_body(model, count + 1, learning_rate=1e-2))
        losses.append([api.result(futures[seq_id])["metrics"]["loss:sum"]
                       for seq_id in range(1, count + 1)])
        norms.append(api.result(step)["metrics"]["grad_norm"])
        model.seq_id = count + 1
        losses.append(model.loss())
    assert losses[:2] == losses[2:]
    assert norms[0] == norms[1]


def test_a5_a_gap_closes_at_once_in_a_serial_session(api):
    model = RawModel(api)
    late = model.body()
    assert "error" not in api.result(model.forward_backward().json())
    refused = api.post("forward_backward", late)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "seq_id_abandoned"


def test_a5_a_gap_closes_after_gap_timeout_in_a_concurrent_session(api):
    model = concurrent_model(api)
    early = api.made("forward_backward", chunk_body(model, 2))
    assert "error" not in api.result(early)
    refused = api.post("forward_backward", chunk_body(model, 1))
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "seq_id_abandoned"


CLIENT = """
import sys, time
sys.path.insert(0, sys.argv[1])
from types import SimpleNamespace
from support.raw_api import RawApi, RawModel
api = RawApi(SimpleNamespace(url=sys.argv[2], api_key=sys.argv[3], model_name="tiny"))
model = RawModel(api)
model.accumulate()
model.step()
sampler = api.result(api.made("save_weights_for_sampler", {
    "model_id": model.model_id, "sampling_session_seq_id": 0, "seq_id": model.next_seq_id()}))
model.accumulate()
print(model.session_id, model.model_id, model.seq_id, sampler["sampling_session_id"], flush=True)
while True:
    api.made("session_heartbeat", {"session_id": model.session_id})
    time.sleep(0.2)
"""


def drawn(api, sampler, seq_id):
    """Tokens of a sample with a seed."""
    future = api.made("asample", {
        "sampling_session_id": sampler, "seq_id": seq_id, "num_samples": 1, "type": "sample",
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [30, 31, 32]}]},
        "sampling_params": {"max_tokens": 8, "seed": 5, "temperature": 1.0}})
    return api.result(future)["sequences"][0]


@pytest.mark.parametrize("then", ["goes on", "everything is killed"])
def test_a6_models_of_a_killed_client_are_offloaded_after_the_session_timeout_and_resumed_later(then):
    server = LatheServer(tiny_model(), args=["--metrics-listen", "127.0.0.1:0"],
                         env={"LATHE_ENGINE__SESSION_TIMEOUT": "2s",
                              "LATHE_ENGINE__SNAPSHOT_INTERVAL": "1s",
                              "LATHE_WORKER__NUMERICS": "exact"})
    with server:
        pages = MetricsPages(server)
        api = RawApi(server)
        tests = os.path.join(os.path.dirname(__file__), "..")
        with subprocess.Popen([sys.executable, "-c", CLIENT, tests, server.url, server.api_key],
                              stdout=subprocess.PIPE, text=True) as client:
            session_id, model_id, seq_id, sampler = client.stdout.readline().split()
            # It lives beyond the time-out as long as its client does.
            time.sleep(3)
            assert pages.value("worker", "lathe_worker_adapters_loaded") == 1
            assert pages.value("engine", "lathe_engine_offloaded_models") == 0
            client.kill()
        wait_until(lambda: (
            pages.value("worker", "lathe_worker_adapters_loaded") == 0 and
            pages.value("engine", "lathe_engine_offloaded_models") == 1), "the memory of its model")
        first = drawn(api, sampler, 1)
        if then == "everything is killed":
            server.kill_everything()
            server.start()

        # The same ids, by whoever has the key.
        model = RawModel.__new__(RawModel)
        model.api, model.session_id, model.model_id, model.seq_id = (
            api, session_id, model_id, int(seq_id))
        api.made("session_heartbeat", {"session_id": session_id})
        assert drawn(api, sampler, 2) == first
        model.accumulate()
        refused = model.optim_step()
        assert refused["error"].startswith("the gradient of forward_backward seq 4 was dropped")
        assert refused["category"] == "user"
        model.accumulate()
        model.step()

        undisturbed = RawModel(api)
        for _ in range(2):
            undisturbed.accumulate()
            undisturbed.step()
        assert model.loss() == undisturbed.loss()


def test_a6_a_session_without_a_client_ends():
    server = LatheServer(tiny_model(), args=["--metrics-listen", "127.0.0.1:0"],
                         env={"LATHE_ENGINE__SESSION_TIMEOUT": "1s",
                              "LATHE_ENGINE__SESSION_KEPT": "0s"})
    with server:
        pages = MetricsPages(server)
        api = RawApi(server)
        model = RawModel(api)
        model.accumulate()
        path = api.result(api.made("save_weights", {
            "model_id": model.model_id, "seq_id": model.next_seq_id(), "path": "kept"}))["path"]
        wait_until(lambda: (
            pages.value("worker", "lathe_worker_adapters_loaded") == 0 and
            pages.value("engine", "lathe_engine_sessions") == 0), "what the client held")
        refused = api.post("forward_backward", model.body())
        assert refused.status_code == 400
        assert refused.json()["error"]["code"] == "session_finished"
        resumed = api.result(api.made("load_weights", {
            "session_id": api.new_session(), "model_seq_id": 0, "path": path, "optimizer": True}))
        assert "error" not in resumed


def test_a7_cut_polls_read_the_same_bytes_again(server, api):
    model = RawModel(api)
    futures = [model.forward_backward().json() for _ in range(20)]
    choice = random.Random(5)
    faults = [Fault.CUT_ANSWER, Fault.NONE, Fault.CUT_REQUEST, Fault.NONE]
    with FaultyProxy(server.port, lambda: choice.choice(faults)) as proxy:
        for future in futures:
            bodies = set()
            while len(bodies) < 1 or choice.random() < 0.8:
                try:
                    answer = httpx.post(proxy.url + "/api/v1/retrieve_future", timeout=30,
                                        json={"request_id": future["request_id"]},
                                        headers={"X-API-Key": server.api_key})
                except httpx.TransportError:
                    continue
                assert answer.status_code == 200
                if answer.json().get("type") != "try_again":
                    bodies.add(answer.content)
            assert len(bodies) == 1
        assert proxy.num_faults > 5


def test_a7_a_result_survives_gateway_and_engine(server, api):
    model = RawModel(api)
    future = model.forward_backward().json()
    ask = {"request_id": future["request_id"]}
    api.result(future)
    first = api.post("retrieve_future", ask).content
    for name in ("gateway", "engine"):
        server.wait_restarted(name, server.kill(name))
        while api.post("retrieve_future", ask).json().get("type") == "try_again":
            continue
        assert api.post("retrieve_future", ask).content == first


@pytest.mark.parametrize("name", ["gateway.request.read", "gateway.engine.before",
                                  "gateway.engine.after", "gateway.poll.woken"] * ROUNDS)
def test_a8_gateway_killed_at_a_fail_point_loses_nothing(server, fail_points, api, name):
    program = Program(api)
    program.step()
    old = server.pids()["gateway"]
    before = fail_points.fired(name)
    fail_points.set(f"{name}=kill@2#{old}")
    while fail_points.fired(name) == before:
        program.step()
    fail_points.clear()
    server.wait_restarted("gateway", old)
    program.step()
    program.check()


def test_a8_gateway_killed_under_load():
    kill_loop.check("gateway", kills=10 * ROUNDS, seed=1)


def test_a9_slow_and_half_open_clients_are_ended_and_others_are_served(server, api):
    head = b"POST /api/v1/create_session HTTP/1.1\r\nHost: localhost\r\nX-API-Key: x\r\n"
    sockets = []
    for number in range(200):
        one = socket.create_connection(("127.0.0.1", server.port))
        # Half have begun a head, half promise a body that does not come.
        one.sendall(head if number % 2 else head.replace(b"X-API-Key: x", b"X-API-Key: " +
                    server.api_key.encode()) + b"Content-Length: 1000\r\n\r\n{")
        sockets.append(one)
    program = Program(api)
    for _ in range(5):
        program.step()
    program.check()
    for one in sockets:
        one.settimeout(30)
        try:
            while one.recv(65536):
                continue
        except ConnectionResetError:
            pass
        one.close()


def test_a9_a_client_that_never_reads_does_not_hold_the_others(server, api):
    model = RawModel(api)
    request = (b"GET /api/v1/healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") * 20000
    deaf = socket.create_connection(("127.0.0.1", server.port))
    deaf.settimeout(5)
    try:
        deaf.sendall(request)
    except (TimeoutError, ConnectionError):
        pass
    model.accumulate()
    assert model.grad_norm() > 0
    deaf.close()


def test_a11_engine_stopped_submits_are_503_polls_go_on_and_nothing_is_lost(server):
    """Last: it takes the time that a silent engine has until it counts as gone."""
    api = RawApi(server)
    model = RawModel(api)
    pages = MetricsPages(server)
    future = model.forward_backward().json()
    model.api.result(future)
    body = model.body()
    engine = server.pids()["engine"]
    os.kill(engine, signal.SIGSTOP)
    try:
        deadline = time.monotonic() + 60
        while pages.get("gateway", "/readyz").status_code != 503:
            assert time.monotonic() < deadline, "the gateway still calls itself ready"
            time.sleep(0.1)
        answer = api.post("forward_backward", body)
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["Retry-After"]) > 0
        poll = api.post("retrieve_future", {"request_id": "unknown-to-the-gateway"})
        assert poll.status_code == 200 and poll.json()["type"] == "try_again"
        assert "not reachable" in poll.json()["queue_state_reason"]
        assert pages.get("gateway", "/livez").status_code == 200
    finally:
        os.kill(engine, signal.SIGCONT)
    stubborn = StubbornApi(server)
    assert "error" not in stubborn.result(stubborn.made("forward_backward", body))
    assert server.pids()["engine"] == engine
    deadline = time.monotonic() + 60
    while pages.get("gateway", "/readyz").status_code != 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    stubborn.close()
    api.close()

"""A stop that loses nothing: gateways that are replaced one by one, and `lathe drain`."""

import os
import pathlib
import signal
import subprocess
import threading

import pytest
from support.balancer import Balancer
from support.engine_pair import EnginePair
from support.lathe_server import BIN, LatheServer, free_port, tiny_model
from support.postgres_cluster import PostgresCluster
from support.raw_api import RawApi, RawModel
from support.waiting import wait_until

NOT_RUNNING, USAGE = 69, 2
NUM_CLIENTS = 3


@pytest.fixture(scope="module")
def lathe():
    with LatheServer(tiny_model()) as server:
        yield server


class Gateway:
    """One more gateway of the engine of `lathe`."""

    def __init__(self, lathe, folder, *options):
        self.port, self.page = free_port(), free_port()
        self.log = pathlib.Path(folder, f"gateway-{self.port}.log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [str(BIN / "lathe-gateway"), "--engine", f"unix:{lathe.data_dir}/run/engine.sock",
                 "--data-dir", lathe.data_dir, "--listen", f"127.0.0.1:{self.port}",
                 "--metrics-listen", f"127.0.0.1:{self.page}", *options], stdout=log, stderr=log)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(30)


@pytest.fixture
def gateways(lathe, tmp_path):
    started = []

    def start(*options):
        started.append(Gateway(lathe, tmp_path, *options))
        return started[-1]

    yield start
    for gateway in started:
        gateway.stop()


def drain(*words, **environment):
    return subprocess.run([str(BIN / "lathe"), "drain", *words], capture_output=True, text=True,
                          timeout=120, env={**os.environ, **environment})


class Client(threading.Thread):
    """Trains without pause and repeats nothing: any error ends it."""

    def __init__(self, server):
        super().__init__()
        self.model = RawModel(RawApi(server))
        self.is_over = threading.Event()
        self.num_steps, self.error = 0, None
        self.start()

    def run(self):
        try:
            while not self.is_over.is_set():
                future = self.model.forward_backward()
                assert future.status_code == 200, future.text
                result = self.model.api.result(future.json())
                assert "error" not in result, result
                self.num_steps += 1
        except Exception as error:  # noqa: BLE001
            self.error = error

    def end(self):
        self.is_over.set()
        self.join(120)
        assert self.error is None, repr(self.error)


class Service:
    """What RawApi needs to know of a server."""

    def __init__(self, lathe, url):
        self.url, self.api_key, self.model_name = url, lathe.api_key, lathe.model_name


def test_gateways_are_replaced_one_by_one_and_no_request_is_lost(lathe, gateways):
    delay = os.environ.get("LATHE_TEST_DRAIN_DELAY", "10s")
    with Balancer() as balancer:
        old = [gateways("--drain-delay", delay), gateways("--drain-delay", "1h")]
        for gateway in old:
            balancer.add(gateway.port)
        clients = [Client(Service(lathe, balancer.url)) for _ in range(NUM_CLIENTS)]
        for gateway in old:
            wait_until(lambda: all(client.num_steps > 2 or client.error for client in clients),
                       "the clients to train")
            balancer.add(gateways().port)
            gateway.process.send_signal(signal.SIGTERM)
            balancer.wait_unready(gateway.port)
            if gateway is old[1]:  # a second signal ends the pause
                gateway.process.send_signal(signal.SIGTERM)
            assert gateway.process.wait(120) == 0, gateway.log.read_text()
            assert '"stopped"' in gateway.log.read_text()
            for client in clients:
                client.num_steps = 0
        wait_until(lambda: all(client.num_steps > 2 or client.error for client in clients),
                   "the clients to train")
        for client in clients:
            client.end()


def test_a_poll_that_is_held_is_answered_at_the_stop(lathe, gateways):
    gateway = gateways("--drain-delay", "1h")
    api = RawApi(Service(lathe, gateway.url))
    wait_until(lambda: subprocess.run(
        [str(BIN / "lathe"), "probe", "--ready", f"http://127.0.0.1:{gateway.page}"],
        capture_output=True).returncode == 0, "the gateway to be ready")
    # Without the SDK's version header: its requests may overtake each other.
    model = RawModel(api, session_id=api.made("create_session", {})["session_id"])
    model.next_seq_id()  # a gap, for which the next request waits
    waiting = model.forward_backward().json()
    answers = []
    poll = threading.Thread(target=lambda: answers.append(api.made(
        "retrieve_future", {"request_id": waiting["request_id"]})))
    poll.start()
    metrics = f"http://127.0.0.1:{gateway.page}/metrics"
    wait_until(lambda: "lathe_gateway_waiting_polls 1" in api.http.get(metrics).text, "the poll")
    gateway.process.send_signal(signal.SIGTERM)
    # During the pause the gateway serves, unready, and holds the poll.
    wait_until(lambda: RawApi(Service(lathe, gateway.url), key="").get("/readyz").status_code == 503,
               "an unready gateway")
    assert not answers
    gateway.process.send_signal(signal.SIGTERM)
    poll.join(60)
    assert answers[0]["type"] == "try_again"
    assert gateway.process.wait(60) == 0


def test_drain_asks_the_process_of_a_page_and_waits_for_its_end(lathe, gateways):
    gateway = gateways()
    page = f"0.0.0.0:{gateway.page}"
    wait_until(lambda: drain("--wait", "60s", LATHE_METRICS__GATEWAY_LISTEN=page).returncode == 0,
               "the gateway to have begun, and then to have ended")
    assert gateway.process.wait(30) == 0
    again = drain(LATHE_METRICS__GATEWAY_LISTEN=page)
    assert again.returncode == NOT_RUNNING and "cannot connect" in again.stderr


def test_drain_says_what_has_not_ended(gateways):
    gateway = gateways("--drain-delay", "1h")
    wait_until(lambda: "listening" in gateway.log.read_text(), "the gateway")
    answer = drain("--wait", "100ms", f"http://127.0.0.1:{gateway.page}")
    assert answer.returncode == NOT_RUNNING
    assert f"lathe-gateway (process {gateway.process.pid}) drains and has not ended" in answer.stderr
    assert gateway.process.poll() is None


def test_drain_needs_a_page_that_names_a_process(lathe):
    answer = drain(lathe.url)
    assert answer.returncode == USAGE and "is no page of metrics" in answer.stderr


def test_a_drained_engine_hands_its_lease_over():
    # Without the hand-over the standby would wait for the end of the lease.
    with PostgresCluster() as cluster, EnginePair(tiny_model(), cluster, lease="60s") as pair:
        leader = pair.wait_leader()
        standby = "b" if leader == "a" else "a"
        pair.wait_standby(standby)
        answer = drain(pair.page(leader))
        assert answer.returncode == 0, answer.stderr
        assert pair.processes[leader].wait(30) == 0
        assert pair.wait_leader(other_than=leader, timeout=50) == standby

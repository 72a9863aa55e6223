"""Curves of the machine: the service's queues, the own tenant's, and groups of workers for administrators."""

import contextlib
import os
import signal
import time

import pytest
from support.lathe_server import LatheServer, tiny_model
from support.raw_api import RawApi, RawModel

STEP_SECONDS = 15


@pytest.fixture(scope="module")
def lathe():
    with LatheServer(tiny_model()) as server:
        yield server


@pytest.fixture(scope="module")
def api(lathe):
    return RawApi(lathe)


def curves(api, **params):
    answer = api.get("machine_metrics", params=params)
    assert answer.status_code == 200, answer.text
    return {one["name"]: one for one in answer.json()["series"]}


def when(api, holds, **params):
    """The curves once `holds` is true of them."""
    deadline = time.monotonic() + 6 * STEP_SECONDS
    while not holds(found := curves(api, **params)):
        assert time.monotonic() < deadline, found
        time.sleep(0.5)
    return found


def test_the_service_has_its_queues_and_itself(api):
    found = when(api, lambda curves: "queue/waiting" in curves)
    assert {"queue/waiting", "queue/running", "engine/cpu_share", "engine/resident_bytes"} <= set(found)
    memory = found["engine/resident_bytes"]
    assert memory["last_value"] > 1 << 20
    assert memory["steps"][-1] == memory["times_ms"][-1] // 1000 // STEP_SECONDS
    assert set(curves(api, names="engine/*")) == {"engine/cpu_share", "engine/resident_bytes"}


def test_a_group_is_for_administrators(lathe, api):
    admin = RawApi(lathe, lathe.create_key("operators", ["admin"]))
    found = when(admin, lambda curves: "memory/used_bytes" in curves, group="default")
    assert found["ready"]["last_value"] == 1 and found["ranks"]["last_value"] == 1
    assert 0 < found["memory/base_bytes"]["last_value"] <= found["memory/used_bytes"]["last_value"]
    answer = RawApi(lathe, lathe.create_key("operators", ["read"])).get("machine_metrics", params={"group": "default"})
    assert answer.status_code == 403 and "scope admin" in answer.text
    assert curves(admin, group="no such group") == {}


def test_a_tenant_has_its_share_and_no_other_tenants(lathe, api):
    model = RawModel(api)

    def signal_worker(number):
        with contextlib.suppress(ProcessLookupError, KeyError):
            os.kill(lathe.pids()["worker"], number)

    def has_share(curves):
        signal_worker(signal.SIGSTOP)  # a worker that does not move is replaced meanwhile
        return "queue/share" in curves

    signal_worker(signal.SIGSTOP)
    try:
        model.forward_backward()
        found = when(api, has_share, of="tenant")
    finally:
        signal_worker(signal.SIGCONT)
    assert found["queue/share"]["last_value"] == 1
    assert found["queue/waiting"]["last_value"] + found["queue/running"]["last_value"] == 1
    # The curve goes down once nothing waits.
    when(api, lambda curves: curves["queue/share"]["last_value"] == 0, of="tenant")
    assert curves(RawApi(lathe, lathe.create_key("stranger")), of="tenant") == {}


def test_they_are_no_runs(api):
    assert api.get("training_runs/machine:service/metrics").status_code == 404
    points = {"points": [{"name": "queue/waiting", "step": 1 << 60, "value": 1.0}]}
    assert api.post("training_runs/machine:service/metrics", points).status_code == 404


@pytest.mark.parametrize("params, words", [
    ({"of": "nonsense"}, "must be service or tenant"), ({"of": "group"}, "query parameter group"),
    ({"seconds": "59"}, "expected 60 to 34560000"), ({"points": "0"}, "expected 1 to 2000"),
    ({"names": "a b"}, "a b")])
def test_bad_questions_are_refused_with_the_bound(api, params, words):
    answer = api.get("machine_metrics", params=params)
    assert answer.status_code == 400 and words in answer.text, answer.text

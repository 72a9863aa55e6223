"""Events: what a client is told by itself, over restarts, and who is told what."""

import contextlib
import os
import signal
import time

import httpx
import pytest
from support.events import EventStream
from support.lathe_server import LatheServer, tiny_model
from support.raw_api import RawApi, RawModel

MAX_VIEWERS, MAX_VIEWERS_PER_TENANT = 12, 8


@pytest.fixture(scope="module")
def lathe():
    with LatheServer(tiny_model(), env={
            "LATHE_GATEWAY__MAX_VIEWERS": str(MAX_VIEWERS),
            "LATHE_GATEWAY__MAX_VIEWERS_PER_TENANT": str(MAX_VIEWERS_PER_TENANT)}) as server:
        yield server


@pytest.fixture(scope="module")
def api(lathe):
    return RawApi(lathe)


@pytest.fixture(scope="module")
def run(api):
    return RawModel(api).model_id


def reopened(lathe, run, last_id):
    """A stream of a gateway that may still be starting."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return EventStream(lathe, [run], last_id=last_id)
        except httpx.ConnectError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def append(api, run, *points):
    answer = api.post(f"training_runs/{run}/metrics", {"points": [
        {"name": name, "step": step, "value": value} for name, step, value in points]})
    assert answer.status_code == 200, answer.text


def refused(stream, status, word):
    assert stream.answer.status_code == status, stream.answer.text
    assert word in stream.answer.text


def test_new_points_come_by_themselves_with_name_step_and_count(lathe, api, run):
    with EventStream(lathe, [run]) as stream:
        assert stream.next().name == "ready"
        assert stream.answer.headers["content-type"] == "text/event-stream"
        assert stream.answer.headers["cache-control"] == "no-store"
        append(api, run, ("reward/mean", 3, 0.25), ("reward/mean", 4, 0.5))
        event = stream.next("metrics")
        assert event.data["run_id"] == run and not event.data["is_incomplete"]
        [series] = event.data["series"]
        assert (series["name"], series["count"], series["steps"], series["values"]) == (
            "reward/mean", 2, [3, 4], [0.25, 0.5])
        assert len(series["times_ms"]) == 2
        # The point at the newest step replaces it: the count stays.
        append(api, run, ("reward/mean", 4, 0.75))
        [series] = stream.next("metrics").data["series"]
        assert (series["count"], series["steps"], series["values"]) == (2, [4], [0.75])


def test_results_have_the_steps_that_a_query_has(lathe, api):
    model = RawModel(api)
    with EventStream(lathe, [model.model_id]) as stream:
        stream.next()
        for _ in range(2):
            model.accumulate()
            model.step()
        points = []
        while len(points) < 2:
            points += stream.points("loss:sum")
    answer = api.get(f"training_runs/{model.model_id}/metrics", params={"names": "loss:sum"}).json()
    [series] = answer["series"]
    assert points == list(zip(series["steps"], series["mean"]))


def test_a_tenant_is_told_of_its_runs_and_checkpoints(lathe, api):
    with EventStream(lathe, topics="runs,checkpoints") as stream:
        stream.next()
        model = RawModel(api)
        while model.model_id not in stream.next("runs").data["run_ids"]:
            pass
        api.result(api.made("save_weights", {"model_id": model.model_id, "seq_id": model.next_seq_id(), "path": "kept"}))
        while model.model_id not in stream.next("checkpoints").data["run_ids"]:
            pass


def test_queue_figures_and_groups_come_when_they_change(lathe, api):
    model = RawModel(api)
    with EventStream(lathe, topics="queue,workers") as stream:
        stream.next()
        worker = lathe.pids()["worker"]
        os.kill(worker, signal.SIGSTOP)
        try:
            model.forward_backward()
            while not (data := stream.next("queue").data)["own"]:
                pass
        finally:
            os.kill(worker, signal.SIGCONT)
        [own] = data["own"]
        assert own["operation"] == "forward_backward" and own["waiting"] + own["running"] == 1
        assert own in data["all"]
        while stream.next("queue").data["own"]:
            pass
        epoch = api.get("status").json()["groups"][0]["epoch"]
        old = lathe.kill("worker")
        lathe.wait_restarted("worker", old)
        while True:
            [group] = stream.next("workers").data["groups"]
            assert "ranks" not in group
            if group["state"] == "ready" and group["epoch"] > epoch:
                break


def test_another_tenant_is_told_nothing_and_cannot_ask(lathe, api, run):
    stranger = lathe.create_key("stranger")
    refused(EventStream(lathe, [run], key=stranger), 404, "does not exist")
    refused(EventStream(lathe, ["no-such-run"]), 404, "no-such-run")
    with EventStream(lathe, topics="runs,checkpoints", key=stranger) as stream:
        stream.next()
        append(api, run, ("secret", 1, 1.0))
        other = RawApi(lathe, key=stranger)
        own = RawModel(other).model_id
        while own not in (event := stream.next("runs")).data["run_ids"]:
            assert run not in event.data["run_ids"]


def test_who_may_not_read_is_refused(lathe, run):
    refused(EventStream(lathe, [run], key=lathe.create_key("default", ["train"])), 403, "missing_scope")
    refused(EventStream(lathe, [run], key="tml-wrong"), 401, "unauthenticated")


def test_bad_questions_name_the_field_and_the_bound(lathe, run):
    refused(EventStream(lathe, topics="runs,nonsense"), 400, "nonsense")
    refused(EventStream(lathe, [f"r{number}" for number in range(9)]), 400, "limit is 8")
    refused(EventStream(lathe, ["r" * 300]), 400, "limit is 256")


def test_a_client_that_comes_back_goes_on_where_it_was(lathe, api, run):
    with EventStream(lathe, [run]) as stays:
        stays.next()
        with EventStream(lathe, [run]) as leaves:
            append(api, run, ("resumed", 1, 1.0))
            assert leaves.points("resumed") == [(1, 1.0)]
            last_id = leaves.id
        append(api, run, ("resumed", 2, 2.0))
        stays.points("resumed")
        assert stays.points("resumed") == [(2, 2.0)]
        with EventStream(lathe, [run], last_id=last_id) as back:
            assert back.next().name == "ready"
            assert back.points("resumed") == [(2, 2.0)]
        # An id of another process, and nonsense.
        for stale in ("0123-1-5", "x"):
            with EventStream(lathe, [run], last_id=stale) as other:
                assert other.next().name == "resync"


def test_a_revoked_key_ends_its_stream(lathe, run):
    api_key = lathe.create_key("default", ["read"])
    with EventStream(lathe, [run], key=api_key) as stream:
        stream.next()
        RawApi(lathe, key=api_key).request("DELETE", "auth/apikey/me").raise_for_status()
        while stream.next(timeout=20) is not None:
            pass


def wait_for_room(lathe, *keys):
    """Waits until clients that have left are counted no more."""
    deadline = time.monotonic() + 30
    while True:
        with contextlib.ExitStack() as opened:
            answers = [opened.enter_context(EventStream(lathe, key=keys[i // MAX_VIEWERS_PER_TENANT])).answer
                       for i in range(MAX_VIEWERS)]
            if all(answer.status_code == 200 for answer in answers):
                return
        assert time.monotonic() < deadline, "clients that have left are still counted"
        time.sleep(0.2)


def test_too_many_clients_are_refused_with_the_bound(lathe):
    with contextlib.ExitStack() as opened:
        def held(key):
            return opened.enter_context(EventStream(lathe, key=key))

        mine, other = lathe.create_key("many", ["read"]), lathe.create_key("many-too", ["read"])
        wait_for_room(lathe, mine, other)
        for _ in range(MAX_VIEWERS_PER_TENANT):
            assert held(mine).next().name == "ready"
        refused(EventStream(lathe, key=mine), 429, f"limit is {MAX_VIEWERS_PER_TENANT}")
        for _ in range(MAX_VIEWERS - MAX_VIEWERS_PER_TENANT):
            assert held(other).next().name == "ready"
        refused(EventStream(lathe, key=other), 503, f"limit is {MAX_VIEWERS}")
    wait_for_room(lathe, mine, other)


def test_a_killed_engine_is_told_and_nothing_is_missed(lathe, api, run):
    with EventStream(lathe, [run]) as stream:
        assert stream.next().name == "ready"
        old = lathe.kill("engine")
        assert stream.next("engine").data == {"is_reachable": False}
        lathe.wait_restarted("engine", old)
        assert stream.next("resync").data == {"reason": "engine_restarted"}
        append(api, run, ("after", 1, 1.0))
        assert stream.points("after") == [(1, 1.0)]


def test_after_a_killed_gateway_a_client_is_told_to_read_again(lathe, run):
    with EventStream(lathe, [run]) as stream:
        stream.next()
        last_id = stream.id
        old = lathe.kill("gateway")
        assert stream.next(timeout=60) is None
    lathe.wait_restarted("gateway", old)
    with reopened(lathe, run, last_id) as stream:
        assert stream.next().data == {"reason": "gateway_restarted"}

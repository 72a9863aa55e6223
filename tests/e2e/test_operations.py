"""Metrics, probes, notices and what waiting clients are told."""

import os
import pathlib
import re
import signal
import sys

import httpx
import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402
from support.metrics_page import MetricsPages  # noqa: E402
from support.raw_api import ADAM, RawApi, RawModel  # noqa: E402
from support.waiting import wait_until  # noqa: E402

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "operations.md"
PROMPT = {"prompt": {"chunks": [{"type": "encoded_text", "tokens": [30]}]}, "num_samples": 1,
          "sampling_params": {"max_tokens": 2}}


@pytest.fixture(scope="module")
def lathe():
    environment = {"LATHE_GATEWAY__NOTICE": "down at 6 pm",
                   "LATHE_GATEWAY__POLL_HOLD_SECONDS": "1"}
    with LatheServer(tiny_model(), args=["--metrics-listen", "127.0.0.1:0"],
                     env=environment) as server:
        yield server


@pytest.fixture
def pages(lathe):
    return MetricsPages(lathe)


def documented():
    """{name: (type, labels)} of the table in docs/operations.md."""
    rows = re.findall(r"^\| `(\w+)(?:\{([\w, ]+)\})?` \| (\w+) \|", DOCUMENT.read_text(),
                      re.MULTILINE)
    return {name: (kind, set(filter(None, labels.split(", ")))) for name, labels, kind in rows}


def test_every_metric_is_documented_and_served(lathe, pages):
    RawModel(RawApi(lathe)).accumulate()
    RawApi(lathe).get("/no/such/route")
    served = {}
    for process in pages.urls:
        for name, kind in pages.types(process).items():
            served[name] = kind
    rows = {name: kind for name, (kind, _) in documented().items()}
    assert served.keys() - rows.keys() == set(), "docs/operations.md lacks a row for these"
    assert rows.keys() - served.keys() == set(), "docs/operations.md has rows that nothing serves"
    assert served == rows


def test_labels_are_those_of_the_document_and_name_no_one(lathe, pages):
    tenant = "a-tenant-that-is-named"
    model = RawModel(RawApi(lathe, lathe.create_key(tenant)))
    model.accumulate()
    known = documented()
    for process in pages.urls:
        page = pages.page(process)
        assert tenant not in page and model.session_id not in page
        for series, labels in re.findall(r"^(\w+)\{(.*)\} ", page, re.MULTILINE):
            name = series if series in known else re.sub("_(bucket|sum|count)$", "", series)
            names = set(re.findall(r'(\w+)="', labels)) - {"le"}
            assert names == known[name][1], series


def test_work_is_counted_where_it_was_done(lathe, pages):
    def count(operation, outcome):
        return pages.value("engine", "lathe_engine_requests_total", operation=operation,
                           outcome=outcome)

    before = {outcome: count("forward_backward", outcome) for outcome in ("ok", "user_error")}
    tokens = pages.value("worker", "lathe_worker_train_tokens_total")
    commits = pages.value("engine", "lathe_engine_commit_seconds_count")
    posts = pages.sum("gateway", "lathe_gateway_requests_total",
                      route="/api/v1/forward_backward", status="200")
    model = RawModel(RawApi(lathe))
    model.accumulate()
    model.api.result(model.forward_backward(loss_fn="no such loss").json())
    assert count("forward_backward", "ok") == before["ok"] + 1
    assert count("forward_backward", "user_error") == before["user_error"] + 1
    assert pages.value("worker", "lathe_worker_train_tokens_total") == tokens + 3
    assert pages.value("engine", "lathe_engine_commit_seconds_count") > commits
    pages.wait_value("gateway", "lathe_gateway_requests_total", posts + 2,
                     route="/api/v1/forward_backward", status="200")
    assert pages.value("engine", "lathe_engine_request_execute_seconds_count",
                       operation="forward_backward") >= 1
    assert pages.value("engine", "lathe_engine_workers", state="ready") == 1
    assert pages.value("engine", "lathe_engine_models") >= 1
    assert pages.value("engine", "lathe_engine_watch_streams") == 1
    assert pages.value("engine", "lathe_engine_requests_waiting") == 0
    assert pages.value("engine", "lathe_engine_requests_running") == 0


def test_refused_requests_are_counted_by_reason(lathe, pages):
    stranger = RawApi(lathe, "tml-wrong")
    before = pages.sum("gateway", "lathe_gateway_rejected_total", reason="unauthenticated")
    assert stranger.get("sessions").status_code == 401
    assert stranger.get("sessions").status_code == 401
    pages.wait_value("gateway", "lathe_gateway_rejected_total", before + 2,
                     reason="unauthenticated")


def test_probes_of_a_healthy_lathe(lathe, pages):
    for process in pages.urls:
        for probe in ("/livez", "/readyz"):
            assert pages.get(process, probe).status_code == 200, (process, probe)
    public = RawApi(lathe, key="")
    assert public.get("/livez").json() == public.get("/readyz").json() == {"status": "ok"}


def test_the_gateway_is_not_ready_while_the_engine_is_away(lathe, pages):
    up = lathe.pids()["up"]
    os.kill(up, signal.SIGSTOP)  # it would start the engine again at once
    try:
        pid = lathe.kill("engine")
        wait_until(lambda: pages.get("gateway", "/readyz").status_code == 503, "the gateway is ready")
        assert "the engine is not reachable" in pages.get("gateway", "/readyz").text
        assert pages.get("gateway", "/livez").status_code == 200
        assert RawApi(lathe, key="").get("/readyz").status_code == 503
    finally:
        os.kill(up, signal.SIGCONT)
    lathe.wait_restarted("engine", pid)
    wait_until(lambda: pages.get("gateway", "/readyz").status_code == 200, "the gateway is not ready")
    wait_until(lambda: lathe.status()["groups"][0]["state"] == "ready", "the worker is not back")
    assert pages.get("engine", "/readyz").status_code == 200


def test_a_notice_comes_with_the_answers_a_program_begins_with(lathe):
    api = RawApi(lathe)
    for path in ("client/config", "client/dynamic_config", "create_session"):
        headers = api.post(path, {}).headers
        assert headers["x-deprecation-note"] == "down at 6 pm"
        assert "x-deprecation-level" not in headers
    old = api.post("create_session", {}, headers={"x-stainless-package-version": "0.24.1"}).headers
    assert "tinker 0.24.1 is older than 0.25.0" in old["x-deprecation-note"]
    assert old["x-deprecation-level"] == "error"
    assert "x-deprecation-note" not in api.get("sessions").headers


def test_a_waiting_poll_gets_the_reason(lathe):
    model = RawModel(RawApi(lathe))
    worker = lathe.pids()["worker"]
    os.kill(worker, signal.SIGSTOP)
    try:
        # The signal is asynchronous: until it arrives, the worker could still compute the request.
        stat = pathlib.Path(f"/proc/{worker}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T",
                   "the worker to stop")
        running = model.forward_backward().json()
        model.api.made("optim_step", {"model_id": model.model_id,
                                      "seq_id": model.next_seq_id(), "adam_params": ADAM})
        waiting = model.forward_backward().json()
        answer = {name: model.api.made("retrieve_future", {"request_id": future["request_id"]})
                for name, future in (("running", running), ("waiting", waiting))}
    finally:
        os.kill(worker, signal.SIGCONT)
    assert answer["running"]["type"] == answer["waiting"]["type"] == "try_again"
    assert answer["running"]["queue_state"] == answer["waiting"]["queue_state"] == "active"
    assert answer["running"]["queue_state_reason"] == "at a worker"
    assert (answer["waiting"]["queue_state_reason"]
            == "waiting for optim_step seq 2 of its model; 1 request is before it")
    assert "error" not in model.api.result(waiting)


def test_a_poll_over_a_gap_names_the_missing_seq(lathe):
    api = RawApi(lathe)
    # Without the SDK's version header: its requests may overtake each other.
    model = RawModel(api, session_id=api.made("create_session", {})["session_id"])
    first, second = model.body(), model.body()
    waiting = api.made("forward_backward", second)
    answer = api.made("retrieve_future", {"request_id": waiting["request_id"]})
    assert answer["queue_state"] == "active"
    assert re.match(r"waiting for seq 1, which has not arrived; continues without it in 3\d\d s",
                    answer["queue_state_reason"])
    api.made("forward_backward", first)
    assert "error" not in api.result(waiting)


def slices_of(trace):
    """Every asynchronous slice as (process, id, name, begin, end, args), checked for nesting."""
    slices, open_ones = [], {}
    for event in trace["traceEvents"]:
        if event["ph"] == "b":
            open_ones.setdefault((event["pid"], event["id"]), []).append(event)
        elif event["ph"] == "e":
            begun = open_ones[event["pid"], event["id"]].pop()
            assert begun["name"] == event["name"] and begun["cat"] == event["cat"]
            assert begun["ts"] <= event["ts"]
            slices.append((event["pid"], event["id"], event["name"], begun["ts"], event["ts"],
                           begun.get("args", {})))
    assert not any(open_ones.values())
    return slices


def test_a_session_s_trace_shows_its_requests_and_where_their_time_went(lathe):
    api = RawApi(lathe)
    model = RawModel(api)
    model.accumulate()
    model.grad_norm()
    api.result(model.forward_backward(loss_fn="no such loss").json())
    sampler = api.made("create_sampling_session", {
        "session_id": model.session_id, "sampling_session_seq_id": 0,
        "base_model": lathe.model_name})["sampling_session_id"]
    api.result(api.made("asample", {"sampling_session_id": sampler, "seq_id": 1, **PROMPT}))
    answer = api.get(f"sessions/{model.session_id}/trace_export").json()
    assert (answer["status"], answer["error"]) == ("ready", None)
    # That a result was delivered is noted a moment after its delivery.
    wait_until(lambda: httpx.get(answer["url"]).text.count('"deliver"') == 2 * 5, "5 deliveries")
    file = httpx.get(answer["url"])
    assert file.status_code == 200 and file.headers["content-type"] == "application/json"
    trace = file.json()
    names = {event["pid"]: event["args"]["name"] for event in trace["traceEvents"]
             if event["ph"] == "M"}
    assert sorted(names.values()) == sorted([
        f"session {model.session_id}", f"model {model.model_id}", f"sampler {sampler}"])
    slices = slices_of(trace)
    requests = [(names[pid].split()[0], name, args["outcome"])
                for pid, _, name, _, _, args in slices if args]
    assert requests == [("session", "create_model", "ok"), ("model", "forward_backward", "ok"),
                        ("model", "optim_step", "ok"),
                        ("model", "forward_backward", "user_error"), ("sampler", "sample", "ok")]
    for request in (1, 2, 3, 5):
        stages = [(name, begin, end) for _, one, name, begin, end, args in slices
                  if one == request and not args]
        assert [name for name, _, _ in stages] == ["accept", "queued", "on worker", "commit",
                                                   "deliver"]
        for (_, _, end), (_, begin, _) in zip(stages, stages[1:]):
            assert end == begin
        assert stages[2][2] > stages[2][1]
    assert trace["otherData"]["session_id"] == model.session_id
    assert "missing" not in trace["otherData"]


def test_a_trace_link_is_the_right_to_its_session_alone(lathe):
    api = RawApi(lathe)
    url = api.get(f"sessions/{api.new_session()}/trace_export").json()["url"]
    head, token = url.rsplit("/", 1)
    assert httpx.get(url).status_code == 200
    refused = httpx.get(f"{head}/{token[:-3]}abc")
    assert refused.status_code == 400 and refused.json()["error"]["code"] == "bad_token"
    assert api.get("sessions/absent/trace_export").status_code == 404


def test_after_a_restart_a_trace_says_what_it_lacks(lathe):
    api = RawApi(lathe)
    model = RawModel(api)
    url = api.get(f"sessions/{model.session_id}/trace_export").json()["url"]
    lathe.wait_restarted("engine", lathe.kill("engine"))
    wait_until(lambda: api.get("sessions").status_code == 200, "the engine is not back")
    model.accumulate()
    trace = httpx.get(url).json()
    assert "may be missing" in trace["otherData"]["missing"]
    assert trace["traceEvents"][0]["name"] == trace["otherData"]["missing"]
    assert [args["seq_id"] for _, _, name, _, _, args in slices_of(trace) if args] == [1]

"""Traces: what a collector receives of gateway and engine, and what one in trouble costs."""

import os
import pathlib
import socket
import sys
import time

import pytest
import tinker
from tinker import types

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.lathe_server import LatheServer, tiny_model  # noqa: E402
from support.metrics_page import MetricsPages  # noqa: E402
from support.raw_api import RawApi, RawModel  # noqa: E402
from support.sdk import resolved  # noqa: E402
from support.trace_collector import TraceCollector  # noqa: E402

ENGINE, GATEWAY = "lathe-engine", "lathe-gateway"
STAGES = ("accept", "queue", "execute", "commit", "deliver")
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
KEYS = {"lathe.tenant_id", "lathe.model_id", "lathe.session_id", "lathe.sampling_session_id",
        "lathe.request_id", "lathe.operation", "lathe.seq_id", "lathe.outcome", "lathe.base_model",
        "lathe.group", "lathe.dispatches", "lathe.batch_requests", "http.request.method", "http.route",
        "http.response.status_code", "error.type", "rpc.system", "rpc.method"}
HOSTILE = ["", "garbage", f"00-{TRACE.upper()}-{PARENT}-01", f"00-{'0' * 32}-{PARENT}-01",
           f"00-{TRACE}-{'0' * 16}-01", f"ff-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-more",
           f"cc-{TRACE}-{PARENT}-01-{'a' * 2000}", f'00-{TRACE}-{PARENT}-"}}', "00-\xff\xfe" + "1" * 60]


def traced(collector_url, **more):
    return {"LATHE_TRACING__ENDPOINT": collector_url, **more}


@pytest.fixture(scope="module")
def collector():
    with TraceCollector() as running:
        yield running


@pytest.fixture(scope="module")
def lathe(collector):
    with LatheServer(tiny_model(), args=["--metrics-listen", "127.0.0.1:0"],
                     env=traced(collector.url, LATHE_TRACING__HEADERS="x-team=a")) as server:
        yield server


def check_stages(whole, spans):
    """The stages of an engine's span, which follow each other."""
    children = {span.name: span for span in spans if span.parent_id == whole.span_id}
    assert set(children) == set(STAGES)
    at = whole.begin
    for name in STAGES:
        stage = children[name]
        assert stage.trace_id == whole.trace_id and stage.service == ENGINE
        assert stage.begin == at <= stage.end
        at = stage.end
    assert children["commit"].end == whole.end


def has_all(spans, whole):
    return {span.name for span in spans if span.parent_id == whole.span_id} >= set(STAGES)


def test_a_call_of_the_sdk_is_one_trace_of_gateway_and_engine(lathe, collector):
    service = tinker.ServiceClient(base_url=lathe.url, api_key=lathe.api_key)
    client = resolved(service.create_lora_training_client(lathe.model_name, rank=4))
    row = [30, 31, 32, 33]
    datum = types.Datum(model_input=types.ModelInput.from_ints(row),
                        loss_fn_inputs={"target_tokens": row, "weights": [1.0] * 4})
    client.forward_backward([datum], "cross_entropy").result()
    client.optim_step(types.AdamParams(learning_rate=1e-3)).result()
    model_id = client.model_id

    def wholes(spans):
        return {span.name: span for span in spans if span.service == ENGINE
                and span.attributes.get("lathe.model_id") == model_id}

    def is_complete(spans):
        found = wholes(spans)
        ids = {span.span_id for span in spans}
        return {"forward_backward", "optim_step"} <= set(found) and all(
            has_all(spans, one) and one.parent_id in ids for one in found.values())

    spans = collector.wait(is_complete)
    for name, route in (("forward_backward", "/api/v1/forward_backward"),
                        ("optim_step", "/api/v1/optim_step")):
        whole = wholes(spans)[name]
        check_stages(whole, spans)
        request = next(span for span in spans if span.span_id == whole.parent_id)
        assert request.service == GATEWAY and request.trace_id == whole.trace_id
        assert request.name == f"POST {route}" and request.parent_id == ""
        assert request.attributes["http.response.status_code"] == 200
        assert request.attributes["lathe.request_id"] == whole.attributes["lathe.request_id"]
        assert whole.attributes["lathe.outcome"] == "ok" and whole.status == 0
        assert whole.attributes["lathe.base_model"] == lathe.model_name
        assert whole.attributes["lathe.tenant_id"] and whole.attributes["lathe.group"]
        polls = [span for span in spans if span.name == "POST /api/v1/retrieve_future"]
        assert whole.attributes["lathe.request_id"] in {
            poll.attributes.get("lathe.request_id") for poll in polls}
    path, headers = collector.headers[0]
    assert path == "/v1/traces" and headers["x-team"] == "a"


def test_spans_hang_below_the_clients_span(lathe, collector):
    model = RawModel(RawApi(lathe))
    answer = model.api.post("forward_backward", model.body(),
                            headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
    model.api.result(answer.json())
    spans = collector.wait(lambda spans: sum(span.trace_id == TRACE for span in spans) >= 7)
    ours = [span for span in spans if span.trace_id == TRACE]
    [request] = [span for span in ours if span.parent_id == PARENT]
    [whole] = [span for span in ours if span.parent_id == request.span_id]
    assert (request.service, whole.service) == (GATEWAY, ENGINE)
    check_stages(whole, spans)


def test_a_client_that_does_not_record_has_no_spans(lathe, collector):
    model = RawModel(RawApi(lathe))
    unsampled = "1" * 32
    model.api.result(model.api.post(
        "forward_backward", model.body(),
        headers={"traceparent": f"00-{unsampled}-{PARENT}-00"}).json())
    model.step()
    collector.wait(lambda spans: any(span.name == "optim_step" and span.attributes.get(
        "lathe.model_id") == model.model_id for span in spans))
    assert not any(span.trace_id == unsampled for span in collector.spans())


@pytest.mark.parametrize("header", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_traceparent_is_ignored(lathe, collector, header):
    model = RawModel(RawApi(lathe))
    answer = model.api.post("forward_backward", model.body(),
                            headers={"traceparent": header.encode("latin-1"), "baggage": "b" * 2000})
    assert answer.status_code == 200, answer.text
    model.api.result(answer.json())
    request_id = answer.json()["request_id"]

    def requests(spans):
        return [span for span in spans if span.attributes.get("lathe.request_id") == request_id
                and span.name == "POST /api/v1/forward_backward"]

    [request] = requests(collector.wait(requests))
    assert request.parent_id == "" and request.trace_id not in (TRACE, "0" * 32)


def test_strangers_and_probes_leave_no_spans(lathe, collector):
    stranger = RawApi(lathe, "tml-wrong")
    strange = "2" * 32
    header = {"traceparent": f"00-{strange}-{PARENT}-01"}
    assert stranger.get("sessions", headers=header).status_code == 401
    assert stranger.get("/readyz", headers=header).status_code == 200
    RawModel(RawApi(lathe)).accumulate()
    time.sleep(3)  # longer than a span waits for others
    assert not any(span.trace_id == strange for span in collector.spans())


def test_spans_name_no_secret_and_no_content(lathe, collector):
    model = RawModel(RawApi(lathe))
    model.api.result(model.forward_backward(loss_fn="no such loss").json())
    spans = collector.wait(lambda spans: any(
        span.attributes.get("lathe.outcome") == "user_error" for span in spans))
    for span in spans:
        assert set(span.attributes) <= KEYS
    for body in collector.bodies:
        assert lathe.api_key.encode() not in body and b"no such loss" not in body
    pages = MetricsPages(lathe)
    for process in ("gateway", "engine"):
        assert pages.value(process, f"lathe_{process}_trace_spans_total") > 0
        assert pages.value(process, f"lathe_{process}_trace_spans_dropped_total") == 0


def closed_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


@pytest.mark.parametrize("trouble", ["away", "hangs", "refuses"])
def test_a_collector_in_trouble_costs_nobody_anything(trouble):
    collector = {"away": None, "hangs": TraceCollector(delay=600),
                 "refuses": TraceCollector(status=400)}[trouble]
    url = collector.url if collector else closed_port()
    with LatheServer(tiny_model(), args=["--metrics-listen", "127.0.0.1:0"],
                     env=traced(url)) as server:
        pages = MetricsPages(server)
        model = RawModel(RawApi(server))
        for _ in range(5):
            model.accumulate()
            model.step()
        if trouble == "refuses":
            deadline = time.monotonic() + 60
            while pages.value("engine", "lathe_engine_trace_spans_dropped_total") == 0:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert pages.value("engine", "lathe_engine_requests_total", operation="optim_step",
                           outcome="ok") == 5
        assert server.stop() == 0
    if collector:
        collector.__exit__()


def test_without_an_endpoint_nothing_is_started():
    with LatheServer(tiny_model()) as server:
        RawModel(RawApi(server)).accumulate()
        for name, pid in server.pids().items():
            tasks = pathlib.Path(f"/proc/{pid}/task").iterdir()
            assert "traces" not in {(task / "comm").read_text().strip() for task in tasks}, name


def test_the_share_of_traces_is_bounded():
    with TraceCollector() as collector, LatheServer(
            tiny_model(), env=traced(collector.url, LATHE_TRACING__SAMPLE_RATIO="0")) as server:
        model = RawModel(RawApi(server))
        model.api.result(model.api.post("forward_backward", model.body(), headers={
            "traceparent": f"00-{TRACE}-{PARENT}-01"}).json())
        server.stop()  # which sends what waits
        assert collector.spans() == []


def test_a_client_cannot_choose_an_id_that_is_recorded_and_the_engine_follows_the_gateway():
    """Small ids were below every share once, and large ones above it."""
    share, num_traces = 0.25, 60
    chosen = [f"{number if number % 2 else 2**128 - number:032x}" for number in range(1, num_traces + 1)]
    with TraceCollector() as collector, LatheServer(tiny_model(), env=traced(
            collector.url, LATHE_TRACING__SAMPLE_RATIO=str(share))) as server:
        model = RawModel(RawApi(server))
        for trace in chosen:
            model.api.result(model.api.post("forward_backward", model.body(), headers={
                "traceparent": f"00-{trace}-{PARENT}-01"}).json())
        server.stop()  # which sends what waits
        ids = {service: {span.trace_id for span in collector.spans()
                         if span.service == service and span.trace_id in chosen}
               for service in (GATEWAY, ENGINE)}
    # None or more than 40 of 60 have a chance below one in ten million.
    assert 1 <= len(ids[GATEWAY]) <= 40
    assert ids[ENGINE] == ids[GATEWAY]

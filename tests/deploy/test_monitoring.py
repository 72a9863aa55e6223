"""Alert rules and dashboards: a real Prometheus watches a running Lathe."""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

import httpx
import pytest
import yaml

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support import plain_http  # noqa: E402
from support.lathe_server import LatheServer, tiny_model  # noqa: E402
from support.metrics_page import MetricsPages  # noqa: E402
from support.raw_api import RawApi, RawModel  # noqa: E402

ROOT = pathlib.Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
RULES = [rule for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
         for rule in group["rules"]]
DASHBOARDS = {path.stem: json.loads(path.read_text())
              for path in sorted((MONITORING / "dashboards").glob("*.json"))}
PANELS = [(name, panel) for name, dashboard in DASHBOARDS.items()
          for panel in dashboard["panels"] if panel["type"] != "row"]
# Series that a group of one rank does not have.
SEVERAL_RANKS = ("lathe_worker_collective_",)
# Alerts about the machine rather than Lathe, and the free share of the disk under which they fire.
DISK_ALERTS = {"LatheDiskFills": 0.1, "LatheDiskFull": 0.02}
# Series that only a service with TLS has.
WITH_TLS = ("_certificate_expiry_timestamp_seconds",)

needs_prometheus = pytest.mark.skipif(not shutil.which("promtool"),
                                      reason="prometheus is not installed; tools/setup --deploy does it")


def promtool(*arguments):
    done = subprocess.run(["promtool", *arguments], cwd=MONITORING, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@needs_prometheus
def test_rules_are_valid_and_fire_when_they_should():
    code, output = promtool("check", "rules", "alerts.yml")
    assert code == 0, output
    code, output = promtool("test", "rules", "alerts_test.yml")
    assert code == 0, output


def test_each_rule_has_a_case_in_which_it_fires():
    cases = (MONITORING / "alerts_test.yml").read_text()
    firing = set(re.findall(r'ALERTS\{alertname="(\w+)"', cases))
    assert firing == {rule["alert"] for rule in RULES}


def test_each_rule_has_a_paragraph_that_says_what_to_do():
    anchors = {heading.lower() for heading in
               re.findall(r"^### (\w+)$", (ROOT / "docs/deploy/monitoring.md").read_text(), re.MULTILINE)}
    for rule in RULES:
        page, anchor = rule["annotations"]["runbook_url"].split("#")
        assert page == "docs/deploy/monitoring.md"
        assert anchor == rule["alert"].lower() and anchor in anchors
        assert rule["labels"]["severity"] in ("critical", "warning")


def test_dashboards_have_what_grafana_asks_for():
    uids = [dashboard["uid"] for dashboard in DASHBOARDS.values()]
    assert len(set(uids)) == len(uids) == 5
    for name, dashboard in DASHBOARDS.items():
        ids = [panel["id"] for panel in dashboard["panels"]]
        assert len(set(ids)) == len(ids)
        assert dashboard["uid"] == f"lathe-{name}"
        cells = set()
        for panel in dashboard["panels"]:
            place = panel["gridPos"]
            taken = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                     for y in range(place["y"], place["y"] + place["h"])}
            assert max(x for x, _ in taken) < 24 and not taken & cells, panel["title"]
            cells |= taken
    for _, panel in PANELS:
        assert panel["title"] and panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def expressions():
    """[(where, expression)] of all rules and panels."""
    found = [(rule["alert"], rule["expr"]) for rule in RULES]
    found += [(f"{name}: {panel['title']}", target["expr"].replace("$__rate_interval", "1m"))
              for name, panel in PANELS for target in panel["targets"]]
    return found


class Prometheus:
    """A Prometheus that scrapes `urls` once a second."""

    def __init__(self, folder, urls):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        config = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                  "rule_files": [str(MONITORING / "alerts.yml")],
                  "scrape_configs": [{"job_name": "lathe", "static_configs": [
                      {"targets": [url.removeprefix("http://") for url in urls]}]}]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={self.url.removeprefix('http://')}"],
            stdout=subprocess.DEVNULL, stderr=(folder / "log").open("w"))

    def query(self, expression):
        answer = plain_http.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=10)
        if answer.status_code == 503:
            return []  # it has opened its port and still starts
        assert answer.status_code == 200, (expression, answer.text)
        return answer.json()["data"]["result"]

    def wait(self, expression, timeout=60):
        deadline = time.monotonic() + timeout
        while True:
            try:
                if found := self.query(expression):
                    return found
            except httpx.TransportError:
                pass  # it has not opened its port yet
            assert time.monotonic() < deadline, expression
            time.sleep(0.2)

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=30)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """(Prometheus, MetricsPages) of a Lathe that has trained, sampled and saved."""
    with LatheServer(tiny_model(), args=["--metrics-listen", "127.0.0.1:0"]) as server:
        pages = MetricsPages(server)
        prometheus = Prometheus(tmp_path_factory.mktemp("prometheus"), pages.urls.values())
        try:
            model = RawModel(RawApi(server))
            # A rate needs two scrapes, the first of them before the counter grows.
            prometheus.wait('lathe_engine_workers{state="ready"} == 1')
            prometheus.wait("count_over_time(lathe_worker_optim_steps_total[1m]) >= 2")
            for _ in range(2):
                model.accumulate()
                model.step()
                plain_http.get(f"{server.url}/api/v1/sessions")  # refused: it has no key
            yield prometheus, pages
        finally:
            prometheus.stop()


@needs_prometheus
def test_every_expression_names_metrics_that_exist(watched):
    _, pages = watched
    types = {}
    for process in pages.urls:
        types |= pages.types(process)
    for where, expression in expressions():
        names = set(re.findall(r"\b(?:lathe|process)_\w+", expression))
        assert names, where
        for name in names:
            histogram = re.sub("_(bucket|sum|count)$", "", name)
            assert name in types or types.get(histogram) == "histogram", (where, name)
            if re.search(rf"rate\({name}|increase\({name}", expression):
                assert types.get(name) == "counter" or types.get(histogram) == "histogram", where


def free_share_of_disk():
    disk = shutil.disk_usage(tempfile.gettempdir())
    return disk.free / disk.total


@needs_prometheus
def test_every_panel_has_data(watched):
    prometheus, _ = watched
    prometheus.wait("sum(rate(lathe_worker_optim_steps_total[1m])) > 0")
    prometheus.wait("rate(lathe_gateway_rejected_total[1m])")
    alerts = {rule["alert"] for rule in RULES}
    for where, expression in expressions():
        found = prometheus.query(expression)
        if where in DISK_ALERTS:
            # The machine's disk may be nearly full, and other programs write to it meanwhile.
            share = free_share_of_disk()
            assert found or share > DISK_ALERTS[where] - 0.01, (where, share)
            assert not found or share < DISK_ALERTS[where] + 0.01, (where, share)
        elif where in alerts:
            assert not found, (where, "fires on a service in good order")
        elif not any(name in expression for name in SEVERAL_RANKS + WITH_TLS):
            assert found, where

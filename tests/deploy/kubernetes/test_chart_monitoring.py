"""The chart's rules and dashboards are those of deploy/monitoring, and its rules see one namespace."""

import json
import re
import shutil
import subprocess

import pytest
import yaml
from support.helm import find, render
from support.lathe_server import ROOT

MONITORING = ROOT / "deploy" / "monitoring"
NAMESPACE = 'namespace="serving"'


def rule_groups():
    return find(render("ci/full.yaml"), "PrometheusRule", "lathe")["spec"]["groups"]


def without_namespace(expression):
    return re.sub(r"\{\}", "", re.sub(rf"{NAMESPACE},?", "", expression))


def test_the_rules_are_those_of_the_file():
    ours = yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"]
    theirs = rule_groups()
    for group in theirs:
        for rule in group["rules"]:
            metrics = re.findall(r"\blathe_\w+(\{[^}]*\})?", rule["expr"])
            assert metrics and all(NAMESPACE in selector for selector in metrics), rule["alert"]
            rule["expr"] = without_namespace(rule["expr"])
    assert theirs == ours


def in_namespace(case):
    """A case of alerts_test.yml whose service is in namespace "serving", beside a leader in another."""
    for series in case["input_series"]:
        name, _, labels = series["series"].partition("{")
        series["series"] = f"{name}{{{NAMESPACE},{labels or '}'}"
    case["input_series"].append({"series": 'lathe_engine_leader{namespace="other",instance="z"}', "values": "1x60"})
    for query in case["promql_expr_test"]:
        if query["expr"] == 'ALERTS{alertstate="firing"}':
            query["expr"] = f"sum without (namespace) ({query['expr']})"
            for sample in query["exp_samples"]:
                sample["labels"] = sample["labels"].removeprefix("ALERTS")
    return case


@pytest.mark.skipif(not shutil.which("promtool"), reason="prometheus is not installed; tools/setup --deploy does it")
def test_the_rules_fire_for_their_namespace_alone(tmp_path):
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump({"groups": rule_groups()}))
    cases = yaml.safe_load((MONITORING / "alerts_test.yml").read_text())
    cases["tests"] = [in_namespace(case) for case in cases["tests"]]
    (tmp_path / "cases.yml").write_text(yaml.safe_dump(cases))
    done = subprocess.run(["promtool", "test", "rules", "cases.yml"], cwd=tmp_path, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_config_map_for_each_dashboard_has_the_label_of_grafanas_sidecar():
    objects = render("ci/full.yaml")
    paths = sorted((MONITORING / "dashboards").glob("*.json"))
    assert len(paths) == 5
    for path in paths:
        config = find(objects, "ConfigMap", f"lathe-dashboard-{path.stem}")
        assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
        [(name, text)] = config["data"].items()
        dashboard = json.loads(text)
        assert name == f"{dashboard['uid']}.json" and dashboard == json.loads(path.read_text())
    assert not any("dashboard" in o["metadata"]["name"] for o in render("ci/minimal.yaml"))

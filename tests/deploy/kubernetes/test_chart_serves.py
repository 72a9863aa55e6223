"""The chart with ci/full.yaml, installed by the real helm, whose pods run: two engines, two gateways and two groups of
workers, each on a host of its own. It serves, and goes on through the loss of a pod and through an upgrade."""

import re
import signal

import pytest
from support.deploy_packages import slow_deploy
from support.helm import find, render, run
from support.kube_cluster import why_not
from support.kube_service import served_chart
from support.lathe_server import BIN, tiny_model
from support.stubborn_api import steps_while

pytestmark = [slow_deploy, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]


# Clients read the tokenizer from here: they do not have the pods' folder of models.
TOKENIZER = f"config.worker.tokenizer={tiny_model()}"


def first_key(folder):
    run(BIN / "lathe", "secrets", "init", "--out", folder / "made")
    return (folder / "made" / "admin.key").read_text()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    secrets = {"lathe-first-key": {"admin.key": first_key(tmp_path_factory.mktemp("keys"))}}
    with served_chart(tmp_path_factory.mktemp("chart"), "ci/full.yaml", TOKENIZER, secrets=secrets,
                      num_groups=2) as running:
        yield running


def test_the_stock_sdk_trains(service):
    losses = [float(number) for number in re.findall(r"Loss: (\S+)", service.run_example("pig_latin.py"))]
    assert len(losses) == 6
    assert losses == sorted(losses, reverse=True)


def test_both_groups_are_there_under_the_names_of_their_pods(service):
    groups = {group["group"]: group["role"] for group in service.status()["groups"]}
    assert groups == {"lathe-group-train-0": "both", "lathe-group-sample-0": "sample"}


def test_logs_name_no_key(service):
    assert not re.search(r"tml-[A-Za-z0-9]{8}", service.cluster.logs(10**7))


def test_the_first_key_of_the_values_is_an_administrators(service):
    key = service.cluster.secret("lathe-first-key")["admin.key"].strip()
    listed = service._in_leader("keys", "list")[1]
    line = next(line for line in listed.splitlines() if key.removeprefix("tml-").partition("_")[0] in line)
    assert "admin" in line


@pytest.mark.parametrize("values", [[], ["testKeySecret="]], ids=["with-a-key", "without"])
def test_the_pod_of_helm_test_is_content(service, values):
    """The stand-in has no controller for a bare pod, so a Job runs it."""
    if service.cluster.api.get("Secret", "lathe-test-key") is None:
        service.cluster.add_secret("lathe-test-key", key=service.api_key)
    pod = find(render("ci/full.yaml", *values), "Pod", "lathe-test")
    name = f"ask-{len(values)}"
    service.cluster.create([{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
                             "spec": {"template": {"metadata": {"labels": {"app": name}}, "spec": pod["spec"]}}}])
    ended = service.cluster.wait(
        lambda: [p for p in service.cluster.ended if p.name.startswith(name)], "the test's pod")[0]
    assert ended.exit_code == 0, ended.log()


@pytest.mark.parametrize("grace", [None, 0], ids=["deleted", "killed"])
def test_the_leaders_pod_goes_and_the_run_goes_on(service, program, grace):
    leader = service.cluster.wait(service.leader, "a leader")
    steps_while(program, lambda: service.cluster.delete_pod(leader.name, grace))
    program.check()
    service.cluster.wait(lambda: all(pod.is_ready for pod in service.engines()) and len(service.engines()) == 2,
                         "the pod's successor to stand by")


def test_a_workers_pod_goes_and_the_run_goes_on(service, program):
    steps_while(program, lambda: service.cluster.delete_pod("lathe-group-train-0", 0))
    program.check()


def test_a_workers_pod_that_is_stopped_in_order_ends_in_its_grace(service, program):
    program.step()
    pod = service.cluster.delete_pod("lathe-group-train-0")
    assert pod.container().sandbox.exit_code != -signal.SIGKILL
    program.step()
    program.check()


def test_an_upgrade_of_everything_fails_no_call_and_changes_no_number(service, program):
    """Engines, workers and gateways are replaced one after the other, while a program trains without a pause."""
    before = {pod.name for pod in service.cluster.pods()}
    outcome = {}

    def upgrade():
        outcome["done"] = service.release.upgrade("ci/full.yaml", TOKENIZER, "podAnnotations.round=second",
                                          timeout="300s", check=False)

    steps_while(program, upgrade)
    assert outcome["done"].returncode == 0, outcome["done"].stderr + service.cluster.logs(1500)
    program.check()
    pods = service.cluster.pods()
    assert all(pod.is_ready for pod in pods)
    assert {"lathe-engine-0", "lathe-engine-1", "lathe-group-train-0", "lathe-group-sample-0"} <= {p.name for p in pods}
    gateways = {pod.name for pod in pods if pod.name.startswith("lathe-gateway")}
    assert len(gateways) == 2 and not gateways & before
    assert all(group["state"] == "ready" for group in service.status()["groups"])

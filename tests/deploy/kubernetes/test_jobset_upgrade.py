"""The chart with a JobSet: a group of two pods of one rank each, TP 2. A JobSet cannot be changed, so an upgrade makes
another one and removes the first."""

import concurrent.futures
import time

import pytest
import yaml
from support.deploy_packages import slow_deploy
from support.kube_cluster import why_not
from support.kube_service import served_chart
from support.lathe_server import tiny_model
from support.stubborn_api import steps_while

pytestmark = [slow_deploy, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

VALUES = {
    "store": {"existingSecret": "lathe-store"},
    "config": {"worker": {"device": "cpu", "numerics": "exact", "tokenizer": tiny_model()}},
    "engine": {"replicas": 1},
    "gateway": {"autoscaling": {"enabled": False}, "replicas": 1},
    "groupDefaults": {"image": "lathe-worker", "resources": {
        "requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}},
    "groups": [{"name": "night", "kind": "JobSet", "config": {
        "worker": {"model": "tiny=/models/tiny", "tp": 2, "memory_fraction": 0.2},
        "ranks": {"ranks_per_pod": 1, "threads": 1}}}],
}


@pytest.fixture(scope="module")
def values(tmp_path_factory):
    file = tmp_path_factory.mktemp("values") / "values.yaml"
    file.write_text(yaml.safe_dump(VALUES))
    return file


@pytest.fixture(scope="module")
def service(tmp_path_factory, values):
    with served_chart(tmp_path_factory.mktemp("jobset"), files=[values], num_hosts=9) as running:
        yield running


def pods_of(service, jobset):
    return [pod for pod in service.cluster.pods() if pod.name.startswith(f"{jobset}-")]


def are_side_by_side(service, before):
    """Whether a new set already works while the one before has not been asked to end."""
    old = pods_of(service, before)
    new = [pod for pod in service.cluster.pods() if "-ranks-" in pod.name and pod not in old]
    return any(not pod.is_stopping for pod in old) and any(pod.is_ready for pod in new)


def test_an_upgrade_replaces_the_jobset_and_loses_no_step(service, program, values):
    [before] = service.cluster.api.names("JobSet")
    done, side_by_side = [], []

    def upgrade():
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(service.release.upgrade, None, "podAnnotations.round=second", files=[values],
                                  timeout="180s", check=False)
            while not running.done():
                side_by_side.append(are_side_by_side(service, before))
                time.sleep(0.05)
            done.append(running.result())
        service.cluster.wait(lambda: not pods_of(service, before), "the end of the set before")

    steps_while(program, upgrade)
    assert done[0].returncode == 0, done[0].stderr + service.cluster.logs(1500)
    program.check()
    assert len(side_by_side) > 10 and not any(side_by_side)
    [after] = service.cluster.api.names("JobSet")
    assert after != before and len(pods_of(service, after)) == 2
    assert [(group["group"], group["state"]) for group in service.status()["groups"]] == [("night-0", "ready")]
    ended = [pod for pod in service.cluster.ended if pod.name.startswith(f"{before}-")]
    assert [pod.exit_code for pod in ended] == [143, 143], "they ended in their grace"
    assert service.cluster.api.get("JobSet", after)["status"] == {"restarts": 0, "conditions": []}


def test_the_same_values_keep_the_jobset(service, program, values):
    [before] = service.cluster.api.names("JobSet")
    pods = {pod.name for pod in pods_of(service, before)}
    done = service.release.upgrade(None, "podAnnotations.round=second", files=[values], timeout="180s", check=False)
    assert done.returncode == 0, done.stderr
    assert service.cluster.api.names("JobSet") == [before]
    assert {pod.name for pod in pods_of(service, before)} == pods

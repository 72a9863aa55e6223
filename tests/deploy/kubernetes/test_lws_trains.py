"""The chart with a LeaderWorkerSet: one group of two pods of one rank each, TP 2, between one engine and one gateway."""

import signal

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
    "groups": [{"name": "large", "kind": "LeaderWorkerSet", "config": {
        "worker": {"model": "tiny=/models/tiny", "tp": 2, "memory_fraction": 0.2},
        "ranks": {"ranks_per_pod": 1, "threads": 1}}}],
}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lws")
    values = folder / "values.yaml"
    values.write_text(yaml.safe_dump(VALUES))
    with served_chart(folder, files=[values], num_hosts=6) as running:
        yield running


def test_the_pods_are_one_group_with_the_number_of_its_set(service, program):
    groups = service.status()["groups"]
    assert [(group["group"], int(group["tp"]), len(group["ranks"])) for group in groups] == [("large-0", 2, 2)]
    program.step()
    program.step()
    program.check()


def test_a_pod_of_the_group_is_killed_and_the_other_stays(service, program):
    leader = service.cluster.pod("lathe-group-large-0")
    steps_while(program, lambda: service.cluster.delete_pod("lathe-group-large-0-1", 0))
    program.check()
    assert service.cluster.pod("lathe-group-large-0") is leader
    assert leader.container().sandbox.exit_code is None, f"it was not ended with {signal.SIGKILL}"

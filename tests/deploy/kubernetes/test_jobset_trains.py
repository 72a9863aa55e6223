"""deploy/kubernetes/jobset.yaml with small numbers: four pods of one rank each, FSDP 2 x TP 2 of the tiny model on CPUs
over Gloo, each pod on a host of its own. It trains, and goes on when a pod or a node is lost."""

import copy
import re
import time

import pytest
import yaml
from support.deploy_packages import slow_deploy
from support.kube_cluster import why_not
from support.kube_service import cluster_with_database, served
from support.lathe_server import ROOT, tiny_model
from support.stubborn_api import steps_while

pytestmark = [slow_deploy, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]
MANIFEST = ROOT / "deploy" / "kubernetes" / "jobset.yaml"
SMALLER = {"--ranks-per-pod=4": ["--ranks-per-pod=1", "--threads=1"], "--fsdp=4": ["--fsdp=2"], "--tp=4": ["--tp=2"],
           "--model=Qwen/Qwen3-8B=/models/Qwen3-8B": [
               "--model=tiny=/models/tiny", f"--tokenizer={tiny_model()}", "--device=cpu",
               "--memory-fraction=0.1", "--numerics=exact"]}
# The peers of a silent rank give it up after 15 s.
OVERDUE_SECONDS = 25


def reduced():
    jobset = next(found for found in yaml.safe_load_all(MANIFEST.read_text()) if found)
    spec = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    container = spec["containers"][0]
    words = [word for given in container["args"] for word in SMALLER.get(given, [given])]
    assert len(words) == len(container["args"]) + 5, "every option of the file was found"
    container["args"] = words
    return jobset


def gateway_service():
    """What `kubectl port-forward` reaches."""
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "forward"}, "spec": {
        "selector": {"batch.kubernetes.io/job-completion-index": "0"},
        "ports": [{"name": "api", "port": 80, "targetPort": "api"}]}}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with cluster_with_database(tmp_path_factory.mktemp("jobset"), num_hosts=6) as (cluster, _):
        cluster.add_secret("lathe-cluster", worker="0123456789abcdef" * 4)
        cluster.create([reduced(), gateway_service()])
        with served(cluster, "lathe-workers-0-0", "forward") as running:
            yield running


def test_the_tutorial_prints_six_losses_that_fall(service):
    losses = [float(number) for number in re.findall(r"Loss: (\S+)", service.run_example("pig_latin.py"))]
    assert len(losses) == 6
    assert losses == sorted(losses, reverse=True)


def test_the_group_has_the_mesh_of_the_file(service):
    group = service.status()["groups"][0]
    assert sorted(int(rank["rank"]) for rank in group["ranks"]) == [0, 1, 2, 3]
    assert [int(group[axis]) for axis in ("fsdp", "tp")] == [2, 2]


@pytest.mark.parametrize("index", [2, 0])
def test_a_pod_that_is_killed_is_replaced_and_no_step_is_lost(service, program, index):
    restarts = service.cluster.api.get("JobSet", "lathe")["status"]["restarts"]
    old = service.cluster.pod(f"lathe-workers-0-{index}")
    steps_while(program, lambda: service.cluster.lose_pod(old.name))
    program.check()
    assert service.cluster.pod(f"lathe-workers-0-{index}").name != old.name
    assert service.cluster.api.get("JobSet", "lathe")["status"]["restarts"] == restarts


@pytest.mark.parametrize("how, index", [("evict_pod", 1), ("delete_pod", 2), ("evict_pod", 0)])
def test_a_pod_that_is_stopped_in_order_is_started_again_and_no_step_is_lost(service, program, how, index):
    """Within its grace it ends by itself. An end with 0 would complete its index for good."""
    old = service.cluster.pod(f"lathe-workers-0-{index}")
    steps_while(program, lambda: getattr(service.cluster, how)(old.name))
    program.check()
    assert old.exit_code == 143
    assert service.cluster.pod(f"lathe-workers-0-{index}").name != old.name
    status = service.cluster.api.get("JobSet", "lathe")["status"]
    assert status == {"restarts": 0, "conditions": []}


def test_a_node_that_is_cut_off_for_long_costs_no_step(service, program):
    pod = service.cluster.pod("lathe-workers-0-3")

    def cut():
        with service.cluster.hosts.without(pod.host):
            time.sleep(OVERDUE_SECONDS)

    steps_while(program, cut)
    program.check()
    assert service.cluster.pod("lathe-workers-0-3") is pod, "its ranks are started again inside the pod"


def test_refused_options_fail_the_set_at_once(tmp_path):
    jobset = copy.deepcopy(reduced())
    container = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["args"] = [word.replace("--numerics=exact", "--numerics=rough") for word in container["args"]]
    with cluster_with_database(tmp_path, num_hosts=6) as (cluster, _):
        cluster.add_secret("lathe-cluster", worker="0123456789abcdef" * 4)
        cluster.create([jobset])
        status = cluster.wait(lambda: (cluster.api.get("JobSet", "lathe").get("status") or {}).get("conditions"),
                              "the end of the set")
        assert [condition["type"] for condition in status] == ["Failed"]
        assert cluster.api.get("JobSet", "lathe")["status"]["restarts"] == 0
        assert 78 in {pod.exit_code for pod in cluster.ended}
        cluster.wait(lambda: not cluster.pods(), "the other pods to be ended")

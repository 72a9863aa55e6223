"""Rules for deploy/kubernetes: the files say the same as the chart does, and keep the rules of its objects."""

import re

import pytest
import yaml
from support.helm import CHART, find, render, run
from support.kube_schemas import pod_templates
from support.lathe_server import BIN, ROOT
from support.network_policies import Network

FOLDER = ROOT / "deploy" / "kubernetes"


def load(name):
    return [found for found in yaml.safe_load_all((FOLDER / name).read_text()) if found]


MANIFESTS = sorted(path.name for path in FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("name", MANIFESTS)
def test_pods_have_bounds_and_no_rights(name):
    for found in load(name):
        for _, template in pod_templates(found):
            spec = template["spec"]
            assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 10001
            for container in spec["containers"]:
                assert "memory" in container["resources"]["limits"]
                assert container["securityContext"]["readOnlyRootFilesystem"] is True
                assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
                assert re.search(r":[^:/]+$", container["image"]) and not container["image"].endswith(":latest")
                mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
                assert mounted == {volume["name"] for volume in spec.get("volumes", [])}


def words_of(name):
    template = next(template for found in load(name) for _, template in pod_templates(found))
    return template["spec"]["containers"][0]["args"]


@pytest.mark.parametrize("name, num_pods", [("jobset.yaml", 4), ("leaderworkerset.yaml", 2)])
def test_the_programs_take_the_options(name, num_pods):
    words = words_of(name)
    border = words.index("--")
    # Programs read no file of a manifest here, and this machine has no GPUs.
    def known(program):
        shown = run(*program, "--help").stdout
        return set(re.findall(r"--[a-z][a-z-]*", shown))
    given = {word.partition("=")[0] for word in words[1:border]}
    assert given <= known([BIN / "lathe", "ranks"])
    assert {word.partition("=")[0] for word in words[border + 1:]} <= known([BIN / "lathe-worker"])
    mesh = {word.partition("=")[0]: int(word.partition("=")[2]) for word in words[border + 1:]
            if re.fullmatch(r"--(dp|fsdp|tp)=\d+", word)}
    per_pod = int(next(word.partition("=")[2] for word in words if word.startswith("--ranks-per-pod=")))
    world = 1
    for size in mesh.values():
        world *= size
    assert world == num_pods * per_pod


def test_the_jobset_has_the_pods_of_its_mesh_and_gpus_for_their_ranks():
    job = load("jobset.yaml")[0]["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert job["parallelism"] == job["completions"] == 4
    limits = job["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == "4"


def test_the_jobset_dials_the_pod_that_serves():
    jobset = load("jobset.yaml")[0]
    name, job = jobset["metadata"]["name"], jobset["spec"]["replicatedJobs"][0]["name"]
    subdomain = jobset["spec"]["network"]["subdomain"]
    assert f"--engine={name}-{job}-0-0.{subdomain}:8091" in words_of("jobset.yaml")


def test_the_cron_jobs_do_what_the_chart_does():
    chart = {o["metadata"]["name"]: o for o in render("ci/off-peak.yaml") if o["kind"] == "CronJob"}
    for verb in ("start", "stop"):
        own = find(load("off-peak-cronjob.yaml"), "CronJob", f"lathe-night-{verb}")
        ours, theirs = (found["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"][0]
                        for found in (own, chart[f"lathe-group-night-{verb}"]))
        assert ours["image"] == theirs["image"] and ours["command"] == theirs["command"]
        assert ours["args"][-1] == theirs["args"][-1]


def test_images_are_of_this_release():
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    for name in ("jobset.yaml", "leaderworkerset.yaml"):
        template = next(template for found in load(name) for _, template in pod_templates(found))
        assert template["spec"]["containers"][0]["image"].endswith(f":{version}")


def test_pods_of_a_job_that_are_stopped_are_started_again():
    """A stop gives an exit code other than 0, and a rule ignores it: in the file and in the chart."""
    chart = render("ci/jobset.yaml")
    options = yaml.safe_load(find(chart, "ConfigMap", "lathe-group-night")["data"]["lathe.yaml"])
    assert "--stopped-exit-code=143" in words_of("jobset.yaml")
    assert options["ranks"]["stopped_exit_code"] == 143
    for jobset in (load("jobset.yaml")[0], next(o for o in chart if o["kind"] == "JobSet")):
        rules = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["podFailurePolicy"]["rules"]
        ignored = [code for rule in rules if rule["action"] == "Ignore" for code in
                   rule.get("onExitCodes", {}).get("values", [])]
        assert ignored == [143]


def test_the_leader_worker_set_belongs_to_a_release_as_the_groups_of_the_chart_do():
    """Same labels on its pods, and the same NetworkPolicy."""
    chart = render("ci/lws.yaml")
    theirs = find(chart, "LeaderWorkerSet", "lathe-group-large")["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    ours = load("leaderworkerset.yaml")[0]["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    of_helm = {"app.kubernetes.io/version", "app.kubernetes.io/managed-by", "helm.sh/chart"}
    labels = ours["metadata"]["labels"]
    assert labels == {key: value for key, value in theirs["metadata"]["labels"].items() if key not in of_helm}
    policy = find(load("leaderworkerset.yaml"), "NetworkPolicy", "lathe-group-large")
    assert policy["spec"] == find(chart, "NetworkPolicy", "lathe-group-large")["spec"]
    # With the policies of a release that has no such group, its pods reach what they need and no more.
    network = Network([*render("ci/full.yaml"), policy])
    engine = {**labels, "app.kubernetes.io/component": "engine"}
    other = {**labels, "lathe.dev/group": "train"}
    assert network.isolated(labels, "Ingress") and network.isolated(labels, "Egress")
    assert network.allows(labels, engine, "workers") and network.allows(labels, labels, 40123)
    assert not network.allows(labels, other, 40123) and not network.allows(other, labels, 40123)
    assert not network.allows(labels, {"ip": "10.9.8.7"}, 5432)


def test_the_jobset_keeps_its_database_out_of_the_volume_that_all_pods_mount():
    """SQLite's file there would be open in pod 0 and, after a cut of its node, in its successor."""
    [template] = [template for _, template in pod_templates(load("jobset.yaml")[0])]
    [container] = template["spec"]["containers"]
    options = {variable["name"]: variable["value"] for variable in container["env"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    folder, _, key = options["LATHE_ENGINE__STORE_FILE"].rpartition("/")
    volume = next(v for v in template["spec"]["volumes"] if v["name"] == mounts[folder])
    assert "secret" in volume and key == "url"

"""Installations, upgrades and their failures with the real helm. A stand-in for the API server keeps the objects."""

import copy
import shutil

import pytest
from support.deploy_packages import slow_deploy
from support.helm import CHART, RELEASE
from support.helm_release import HelmRelease
from support.kube_api import KubeApi, Refused
from support.postgres_cluster import PostgresCluster

GOOD = "store.existingSecret=database"


@pytest.fixture(scope="module")
def cluster():
    with PostgresCluster({"fsync": "off"}) as running:
        yield running


@pytest.fixture(params=[4, pytest.param(3, marks=slow_deploy)], ids=["helm-4", "helm-3"])
def release(request, cluster):
    with KubeApi() as api:
        yield HelmRelease(api, cluster, request.param)


def secrets(api):
    return {found["metadata"]["name"]: found["data"] for found in api.list("Secret")}


def test_an_installation_checks_the_options_first_and_notes_say_what_is_next(release):
    done = release.install("ci/full.yaml")
    assert r"kubectl -n serving get secret lathe-first-key -o jsonpath='{.data.admin\.key}'" in done.stdout
    written = [(kind, name) for method, kind, name in release.api.calls if method != "DELETE"]
    check = written.index(("Job", "lathe-config-check"))
    assert written.index(("ConfigMap", "lathe-config-check")) < check
    assert all(written.index(later) > check for later in
               [("ConfigMap", "lathe-config"), ("StatefulSet", "lathe-engine"), ("Deployment", "lathe-gateway")])
    assert release.api.get("Job", "lathe-config-check") is None, "a hook that succeeded is removed"
    assert release.history() == [(1, "deployed")]


def test_refused_options_end_an_installation_before_anything_is_made(release):
    release.api.failing.add("lathe-config-check")
    done = release.install("ci/full.yaml", check=False, timeout="20s")
    assert done.returncode != 0 and "lathe-config-check" in done.stderr
    assert release.api.names("StatefulSet") == [] and release.api.names("Deployment") == []
    assert release.api.get("Job", "lathe-config-check"), "its log says why"


@slow_deploy
def test_an_upgrade_keeps_secrets_and_what_was_scaled(release):
    release.install("ci/off-peak.yaml")
    before = secrets(release.api)
    assert set(before) == {"lathe-cluster", "lathe-engine-tls", "lathe-worker-tls"}
    release.kubectl("scale", "statefulset/lathe-group-night", "--replicas=0")
    release.upgrade("ci/off-peak.yaml", "config.engine.lease=5s")
    assert secrets(release.api) == before
    assert release.api.get("StatefulSet", "lathe-group-night")["spec"]["replicas"] == 0
    assert "lease: 5s" in release.api.get("ConfigMap", "lathe-config")["data"]["lathe.yaml"]
    assert release.history() == [(1, "superseded"), (2, "deployed")]


@slow_deploy
def test_other_options_are_other_pods_and_the_same_options_are_the_same(release):
    def marks():
        return {name: release.api.get(kind, name)["spec"]["template"]["metadata"]["annotations"]["lathe.dev/config"]
                for kind, name in [("StatefulSet", "lathe-engine"), ("StatefulSet", "lathe-group-default")]}
    release.install(None, GOOD)
    before = marks()
    release.upgrade(None, GOOD)
    assert marks() == before
    release.upgrade(None, GOOD, "config.engine.lease=5s")
    after = marks()
    assert after["lathe-engine"] != before["lathe-engine"]
    assert after["lathe-group-default"] == before["lathe-group-default"], "workers do not restart for the engine"


def test_a_failed_upgrade_leaves_the_release_and_a_rollback_mends_it(release, tmp_path):
    release.install(None, GOOD)
    before = release.api.get("Deployment", "lathe-gateway")["spec"]
    broken = tmp_path / "lathe"
    shutil.copytree(CHART, broken)
    file = broken / "templates" / "gateway.yaml"
    file.write_text(file.read_text().replace("imagePullPolicy:", "imagePullPolicyz:"))
    done = release.upgrade(None, GOOD, chart=broken, check=False)
    assert done.returncode != 0 and "imagePullPolicyz" in done.stderr
    assert release.history() == [(1, "deployed"), (2, "failed")]
    assert release.api.get("Deployment", "lathe-gateway")["spec"] == before
    release.helm("rollback", RELEASE, "1", "--wait")
    assert release.history()[-1] == (3, "deployed")


@slow_deploy
def test_a_change_that_kubernetes_refuses_is_refused_here_too(release, tmp_path):
    release.install(None, GOOD)
    changed = tmp_path / "lathe"
    shutil.copytree(CHART, changed)
    file = changed / "templates" / "engine.yaml"
    file.write_text(file.read_text().replace("podManagementPolicy: Parallel", "podManagementPolicy: OrderedReady"))
    done = release.upgrade(None, GOOD, chart=changed, check=False)
    assert done.returncode != 0 and "spec.podManagementPolicy: field is immutable" in done.stderr


@slow_deploy
def test_a_removed_release_leaves_what_cannot_be_made_again(release):
    release.install(None, GOOD)
    before = secrets(release.api)
    release.helm("uninstall", RELEASE, "--wait")
    assert secrets(release.api) == before and len(before) == 3
    assert release.api.names("PersistentVolumeClaim") == ["lathe-data"]
    for kind in ("StatefulSet", "Deployment", "Service", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget",
                 "HorizontalPodAutoscaler", "ServiceAccount"):
        assert release.api.names(kind) == [], kind
    # The next installation finds and uses them.
    release.install(None, GOOD)
    assert secrets(release.api) == before


def test_off_peak_jobs_run_kubectl_with_what_their_role_allows(release):
    """The very commands of the CronJobs, by the real kubectl; each call is one that the Role names."""
    release.install("ci/off-peak.yaml")
    role = release.api.get("Role", "lathe-group-night-scaler")
    assert [rule["resourceNames"] for rule in role["rules"]] == [["lathe-group-night"]] * 2
    for verb, replicas in (("start", 2), ("stop", 0)):
        job = release.api.get("CronJob", f"lathe-group-night-{verb}")["spec"]["jobTemplate"]["spec"]
        container = job["template"]["spec"]["containers"][0]
        release.kubectl(*[word for word in container["args"] if not word.startswith("--namespace")])
        assert release.api.get("StatefulSet", "lathe-group-night")["spec"]["replicas"] == replicas


HOOK = """
apiVersion: batch/v1
kind: Job
metadata: {name: late, annotations: {helm.sh/hook: post-upgrade}}
spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: late, image: "any:1"}]}}}
"""


@slow_deploy
@pytest.mark.parametrize("is_rolled_back", [True, False], ids=["rollback", "none"])
def test_a_rollback_after_a_failed_upgrade_removes_its_jobset(release, tmp_path, is_rolled_back):
    """docs/deploy/kubernetes.md asks for it, and has commands for a set that nobody owns."""
    def memory(gigabytes):
        return f"groups[1].resources.limits.memory={gigabytes}Gi"

    release.install("ci/jobset.yaml")
    [first] = release.api.names("JobSet")
    late = tmp_path / "lathe"
    shutil.copytree(CHART, late)
    (late / "templates" / "late.yaml").write_text(HOOK)
    release.api.failing.add("late")
    assert release.upgrade("ci/jobset.yaml", memory(300), chart=late, check=False).returncode != 0
    [failed] = release.api.names("JobSet")
    assert failed != first
    if is_rolled_back:
        release.helm("rollback", RELEASE, "1", "--wait")
        assert release.api.names("JobSet") == [first]
    release.upgrade("ci/jobset.yaml", memory(400))
    owned = [line.split()[1] for line in release.helm("get", "manifest", RELEASE).stdout.splitlines()
             if line.startswith("  name: lathe-group-night-")]
    assert len(owned) == 1
    assert set(release.api.names("JobSet")) == {*owned, *([] if is_rolled_back else [failed])}


TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": {"restartPolicy": "Never", "containers": [
    {"name": "main", "image": "any:1"}]}}
JOB = {"template": TEMPLATE}
UNCHANGING = [
    ("batch/v1", "Job", JOB, ("template", "spec", "containers", 0, "image"), "spec.template"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [{"name": "a", "template": {"spec": JOB}}]},
     ("replicatedJobs", 0, "template", "spec", "template", "spec", "containers", 0, "image"), "spec.replicatedJobs"),
    ("apps/v1", "StatefulSet", {"serviceName": "a", "selector": {"matchLabels": {"app": "x"}}, "template": {
        **TEMPLATE, "spec": {"containers": TEMPLATE["spec"]["containers"]}}}, ("serviceName",), "spec.serviceName"),
    ("v1", "PersistentVolumeClaim", {"accessModes": ["ReadWriteOnce"], "storageClassName": "a", "resources": {
        "requests": {"storage": "1Gi"}}}, ("storageClassName",), "spec.storageClassName"),
]


@pytest.mark.parametrize("version, kind, spec, path, named", UNCHANGING, ids=[kind for _, kind, *_ in UNCHANGING])
def test_a_change_of_what_never_changes_is_refused(version, kind, spec, path, named):
    with KubeApi() as api:
        body = {"apiVersion": version, "kind": kind, "metadata": {"name": "one"}, "spec": spec}
        api.write("POST", kind, "serving", "one", copy.deepcopy(body))
        kept = copy.deepcopy(api.get(kind, "one")["spec"])  # with what the API fills in
        changed = copy.deepcopy(body)
        holder = changed["spec"]
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] += "2"
        with pytest.raises(Refused, match=f"{named}: field is immutable"):
            api.write("PUT", kind, "serving", "one", changed)
        assert api.get(kind, "one")["spec"] == kept


@slow_deploy
def test_an_upgrade_of_a_jobset_makes_another_and_removes_the_first(release):
    release.install("ci/jobset.yaml")
    [before] = release.api.names("JobSet")
    release.upgrade("ci/jobset.yaml")
    assert release.api.names("JobSet") == [before]
    release.upgrade("ci/jobset.yaml", "groups[1].resources.limits.memory=300Gi")
    [after] = release.api.names("JobSet")
    assert after != before
    written = [(method, name) for method, kind, name in release.api.calls if kind == "JobSet" and method != "PATCH"]
    assert written[-1] == ("DELETE", before)
    release.helm("rollback", RELEASE, "1", "--wait")
    assert release.api.names("JobSet") == [before]

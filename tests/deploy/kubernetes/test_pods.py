"""The kubelet of the tests does what Kubernetes promises: the tests with Lathe rely on it."""

import pytest
from support import plain_http
from support.kube_cluster import KubeCluster, why_not

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.fixture
def cluster(tmp_path):
    with KubeCluster(tmp_path / "cluster", num_hosts=4) as running:
        yield running


def pod_spec(script, **more):
    spec = {"containers": [{"name": "main", "image": "any:1", "command": ["sh", "-c", script], **more}],
            "enableServiceLinks": False}
    return {"metadata": {"labels": {"app": "x"}}, "spec": spec}


def job(name, template):
    template["spec"]["restartPolicy"] = "Never"
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}


def run_job(cluster, template):
    """The exit code and the output of a pod that runs to its end."""
    cluster.create([job("once", template)])
    pod = cluster.wait(lambda: cluster.ended[:1], "the end of the pod")[0]
    return pod.exit_code, pod.log()


def test_a_container_has_its_mounts_environment_and_nothing_else(cluster):
    cluster.create([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
                     "data": {"a.txt": "hello"}}])
    template = pod_spec("cat /config/a.txt; id -u; echo $GREETING $0; touch /x; touch /config/y; touch /data/z && echo written",
                        env=[{"name": "NAME", "value": "you"}, {"name": "GREETING", "value": "hi-$(NAME)"}],
                        args=["$(GREETING)"],
                        volumeMounts=[{"name": "settings", "mountPath": "/config", "readOnly": True},
                                      {"name": "data", "mountPath": "/data"}])
    template["spec"]["volumes"] = [{"name": "settings", "configMap": {"name": "settings"}},
                                   {"name": "data", "emptyDir": {}}]
    code, text = run_job(cluster, template)
    assert code == 0
    assert "hello10001\nhi-you hi-you\n" in text and "written" in text
    assert text.count("Read-only file system") == 2


def test_an_init_container_that_fails_keeps_the_others_from_starting(cluster):
    template = pod_spec("echo main")
    template["spec"]["initContainers"] = [{"name": "first", "image": "any:1", "command": ["sh", "-c", "exit 3"]}]
    cluster.create([job("once", template)])
    pod = cluster.wait(lambda: cluster.ended[:1], "the end of the pod")[0]
    assert pod.exit_code == 3 and not pod.log_path("main").exists()
    conditions = cluster.api.get("Job", "once")["status"]["conditions"]
    assert [c["type"] for c in conditions] == ["Failed"]


def deployment(template, replicas=1):
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "x"}}, "template": template}}


SERVER = "python3 -c 'import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)' 2>&1"
PORTS = [{"name": "web", "containerPort": 8000}]


def probe(path, **more):
    return {"httpGet": {"path": path, "port": "web"}, "periodSeconds": 1, **more}


def test_probes_decide_readiness_and_restarts(cluster):
    template = pod_spec(f"cd /tmp; {SERVER}", ports=PORTS, readinessProbe=probe("/"),
                        livenessProbe=probe("/there-is-no-such-file", failureThreshold=5),
                        volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}])
    template["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}]
    template["spec"]["terminationGracePeriodSeconds"] = 1
    cluster.create([deployment(template)])
    pod = cluster.wait(lambda: cluster.pod("web"), "the pod")
    cluster.wait(lambda: pod.is_ready, "readiness")
    cluster.wait(lambda: pod.container().exit_codes, "a restart")
    cluster.wait(lambda: pod.is_ready, "readiness after the restart")


def test_a_stop_runs_the_hook_then_asks_then_kills(cluster):
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >> /data/order"]}}}
    script = "trap 'echo asked >> /data/order' TERM; echo up; while :; do sleep 0.1; done"
    template = pod_spec(script, lifecycle=hook, volumeMounts=[{"name": "data", "mountPath": "/data"}])
    template["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "kept"}}]
    template["spec"]["terminationGracePeriodSeconds"] = 1
    cluster.create([deployment(template)])
    pod = cluster.wait(lambda: cluster.pod("web"), "the pod")
    cluster.wait(lambda: pod.is_ready and "up" in pod.log(), "the pod to run")
    cluster.delete_pod("web")
    assert (cluster.claim("kept") / "order").read_text() == "hook\nasked\n"
    assert pod.hook_results == [("main", 0, "")]
    assert pod.container().sandbox.exit_code == -9 or pod.container().sandbox.exit_code == 137


def test_a_service_leads_to_ready_pods_and_a_rollout_never_leaves_it_without_one(cluster):
    def serving(version):
        script = f"cd /tmp; echo {version} > index.html; {SERVER}"
        template = pod_spec(script, ports=PORTS, readinessProbe=probe("/"),
                            volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}],
                            lifecycle={"preStop": {"exec": {"command": ["sleep", "1"]}}})
        template["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}]
        return template

    cluster.create([deployment(serving("one"), replicas=2), {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": "web"}]}}])
    url = cluster.service_url("web")
    cluster.wait(lambda: sum(pod.is_ready for pod in cluster.pods()) == 2, "two pods")
    with cluster.hosts.on("client"):
        assert plain_http.get(url).text == "one\n"
    cluster.api.write("PATCH", "Deployment", "serving", "web",
                      {"metadata": {}, "spec": {"template": serving("two")}})
    answers = set()

    def is_new():
        with cluster.hosts.on("client"):
            answers.add(plain_http.get(url).text)
        return len(cluster.pods()) == 2 and all("two" in str(pod.spec) for pod in cluster.pods())

    cluster.wait(is_new, "the rollout")
    assert answers <= {"one\n", "two\n"}


def jobset(script, rules, completions=2):
    template = pod_spec(script)
    template["spec"]["restartPolicy"] = "Never"
    template["spec"]["terminationGracePeriodSeconds"] = 5
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "set"}, "spec": {
        "failurePolicy": {"maxRestarts": 1},
        "replicatedJobs": [{"name": "job", "replicas": 1, "template": {"spec": {
            "completionMode": "Indexed", "parallelism": completions, "completions": completions, "backoffLimit": 0,
            "podFailurePolicy": {"rules": rules}, "template": template}}}]}}


IGNORE_143 = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [143]}}
IGNORE_DISRUPTION = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}


@pytest.mark.parametrize("rule, code, how, is_replaced, num_restarts", [
    (IGNORE_143, 143, "delete_pod", True, 0),
    (IGNORE_143, 1, "evict_pod", True, 1),
    (IGNORE_DISRUPTION, 143, "evict_pod", True, 0),
    (IGNORE_DISRUPTION, 143, "delete_pod", True, 1),
    (IGNORE_DISRUPTION, 0, "evict_pod", False, 0),
])
def test_a_pod_of_an_indexed_job_that_is_stopped(cluster, rule, code, how, is_replaced, num_restarts):
    """An index that ends with 0 is complete, whatever stopped it: nothing starts it again."""
    cluster.create([jobset(f"trap 'exit {code}' TERM; echo up; while :; do sleep 0.1; done", [rule])])
    old = cluster.wait(lambda: cluster.pod("set-job-0-1"), "the pod")
    cluster.wait(lambda: old.log_path("main").exists() and "up" in old.log(), "the pod to run")
    other = cluster.wait(lambda: cluster.pod("set-job-0-0"), "the other pod")
    cluster.wait(lambda: other.log_path("main").exists() and "up" in other.log(), "the other pod to run")
    getattr(cluster, how)(old.name)
    assert old.exit_code == code
    cluster.wait(lambda: old in cluster.ended, "the controller to see it")
    if is_replaced:
        cluster.wait(lambda: cluster.pod("set-job-0-1"), "its successor")
        cluster.wait(lambda: len(cluster.pods()) == 2, "both pods")
    else:
        cluster.wait(lambda: cluster.controller("JobSet", "set").completed, "the end of the index")
        cluster.evict_pod(other.name)
        cluster.wait(lambda: (cluster.api.get("JobSet", "set")["status"]["conditions"] or [{}])[0].get("type") ==
                     "Completed", "the end of the set")
    assert cluster.api.get("JobSet", "set")["status"]["restarts"] == num_restarts
    assert (other in cluster.ended) == (num_restarts > 0 or not is_replaced)

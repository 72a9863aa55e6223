"""Rules that every object of the chart keeps, whatever the values."""

import re

import pytest
import yaml
from support.helm import CASES, NAMESPACE, RELEASE, render
from support.kube_schemas import pod_templates
from support.lathe_server import ROOT
from support.network_policies import Network

# The values name these objects, which exist already.
EXTERNAL = {
    "secrets": {"lathe-store", "lathe-s3", "lathe-s3-reads", "registry", "lathe-api", "lathe-own-secret", "lathe-own-engine",
                "lathe-own-worker", "lathe-first-key", "lathe-test-key", "lathe-otel"},
    "claims": {"models", "lathe-data"},
}


@pytest.fixture(params=CASES, ids=lambda case: case.stem)
def objects(request):
    return render(request.param)


def pods(objects):
    """(owner, metadata, spec) of every pod, also of bare ones."""
    for found in objects:
        if found["kind"] == "Pod":
            yield found, found["metadata"], found["spec"]
        for _, template in pod_templates(found) if found["kind"] != "Pod" else ():
            yield found, template.get("metadata", {}), template["spec"]


def containers(objects):
    for owner, _, spec in pods(objects):
        for container in [*spec.get("initContainers", []), *spec["containers"]]:
            yield owner, spec, container


def names(objects, kind):
    return {o["metadata"]["name"] for o in objects if o["kind"] == kind}


def is_service(owner):
    """It runs until somebody stops it."""
    return owner["kind"] in ("Deployment", "StatefulSet", "LeaderWorkerSet", "JobSet")


def test_containers_have_bounds(objects):
    for owner, _, container in containers(objects):
        resources = container["resources"]
        assert "memory" in resources["limits"], owner["metadata"]["name"]
        assert {"cpu", "memory"} <= set(resources["requests"]), owner["metadata"]["name"]


def test_services_have_probes_on_ports_that_they_name(objects):
    for owner, _, container in containers(objects):
        if not is_service(owner):
            continue
        ports = {port["name"] for port in container["ports"]}
        for probe in ("livenessProbe", "readinessProbe"):
            assert container[probe]["httpGet"]["port"] in ports, owner["metadata"]["name"]


def test_processes_have_no_rights(objects):
    for owner, spec, container in containers(objects):
        name = owner["metadata"]["name"]
        security = container["securityContext"]
        assert spec["securityContext"]["runAsNonRoot"] and spec["securityContext"]["runAsUser"] == 10001, name
        assert spec["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault", name
        assert security["readOnlyRootFilesystem"] is True, name
        assert security["allowPrivilegeEscalation"] is False, name
        assert security["capabilities"]["drop"] == ["ALL"], name
        assert "privileged" not in security and not spec.get("hostNetwork"), name
        may_ask = container["name"] == "scaler"
        assert spec["automountServiceAccountToken"] is may_ask, name


def test_images_have_a_version(objects):
    for owner, _, container in containers(objects):
        image = container["image"]
        assert re.search(r":[^:/]+$", image) and not image.endswith(":latest"), owner["metadata"]["name"]


def test_no_value_of_the_environment_is_a_secret(objects):
    for owner, _, container in containers(objects):
        for variable in container.get("env", []):
            text = variable.get("value", "")
            assert "://" not in text and not re.search("secret|password|token", variable["name"], re.I), owner


def test_no_configuration_holds_a_secret(objects):
    for config in (o for o in objects if o["kind"] == "ConfigMap"):
        for text in config["data"].values():
            assert not re.search(r"postgres://|tml-|BEGIN [A-Z ]*PRIVATE", text)


def test_selectors_match_the_pods_they_are_for(objects):
    labels = [metadata["labels"] for _, metadata, _ in pods(objects)]

    def matches(selector):
        return any(selector.items() <= of_pod.items() for of_pod in labels)

    for found in objects:
        spec = found.get("spec", {})
        if found["kind"] in ("Deployment", "StatefulSet"):
            assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()
        if found["kind"] == "Service":
            assert matches(spec["selector"]), found["metadata"]["name"]
        if found["kind"] == "PodDisruptionBudget":
            assert matches(spec["selector"]["matchLabels"]), found["metadata"]["name"]


def references(spec):
    """(kind, name) of each object that a pod needs."""
    for volume in spec.get("volumes", []):
        if "configMap" in volume:
            yield "ConfigMap", volume["configMap"]["name"]
        if "secret" in volume:
            yield "Secret", volume["secret"]["secretName"]
        if "persistentVolumeClaim" in volume:
            yield "PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]
    for container in spec["containers"]:
        for variable in container.get("env", []):
            key = variable.get("valueFrom", {}).get("secretKeyRef")
            if key:
                yield "Secret", key["name"]
        for source in container.get("envFrom", []):
            yield "Secret", source["secretRef"]["name"]
    for secret in spec.get("imagePullSecrets", []):
        yield "Secret", secret["name"]
    if "serviceAccountName" in spec:
        yield "ServiceAccount", spec["serviceAccountName"]


def test_what_pods_refer_to_exists(objects):
    there = {(o["kind"], o["metadata"]["name"]) for o in objects}
    there |= {("Secret", name) for name in EXTERNAL["secrets"]}
    there |= {("PersistentVolumeClaim", name) for name in EXTERNAL["claims"]}
    # cert-manager makes the Secret of a Certificate.
    there |= {("Secret", o["spec"]["secretName"]) for o in objects if o["kind"] == "Certificate"}
    for owner, _, spec in pods(objects):
        missing = set(references(spec)) - there
        assert not missing, owner["metadata"]["name"]


def test_volumes_and_mounts_belong_together(objects):
    for owner, _, spec in pods(objects):
        mounted = {m["name"] for c in spec["containers"] for m in c.get("volumeMounts", [])}
        assert mounted == {v["name"] for v in spec.get("volumes", [])}, owner["metadata"]["name"]


def test_the_headless_service_of_a_stateful_set_exists(objects):
    for found in (o for o in objects if o["kind"] == "StatefulSet"):
        assert found["spec"]["serviceName"] in names(objects, "Service")


def test_nothing_belongs_to_the_whole_cluster(objects):
    for found in objects:
        assert found["kind"] not in ("Namespace", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition")
        assert found["metadata"]["namespace"] == NAMESPACE


def test_rights_to_the_cluster_name_one_object(objects):
    for role in (o for o in objects if o["kind"] == "Role"):
        for rule in role["rules"]:
            assert len(rule["resourceNames"]) == 1
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]


def test_gateways_have_neither_keys_nor_identity_of_the_engines():
    """The object store's keys that write are for engines and workers; a gateway may have keys that read."""
    def identity(*values):
        found = {metadata["labels"]["app.kubernetes.io/component"]: (
            [source["secretRef"]["name"] for source in spec["containers"][0].get("envFrom", [])],
            spec.get("serviceAccountName")) for _, metadata, spec in pods(render("ci/s3.yaml", *values))}
        return found["gateway"], found["engine"], found["worker"]

    gateway, engine, worker = identity()
    assert engine == worker == (["lathe-s3"], "lathe")
    assert gateway == (["lathe-s3-reads"], "lathe-gateway")
    gateway, *_ = identity("gateway.s3CredentialsSecret=", "gateway.serviceAccount.name=mine")
    assert gateway == ([], "mine")


@pytest.mark.parametrize("case, components", [("s3", {"gateway", "engine"}), ("sqlite", {"up"})])
def test_headers_for_the_collector_of_traces_are_only_where_spans_are_made(case, components):
    objects = render(f"ci/{case}.yaml", "config.tracing.endpoint=https://otel.example:4318",
                     "tracing.headersSecret=lathe-otel")
    having = {metadata["labels"]["app.kubernetes.io/component"] for _, metadata, spec in pods(objects)
              if ("Secret", "lathe-otel") in set(references(spec))}
    assert having == components
    # The Job before an installation has no such file, so its configuration does not name it.
    named = {o["metadata"]["name"] for o in objects if o["kind"] == "ConfigMap" and any(
        "headers_file: /etc/lathe/tracing/headers" in text for text in o["data"].values())}
    assert named == ({"lathe-up"} if case == "sqlite" else {"lathe-config"})
    paths = {mount["mountPath"] for _, _, container in containers(objects)
             for mount in container.get("volumeMounts", []) if mount["name"] == "tracing"}
    assert paths == {"/etc/lathe/tracing"}


def test_pods_of_groups_keep_their_logs_to_themselves():
    """Ranks of all groups write files of the same names, so these cannot be in the volume that all mount."""
    manifests = [found for name in ("jobset", "leaderworkerset") for found in yaml.safe_load_all(
        (ROOT / "deploy" / "kubernetes" / f"{name}.yaml").read_text())]
    rendered = [found for case in ("full", "lws", "jobset") for found in render(f"ci/{case}.yaml")]
    seen = 0
    for owner, _, spec in pods([*manifests, *rendered]):
        container = spec["containers"][0]
        if container["name"] != "worker":
            continue
        paths = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        volume = next(v for v in spec["volumes"] if v["name"] == paths["/var/lib/lathe/logs"])
        assert "emptyDir" in volume, owner["metadata"]["name"]
        seen += 1
    assert seen == 7


def test_every_pod_has_policies_for_both_directions(objects):
    network = Network(objects)
    for owner, metadata, _ in pods(objects):
        assert network.isolated(metadata["labels"], "Ingress"), owner["metadata"]["name"]
        assert network.isolated(metadata["labels"], "Egress"), owner["metadata"]["name"]


def component(name, **more):
    return {"app.kubernetes.io/name": "lathe", "app.kubernetes.io/instance": RELEASE,
            "app.kubernetes.io/component": name, **{f"lathe.dev/{key}": value for key, value in more.items()}}


GATEWAY, ENGINE = component("gateway"), component("engine")
TRAIN, SAMPLE = component("worker", group="train", role="both"), component("worker", group="sample", role="sample")
DATABASE = {"ip": "10.9.8.7"}
DATABASE_POD = {"namespace": "databases", "app": "postgres"}
METADATA_SERVICE = {"ip": "169.254.169.254"}
INGRESS = {"namespace": "ingress-nginx"}
STRANGER = {"namespace": "other"}
PROMETHEUS = {"namespace": "monitoring"}
FLOWS = [
    (INGRESS, GATEWAY, "api", True), (STRANGER, GATEWAY, "api", False),
    (component("test"), GATEWAY, "api", True),
    (GATEWAY, ENGINE, "grpc", True), (TRAIN, ENGINE, "workers", True),
    (GATEWAY, ENGINE, "workers", False), (TRAIN, ENGINE, "grpc", False), (STRANGER, ENGINE, "grpc", False),
    (TRAIN, TRAIN, 40123, True), (SAMPLE, TRAIN, 40123, False), (GATEWAY, TRAIN, 40123, False),
    (PROMETHEUS, ENGINE, "metrics", True), (PROMETHEUS, TRAIN, "metrics", True),
    (STRANGER, ENGINE, "metrics", False),
    (ENGINE, DATABASE, 5432, True), (GATEWAY, DATABASE, 5432, False), (TRAIN, DATABASE, 5432, False),
    (ENGINE, DATABASE_POD, 5432, True), (GATEWAY, DATABASE_POD, 5432, False), (TRAIN, DATABASE_POD, 5432, False),
    (ENGINE, DATABASE_POD, 443, False), (ENGINE, METADATA_SERVICE, 5432, False), (ENGINE, METADATA_SERVICE, 80, False),
]


@pytest.mark.parametrize("source, target, port, allowed", FLOWS)
def test_traffic_flows_where_it_has_to_and_nowhere_else(source, target, port, allowed):
    assert Network(render("ci/full.yaml")).allows(source, target, port) is allowed


def test_groups_that_sample_reach_those_that_train(tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"groups": [
        {"name": name, "config": {"worker": {"model": "/m", "role": name}}} for name in ("train", "sample")]}))
    network = Network(render(None, "store.existingSecret=x", files=[file]))
    train, sample = (component("worker", group=name, role=name) for name in ("train", "sample"))
    assert network.allows(sample, train, 40123) and not network.allows(train, sample, 40123)


def test_peers_of_the_values_replace_all_others():
    namespace = "namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name"
    network = Network(render("ci/full.yaml", f"networkPolicy.postgresTo[0].{namespace}=databases",
                             "networkPolicy.postgresTo[0].podSelector.matchLabels.app=postgres"))
    assert network.allows(ENGINE, DATABASE_POD, 5432)
    for other in (DATABASE, {**DATABASE_POD, "app": "other"}, {**DATABASE_POD, "namespace": "other"}):
        assert not network.allows(ENGINE, other, 5432)


def test_jobs_that_scale_reach_an_api_server_on_a_node():
    network = Network(render("ci/off-peak.yaml"))
    for server in ({"node": "control-plane"}, {"ip": "10.96.0.1"}):
        assert network.allows(component("scaler"), server, 6443) and not network.allows(component("scaler"), server, 22)


def test_an_object_store_is_reached_over_https_only():
    network = Network(render("ci/s3.yaml"))
    worker = component("worker", group="default", role="both")
    for pod in (GATEWAY, ENGINE, worker):
        for store in (DATABASE, {"namespace": "minio"}):
            assert network.allows(pod, store, 443) and not network.allows(pod, store, 80)
        assert not network.allows(pod, METADATA_SERVICE, 443)


def test_pods_without_keys_of_the_object_store_reach_what_gives_them_some():
    """EKS: the agent of Pod Identity on the node, and STS on 443 whatever the store's port."""
    def network(*values):
        return Network(render("ci/s3.yaml", "networkPolicy.objectStorePort=9000", *values))

    own, keys = network("storage.s3CredentialsSecret=", "gateway.s3CredentialsSecret="), network()
    gateways = network("gateway.s3CredentialsSecret=")
    sts, agents = (DATABASE, 443), [({"ip": "169.254.170.23"}, 80), ({"ip": "fd00:ec2::23"}, 80)]
    for pod in (GATEWAY, ENGINE, component("worker", group="default", role="both")):
        for peer, port in (sts, *agents):
            assert own.allows(pod, peer, port) and not keys.allows(pod, peer, port)
            assert gateways.allows(pod, peer, port) is (pod is GATEWAY)
        assert own.allows(pod, DATABASE, 9000) and keys.allows(pod, DATABASE, 9000)
        for peer, port in ((DATABASE, 80), (METADATA_SERVICE, 80), (METADATA_SERVICE, 443)):
            assert not own.allows(pod, peer, port)


def test_a_collector_of_traces_is_reached_if_there_is_one():
    endpoint = "config.tracing.endpoint=https://otel.example:4318"
    without, traced = (Network(render(None, "store.existingSecret=x", *more)) for more in ((), (endpoint,)))
    for pod in (GATEWAY, ENGINE):
        for collector in (DATABASE, {"namespace": "observability"}):
            assert traced.allows(pod, collector, 4318) and not without.allows(pod, collector, 4318)
        assert not traced.allows(pod, METADATA_SERVICE, 4318)
    assert not traced.allows(component("worker", group="default", role="both"), DATABASE, 4318)

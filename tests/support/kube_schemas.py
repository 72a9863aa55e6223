"""Checks Kubernetes objects strictly: an unknown field is an error.

    problems({"kind": "Deployment", …}, "1.37")      # ["spec.template…: …"]

Built-in kinds are checked by kubernetes-validate, and JobSets by the classes of kubeflow-trainer-api. No package has
LeaderWorkerSets and the kinds of some operators: for these there are schemas here, with the fields that deploy/ uses.
"""

import copy
import functools

from support import deploy_packages  # noqa: F401

import jsonschema  # isort: skip
import kubernetes_validate  # isort: skip
from kubernetes_validate import utils  # isort: skip

# The package reads its file of definitions for every object.
utils.schema_contents = functools.lru_cache(maxsize=None)(utils.schema_contents)

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
TEXT_MAP = {"type": "object", "additionalProperties": TEXT}
COUNT = {"type": "integer", "minimum": 0}


def _fields(required=(), /, **properties):
    return {"type": "object", "additionalProperties": False, "properties": properties,
            "required": list(required)}


def _items(schema):
    return {"type": "array", "items": schema, "minItems": 1}


# A pod template is checked as a PodTemplate of its own.
POD_TEMPLATE = {"type": "object", "required": ["spec"],
                "properties": {"spec": {"type": "object", "required": ["containers"]}}}

SPECS = {
    "LeaderWorkerSet": _fields(
        ("leaderWorkerTemplate",), replicas=COUNT,
        startupPolicy={"enum": ["LeaderCreated", "LeaderReady"]},
        rolloutStrategy=_fields(
            ("type",), type={"enum": ["RollingUpdate"]},
            rollingUpdateConfiguration=_fields(maxUnavailable=COUNT, maxSurge=COUNT, partition=COUNT)),
        networkConfig=_fields(subdomainPolicy={"enum": ["Shared", "UniquePerReplica"]}),
        leaderWorkerTemplate=_fields(
            ("workerTemplate",), size=COUNT, leaderTemplate=POD_TEMPLATE, workerTemplate=POD_TEMPLATE,
            restartPolicy={"enum": ["Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart",
                                    "None"]})),
    "PodMonitor": _fields(
        ("selector", "podMetricsEndpoints"), selector=_fields(matchLabels=TEXT_MAP),
        podTargetLabels=TEXTS,
        podMetricsEndpoints=_items(_fields(port=TEXT, path=TEXT, interval=TEXT))),
    "PrometheusRule": _fields(("groups",), groups=_items(_fields(
        ("name", "rules"), name=TEXT, rules=_items(_fields(
            ("alert", "expr"), alert=TEXT, expr=TEXT, labels=TEXT_MAP, annotations=TEXT_MAP,
            **{"for": TEXT}))))),
    "Certificate": _fields(
        ("secretName", "issuerRef"), secretName=TEXT, duration=TEXT, renewBefore=TEXT, usages=TEXTS,
        dnsNames=TEXTS, issuerRef=_fields(("name",), name=TEXT, kind=TEXT, group=TEXT),
        privateKey=_fields(algorithm={"enum": ["RSA", "ECDSA", "Ed25519"]}, size=COUNT,
                           rotationPolicy={"enum": ["Never", "Always"]})),
    "ScaledObject": _fields(
        ("scaleTargetRef", "triggers"), scaleTargetRef=_fields(("name",), name=TEXT, kind=TEXT,
                                                               apiVersion=TEXT),
        minReplicaCount=COUNT, maxReplicaCount=COUNT, cooldownPeriod=COUNT, pollingInterval=COUNT,
        triggers=_items(_fields(("type", "metadata"), type=TEXT, name=TEXT, metadata=TEXT_MAP))),
    "ClusterQueue": _fields(
        namespaceSelector={"type": "object"}, stopPolicy={"enum": ["None", "Hold", "HoldAndDrain"]},
        queueingStrategy={"enum": ["StrictFIFO", "BestEffortFIFO"]},
        resourceGroups=_items(_fields(
            ("coveredResources", "flavors"), coveredResources=TEXTS, flavors=_items(_fields(
                ("name", "resources"), name=TEXT, resources=_items(_fields(
                    ("name", "nominalQuota"), name=TEXT,
                    nominalQuota={"type": ["string", "integer"]}))))))),
    "LocalQueue": _fields(("clusterQueue",), clusterQueue=TEXT),
    "ResourceFlavor": _fields(nodeLabels=TEXT_MAP),
}
VERSIONS = {
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "PodMonitor": "monitoring.coreos.com/v1",
    "PrometheusRule": "monitoring.coreos.com/v1",
    "Certificate": "cert-manager.io/v1",
    "ScaledObject": "keda.sh/v1alpha1",
    "ClusterQueue": "kueue.x-k8s.io/v1beta1",
    "LocalQueue": "kueue.x-k8s.io/v1beta1",
    "ResourceFlavor": "kueue.x-k8s.io/v1beta1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
}


def pod_templates(found):
    """The pod templates anywhere in an object, each with its path."""
    def walk(value, path):
        if isinstance(value, dict):
            if "containers" in value.get("spec", {}):
                yield path, value
            else:
                for key, inner in value.items():
                    yield from walk(inner, f"{path}.{key}")
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                yield from walk(inner, f"{path}.{index}")
    yield from walk(found, found["kind"])


def problems(found, version):
    """Empty: `found` is valid for that version of Kubernetes."""
    if found["kind"] not in VERSIONS:
        return _builtin_problems(found, version)
    if found.get("apiVersion") != VERSIONS[found["kind"]]:
        return [f"apiVersion is {found.get('apiVersion')}, expected {VERSIONS[found['kind']]}"]
    own = _jobset_problems(found) if found["kind"] == "JobSet" else _own_problems(found)
    for path, template in pod_templates(found):
        # Names and the like are checked as those of the object.
        own += [f"{path}: {problem}" for problem in _builtin_problems(
            {"apiVersion": "v1", "kind": "PodTemplate", "template": template}, version)]
    metadata = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": found["metadata"]}
    return own + _builtin_problems(metadata, version)


def _builtin_problems(found, version):
    checked = {key: value for key, value in found.items() if key != "status"}
    try:
        kubernetes_validate.validate(checked, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'.'.join(map(str, error.path))}: {error.message}"]
    except kubernetes_validate.SchemaNotFoundError:
        return [f"there is no {found.get('apiVersion')} {found['kind']}"]
    return []


def _own_problems(found):
    schema = _fields(("metadata", "spec"), apiVersion=TEXT, kind=TEXT, metadata={"type": "object"},
                     spec=SPECS[found["kind"]], status={"type": "object"})
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}"
            for error in jsonschema.Draft202012Validator(schema).iter_errors(found)]


def _jobset_problems(found):
    """The classes drop what they do not know, so a lost field is an unknown one."""
    from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

    outside = copy.deepcopy(found)
    for job in outside.get("spec", {}).get("replicatedJobs", []):
        # Pod templates are checked on their own.
        if "containers" in job.get("template", {}).get("spec", {}).get("template", {}).get("spec", {}):
            job["template"]["spec"]["template"] = {"spec": {"containers": [{"name": "any"}]}}
    try:
        known = JobsetV1alpha2JobSet.from_dict(outside).to_dict()
    except Exception as error:  # pydantic's and the generated code's
        return [str(error)]
    return [f"unknown field {path}" for path in _lost(outside, known, "JobSet")]


def _lost(given, known, path):
    if isinstance(given, dict):
        for key, value in given.items():
            if not isinstance(known, dict) or key not in known:
                yield f"{path}.{key}"
            else:
                yield from _lost(value, known[key], f"{path}.{key}")
    elif isinstance(given, list):
        for index, value in enumerate(given):
            inner = known[index] if isinstance(known, list) and index < len(known) else None
            yield from _lost(value, inner, f"{path}.{index}")

"""A stand-in for the API server of Kubernetes, with which the real helm and kubectl work.

    with KubeApi() as api:
        helm("install", …, environment=api.environment)
        api.get("Deployment", "lathe-gateway")

It discovers, creates, applies, patches, deletes and watches. Every write is checked by strict schemas, as a server
with strict validation does; fields that never change are held. It has few defaults, and no admission, owners or rights.
Without a cluster (`support.pods`) what is written is ready at once, and Jobs succeed unless `failing` has their name.
"""

import copy
import json
import os
import pathlib
import queue
import tempfile
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

import yaml
from support.hosts import Home
from support.kube_immutable import changed_forever
from support.kube_merge import merged, strategically_merged, without_forgotten
from support.kube_schemas import problems

VERSION = "1.37"
KINDS = {  # by group and version: (plural, kind, has a namespace)
    "v1": [("namespaces", "Namespace", False), ("pods", "Pod", True), ("services", "Service", True),
           ("secrets", "Secret", True), ("configmaps", "ConfigMap", True), ("events", "Event", True),
           ("serviceaccounts", "ServiceAccount", True),
           ("persistentvolumeclaims", "PersistentVolumeClaim", True)],
    "apps/v1": [("deployments", "Deployment", True), ("statefulsets", "StatefulSet", True),
                ("replicasets", "ReplicaSet", True)],
    "batch/v1": [("jobs", "Job", True), ("cronjobs", "CronJob", True)],
    "policy/v1": [("poddisruptionbudgets", "PodDisruptionBudget", True)],
    "autoscaling/v2": [("horizontalpodautoscalers", "HorizontalPodAutoscaler", True)],
    "networking.k8s.io/v1": [("networkpolicies", "NetworkPolicy", True), ("ingresses", "Ingress", True)],
    "rbac.authorization.k8s.io/v1": [("roles", "Role", True), ("rolebindings", "RoleBinding", True)],
    "jobset.x-k8s.io/v1alpha2": [("jobsets", "JobSet", True)],
    "leaderworkerset.x-k8s.io/v1": [("leaderworkersets", "LeaderWorkerSet", True)],
    "monitoring.coreos.com/v1": [("podmonitors", "PodMonitor", True),
                                 ("prometheusrules", "PrometheusRule", True)],
}
# Kinds whose status says what their pods do.
WITH_PODS = {"StatefulSet", "Deployment", "Job", "JobSet", "LeaderWorkerSet", "Pod"}


class Refused(Exception):
    def __init__(self, code, reason, message):
        super().__init__(message)
        self.code, self.reason = code, reason


def ready_status(found):
    """The status that controllers give an object once all is well."""
    kind, generation = found["kind"], found["metadata"]["generation"]
    count = found.get("spec", {}).get("replicas", 1)
    if kind == "Deployment":
        return {"observedGeneration": generation, "replicas": count, "readyReplicas": count,
                "availableReplicas": count, "updatedReplicas": count, "conditions": [
                    {"type": "Available", "status": "True"},
                    {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]}
    if kind == "StatefulSet":
        return {"observedGeneration": generation, "replicas": count, "readyReplicas": count,
                "currentReplicas": count, "updatedReplicas": count, "availableReplicas": count,
                "currentRevision": "r", "updateRevision": "r"}
    if kind == "Job":
        return {"succeeded": 1, "conditions": [{"type": "Complete", "status": "True"}]}
    if kind == "Pod":
        return {"phase": "Succeeded", "conditions": [{"type": "Ready", "status": "True"}]}
    if kind == "PersistentVolumeClaim":
        return {"phase": "Bound"}
    if kind == "PodDisruptionBudget":
        return {"observedGeneration": generation, "disruptionsAllowed": 1, "currentHealthy": 1,
                "desiredHealthy": 1, "expectedPods": 1}
    return None


def replica_set(deployment):
    """(key, object) of the ReplicaSet for a Deployment's template, which Helm 3 looks for."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    name = f"{metadata['name']}-{abs(hash(json.dumps(spec['template'], sort_keys=True)))}"
    count = spec.get("replicas", 1)
    return ("ReplicaSet", metadata["namespace"], name), {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {
            "name": name, "namespace": metadata["namespace"], "generation": 1, "uid": str(uuid.uuid4()),
            "labels": spec["template"]["metadata"]["labels"], "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": metadata["name"], "uid": metadata["uid"],
                "controller": True}]},
        "spec": {"replicas": count, "selector": spec["selector"], "template": spec["template"]},
        "status": {"observedGeneration": 1, "replicas": count, "readyReplicas": count}}


class KubeApi:
    """`failing`: names of Jobs that fail. `is_cluster`: somebody else sets the status of what has pods."""

    def __init__(self, failing=(), is_cluster=False):
        self.failing = set(failing)
        self.calls = []  # (method, kind, name) of writes, in their order
        self._is_cluster = is_cluster
        self._lock = threading.RLock()
        self._objects = {}
        self._applied = {}  # by object and manager
        self._watchers = []
        self._version = 1
        self._folder = tempfile.TemporaryDirectory(prefix="kube-api-")
        self.home = Home()  # its address is one of this network
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        for name in ("default", "serving"):
            self._objects["Namespace", "", name] = {
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "uid": name}}

    def __enter__(self):
        self._thread.start()
        config = pathlib.Path(self._folder.name, "config")
        config.write_text(yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]}))
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._folder.cleanup()
        self.home.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self):
        return {**os.environ, "KUBECONFIG": f"{self._folder.name}/config", "HOME": self._folder.name}

    def get(self, kind, name, namespace="serving"):
        with self._lock:
            return copy.deepcopy(self._objects.get((kind, namespace, name)))

    def list(self, kind, namespace=None):
        with self._lock:
            return [copy.deepcopy(found) for (of_kind, of_namespace, _), found in self._objects.items()
                    if of_kind == kind and namespace in (None, of_namespace)]

    def names(self, kind):
        return sorted(found["metadata"]["name"] for found in self.list(kind))

    def write(self, method, kind, namespace, name, body, content_type="", manager="", dry_run=False):
        """The object after a create, replace, patch or apply."""
        with self._lock:
            key = (kind, namespace, name)
            old = self._objects.get(key)
            if method == "POST" and old:
                raise Refused(409, "AlreadyExists", f'{kind} "{name}" already exists')
            is_apply = "apply" in content_type
            if method == "PATCH" and not is_apply and old is None:
                raise Refused(404, "NotFound", f'{kind} "{name}" not found')
            new = copy.deepcopy(body)
            if method == "PATCH" and old is not None:
                before = self._applied.get((key, manager), {}) if is_apply else {}
                merge = strategically_merged if "strategic" in content_type else merged
                new = merge(without_forgotten(old, before, body), body)
            self._complete(new, kind, namespace, name, old)
            self._check(new, old)
            if not dry_run:
                self.calls.append((method, kind, name))
                if is_apply:
                    self._applied[key, manager] = copy.deepcopy(body)
                self._put(key, new, old)
            return new

    def set_status(self, kind, name, status, namespace="serving"):
        with self._lock:
            found = self._objects.get((kind, namespace, name))
            if found is not None and found.get("status") != status:
                self._put((kind, namespace, name), {**found, "status": status}, found)

    def delete(self, kind, namespace, name):
        with self._lock:
            found = self._objects.pop((kind, namespace, name), None)
            if found is None:
                raise Refused(404, "NotFound", f'{kind} "{name}" not found')
            self.calls.append(("DELETE", kind, name))
            self._tell("DELETED", found)
            return found

    def _complete(self, new, kind, namespace, name, old):
        metadata = new["metadata"]
        metadata["name"] = name
        if namespace:
            metadata["namespace"] = namespace
        new.setdefault("kind", kind)
        if kind == "Service":
            address = f"10.96.{len(self._objects) // 250}.{len(self._objects) % 250 + 1}"
            new["spec"].setdefault("clusterIP", old["spec"]["clusterIP"] if old else address)
        if kind in ("Deployment", "StatefulSet"):
            new["spec"].setdefault("replicas", old["spec"]["replicas"] if old else 1)
        before = old["metadata"] if old else {}
        is_same_spec = old is not None and old.get("spec") == new.get("spec")
        metadata["uid"] = before.get("uid") or str(uuid.uuid4())
        metadata["creationTimestamp"] = before.get("creationTimestamp") or "2026-01-01T00:00:00Z"
        metadata["generation"] = before.get("generation", 0) + (not is_same_spec)

    def _check(self, new, old):
        checked = {key: value for key, value in new.items() if key != "status"}
        checked["metadata"] = {key: value for key, value in new["metadata"].items() if key != "managedFields"}
        if wrong := problems(checked, VERSION):
            raise Refused(422, "Invalid", f'{new["kind"]} "{new["metadata"]["name"]}" is invalid: {wrong[0]}')
        if old and (names := changed_forever(new["kind"], old, new)):
            raise Refused(422, "Invalid", f'{new["kind"]} "{new["metadata"]["name"]}" is invalid: '
                                          f'{names[0]}: field is immutable')

    def _put(self, key, new, old):
        self._version += 1
        new["metadata"]["resourceVersion"] = str(self._version)
        if not (self._is_cluster and new["kind"] in WITH_PODS):
            status = ready_status(new)
            if new["kind"] == "Job" and new["metadata"]["name"] in self.failing:
                status = {"failed": 1, "conditions": [
                    {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "failed"}]}
            if status:
                new["status"] = status
        self._objects[key] = new
        if new["kind"] == "Deployment" and not self._is_cluster:
            self._put(*replica_set(new), None)
        self._tell("MODIFIED" if old else "ADDED", new)

    def _tell(self, event, found):
        for watcher in self._watchers:
            watcher.put((event, copy.deepcopy(found)))

    def watch(self, kind):
        """A queue of (event, object) from now on, with what there is already."""
        with self._lock:
            events = queue.Queue()
            self._watchers.append(events)
            return events, self.list(kind)

    def end_watch(self, events):
        with self._lock:
            self._watchers.remove(events)

    def version(self):
        return str(self._version)


def _selected(found, query):
    labels = found["metadata"].get("labels", {})
    for term in filter(None, query.get("labelSelector", "").split(",")):
        key, _, value = term.partition("=")
        if labels.get(key) != value.removeprefix("="):
            return False
    field, _, value = query.get("fieldSelector", "").partition("=")
    return field != "metadata.name" or found["metadata"]["name"] == value


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api = None

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._answer()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _send(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _answer(self):
        url = urlparse(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        size = int(self.headers.get("Content-Length") or 0)
        body = yaml.safe_load(self.rfile.read(size)) if size else None
        try:
            self._route(url.path.strip("/").split("/"), query, body)
        except Refused as refused:
            self._send(refused.code, {"kind": "Status", "apiVersion": "v1", "status": "Failure",
                                      "reason": refused.reason, "message": str(refused), "code": refused.code})

    def _route(self, path, query, body):
        if path == ["version"]:
            return self._send(200, {"major": "1", "minor": "37", "gitVersion": f"v{VERSION}.0"})
        if path == ["api"]:
            return self._send(200, {"kind": "APIVersions", "versions": ["v1"]})
        if path == ["apis"]:
            return self._send(200, self._groups())
        if path[:2] == ["openapi", "v3"]:
            return self._send(200, self._openapi("/".join(path[2:])))
        version, rest = ("v1", path[2:]) if path[0] == "api" else ("/".join(path[1:3]), path[3:])
        if version not in KINDS:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        if not rest:
            return self._send(200, self._resources(version))
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        kind = next((kind for plural, kind, _ in KINDS[version] if plural == rest[0]), None)
        if kind is None:
            raise Refused(404, "NotFound", f"there is no {rest[0]}")
        if rest[2:] == ["scale"]:
            return self._scale(version, kind, namespace, rest[1], body)
        self._object(version, kind, namespace, rest[1] if len(rest) > 1 else None, query, body)

    def _groups(self):
        groups = []
        for version in KINDS:
            group, _, short = version.rpartition("/")
            if group:
                entry = {"groupVersion": version, "version": short}
                groups.append({"name": group, "versions": [entry], "preferredVersion": entry})
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}

    def _openapi(self, place):
        """Says only that writes are validated here; clients then do not validate themselves."""
        def folder(version):
            return f"apis/{version}" if "/" in version else f"api/{version}"
        if not place:
            return {"paths": {folder(version): {"serverRelativeURL": f"/openapi/v3/{folder(version)}?hash=1"}
                              for version in KINDS}}
        version = next((version for version in KINDS if folder(version) == place), None)
        if version is None:
            raise Refused(404, "NotFound", place)
        group, _, short = version.rpartition("/")
        return {"openapi": "3.0.0", "info": {"title": "stand-in", "version": VERSION}, "paths": {
            f"/{place}/namespaces/{{namespace}}/{plural}/{{name}}": {"patch": {
                "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                "responses": {"200": {"description": "OK"}},
                "x-kubernetes-group-version-kind": {"group": group, "version": short, "kind": kind}}}
            for plural, kind, _ in KINDS[version]}}

    def _resources(self, version):
        verbs = ["get", "list", "watch", "create", "update", "patch", "delete"]
        resources = []
        for plural, kind, namespaced in KINDS[version]:
            resources.append({"name": plural, "singularName": kind.lower(), "kind": kind,
                              "namespaced": namespaced, "verbs": verbs})
            if kind in ("StatefulSet", "Deployment", "LeaderWorkerSet"):
                resources.append({"name": f"{plural}/scale", "singularName": "", "kind": "Scale",
                                  "group": "autoscaling", "version": "v1", "namespaced": True,
                                  "verbs": ["get", "update", "patch"]})
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": resources}

    def _scale(self, version, kind, namespace, name, body):
        found = self.api.get(kind, name, namespace)
        if found is None:
            raise Refused(404, "NotFound", f'{kind} "{name}" not found')
        if self.command in ("PUT", "PATCH"):
            found = self.api.write("PATCH", kind, namespace, name,
                                   {"metadata": {}, "spec": {"replicas": body["spec"]["replicas"]}})
        self._send(200, {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": found["metadata"],
                         "spec": {"replicas": found["spec"].get("replicas", 1)}})

    def _object(self, version, kind, namespace, name, query, body):
        if self.command == "GET" and name is None:
            return self._list(version, kind, namespace, query)
        if self.command == "GET":
            found = self.api.get(kind, name, namespace)
            if found is None:
                raise Refused(404, "NotFound", f'{kind} "{name}" not found')
            return self._send(200, found)
        if self.command == "DELETE":
            found = self.api.delete(kind, namespace, name)
            return self._send(200, {"kind": "Status", "apiVersion": "v1", "status": "Success",
                                    "details": {"name": name, "uid": found["metadata"]["uid"]}})
        body.setdefault("apiVersion", version)
        body.setdefault("metadata", {})
        name = name or body["metadata"].get("name") or body["metadata"]["generateName"] + uuid.uuid4().hex[:5]
        new = self.api.write(self.command, kind, namespace, name, body,
                             content_type=self.headers.get("Content-Type", ""),
                             manager=query.get("fieldManager", ""), dry_run="dryRun" in query)
        self._send(201 if self.command == "POST" else 200, new)

    def _list(self, version, kind, namespace, query):
        if "watch" in query:
            return self._watch(version, kind, namespace, query)
        items = [found for found in self.api.list(kind, namespace or None) if _selected(found, query)]
        self._send(200, {"kind": f"{kind}List", "apiVersion": version,
                         "metadata": {"resourceVersion": self.api.version()}, "items": items})

    def _watch(self, version, kind, namespace, query):
        events, there = self.api.watch(kind)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

        def tell(event, found):
            if found["kind"] == kind and namespace in ("", found["metadata"].get("namespace")) and (
                    event == "BOOKMARK" or _selected(found, query)):
                data = (json.dumps({"type": event, "object": found}) + "\n").encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                self.wfile.flush()

        try:
            if query.get("resourceVersion", "") in ("", "0") or "sendInitialEvents" in query:
                for found in there:
                    tell("ADDED", found)
            if "sendInitialEvents" in query:
                tell("BOOKMARK", {"kind": kind, "apiVersion": version, "metadata": {
                    "resourceVersion": self.api.version(), "namespace": namespace,
                    "annotations": {"k8s.io/initial-events-end": "true"}}})
            end = time.monotonic() + float(query.get("timeoutSeconds", "60"))
            while time.monotonic() < end:
                try:
                    tell(*events.get(timeout=0.2))
                except queue.Empty:
                    continue
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True
        finally:
            self.api.end_watch(events)

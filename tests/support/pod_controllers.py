"""Makes pods of the objects that own them, as the controllers of Kubernetes, JobSet and LeaderWorkerSet do.

A controller looks at its object again and again, and each look does at most a little: it makes a pod that is missing,
or ends one that is too much. `status()` is what helm waits for.
"""

import hashlib
import json
import uuid


def template_mark(template):
    return hashlib.sha256(json.dumps(template, sort_keys=True).encode()).hexdigest()[:10]


def with_labels(template, labels):
    metadata = template.get("metadata", {})
    return {**template, "metadata": {**metadata, "labels": {**metadata.get("labels", {}), **labels}}}


class Controller:
    def __init__(self, cluster, found):
        self.cluster, self.name, self.kind = cluster, found["metadata"]["name"], found["kind"]
        self.pods = {}  # by a place that stays: (pod, mark of its template)
        self.found = found

    def start(self, place, name, template, mark, **options):
        self.pods[place] = (self.cluster.start_pod(name, template, **options), mark)

    def forget_ended(self):
        for place, (pod, _) in list(self.pods.items()):
            if pod.has_ended:
                self.cluster.forget_pod(pod)
                del self.pods[place]

    def end(self):
        for pod, _ in self.pods.values():
            pod.stop()

    def num_ready(self, mark=None):
        return sum(pod.is_ready and mark in (None, of_pod) for pod, of_pod in self.pods.values())


class StatefulSet(Controller):
    def look(self):
        self.forget_ended()
        spec = self.found["spec"]
        template, count = spec["template"], spec.get("replicas", 1)
        mark = template_mark(template)
        for index in range(count):
            if index not in self.pods:
                labels = {"apps.kubernetes.io/pod-index": str(index)}
                self.start(index, f"{self.name}-{index}", with_labels(template, labels), mark,
                           subdomain=spec["serviceName"])
        for index, (pod, _) in self.pods.items():
            if index >= count:
                pod.stop()
        # An update replaces one pod at a time, from the last to the first.
        if self.num_ready() == count == len(self.pods):
            old = [index for index, (_, of_pod) in self.pods.items() if of_pod != mark]
            if old:
                self.pods[max(old)][0].stop()

    def status(self):
        spec = self.found["spec"]
        count, mark = spec.get("replicas", 1), template_mark(spec["template"])
        updated = sum(of_pod == mark for _, of_pod in self.pods.values())
        return {"observedGeneration": self.found["metadata"]["generation"], "replicas": len(self.pods),
                "readyReplicas": self.num_ready(), "availableReplicas": self.num_ready(),
                "currentReplicas": updated, "updatedReplicas": updated, "updateRevision": mark,
                "currentRevision": mark if self.num_ready(mark) == count else "old"}


class Deployment(Controller):
    """Of strategy maxSurge 1, maxUnavailable 0."""

    def look(self):
        self.forget_ended()
        spec = self.found["spec"]
        count, mark = spec.get("replicas", 1), template_mark(spec["template"])
        stopping = [pod for pod, _ in self.pods.values() if pod.is_stopping]
        new = [pod for pod, of_pod in self.pods.values() if of_pod == mark and not pod.is_stopping]
        old = [pod for pod, of_pod in self.pods.values() if of_pod != mark and not pod.is_stopping]
        if len(new) < count and len(new) + len(old) < count + 1:
            name = f"{self.name}-{mark}-{uuid.uuid4().hex[:5]}"
            self.start(name, name, spec["template"], mark)
        elif old and not stopping and sum(pod.is_ready for pod in [*new, *old]) > count:
            old[0].stop()
        for pod in new[count:]:
            pod.stop()

    def status(self):
        spec = self.found["spec"]
        count, mark = spec.get("replicas", 1), template_mark(spec["template"])
        updated = sum(of_pod == mark for _, of_pod in self.pods.values())
        is_done = self.num_ready(mark) >= count and len(self.pods) == updated
        return {"observedGeneration": self.found["metadata"]["generation"], "replicas": len(self.pods),
                "readyReplicas": self.num_ready(), "availableReplicas": self.num_ready(),
                "updatedReplicas": updated, "conditions": [
                    {"type": "Available", "status": "True" if self.num_ready() >= count else "False"},
                    {"type": "Progressing", "status": "True",
                     "reason": "NewReplicaSetAvailable" if is_done else "ReplicaSetUpdated"}]}


class Job(Controller):
    """One pod, once."""

    def __init__(self, cluster, found):
        super().__init__(cluster, found)
        self._code = None

    def look(self):
        if self._code is None and not self.pods:
            self.start(0, f"{self.name}-{uuid.uuid4().hex[:5]}", self.found["spec"]["template"], "")
        for pod, _ in self.pods.values():
            if pod.has_ended:
                self._code = pod.exit_code
        self.forget_ended()

    def status(self):
        if self._code is None:
            return {"active": 1}
        kind = "Complete" if self._code == 0 else "Failed"
        return {"succeeded" if self._code == 0 else "failed": 1,
                "conditions": [{"type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": kind}]}


class LeaderWorkerSet(Controller):
    def look(self):
        self.forget_ended()
        spec = self.found["spec"]
        inner = spec["leaderWorkerTemplate"]
        for group in range(spec.get("replicas", 1)):
            for index in range(inner["size"]):
                if (group, index) in self.pods:
                    continue
                leader = f"{self.name}-{group}"
                template = inner.get("leaderTemplate") if index == 0 else None
                labels = {"leaderworkerset.sigs.k8s.io/group-index": str(group),
                          "leaderworkerset.sigs.k8s.io/worker-index": str(index)}
                self.start((group, index), leader if index == 0 else f"{leader}-{index}",
                           with_labels(template or inner["workerTemplate"], labels), "", subdomain=self.name,
                           env=[{"name": "LWS_LEADER_ADDRESS", "value": f"{leader}.{self.name}.serving"},
                                {"name": "LWS_GROUP_SIZE", "value": str(inner["size"])},
                                {"name": "LWS_WORKER_INDEX", "value": str(index)}])

    def status(self):
        return {"replicas": len(self.pods), "readyReplicas": self.num_ready()}


class JobSet(Controller):
    """With indexed Jobs. A pod that ends fails its Job, unless it is ignored; a failed Job restarts the whole set, or
    ends it if a rule says so."""

    def __init__(self, cluster, found):
        super().__init__(cluster, found)
        self.restarts = 0
        self.state = "Running"

    def look(self):
        if self.state != "Running":
            return self.forget_ended()
        action = None
        for place, (pod, _) in list(self.pods.items()):
            if pod.has_ended and not pod.is_stopping:
                action = action or self._action(place, pod)
        self.forget_ended()
        if action == "FailJobSet":
            self.state = "Failed"
            return self.end()
        if action == "RestartJobSet":
            self.restarts += 1
            if self.restarts > self.found["spec"]["failurePolicy"]["maxRestarts"]:
                self.state = "Failed"
            return self.end()
        # BlockingRecreate: no pod begins while one of the set before is there.
        if not any(pod.is_stopping for pod, _ in self.pods.values()) or action is None:
            self._start_missing()

    def _start_missing(self):
        spec = self.found["spec"]
        subdomain = spec.get("network", {}).get("subdomain") or self.name
        for job in spec["replicatedJobs"]:
            inner = job["template"]["spec"]
            for number in range(job.get("replicas", 1)):
                for index in range(inner["completions"]):
                    place = (job["name"], number, index)
                    if place in self.pods:
                        continue
                    host = f"{self.name}-{job['name']}-{number}-{index}"
                    labels = {"batch.kubernetes.io/job-completion-index": str(index),
                              "jobset.sigs.k8s.io/job-index": str(number),
                              "jobset.sigs.k8s.io/jobset-name": self.name}
                    self.start(place, f"{host}-{uuid.uuid4().hex[:5]}", with_labels(inner["template"], labels), "",
                               hostname=host, subdomain=subdomain,
                               env=[{"name": "JOB_COMPLETION_INDEX", "value": str(index)}])

    def _action(self, place, pod):
        """What the end of a pod means for the set; None: nothing."""
        spec = self.found["spec"]
        inner = next(job for job in spec["replicatedJobs"] if job["name"] == place[0])["template"]["spec"]
        if pod.exit_code == 0:
            return None
        for rule in inner.get("podFailurePolicy", {}).get("rules", []):
            codes = rule.get("onExitCodes", {})
            if rule["action"] == "FailJob" and codes and pod.exit_code in codes["values"]:
                rules = spec["failurePolicy"].get("rules", [])
                return next((r["action"] for r in rules if "PodFailurePolicy" in r["onJobFailureReasons"]),
                            "RestartJobSet")
        return "RestartJobSet"

    def status(self):
        kind = {"Failed": "Failed"}.get(self.state)
        return {"restarts": self.restarts,
                "conditions": [{"type": kind, "status": "True", "reason": kind}] if kind else []}


CONTROLLERS = {"StatefulSet": StatefulSet, "Deployment": Deployment, "Job": Job,
               "LeaderWorkerSet": LeaderWorkerSet, "JobSet": JobSet}

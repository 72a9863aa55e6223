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
    """With indexed Jobs. A pod that ends with 0 completes its index, also after a stop, and is not started again. Another
    end fails its Job, unless a rule ignores it. A failed Job restarts the whole set, or ends it if a rule says so."""

    def __init__(self, cluster, found):
        super().__init__(cluster, found)
        self.restarts = 0
        self.state = "Running"
        self.completed = set()  # places
        self._is_ending = False  # it ends its pods itself: their exit codes mean nothing

    def look(self):
        outcomes = set()
        for place, (pod, _) in self.pods.items():
            if pod.has_ended and not self._is_ending:
                outcomes.add(self._outcome(place, pod))
        self.forget_ended()
        if "FailJobSet" in outcomes or "RestartJobSet" in outcomes:
            self._is_ending = True
            self.end()
            self.restarts += "FailJobSet" not in outcomes
            if "FailJobSet" in outcomes or self.restarts > self.found["spec"]["failurePolicy"]["maxRestarts"]:
                self.state = "Failed"
        if self._is_ending and (self.pods or self.state == "Failed"):
            return  # BlockingRecreate: no pod begins while one of the set before is there
        if self._is_ending:
            self._is_ending = False
            self.completed.clear()
        self._start_missing()

    def _places(self):
        """(place, the Job's spec) of every pod."""
        for job in self.found["spec"]["replicatedJobs"]:
            inner = job["template"]["spec"]
            for number in range(job.get("replicas", 1)):
                for index in range(inner["completions"]):
                    yield (job["name"], number, index), inner

    def _start_missing(self):
        if self.completed == {place for place, _ in self._places()}:
            self.state = "Completed"
        subdomain = self.found["spec"].get("network", {}).get("subdomain") or self.name
        for place, inner in self._places():
            if place in self.pods or place in self.completed:
                continue
            job, number, index = place
            host = f"{self.name}-{job}-{number}-{index}"
            labels = {"batch.kubernetes.io/job-completion-index": str(index),
                      "jobset.sigs.k8s.io/job-index": str(number),
                      "jobset.sigs.k8s.io/jobset-name": self.name}
            self.start(place, f"{host}-{uuid.uuid4().hex[:5]}", with_labels(inner["template"], labels), "",
                       hostname=host, subdomain=subdomain,
                       env=[{"name": "JOB_COMPLETION_INDEX", "value": str(index)}])

    def _outcome(self, place, pod):
        """What the end of a pod means: nothing, or an action on the set."""
        if pod.exit_code == 0:
            self.completed.add(place)
            return None
        inner = dict(self._places())[place]
        rule = next((rule for rule in inner.get("podFailurePolicy", {}).get("rules", []) if _applies(rule, pod)), None)
        if rule is None:
            return "RestartJobSet"
        if rule["action"] == "Ignore":
            return None
        rules = self.found["spec"]["failurePolicy"].get("rules", [])
        return next((r["action"] for r in rules if "PodFailurePolicy" in r["onJobFailureReasons"]), "RestartJobSet")

    def status(self):
        conditions = [] if self.state == "Running" else [{"type": self.state, "status": "True", "reason": self.state}]
        return {"restarts": self.restarts, "conditions": conditions}


def _applies(rule, pod):
    """Whether a rule of a podFailurePolicy is about this end of a pod; the first that applies counts."""
    if "onExitCodes" in rule:
        assert rule["onExitCodes"]["operator"] == "In"
        return pod.exit_code in rule["onExitCodes"]["values"]
    return any(condition["type"] == "DisruptionTarget" and pod.is_disrupted for condition in rule["onPodConditions"])


CONTROLLERS = {"StatefulSet": StatefulSet, "Deployment": Deployment, "Job": Job,
               "LeaderWorkerSet": LeaderWorkerSet, "JobSet": JobSet}

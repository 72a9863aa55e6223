"""A small kubelet: runs the containers of one pod as its object says.

Init containers run first, one after the other. Probes decide readiness and restarts. A stop runs the preStop hook, then
sends SIGTERM, and after the grace SIGKILL. Bounds of CPU and memory, and sizes of volumes, are not enforced.
"""

import http.client
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from support.pod_sandbox import Sandbox, entry_point

FIRST_BACKOFF, MAX_BACKOFF = 0.2, 5
TICK = 0.1


def expanded(text, environment):
    """`$(NAME)` becomes the value, as in commands and arguments."""
    return re.sub(r"\$\(([A-Za-z_0-9]+)\)", lambda found: environment.get(found[1], found[0]), str(text))


class Probe:
    def __init__(self, spec, container):
        self._spec = spec
        self._port = next((p["containerPort"] for p in container.get("ports", [])
                           if p["name"] == spec["httpGet"]["port"]), spec["httpGet"]["port"])
        self.failure_threshold = spec.get("failureThreshold", 3)
        self._period = spec.get("periodSeconds", 10)
        self._next = 0.0
        self.failures = 0
        self.successes = 0

    def tick(self, address):
        """Asks if it is time; True or False is the answer, None: not yet."""
        if time.monotonic() < self._next:
            return None
        self._next = time.monotonic() + self._period
        is_good = self._ask(address)
        self.failures = 0 if is_good else self.failures + 1
        self.successes = self.successes + 1 if is_good else 0
        return is_good

    def _ask(self, address):
        connection = http.client.HTTPConnection(address, self._port, timeout=self._spec.get("timeoutSeconds", 1))
        try:
            connection.request("GET", self._spec["httpGet"]["path"])
            return 200 <= connection.getresponse().status < 400
        except OSError:
            return False
        finally:
            connection.close()


class Container:
    def __init__(self, pod, spec):
        self.pod, self.spec, self.name = pod, spec, spec["name"]
        self.exit_codes = []
        self.is_ready = "readinessProbe" not in spec
        self.sandbox = None
        self._backoff, self._start_at = FIRST_BACKOFF, 0.0
        self._probes = {}

    def start(self):
        environment = self.pod.environment(self.spec)
        words = [expanded(word, environment) for word in
                 [*self.spec.get("command", []), *self.spec.get("args", [])]]
        if "command" not in self.spec:
            words = entry_point(words)
        mounts = [self.pod.mount(mount) for mount in self.spec.get("volumeMounts", [])]
        self._probes = {kind: Probe(self.spec[kind], self.spec) for kind in
                        ("startupProbe", "livenessProbe", "readinessProbe") if kind in self.spec}
        with open(self.pod.log_path(self.name), "ab") as log:
            self.sandbox = Sandbox(words, environment, mounts, self.pod.hostname,
                                   self.pod.cluster.hosts_file, log)

    def tick(self):
        """Looks after the running process; returns its exit code once it has ended and stays so."""
        code = self.sandbox.exit_code
        if code is None:
            self._probe()
            return None
        if self._start_at == 0.0:
            self.exit_codes.append(code)
            self.is_ready = False
            if not self.pod.restarts:
                return code
            self._start_at = time.monotonic() + self._backoff
            self._backoff = min(MAX_BACKOFF, 2 * self._backoff)
        elif time.monotonic() >= self._start_at:
            self._start_at = 0.0
            self.start()
        return None

    def _probe(self):
        startup = self._probes.get("startupProbe")
        if startup is not None and startup.successes == 0:
            if startup.tick(self.pod.address) is False and startup.failures >= startup.failure_threshold:
                self.sandbox.signal(signal.SIGKILL)
            return
        liveness = self._probes.get("livenessProbe")
        if liveness is not None and liveness.tick(self.pod.address) is False and \
                liveness.failures >= liveness.failure_threshold:
            self.stop(self.pod.grace)
        readiness = self._probes.get("readinessProbe")
        if readiness is not None:
            readiness.tick(self.pod.address)
            self.is_ready = readiness.successes > 0 or (
                self.is_ready and readiness.failures < readiness.failure_threshold)

    def _run_hook(self, words, grace):
        try:
            done = self.sandbox.run(words, timeout=grace)
        except subprocess.TimeoutExpired:
            return None, "the grace was over"
        return done.returncode, done.stdout + done.stderr

    def stop(self, grace):
        """Ends the process; the hook's time counts."""
        end = time.monotonic() + grace
        hook = self.spec.get("lifecycle", {}).get("preStop", {}).get("exec")
        if hook and grace > 0 and self.sandbox.exit_code is None:
            self.pod.hook_results.append((self.name, *self._run_hook(hook["command"], grace)))
        self.sandbox.signal(signal.SIGTERM)
        while self.sandbox.exit_code is None and time.monotonic() < end:
            time.sleep(0.02)
        self.sandbox.signal(signal.SIGKILL)
        self.sandbox.wait(30)


class Pod:
    """`template`: metadata and spec. `host`: of cluster.hosts. Its thread ends with the pod."""

    def __init__(self, cluster, name, template, host, hostname=None, subdomain="", env=()):
        self.cluster, self.name, self.host = cluster, name, host
        self.labels = template.get("metadata", {}).get("labels", {})
        self.spec = template["spec"]
        self.hostname, self.subdomain = hostname or name, subdomain
        self.address = cluster.hosts.address(host)
        self.grace = self.spec.get("terminationGracePeriodSeconds", 30)
        self.restarts = self.spec.get("restartPolicy", "Always") == "Always"
        self.hook_results = []  # (container, exit code, output)
        self.exit_code = None  # as Kubernetes shows it, once the pod has ended
        self.is_disrupted = False  # condition DisruptionTarget: an eviction, or the loss of the node
        self._env = list(env)
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix="pod-", dir="/tmp"))
        self._shared_memory = pathlib.Path(tempfile.mkdtemp(prefix="pod-", dir="/dev/shm"))
        self._containers = [Container(self, spec) for spec in self.spec["containers"]]
        self._stop = threading.Event()
        self._stop_grace = None
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    @property
    def is_ready(self):
        return self._thread.is_alive() and not self._stop.is_set() and all(
            container.is_ready and container.sandbox for container in self._containers)

    @property
    def has_ended(self):
        return not self._thread.is_alive()

    @property
    def is_stopping(self):
        return self._stop.is_set()

    def container(self, name=None):
        return next(c for c in self._containers if name in (None, c.name))

    def stop(self, grace=None, is_disrupted=False):
        """Begins to end it; `grace`: seconds, instead of its own."""
        self._stop_grace = self.grace if grace is None else grace
        self.is_disrupted = self.is_disrupted or is_disrupted
        self._stop.set()

    def join(self):
        self._thread.join()

    def log_path(self, container):
        return self.cluster.folder / "logs" / f"{self.name}.{container}.log"

    def log(self, container=None):
        return self.log_path(container or self._containers[0].name).read_text(errors="replace")

    def _run(self):
        try:
            with self.cluster.hosts.on(self.host):
                if self._init():
                    self._serve()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            shutil.rmtree(self._shared_memory, ignore_errors=True)

    def _init(self):
        """Whether all init containers have succeeded."""
        for spec in self.spec.get("initContainers", []):
            container = Container(self, spec)
            container.start()
            while container.sandbox.exit_code is None:
                if self._stop.wait(TICK):
                    container.stop(self._stop_grace)
                    return False
            if container.sandbox.exit_code != 0:
                self.exit_code = container.sandbox.exit_code
                return False
        return True

    def _serve(self):
        for container in self._containers:
            container.start()
        while not self._stop.wait(TICK):
            codes = [container.tick() for container in self._containers]
            if None not in codes:
                self.exit_code = max(codes)
                return
        for container in self._containers:
            container.stop(self._stop_grace)
        codes = [container.sandbox.exit_code for container in self._containers]
        self.exit_code = max(code if code >= 0 else 128 - code for code in codes)

    def environment(self, container):
        """As Kubernetes: in the order given, each may use those before."""
        result = dict(self.cluster.service_links()) if self.spec.get("enableServiceLinks", True) else {}
        for source in container.get("envFrom", []):
            result.update(self.cluster.secret(source["secretRef"]["name"]))
        for variable in [*self._env, *container.get("env", [])]:
            result[variable["name"]] = self._value(variable, result)
        return result

    def _value(self, variable, known):
        if "valueFrom" not in variable:
            return expanded(variable.get("value", ""), known)
        source = variable["valueFrom"]
        if "secretKeyRef" in source:
            return self.cluster.secret(source["secretKeyRef"]["name"])[source["secretKeyRef"]["key"]]
        path = source["fieldRef"]["fieldPath"]
        if label := re.fullmatch(r"metadata\.labels\['(.+)'\]", path):
            return self.labels[label[1]]
        return {"metadata.name": self.name, "metadata.namespace": "serving", "status.podIP": self.address}[path]

    def mount(self, mount):
        volume = next(v for v in self.spec["volumes"] if v["name"] == mount["name"])
        return self._source(volume), mount["mountPath"], mount.get("readOnly", False)

    def _source(self, volume):
        if "persistentVolumeClaim" in volume:
            return self.cluster.claim(volume["persistentVolumeClaim"]["claimName"])
        own = self._shared_memory if volume.get("emptyDir", {}).get("medium") == "Memory" else self._folder
        folder = own / volume["name"]
        if folder.exists():
            return folder
        folder.mkdir()
        # As an emptyDir, which everybody may write.
        folder.chmod(0o777)
        files = {}
        if "configMap" in volume:
            files = self.cluster.api.get("ConfigMap", volume["configMap"]["name"])["data"]
        elif "secret" in volume:
            files = self.cluster.secret(volume["secret"]["secretName"])
            if items := volume["secret"].get("items"):
                files = {item["path"]: files[item["key"]] for item in items}
        for name, text in files.items():
            (folder / name).write_text(text)
            os.chmod(folder / name, 0o640)
        return folder

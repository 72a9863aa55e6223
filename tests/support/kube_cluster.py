"""A Kubernetes of one test: the API server's stand-in, controllers, and pods that really run, each on a host of its own.

    with KubeCluster(folder, claims={"models": models}) as cluster:
        cluster.create(objects)                      # or helm, with cluster.api.environment
        cluster.wait(lambda: cluster.pod("lathe-engine-0").is_ready, "an engine")
        url = cluster.service_url("lathe-gateway")   # as clients of the Service see it, from host "client"
        cluster.delete_pod("lathe-engine-0")
        cluster.hosts.cut(cluster.pod("lathe-engine-1").host)
"""

import base64
import contextlib
import itertools
import pathlib
import socket
import threading
import time

import pytest
from support.hosts import Hosts
from support.hosts import why_not as no_hosts
from support.kube_api import KubeApi
from support.pod_controllers import CONTROLLERS
from support.pod_sandbox import why_not as no_sandboxes
from support.pods import Pod

NAMESPACE = "serving"
PERIOD = 0.1
PATIENCE_SECONDS = 180


def why_not():
    """Why pods cannot run here; None: they can."""
    return no_hosts() or no_sandboxes()


class ServiceProxy:
    """What a Service is for connections: each goes to a ready pod."""

    def __init__(self, cluster, host, port, targets):
        """`targets`: a function that returns (address, port) of the ready pods."""
        self._targets = targets
        self._turn = itertools.count()
        self._closing = False
        self._cluster, self._host = cluster, host
        with cluster.hosts.on(host):
            self._listener = socket.create_server((cluster.hosts.address(host), port), backlog=512)
        self.port = port
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self):
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self):
        with self._cluster.hosts.on(self._host):
            while not self._closing:
                try:
                    client, _ = self._listener.accept()
                except OSError:
                    return
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client):
        with client, self._cluster.hosts.on(self._host):
            targets = self._targets()
            if not targets:
                return
            with contextlib.suppress(OSError), \
                    socket.create_connection(targets[next(self._turn) % len(targets)], timeout=5) as server:
                server.settimeout(None)
                back = threading.Thread(target=_pump, args=(server, client), daemon=True)
                back.start()
                _pump(client, server)
                back.join()


def _pump(source, sink):
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)


class KubeCluster:
    """`claims`: folders of volume claims that exist; others are made when a pod mounts them."""

    def __init__(self, folder, claims=None, num_hosts=12):
        if reason := why_not():
            pytest.skip(reason)
        self.folder = pathlib.Path(folder)
        (self.folder / "logs").mkdir(parents=True)
        self.hosts_file = self.folder / "hosts"
        self._claims = dict(claims or {})
        self._free = [f"pod{number}" for number in range(num_hosts)]
        self.hosts = Hosts("client", "database", *self._free)
        self.api = KubeApi(is_cluster=True)
        self.ended = []  # pods that have ended, in their order
        self._controllers = {}
        self._proxies = {}
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._failure = None
        self._thread = threading.Thread(target=self._run)
        self._open = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as opening:
            opening.enter_context(self.hosts)
            opening.enter_context(self.api)
            self._write_hosts()
            self._thread.start()
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_):
        self._stopping.set()
        self._thread.join()
        self.hosts.heal()
        pods = list(self.pods())
        for pod in pods:
            pod.stop(grace=0)
        for pod in pods:
            pod.join()
        for proxy in self._proxies.values():
            proxy.close()
        self._open.close()

    def _run(self):
        while not self._stopping.wait(PERIOD):
            try:
                with self._lock:
                    self._look()
                    self._write_hosts()
            except Exception as failure:  # the test says so
                self._failure = failure
                raise

    def _look(self):
        there = {}
        for kind in CONTROLLERS:
            for found in self.api.list(kind):
                there[kind, found["metadata"]["uid"]] = found
        for key, found in there.items():
            if key not in self._controllers:
                self._controllers[key] = CONTROLLERS[key[0]](self, found)
            controller = self._controllers[key]
            controller.found = found
            controller.look()
            self.api.set_status(key[0], controller.name, controller.status())
        for key in set(self._controllers) - set(there):
            controller = self._controllers[key]
            controller.end()
            controller.forget_ended()
            if not controller.pods:
                del self._controllers[key]

    def create(self, objects):
        for found in objects:
            name = found["metadata"]["name"]
            metadata = {**found["metadata"], "namespace": NAMESPACE}
            self.api.write("POST", found["kind"], NAMESPACE, name, {**found, "metadata": metadata})

    def start_pod(self, name, template, **options):
        return Pod(self, name, template, self._free.pop(0), **options)

    def forget_pod(self, pod):
        pod.join()
        self.hosts.heal(pod.host)
        self._free.append(pod.host)
        self.ended.append(pod)

    def pods(self):
        with self._lock:
            return [pod for controller in self._controllers.values() for pod, _ in controller.pods.values()]

    def pod(self, name):
        """The pod with this name or this beginning of it; None: there is none."""
        return next((pod for pod in self.pods() if pod.name == name or pod.hostname == name), None) or \
            next((pod for pod in self.pods() if pod.name.startswith(name)), None)

    def controller(self, kind, name):
        return next((c for (of_kind, _), c in self._controllers.items() if (of_kind, c.name) == (kind, name)), None)

    def delete_pod(self, name, grace=None):
        """As `kubectl delete pod`; returns the old pod once it has ended."""
        return self._end_pod(name, grace)

    def evict_pod(self, name):
        """As `kubectl drain` or a preemption."""
        return self._end_pod(name, is_disrupted=True)

    def lose_pod(self, name):
        """As the loss of its node."""
        return self._end_pod(name, 0, is_disrupted=True)

    def _end_pod(self, name, grace=None, is_disrupted=False):
        pod = self.pod(name)
        pod.stop(grace, is_disrupted)
        pod.join()
        return pod

    def secret(self, name):
        data = self.api.get("Secret", name).get("data", {})
        return {key: base64.b64decode(text).decode() for key, text in data.items()}

    def add_secret(self, name, **texts):
        self.create([{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": "Opaque", "data": {
            key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}}])

    def claim(self, name):
        with self._lock:
            if name not in self._claims:
                self._claims[name] = self.folder / "claims" / name
                self._claims[name].mkdir(parents=True)
            return self._claims[name]

    def _endpoints(self, service, port_name):
        selector = service["spec"]["selector"]
        return [(pod.address, port["containerPort"]) for pod in self.pods()
                if pod.is_ready and selector.items() <= pod.labels.items()
                for container in pod.spec["containers"] for port in container["ports"] if port["name"] == port_name]

    def _proxy(self, name):
        if name not in self._proxies:
            service = self.api.get("Service", name)
            port = service["spec"]["ports"][0]
            self._proxies[name] = ServiceProxy(self, "client", port["port"],
                                               lambda: self._endpoints(service, port["targetPort"]))
        return self._proxies[name]

    def service_url(self, name):
        return f"http://{self.hosts.address('client')}:{self._proxy(name).port}"

    def service_links(self):
        """Variables with the addresses of Services, as every container has them that does not refuse them."""
        links = {}
        for service in self.api.list("Service"):
            if service["spec"].get("clusterIP") != "None":
                name = service["metadata"]["name"]
                prefix = name.upper().replace("-", "_")
                links[f"{prefix}_SERVICE_HOST"] = self.hosts.address("client")
                links[f"{prefix}_SERVICE_PORT"] = str(self._proxy(name).port)
        return links

    def _write_hosts(self):
        """In place, because pods have this very file mounted."""
        headless = {s["metadata"]["name"]: s["spec"].get("publishNotReadyAddresses", False)
                    for s in self.api.list("Service")}
        lines = ["127.0.0.1 localhost", *(f"{self.hosts.address('client')} {name}" for name in self._proxies)]
        for pod in self.pods():
            names = [pod.hostname]
            if pod.subdomain and (pod.is_ready or headless.get(pod.subdomain, True)):
                domain = f"{pod.hostname}.{pod.subdomain}"
                names += [domain, f"{domain}.{NAMESPACE}", f"{domain}.{NAMESPACE}.svc"]
            lines.append(f"{pod.address} {' '.join(names)}")
        text = "\n".join(lines) + "\n"
        if not self.hosts_file.exists() or self.hosts_file.read_text() != text:
            with open(self.hosts_file, "w", encoding="utf-8") as file:
                file.write(text)

    def wait(self, condition, what, timeout=PATIENCE_SECONDS):
        deadline = time.monotonic() + timeout
        while not (found := condition()):
            if self._failure:
                raise self._failure
            assert time.monotonic() < deadline, f"waited {timeout} s for {what}\n{self.logs()}"
            time.sleep(0.05)
        return found

    def logs(self, size=3000):
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-size:]}"
                         for path in sorted((self.folder / "logs").glob("*.log")))

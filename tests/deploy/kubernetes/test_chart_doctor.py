"""The init container `doctor`: which pods have it, and what its command says of a program that cannot start."""

import os
import subprocess

import pytest
import yaml
from support.helm import CASES, find, render
from support.kube_schemas import pod_templates
from support.lathe_server import BIN, tiny_model

SAME = ("image", "imagePullPolicy", "env", "envFrom", "resources", "securityContext", "volumeMounts")
ROLES = {"engine": "engine", "worker": "ranks", "up": "up"}
GOOD = "store.existingSecret=database"


def pods(objects):
    """(component, kind of the owner, spec) of the pods of engines, gateways and workers."""
    for found in objects:
        component = found["metadata"].get("labels", {}).get("app.kubernetes.io/component")
        if component in (*ROLES, "gateway") and found["kind"] != "CronJob":
            for _, template in pod_templates(found):
                yield component, found["kind"], template["spec"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_engines_and_workers_have_a_doctor_that_sees_what_they_see(case):
    seen = set()
    for component, kind, spec in pods(render(case)):
        seen.add(component)
        doctors = spec.get("initContainers", [])
        if component == "gateway":
            assert doctors == []
            continue
        [doctor] = doctors
        [program] = spec["containers"]
        assert {key: doctor.get(key) for key in SAME} == {key: program.get(key) for key in SAME}
        script = doctor["args"][-1]
        assert f"--role {ROLES[component]} --config {program['args'][-1]} " in script
        assert ("--offline" in script) is (kind == "JobSet"), "a pod that waits for an engine would be counted"
    assert seen & set(ROLES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_without_it_pods_begin_with_their_program(case):
    assert all("initContainers" not in spec for _, _, spec in pods(render(case, "doctor.enabled=false")))


def run_doctor(folder, objects, owner, config, **changes):
    """Runs the command of a pod's doctor here, with the file of options that the chart wrote but for `changes`."""
    options = yaml.safe_load(find(objects, "ConfigMap", config)["data"]["lathe.yaml"])
    options["data"] = {"dir": str(folder / "data"), "run_dir": str(folder / "run")}
    for section, values in changes.items():
        options[section].update(values)
    file = folder / "lathe.yaml"
    file.write_text(yaml.safe_dump(options))
    [(_, template)] = pod_templates(owner)
    [doctor] = template["spec"]["initContainers"]
    words = [word.replace("/etc/lathe/config/lathe.yaml", str(file)) for word in doctor["args"]]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})


@pytest.mark.parametrize("model", ["/no/such/model", None], ids=["missing", "there"])
def test_a_worker_without_its_model_does_not_start(tmp_path, model):
    objects = render("ci/full.yaml", "doctor.wait=0s")
    secret = tmp_path / "secret"
    secret.write_text("x" * 32)
    secret.chmod(0o644)  # and a warning
    os.chown(secret, 1, 1)
    done = run_doctor(
        tmp_path, objects, find(objects, "StatefulSet", "lathe-group-train"), "lathe-group-train",
        worker={"model": f"tiny={model or tiny_model()}"},
        ranks={"engine": [], "secret_file": str(secret), "engine_ca": "", "engine_cert": "", "engine_key": ""})
    assert "warning  files.secrets" in done.stdout
    if model:
        assert done.returncode != 0
        assert "error    model.folder         there is no folder /no/such/model" in done.stdout
        assert "fix: download the model" in done.stdout
    else:
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_engine_without_its_database_does_not_start(tmp_path):
    objects = render(None, GOOD, "doctor.wait=0s")
    url = tmp_path / "url"
    url.write_text("postgres://lathe:hidden@127.0.0.1:1/lathe")
    secret = tmp_path / "secret"
    secret.write_text("x" * 32)
    done = run_doctor(
        tmp_path, objects, find(objects, "StatefulSet", "lathe-engine"), "lathe-config",
        engine={"store_file": str(url), "worker_secret_file": str(secret), "gateway_secret_file": str(secret),
                "data_dir": str(tmp_path / "data"), "run_dir": str(tmp_path / "run"), "tls_cert": "", "tls_key": "",
                "worker_client_ca": "", "grpc_listen": "127.0.0.1:0", "worker_listen": "127.0.0.1:0"},
        metrics={"engine_listen": "127.0.0.1:0"})
    assert done.returncode != 0
    [line] = [line for line in done.stdout.splitlines() if line.startswith("error    store ")]
    assert "127.0.0.1" in line and "refused" in line
    assert "hidden" not in done.stdout + done.stderr

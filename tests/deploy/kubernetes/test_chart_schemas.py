"""Every rendered object is valid, strictly, for the oldest and the newest version of Kubernetes that the chart names.
There is no cluster here, so defaults, admission and the rules of CRDs are not tested."""

import copy

import pytest
import yaml
from support.helm import CASES, CHART, render
from support.kube_schemas import problems
from support.lathe_server import ROOT

VERSIONS = ("1.29", "1.37")
MANIFESTS = sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml"))
# Fields that a version does not have yet, by the values that use them.
NEWER = {("ci/jobset.yaml", "1.29"): "image"}


def documents(path):
    return [found for found in yaml.safe_load_all(path.read_text()) if found]


def all_problems(objects, version, ignored=None):
    return [f"{o['kind']} {o['metadata']['name']}: {problem}" for o in objects
            for problem in problems(o, version) if ignored is None or f"'{ignored}' was unexpected" not in problem]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_rendered_objects_are_valid(case, version):
    ignored = NEWER.get((f"ci/{case.name}", version))
    assert all_problems(render(case), version, ignored) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_manifests_are_valid(path, version):
    assert all_problems(documents(path), version) == []


def test_the_oldest_version_is_the_one_that_the_chart_names():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["kubeVersion"].startswith(f">={VERSIONS[0]}.")


def spec_fields(value, path=()):
    """Paths of the fields below `spec` whose names Kubernetes decides."""
    free = {"labels", "annotations", "matchLabels", "limits", "requests", "nodeSelector", "data", "capabilities"}
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            if key not in free:
                yield from spec_fields(inner, (*path, key))
    elif isinstance(value, list) and value:
        yield from spec_fields(value[0], (*path, 0))


def with_typo(found, path):
    wrong = copy.deepcopy(found)
    holder = wrong
    for step in path[:-1]:
        holder = holder[step]
    holder[f"{path[-1]}z"] = holder.pop(path[-1])
    return wrong


@pytest.mark.parametrize("case", ["ci/full.yaml", "ci/lws.yaml", "ci/jobset.yaml", "ci/off-peak.yaml"])
def test_a_typo_in_any_kind_is_found(case):
    """The check of the check: a letter more in one field of each level."""
    seen, missed = set(), []
    for found in render(case):
        for path in spec_fields(found.get("spec", {}), ("spec",)):
            shape = (found["kind"], path)
            # Keys of labels are free.
            if shape in seen or isinstance(path[-1], int) or "/" in path[-1]:
                continue
            seen.add(shape)
            if not problems(with_typo(found, path), "1.37"):
                missed.append(shape)
    assert len(seen) > 100
    assert missed == []

"""Wrong values are refused before anything reaches the cluster, and the message names them."""

import os
import re

import pytest
import yaml
from support.deploy_packages import slow_deploy
from support.helm import CASES, CHART, find, find_kind, helm, refusal, render, run, template
from support.lathe_server import BIN

GOOD = "store.existingSecret=database"
# These start five programs for each file that the chart writes. tools/check deploy takes all cases.
PROGRAM_CASES = ("full", "jobset", "sqlite")
WRONG_VALUES = [
    ("gateway.replicaz=2", "additional properties 'replicaz' not allowed"),
    ("engine.replicas=two", "at '/engine/replicas': got string, want integer"),
    ("groupDefaults.kind=DaemonSet", "at '/groupDefaults/kind'"),
    ("config.engine.store=postgres://lathe:secret@db/lathe", "at '/config/engine/store'"),
    ("config.up.store=postgres://lathe:secret@db/lathe", "at '/config/up/store'"),
    ("config.engin.lease=4s", "additional properties 'engin' not allowed"),
    ("config.engine.run_dir=/tmp", "config.engine.run_dir: the chart sets this option itself"),
    ("config.gateway.listen=0.0.0.0:1", "config.gateway.listen: the chart sets this option itself"),
    ("image.tag=latest", "at '/image/tag'"),
    ("kubectlImage=registry.k8s.io/kubectl:latest", "at '/kubectlImage'"),
    ("tls.mode=self-signed", "at '/tls/mode'"),
    ("tls.mode=existing", "at '/tls/engineSecret'"),
    ("storage.kind=nfs", "at '/storage/kind'"),
    ("storage.kind=s3", "config.storage.files has to name the bucket"),
    ("gateway.ingress.enabled=true", "at '/gateway/ingress/host'"),
    ("groups[0].name=Big", "at '/groups/0/name'"),
    ("groups[0].config.worker.tp=2", "missing property 'model'"),
    ("gateway.service.port=0", "at '/gateway/service/port'"),
    ("engine.resources.limits=null", "at '/engine/resources'"),
    ("config.tracing.headers=authorization=secret", "at '/config/tracing/headers'"),
    ("config.tracing.headers_file=/h",
     "config.tracing.headers_file: the chart sets this option itself; give tracing.headersSecret"),
]
WRONG_GROUPS = [
    ({"config": {"worker": {"model": "/m", "tp": 4}, "ranks": {"ranks_per_pod": 3}}},
     "a has 4 ranks (dp x fsdp x tp), which ranks.ranks_per_pod 3 does not divide"),
    ({"config": {"worker": {"model": "/m", "tp": 4}}}, "a is a StatefulSet and needs 4 pods"),
    ({"config": {"worker": {"model": "/m", "rank": 0}}},
     "groups[a].config.worker.rank: the chart sets this option itself"),
    ({"config": {"worker": {"model": "/m", "threads": 2}}},
     "groups[a].config.worker.threads: the chart sets this option itself; give ranks.threads"),
    ({"config": {"worker": {"model": "/m"}}, "kind": "JobSet",
      "schedule": {"start": "0 20 * * *", "stop": "0 6 * * *"}}, "a is a JobSet, which has no schedule"),
]


@pytest.mark.parametrize("value, complaint", WRONG_VALUES, ids=[value for value, _ in WRONG_VALUES])
def test_a_wrong_value_is_named(value, complaint):
    assert complaint in refusal(None, GOOD, value)


@pytest.mark.parametrize("group, complaint", WRONG_GROUPS, ids=[words for _, words in WRONG_GROUPS])
def test_a_wrong_group_is_named(group, complaint, tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "a", **group}]}))
    assert complaint in refusal(None, GOOD, files=[file])


def test_two_groups_of_one_name_are_refused(tmp_path):
    group = {"name": "a", "config": {"worker": {"model": "/m"}}}
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"groups": [group, group]}))
    assert "groups: two are called a" in refusal(None, GOOD, files=[file])


def test_a_database_must_be_named():
    assert "store.existingSecret" in refusal(None)


def test_an_operator_that_is_missing_is_named():
    assert "install the Prometheus operator first" in refusal(
        None, GOOD, "monitoring.podMonitor=true", operators=())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_helm_lint_has_no_complaint(case):
    assert "[ERROR]" not in run(helm(), "lint", "--strict", CHART, "--values", case).stdout


@pytest.mark.parametrize("case", [case if case.stem in PROGRAM_CASES else pytest.param(case, marks=slow_deploy)
                                  for case in CASES], ids=lambda case: case.stem)
def test_the_programs_know_every_option_of_the_file_that_the_chart_writes(case, tmp_path):
    """Files of secrets exist only in the cluster; another file stands for them here."""
    secret = tmp_path / "secret"
    secret.write_text("postgres://lathe@database/lathe?and=more-than-32-characters")
    headers = tmp_path / "headers"
    headers.write_text("authorization=Bearer x")
    configs = [o for o in render(case) if o["kind"] == "ConfigMap" and "lathe.yaml" in o["data"]]
    assert configs
    for config in configs:
        options = yaml.safe_load(config["data"]["lathe.yaml"])
        for section, key in [("engine", "store_file"), ("engine", "worker_secret_file"),
                             ("engine", "gateway_secret_file")]:
            if key in options.get(section, {}):
                options[section][key] = str(secret)
        if "headers_file" in options.get("tracing", {}):
            options["tracing"]["headers_file"] = str(headers)
        given = {f"{section}.{key}" for section, keys in options.items() for key in keys}
        file = tmp_path / "lathe.yaml"
        file.write_text(yaml.safe_dump(options))
        known = set()
        for program in ("lathe-engine", "lathe-gateway", "lathe-worker", ("lathe", "ranks"), ("lathe", "up")):
            words = program if isinstance(program, tuple) else (program,)
            shown = run(BIN / words[0], *words[1:], "--show-config", "--config", file)
            known |= {line.partition(" = ")[0] for line in shown.stdout.splitlines()}
        assert given <= known


def test_options_of_a_group_win_over_those_of_all(tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({
        "config": {"worker": {"numerics": "exact", "sampling_share": 0.3}},
        "groups": [{"name": "a", "config": {"worker": {"model": "/m", "sampling_share": 0.6}}}]}))
    config = find(render(None, GOOD, files=[file]), "ConfigMap", "lathe-group-a")
    worker = yaml.safe_load(config["data"]["lathe.yaml"])["worker"]
    assert worker == {"model": "/m", "numerics": "exact", "sampling_share": 0.6}


def test_options_of_engines_and_gateways_leave_groups_alone():
    """Another configuration is another pod: a group of JobSets would lose its models' memory."""
    def groups(*values):
        return [o for o in render("ci/jobset.yaml", *values)
                if "group-" in o["metadata"]["name"] and o["kind"] in ("ConfigMap", "JobSet")]

    before = groups()
    assert {o["kind"] for o in before} == {"ConfigMap", "JobSet"}
    for value in ("config.tracing.sample_ratio=0.5", "config.metrics.key_file=/k", "config.engine.lease=4s"):
        assert groups(value) == before, value
    assert groups("config.log.level=debug") != before


def config_check(tmp_path, *values, files=()):
    """Runs the command of the Job before an installation on its files."""
    objects = render(None, GOOD, *values, files=files)
    job = find(objects, "Job", "lathe-config-check")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    for name, text in find(objects, "ConfigMap", "lathe-config-check")["data"].items():
        (tmp_path / name).write_text(text)
    words = job["spec"]["template"]["spec"]["containers"][0]["args"]
    return run(*(word.replace("/etc/lathe/config", str(tmp_path)) for word in words), check=False,
               env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})


GROUP = ("groups[0].name=mine", "groups[0].config.worker.model=/m")


@pytest.mark.parametrize("values, complaint", [
    (["config.log.levle=debug"], "config.yaml is refused by lathe-engine"),
    ([*GROUP, "groups[0].config.worker.numerics=rough"], "group-mine.yaml is refused by lathe-worker"),
    ([*GROUP, "groups[0].config.ranks.thread=1"], "group-mine.yaml is refused by lathe ranks"),
], ids=["of-all", "of-a-group", "of-its-pods"])
def test_what_the_user_wrote_is_checked_before_the_installation(values, complaint, tmp_path):
    done = config_check(tmp_path, *values)
    assert done.returncode == 78 and complaint in done.stderr, done.stderr


def test_good_options_of_all_and_of_a_group_pass_the_check(tmp_path):
    done = config_check(tmp_path, "config.log.level=debug")
    assert done.returncode == 0, done.stderr
    assert {"config.yaml", "group-default.yaml"} == {file.name for file in tmp_path.iterdir()}


LONG = "lathe-of-a-team-with-a-long-name"
NAMES = [
    # Kind, replicas, release, name of the group, complaint.
    ("StatefulSet", 1, LONG, "a" * 13, None),
    ("StatefulSet", 1, LONG, "a" * 14, f"the StatefulSet {LONG}-group-{'a' * 14} would have 53 characters, at most 52"),
    ("LeaderWorkerSet", 1, LONG, "a" * 11, None),
    ("LeaderWorkerSet", 11, LONG, "a" * 11, f"the LeaderWorkerSet {LONG}-group-{'a' * 11} would have 50 characters, at most 49"),
    ("JobSet", 1, "lathe", "a" * 20, None),
    ("JobSet", 1, LONG, "a" * 11, "would have 59 characters, at most 47"),
]


@pytest.mark.parametrize("kind, replicas, release, name, complaint", NAMES)
def test_names_that_a_controller_would_make_too_long_are_refused(kind, replicas, release, name, complaint, tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": name, "kind": kind, "replicas": replicas, "config": {
        "worker": {"model": "/m"}}}]}))
    if complaint is None:
        found = find_kind(render(None, GOOD, files=[file], release=release), kind)
        assert found["metadata"]["name"].startswith(f"{release}-group-{name}")
    else:
        assert f"groups: {name}: " in refusal(None, GOOD, files=[file], release=release)
        assert complaint in refusal(None, GOOD, files=[file], release=release)


def test_a_cron_job_with_a_name_that_is_too_long_is_refused(tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "a" * 13, "config": {"worker": {"model": "/m"}}, "schedule": {
        "start": "0 20 * * *", "stop": "0 6 * * *"}}]}))
    assert f"the CronJob {LONG}-group-{'a' * 13}-start would have 58 characters, at most 52" in refusal(
        None, GOOD, files=[file], release=LONG)


def test_labels_of_a_group_are_on_its_pods():
    template = find_kind(render("ci/jobset.yaml"), "JobSet")["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert template["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "training"
    assert "kueue.x-k8s.io/queue-name" not in template["metadata"]["annotations"]


def test_notes_say_how_to_make_a_key():
    text = run(helm(), "install", "lathe", CHART, "--dry-run=client", "--set", GOOD).stdout
    assert "lathe-engine-$engine -- lathe keys create --tenant me" in text
    assert "for engine in 0 1; do" in text


def test_notes_say_when_gateways_cannot_read_the_object_store():
    """Earlier charts gave them the keys of engines."""
    warning = "WARNING: gateways have no access to the object store"

    def notes(*values):
        return run(helm(), "install", "lathe", CHART, "--dry-run=client", "--set", GOOD, "--values", CHART / "ci/s3.yaml",
                   *(word for value in values for word in ("--set", value))).stdout

    assert warning in notes("gateway.s3CredentialsSecret=")
    for value in ("gateway.s3CredentialsSecret=reads", "gateway.serviceAccount.name=mine"):
        assert warning not in notes("gateway.s3CredentialsSecret=", value)
    assert warning not in run(helm(), "install", "lathe", CHART, "--dry-run=client", "--set", GOOD).stdout


def test_the_release_is_that_of_the_programs():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = run(BIN / "lathe", "version").stdout
    assert re.search(rf"\b{re.escape(chart['appVersion'])}\b", version)
    assert chart["version"] == chart["appVersion"]


def test_the_same_values_render_the_same_objects_but_for_new_secrets():
    def calm():
        text = run(helm(), *template("ci/lws.yaml")).stdout
        return [o for o in yaml.safe_load_all(text)]
    assert calm() == calm()


@slow_deploy
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_helm_3_renders_what_helm_4_does(case):
    """But for the secrets that are new each time."""
    def objects(major):
        text = run(helm(major), *template(case)).stdout
        return {(o["kind"], o["metadata"]["name"]): o["spec"] if "spec" in o else o.get("data")
                for o in yaml.safe_load_all(text) if o and o["kind"] != "Secret"}
    assert objects(3) == objects(4)


@slow_deploy
@pytest.mark.parametrize("value, _", WRONG_VALUES, ids=[value for value, _ in WRONG_VALUES])
def test_helm_3_refuses_the_same_values(value, _):
    done = run(helm(3), *template(None, GOOD, value), check=False)
    section = value.partition(".")[0].partition("[")[0].partition("=")[0]
    assert done.returncode != 0 and section in done.stderr

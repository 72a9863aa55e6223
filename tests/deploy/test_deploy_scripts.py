"""Scripts that packages and Compose files bring, without containers."""

import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from support.lathe_server import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from packaging_steps import deb  # noqa: E402

COMPOSE = ROOT / "deploy/compose"
UNITS = {"lathe": "lathe.service lathe-engine.service lathe-gateway.service",
         "lathe-worker-cpu": "'lathe-worker@*.service'"}


@pytest.fixture
def root(tmp_path):
    """A file system with what an administrator has added to both packages."""
    wants = tmp_path / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir(parents=True)
    for unit in ("lathe.service", "lathe-gateway.service", "lathe-worker@0-3.service",
                 "lathe-other.service"):
        (wants / unit).symlink_to(f"/usr/lib/systemd/system/{unit}")
    (tmp_path / "etc/lathe").mkdir()
    for name in ("lathe.yaml", "environment"):
        (tmp_path / "etc/lathe" / name).touch()
    (tmp_path / "var/lib/lathe").mkdir(parents=True)
    (tmp_path / "var/lib/lathe/lathe.db").touch()
    return tmp_path


def run_postrm(name, root, action):
    subprocess.run(["sh", "-s", action], input=deb.postrm(name, UNITS[name]), text=True, check=True,
                   env={**os.environ, "DPKG_ROOT": str(root)})
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def test_a_purge_takes_secrets_and_enabled_units_and_leaves_the_data(root):
    wants = "etc/systemd/system/multi-user.target.wants"
    assert len(run_postrm("lathe", root, "remove")) == 7
    assert run_postrm("lathe-worker-cpu", root, "purge") == {
        f"{wants}/lathe.service", f"{wants}/lathe-gateway.service", f"{wants}/lathe-other.service",
        "etc/lathe/lathe.yaml", "etc/lathe/environment", "var/lib/lathe/lathe.db"}
    assert run_postrm("lathe", root, "purge") == {
        f"{wants}/lathe-other.service", "var/lib/lathe/lathe.db"}
    assert not (root / "etc/lathe").exists()


def test_a_purge_leaves_certificates_of_the_administrator(root):
    (root / "etc/lathe/tls.crt").touch()
    assert "etc/lathe/tls.crt" in run_postrm("lathe", root, "purge")


# The keys are engines, the values the words and the exit code of `lathe` there.
STANDBY = ("lathe: not_leader: another engine leads", 69)
AWAY = ("lathe: not_running: no engine answers", 69)


@pytest.mark.parametrize("engine_a, engine_b, code, stdout, stderr", [
    (("made", 0), STANDBY, 0, "made\n", ""),
    (STANDBY, ("made", 0), 0, "made\n", ""),
    (("lathe: not_found: no key k1", 2), STANDBY, 1, "", "lathe: not_found: no key k1\n"),
    (STANDBY, ("lathe: not_found: no key k1", 2), 1, "", "lathe: not_found: no key k1\n"),
    (AWAY, STANDBY, 1, "", AWAY[0] + "\n"),
    (STANDBY, STANDBY, 1, "", STANDBY[0] + "\n"),
])
def test_the_command_of_compose_prints_why_the_leader_refuses(tmp_path, engine_a, engine_b, code, stdout,
                                                             stderr):
    answers = "\n".join(f"  *engine-{name}) echo '{text}'; exit {status} ;;"
                        for name, (text, status) in (("a", engine_a), ("b", engine_b)))
    program = tmp_path / "lathe"
    program.write_text(f'#!/bin/sh\ncase "$*" in\n{answers}\nesac\n')
    program.chmod(0o755)
    done = subprocess.run(["sh", COMPOSE / "init.sh", "lathe", "keys", "list"], capture_output=True,
                          text=True, check=False,
                          env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert (done.returncode, done.stdout, done.stderr) == (code, stdout, stderr)


def test_prometheus_of_compose_loads_the_alert_rules():
    volumes = yaml.safe_load((COMPOSE / "docker-compose.yml").read_text())["services"]["prometheus"]["volumes"]
    mounts = {target: source for source, target in
              (volume.split(":")[:2] for volume in volumes if volume.startswith("."))}
    config = mounts["/etc/prometheus/prometheus.yml"]
    rules = yaml.safe_load((COMPOSE / config).read_text())["rule_files"]
    assert rules
    for rule in rules:
        path = pathlib.Path(COMPOSE, mounts[rule]).resolve()
        assert path == ROOT / "deploy/monitoring/alerts.yml" and path.exists()


def cron_job():
    """The shell and the script of the CronJob, as arguments."""
    manifest = yaml.safe_load((ROOT / "deploy/kubernetes/backup-cronjob.yaml").read_text())
    job = manifest["spec"]["jobTemplate"]["spec"]
    assert job["backoffLimit"] == 0, "a second try would make a second backup of the night"
    container, = job["template"]["spec"]["containers"]
    return [*container["command"], container["args"][0]]


def nightly_script():
    """The script of docs/deploy/backup.md for cron and systemd, as arguments."""
    text = (ROOT / "docs/deploy/backup.md").read_text()
    return ["/bin/sh", "-c", "#!/bin/sh" + text.partition("```\n#!/bin/sh")[2].partition("```")[0]]


@pytest.mark.parametrize("script", [cron_job, nightly_script])
@pytest.mark.parametrize("code, exit_code, left", [(0, 0, 14), (1, 1, 22), (74, 74, 22)])
def test_a_nightly_backup_keeps_the_newest_and_removes_none_after_damage_or_a_failure(
        tmp_path, script, code, exit_code, left):
    folder = tmp_path / "backup"
    for day in range(10, 30):
        (folder / f"lathe-2020-01-{day}").mkdir(parents=True)
        (folder / f"lathe-2020-01-{day}/backup.json").touch()
    killed = folder / "lathe-2020-02-01"
    killed.mkdir()
    program = tmp_path / "lathe"
    program.write_text('#!/bin/sh\n[ "$1 $4" = "backup --out" ] && mkdir "$5" || exit 99\n'
                       f'[ {code} -gt 1 ] || touch "$5/backup.json"\nexit {code}\n')
    program.chmod(0o755)
    *shell, text = script()
    done = subprocess.run([*shell, text.replace("/backup/lathe", f"{folder}/lathe")], check=False,
                          capture_output=True, text=True,
                          env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert done.returncode == exit_code, done.stderr
    assert ("WARNING" in done.stderr) == (code == 1)
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == left and names[-1] > "lathe-2020-02-01", names
    assert "lathe-2020-01-29" in names and killed.exists() == (code != 0)

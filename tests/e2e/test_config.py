"""One file configures all programs, and `lathe config check` says whether they accept it."""

import os
import subprocess

import pytest
from support.lathe_server import BIN

PROGRAMS = [("lathe-engine",), ("lathe-gateway",), ("lathe-worker",), ("lathe", "up"),
            ("lathe", "ranks"), ("lathe", "status"), ("lathe", "move"), ("lathe", "export"),
            ("lathe", "probe"), ("lathe", "drain"), ("lathe", "selftest"),
            ("lathe", "certs", "init"), ("lathe", "secrets", "init"),
            ("lathe", "tenants", "set-quota"), ("lathe", "runs"), ("lathe", "logs"), ("lathe", "top")]


def run(*arguments, **environment):
    return subprocess.run([str(BIN / arguments[0]), *map(str, arguments[1:])], text=True,
                          capture_output=True, check=False, env={**os.environ, **environment})


def options_of(program):
    """Key and default of each option of a program."""
    shown = run(*program, "--show-config")
    assert shown.returncode == 0, shown.stderr
    lines = [line.rsplit("  # ", 1)[0].split(" = ", 1) for line in shown.stdout.splitlines()]
    return {key: value for key, value in lines}


def write(path, options):
    sections = {}
    for key, value in options.items():
        section, name = key.split(".", 1)
        sections.setdefault(section, {})[name] = value
    lines = []
    for section, entries in sections.items():
        lines.append(f"{section}:")
        lines += [f"  {name}: \"{value}\"" for name, value in entries.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_file_may_set_every_option_of_every_program(tmp_path):
    options = {}
    for program in PROGRAMS:
        options |= {key: value for key, value in options_of(program).items()
                    if value not in ("", "[]")}
    assert {key.split(".")[0] for key in options} >= {"engine", "gateway", "worker", "log", "up"}
    answer = run("lathe", "config", "check", write(tmp_path / "all.yaml", options))
    assert answer.returncode == 0, answer.stderr
    assert "is valid for lathe-engine, lathe-gateway, lathe-worker, lathe up" in answer.stdout


@pytest.mark.parametrize("key, value, program, message", [
    ("engine.snapshot_share", "2", "lathe-engine", "snapshot_share is 2"),
    ("engine.log_level", "info", "lathe-engine", "unknown key 'engine.log_level'"),
    ("gateway.threads", "65", "lathe-gateway", "threads is 65, allowed are 1 to 64"),
    ("gateway.drain_timeout", "-1s", "lathe-gateway", "drain_timeout is -1s, minimum is 0s"),
    ("worker.memory_fraction", "2", "lathe-worker", "memory_fraction is 2"),
    ("log.level", "shout", "lathe-engine, lathe-gateway, lathe-worker",
     "log.level is 'shout', expected one of debug, info, warn, error"),
    ("up.listn", "x", "lathe up", "unknown key 'up.listn'"),
    ("gatewy.threads", "2", "lathe-engine", "unknown key 'gatewy.threads'"),
])
def test_each_program_names_what_it_refuses(key, value, program, message, tmp_path):
    answer = run("lathe", "config", "check", write(tmp_path / "bad.yaml", {key: value}))
    assert answer.returncode == 78
    assert message in answer.stderr
    assert f"is refused by {program}" in answer.stderr


def test_a_check_without_a_file_explains_itself():
    assert run("lathe", "config").returncode == 2
    assert "FILE" in run("lathe", "config", "check").stderr


@pytest.mark.parametrize("program", ["lathe-engine", "lathe-gateway", "lathe-worker"])
def test_the_log_level_has_one_name(program):
    shown = run(program, "--show-config", LATHE_LOG__LEVEL="debug")
    assert "log.level = debug  # LATHE_LOG__LEVEL" in shown.stdout
    refused = run(program, "--log-level", "shout")
    assert refused.returncode == 2
    assert "expected one of debug, info, warn, error" in refused.stderr

"""`lathe up` with several base models over fake services: what each worker gets, and every named error."""

import json
import os
import shutil
import signal

import pytest
from support.waiting import wait_until

CONFIG = """\
up:
  model: [first={first}, second={second}]
  threads: [3, 1]
  memory_share: [0.75, 0.25]
"""


@pytest.fixture
def other(bench):
    """The folder of a second model."""
    return shutil.copytree(bench.model, bench.folder / "other")


def flags_of(bench, group, rank=""):
    seen = json.loads((bench.data_dir / f"worker_arguments{rank}-{group}.json").read_text())
    return dict(zip(seen["arguments"][::2], seen["arguments"][1::2]))


def test_every_model_gets_a_group_and_an_equal_share(bench, other):
    up = bench.up("--model", f"second={other}", "--device", "cpu")
    up.wait_for("next ")
    assert sorted(up.pids()) == ["engine", "gateway", "up", "worker-second", "worker-tiny"]
    flags = {group: flags_of(bench, group) for group in ("tiny", "second")}
    assert {group: one["--model"] for group, one in flags.items()} == {
        "tiny": f"tiny={bench.model}", "second": f"second={other}"}
    assert {one["--threads"] for one in flags.values()} == {str(max(1, os.cpu_count() // 2))}
    assert len({one["--host-memory-mib"] for one in flags.values()}) == 1
    assert up.output().count("\nmodel ") == 2


def test_the_parts_come_from_a_file(bench, other):
    config = bench.folder / "lathe.yaml"
    config.write_text(CONFIG.format(first=bench.model, second=other))
    up = bench.up_with("--config", config, "--tp", "2", "--tp", "1", "--device", "cpu")
    up.wait_for("next ")
    assert sorted(up.pids()) == ["engine", "gateway", "up", "worker-second", "worker0-first",
                                 "worker1-first"]
    first, second = flags_of(bench, "first"), flags_of(bench, "second")
    assert (first["--threads"], first["--tp"]) == ("3", "2")
    assert (second["--threads"], second["--tp"]) == ("1", "1")
    assert flags_of(bench, "first", rank="1")["--rank"] == "1"
    assert int(first["--host-memory-mib"]) // 3 == pytest.approx(int(second["--host-memory-mib"]), abs=1)


def test_a_killed_worker_of_one_model_is_started_again(bench, other):
    up = bench.up("--model", f"second={other}")
    up.wait_for("next ")
    before = up.pids()
    os.kill(before["worker-second"], signal.SIGKILL)
    wait_until(lambda: up.pids()["worker-second"] != before["worker-second"], "a new worker")
    assert up.pids()["worker-tiny"] == before["worker-tiny"]
    assert up.stop() == 0


def test_a_model_that_cannot_start_does_not_keep_the_others_from_it(bench, other):
    bench.steer("fake_worker_exit-second", "config.json: rope_scaling is not supported")
    up = bench.up("--model", f"second={other}")
    up.wait_for("next ")
    assert "failed   second is not served: worker-second ended with exit code 78" in up.output()
    assert "rope_scaling is not supported" in up.output()
    assert "warning  second is not served yet" in up.output()
    (bench.data_dir / "fake_worker_exit-second").unlink()
    up.wait_for("model    second is served now")
    assert up.stop() == 0


def test_the_start_fails_when_no_model_is_left(bench, other):
    bench.steer("fake_worker_exit-second", "second is bad")
    bench.steer("fake_worker_exit-tiny", "tiny is bad")
    result = bench.run_up("--model", f"second={other}")
    assert result.returncode == 78
    assert "is bad" in result.stdout and "is bad" in result.stderr


def test_names_and_folders_that_are_not_distinct_are_refused(bench, other):
    for arguments, message in (
            (["--model", f"tiny={other}"],
             f"bad_model_name: model has the name 'tiny' twice, for {bench.model} and {other}"),
            (["--model", f"second={bench.model}"],
             f"bad_model_name: model has two names for {bench.model}, 'tiny' and 'second'"),
            (["--model", "second="],
             "model_missing: model is 'second=', expected [NAME=]PATH")):
        refused = bench.run_up(*arguments)
        assert refused.returncode == 78
        assert message in refused.stderr


def test_wrong_divisions_are_refused(bench, other):
    for arguments, message in (
            (["--threads", "1", "--threads", "1", "--threads", "1"],
             "threads has 3 values for 2 models; expected one for all, or one for each"),
            (["--memory-share", "0.8"], "memory_share is 0.8 + 0.8 = 1.6 for 2 models, limit is 1"),
            (["--tp", "2", "--tp", "0"], "tp is 0, expected 1 to 64")):
        refused = bench.run_up("--model", f"second={other}", *arguments)
        assert refused.returncode == 2
        assert message in refused.stderr


def test_a_model_larger_than_its_share_is_refused_with_the_numbers(bench, other):
    refused = bench.run_up("--model", f"second={other}", "--device", "cpu",
                           "--memory-share", "0.9", "--memory-share", "0.0001")
    assert refused.returncode == 69
    assert "too_little_memory: the model needs about 0.5 GiB" in refused.stderr
    assert "memory_share of second is 0.0001 of" in refused.stderr

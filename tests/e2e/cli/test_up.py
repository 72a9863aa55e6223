"""`lathe up` and its siblings over fake services: start, restart, stop, and every named error."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import urllib.request

from fake_lathe import is_alive
from support.lathe_server import ROOT
from support.waiting import wait_until


def test_up_starts_all_three_and_says_how_to_go_on(bench):
    up = bench.up()
    up.wait_for("next ")
    url = re.search(r"ready +API (http://127\.0\.0\.1:\d+)", up.output()).group(1)
    assert urllib.request.urlopen(url).status == 200
    key_file = bench.data_dir / "admin.key"
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert bench.data_dir.stat().st_mode & 0o777 == 0o700
    assert f"export TINKER_BASE_URL={url} TINKER_API_KEY=$(cat {key_file})" in up.output()
    pids = up.pids()
    assert sorted(pids) == ["engine", "gateway", "up", "worker"]
    assert pids["up"] == up.process.pid
    assert all(is_alive(pid) for pid in pids.values())


def test_the_worker_gets_its_flags(bench):
    up = bench.up("--threads", "3", "--device", "cpu", model=f"Org/tiny={bench.model}")
    up.wait_for("next ")
    seen = json.loads((bench.data_dir / "worker_arguments.json").read_text())
    flags = dict(zip(seen["arguments"][::2], seen["arguments"][1::2]))
    assert flags == {
        "--engine": f"unix:{bench.data_dir}/run/worker.sock", "--group": "default",
        "--model": f"Org/tiny={bench.model}", "--rank": "0", "--dp": "1", "--fsdp": "1",
        "--tp": "1", "--device": "cpu",
        "--threads": "3", "--supervised": "true", "--data-dir": str(bench.data_dir)}
    assert seen["wait_policy"] == "passive"


def test_every_rank_gets_its_place_and_its_page(bench, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    up = bench.up("--tp", "2", "--threads", "1", "--metrics-listen", "127.0.0.1:0")
    up.wait_for("next ")
    assert sorted(up.pids()) == ["engine", "gateway", "up", "worker0", "worker1"]
    seen = [json.loads((bench.data_dir / f"worker_arguments{rank}.json").read_text())
            for rank in ("", "1")]
    ports = []
    for rank, of_rank in enumerate(seen):
        flags = dict(zip(of_rank["arguments"][::2], of_rank["arguments"][1::2]))
        assert (flags["--tp"], flags["--dp"], flags["--rank"]) == ("2", "1", str(rank))
        assert of_rank["devices"] == ["4", "6"][rank]
        ports.append(flags["--metrics-listen"])
        assert f"worker{rank} http://{ports[-1]}/metrics" in up.output()
    assert ports[0] != ports[1]


def test_every_group_gets_its_name_role_and_share(bench, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6,7,8")
    up = bench.up("--tp", "2", "--role", "train", "--role", "sample", "--metrics-listen", "127.0.0.1:0")
    up.wait_for("next ")
    assert sorted(up.pids()) == ["engine", "gateway", "up", "worker0-default", "worker0-group2",
                                 "worker1-default", "worker1-group2"]
    pages, memory = set(), set()
    for place, (group, rank) in enumerate([("default", 0), ("default", 1), ("group2", 0), ("group2", 1)]):
        name = f"worker_arguments{rank or ''}{'' if group == 'default' else '-' + group}.json"
        of_rank = json.loads((bench.data_dir / name).read_text())
        flags = dict(zip(of_rank["arguments"][::2], of_rank["arguments"][1::2]))
        assert flags["--group"] == group
        assert flags["--rank"] == str(rank)
        assert flags["--role"] == {"default": "train", "group2": "sample"}[group]
        assert flags["--threads"] == str(max(1, os.cpu_count() // 4))
        assert of_rank["devices"] == str([4, 6, 7, 8][place])
        assert f"worker{rank}-{group} http://{flags['--metrics-listen']}/metrics" in up.output()
        pages.add(flags["--metrics-listen"])
        memory.add(int(flags["--host-memory-mib"]))
    assert len(pages) == 4
    total_mib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    assert len(memory) == 1 and 0 < memory.pop() <= total_mib // 2


def test_a_killed_worker_of_one_group_is_started_again(bench):
    up = bench.up("--groups", "2")
    up.wait_for("next ")
    before = up.pids()
    os.kill(before["worker-group2"], signal.SIGKILL)
    wait_until(lambda: up.pids()["worker-group2"] != before["worker-group2"], "a new worker")
    assert up.pids()["worker-default"] == before["worker-default"]
    assert up.stop() == 0


def test_groups_that_are_none_are_named(bench):
    for arguments, message in ((["--groups", "2", "--role", "train"],
                                "groups is 2, with 1 roles; expected a --role for each group, or none"),
                               (["--role", "serve"], "role is 'serve', expected train, sample or both"),
                               (["--groups", "65"], "groups is 65, expected 1 to 64"),
                               (["--groups", "2", "--tp", "33"],
                                "groups x dp x fsdp x tp is 66 ranks on this machine, limit is 64")):
        refused = bench.run_up(*arguments)
        assert refused.returncode == 2
        assert message in refused.stderr


def test_more_ranks_than_gpus_are_named(bench, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,6")
    refused = bench.run_up("--tp", "3")
    assert refused.returncode == 78
    assert "device is auto: 3 ranks on this machine need a GPU each, 2 are available" in refused.stderr
    bench.up("--tp", "3", "--device", "cpu").wait_for("next ")


def test_a_mesh_that_is_none_is_named(bench):
    for arguments, message in ((["--tp", "0"], "tp is 0, expected 1 to 64"),
                               (["--dp", "16", "--fsdp", "8"],
                                "dp x fsdp x tp is 128 ranks on this machine, limit is 64")):
        refused = bench.run_up(*arguments)
        assert refused.returncode == 2
        assert message in refused.stderr


def test_pages_of_metrics_get_a_port_each(bench):
    up = bench.up("--metrics-listen", "127.0.0.1:0")
    up.wait_for("next ")
    ports = re.search(r"metrics +gateway http://127.0.0.1:(\d+)/metrics "
                      r"engine http://127.0.0.1:(\d+)/metrics "
                      r"worker http://127.0.0.1:(\d+)/metrics", up.output()).groups()
    assert len(set(ports)) == 3
    seen = json.loads((bench.data_dir / "worker_arguments.json").read_text())["arguments"]
    assert seen[seen.index("--metrics-listen") + 1] == f"127.0.0.1:{ports[2]}"


def test_pages_of_metrics_need_three_ports(bench):
    up = bench.up("--metrics-listen", "127.0.0.1:65534")
    assert up.process.wait(30) == 78
    assert "metrics_listen has port 65534, limit is 65533" in up.output()


def test_loading_progress_is_shown(bench):
    bench.steer("fake_worker_loading")
    up = bench.up()
    up.wait_for("loading 64 % of 1.2 GB")
    assert "ready " not in up.output()
    (bench.data_dir / "fake_worker_loading").unlink()
    up.wait_for("ready ")


def test_sigint_and_sigterm_drain_name_unsaved_models_and_exit_0(bench):
    for number in (signal.SIGINT, signal.SIGTERM):
        bench.steer("fake_unsaved", "run-7")
        up = bench.up()
        up.wait_for("next ")
        pids = up.pids()
        assert up.stop(number) == 0
        assert "model run-7 has steps that were not saved" in up.output()
        assert not any(is_alive(pid) for pid in pids.values())


def test_a_stop_while_loading_exits_0_without_children(bench):
    bench.steer("fake_worker_loading")
    up = bench.up()
    up.wait_for("loading 64 %")
    pids = up.pids()
    assert up.stop() == 0
    assert not any(is_alive(pid) for pid in pids.values())


def test_a_killed_child_is_started_again(bench):
    up = bench.up()
    up.wait_for("next ")
    for name in ("engine", "worker", "gateway", "engine"):
        before = up.pids()
        os.kill(before[name], signal.SIGKILL)
        wait_until(lambda: up.pids()[name] != before[name], f"a new {name}")
        after = up.pids()
        assert {k: v for k, v in after.items() if k != name} == \
            {k: v for k, v in before.items() if k != name}
        wait_until(lambda: bench.run("status", "--data-dir", bench.data_dir).returncode == 0,
                   "the engine")
    assert "died (signal 9)" in up.output()


def test_children_die_with_lathe_up(bench):
    up = bench.up()
    up.wait_for("next ")
    pids = up.pids()
    up.stop(signal.SIGKILL)
    wait_until(lambda: not any(is_alive(pid) for pid in pids.values()), "the children's end")
    bench.up().wait_for("next ")


def test_the_admin_key_is_kept_while_it_works(bench):
    keys = []
    for _ in range(2):
        up = bench.up()
        up.wait_for("next ")
        keys.append((bench.data_dir / "admin.key").read_text())
        assert up.stop() == 0
    assert keys[0] == keys[1]
    (bench.data_dir / "fake_keys" / keys[0].strip()).unlink()
    bench.up().wait_for("next ")
    assert (bench.data_dir / "admin.key").read_text() != keys[0]


def test_a_long_data_dir_has_its_sockets_elsewhere(bench):
    bench.data_dir = bench.folder / ("x" * 100)
    bench.up().wait_for("next ")
    result = bench.run("status", "--data-dir", bench.data_dir)
    assert result.returncode == 0, result.stderr
    assert not (bench.data_dir / "run" / "admin.sock").exists()
    worker = json.loads((bench.data_dir / "worker_arguments.json").read_text())["arguments"]
    run_dir = pathlib.Path(worker[worker.index("--run-dir") + 1])
    assert worker[worker.index("--engine") + 1] == f"unix:{run_dir}/worker.sock"
    assert (run_dir / "secret").exists()
    bench.started[-1].stop()
    shutil.rmtree(run_dir)


def test_a_second_up_on_the_directory_is_refused_with_the_pid(bench):
    up = bench.up()
    up.wait_for("next ")
    second = bench.run_up()
    assert second.returncode == 73
    assert f"data_dir_in_use: {bench.data_dir} is in use by process {up.process.pid}" in second.stderr


def test_a_taken_port_is_named(bench):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = bench.run("up", "--data-dir", bench.data_dir, "--model", bench.model,
                           "--listen", address)
    assert result.returncode == 69
    assert f"port_taken: {address} is in use" in result.stderr


def test_what_is_no_model_is_named(bench):
    result = bench.run_up(model=bench.folder / "missing")
    assert (result.returncode, "model_missing" in result.stderr) == (78, True)
    (bench.model / "model.safetensors").unlink()
    result = bench.run_up()
    assert (result.returncode, "not_a_model" in result.stderr) == (78, True)


def test_a_model_larger_than_memory_is_refused_with_the_numbers(bench):
    with open(bench.model / "model.safetensors", "wb") as weights:
        weights.truncate(8 << 40)
    result = bench.run_up("--device", "cpu")
    assert result.returncode == 69
    assert "too_little_memory: the model needs about 9011.7 GiB" in result.stderr


def test_a_child_that_refuses_its_configuration_ends_the_start_with_its_words(bench):
    bench.steer("fake_worker_exit", "config.json: rope_scaling is not supported")
    result = bench.run_up()
    assert result.returncode == 78
    assert "worker ended with exit code 78" in result.stderr
    assert "rope_scaling is not supported" in result.stderr
    assert str(bench.data_dir / "logs" / "worker.log") in result.stderr


def test_ranks_that_only_lose_each_other_end_the_start(bench):
    bench.steer("fake_worker_exit", "ranks cannot continue together")
    bench.steer("fake_worker_code", "76")
    result = bench.run_up("--tp", "2", "--threads", "1")
    assert result.returncode == 69
    assert "lost another rank 5 times and none of them ended for a reason of its own" in result.stderr
    assert "ranks cannot continue together" in result.stderr
    assert "has lost another rank 3 times before the ranks were ready" in result.stdout


def test_wrong_usage_exits_2(bench):
    assert bench.run("up").returncode == 2
    assert bench.run("upp").returncode == 2
    result = bench.run("up", "--modle", "x")
    assert (result.returncode, "did you mean '--model'?" in result.stderr) == (2, True)
    version = re.search(r'kVersion = "([\d.]+)"', (ROOT / "libs/common/version.h").read_text())[1]
    assert bench.run("version").stdout == f"lathe {version}\n"
    assert "lathe up" in bench.run("--help").stdout


def test_keys_are_created_listed_and_revoked(bench):
    bench.up().wait_for("next ")
    where = ("--data-dir", bench.data_dir)
    created = bench.run("keys", "create", "--tenant", "ada", *where)
    assert created.returncode == 0
    key_id = created.stdout.strip().removeprefix("tml-")
    assert key_id in bench.run("keys", "list", *where).stdout
    assert bench.run("keys", "revoke", key_id, *where).returncode == 0
    assert key_id not in bench.run("keys", "list", *where).stdout
    assert bench.run("keys", "revoke", key_id, *where).returncode == 2
    assert bench.run("keys", *where).returncode == 2


def test_without_a_running_engine_the_cli_says_so(bench):
    result = bench.run("keys", "list", "--data-dir", bench.data_dir)
    assert result.returncode == 69
    assert "not_running" in result.stderr and "lathe up" in result.stderr

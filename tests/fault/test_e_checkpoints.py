"""Rows E1 to E6, E8 and E9 of the fault table: checkpoints on disk. The damaged files of E3 and E4
other than the manifest are in services/worker/checkpoint/checkpoint_damage_test.cc."""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import threading
import time

import httpx
import pytest
from support.fail_points import listed
from support.failing_calls import failing_calls
from support.lathe_server import BIN, LatheServer, tiny_model
from support.raw_api import RawApi, RawModel
from support.small_disk import small_disk
from support.stubborn_api import Program, StubbornApi
from support.waiting import wait_until

# What lies in the store must be saves only.
OPTIONS = """
worker:
  numerics: exact
engine:
  snapshot_interval: 0s
"""
SAVE_POINTS = listed("worker.save.")
# Where the program goes on with an error; the rest can only be killed at.
ERROR_POINTS = ["worker.save.file", "worker.save.write", "worker.save.fsync",
                "worker.save.manifest", "worker.save.before_rename", "worker.save.renamed"]


@pytest.fixture(scope="module")
def api(server):
    yield (made := StubbornApi(server))
    made.close()


def save(model, name, **changes):
    """The result of a save; one that failed has "error"."""
    return model.api.result(model.api.made("save_weights", {
        "model_id": model.model_id, "seq_id": model.next_seq_id(), "path": name, **changes}))


def loaded(api, path):
    """A new model of the checkpoint, or the result that says why not."""
    session = api.new_session()
    answer = api.post("load_weights", {"session_id": session, "model_seq_id": 0, "path": path,
                                       "optimizer": True})
    if answer.status_code != 200:
        return answer.json()
    result = api.result(answer.json())
    if "error" in result:
        return result
    model = RawModel.__new__(RawModel)
    model.api, model.session_id, model.model_id = api, session, result["model_id"]
    model.seq_id = 0
    return model


def paths(api):
    return {one["tinker_path"] for one in api.get("checkpoints?limit=1000").json()["checkpoints"]}


def checkpoint_dirs(server):
    root = pathlib.Path(server.data_dir, "checkpoints")
    return {entry.name for entry in root.iterdir() if entry.name.startswith("c")}


def attempts(server):
    tmp = pathlib.Path(server.data_dir, "checkpoints", "tmp")
    return [entry for entry in tmp.iterdir() if entry.is_dir()] if tmp.exists() else []


@pytest.mark.parametrize("name", SAVE_POINTS)
def test_e1_worker_killed_in_a_save_leaves_the_old_or_a_complete_new_one(server, fail_points, api, name):
    model = RawModel(api)
    model.accumulate()
    old_path = save(model, "old")["path"]
    expected = loaded(api, old_path).loss()
    worker = server.pids()["worker"]
    fail_points.set(f"{name}=kill#{worker}")
    save(model, "new")
    assert fail_points.fired(name) >= 1
    server.wait_restarted("worker", worker)
    fail_points.clear()
    mine = {path for path in paths(api) if model.model_id in path}
    assert old_path in mine
    for path in mine:
        assert loaded(api, path).loss() == expected
    # Attempts that nobody has locked belong to nobody: the next start removes them.
    old_attempts = attempts(server)
    for attempt in old_attempts:
        os.utime(attempt, (time.time() - 7200,) * 2)
    server.wait_restarted("worker", server.kill("worker"))
    assert loaded(api, old_path).loss() == expected
    assert not set(old_attempts) & set(attempts(server))


def checkpoints_command(server, *args):
    return subprocess.run([str(BIN / "lathe"), "checkpoints", *args, "--data-dir", server.data_dir],
                          capture_output=True, text=True, timeout=60)


def test_a_checkpoint_that_the_database_does_not_know_goes_to_the_trash_and_comes_back(server, api):
    """As after a restore of a backup that is older than the checkpoint."""
    model = RawModel(api)
    before = checkpoint_dirs(server)
    path = save(model, "restored")["path"]
    (directory,) = checkpoint_dirs(server) - before
    root = pathlib.Path(server.data_dir, "checkpoints")
    unknown = "c" + "0123456789abcdef" * 2
    shutil.copytree(root / directory, root / unknown)
    server.wait_restarted("engine", server.kill("engine"))
    wait_until((root / "trash" / unknown).is_dir, "the folder in the trash")
    assert not (root / unknown).exists() and (root / directory).exists()

    listed_trash = checkpoints_command(server, "trash").stdout
    assert re.search(rf"^{unknown} .* {re.escape(path)}$", listed_trash, re.M), listed_trash
    refused = checkpoints_command(server, "adopt", unknown)
    assert refused.returncode != 0 and "exists; delete it first" in refused.stderr
    wait_until((root / "trash" / unknown).is_dir, "the folder in the trash again")
    run, name = model.model_id, "weights/restored"
    assert api.request("DELETE", f"training_runs/{run}/checkpoints/{name}").status_code == 204
    adopted = checkpoints_command(server, "adopt", unknown)
    assert (adopted.returncode, adopted.stdout.strip()) == (0, path), adopted.stderr
    assert loaded(api, path).loss() == model.loss()
    assert unknown not in checkpoints_command(server, "trash").stdout
    server.wait_restarted("engine", server.kill("engine"))
    assert loaded(api, path).loss() == model.loss()
    again = checkpoints_command(server, "adopt", unknown)
    assert again.returncode != 0 and "not in the trash" in again.stderr


@pytest.mark.parametrize("name", ERROR_POINTS)
def test_e1_an_error_in_a_save_fails_its_future_and_nothing_else(server, fail_points, api, name):
    program = Program(api)
    program.step()
    before = checkpoint_dirs(server)
    fail_points.set(f"{name}=error")
    failed = save(program.model, "failed")
    fail_points.clear()
    assert failed["category"] == "server", failed
    assert "Input/output error" in failed["error"]
    assert not [path for path in paths(api) if program.model.model_id in path]
    assert attempts(server) == []
    good = save(program.model, "good")["path"]
    assert loaded(api, good).loss() == program.model.loss()
    assert len(checkpoint_dirs(server) - before) <= (2 if name.endswith("renamed") else 1)
    program.step()


def test_e1_an_fsync_that_fails_in_the_kernel(server, api, tmp_path):
    program = Program(api)
    program.step()
    worker = server.pids()["worker"]
    with failing_calls(worker, "fsync:error=EIO:when=1", tmp_path / "strace"):
        failed = save(program.model, "failed")
    assert failed["category"] == "server" and "sync" in failed["error"], failed
    assert "Input/output error" in failed["error"]
    assert "path" in save(program.model, "again")
    assert server.pids()["worker"] == worker
    program.step()


def test_e2_a_full_disk_fails_the_save_with_the_bytes_and_training_goes_on(tmp_path):
    data_dir = tmp_path / "data"
    with small_disk(data_dir / "checkpoints", 8) as disk:
        with LatheServer(tiny_model(), data_dir=str(data_dir),
                         env={"LATHE_WORKER__NUMERICS": "exact",
                              "LATHE_ENGINE__SNAPSHOT_INTERVAL": "0s"}) as server:
            api = StubbornApi(server)
            program = Program(api)
            program.step()
            older = save(program.model, "older")["path"]
            loss = program.model.loss()
            program.step()
            disk.fill(keep_bytes=16 << 10)
            failed = save(program.model, "no-room")
            assert failed["category"] == "server", failed
            assert "No space left on device" in failed["error"]
            assert "takes about" in failed["error"] and "are free" in failed["error"]
            program.step()
            assert loaded(api, older).loss() == loss
            assert attempts(server) == []
            disk.free()
            assert "path" in save(program.model, "room")
            program.check()


def test_e5_a_save_is_of_the_moment_it_was_asked_for(server, api):
    program = Program(api)
    program.step()
    first = save(program.model, "first")["path"]
    first_loss = program.model.loss()
    program.step()
    # Asked for before the step after it: the later weights must not get in.
    second = api.made("save_weights", {"model_id": program.model.model_id, "path": "second",
                                       "seq_id": program.model.next_seq_id()})
    second_seq = program.model.seq_id
    live = api.made("forward", {
        "forward_input": program.model.body()["forward_backward_input"],
        "model_id": program.model.model_id, "seq_id": program.model.seq_id})
    program.step()
    second = api.result(second)["path"]
    second_loss = api.result(live)["loss_fn_outputs"][0]["logprobs"]["data"]
    assert first_loss != second_loss != program.model.loss()
    assert loaded(api, first).loss() == first_loss
    assert loaded(api, second).loss() == second_loss
    manifests = [json.loads((path / "manifest.json").read_text()) for path in
                 pathlib.Path(server.data_dir, "checkpoints").iterdir()
                 if (path / "manifest.json").exists()]
    of_model = [one for one in manifests if one["model_id"] == program.model.model_id]
    assert sorted(one["applied_seq"] for one in of_model)[-1] < second_seq


def test_e3_e4_a_changed_manifest_is_refused_before_anything_is_loaded(server, api):
    """Every kind of change; what else is damaged the worker finds, in checkpoint_damage_test.cc."""
    model = RawModel(api)
    before = checkpoint_dirs(server)
    path = save(model, "kept")["path"]
    (directory,) = checkpoint_dirs(server) - before
    manifest = pathlib.Path(server.data_dir, "checkpoints", directory, "manifest.json")
    text = manifest.read_bytes()
    choice = random.Random(1)
    changed = [b"", text[:-1], text + b" ", text.replace(b'"rank": 4', b'"rank": 3')]
    for _ in range(50):
        at = choice.randrange(len(text))
        flipped = bytes([text[at] ^ (1 << choice.randrange(8))])
        changed.append(text[:at] + flipped + text[at + 1:])
    for other in changed:
        manifest.write_bytes(other)
        refused = loaded(api, path)
        assert refused["error"]["code"] == "checkpoint_damaged", refused
        assert "manifest.json" in refused["error"]["message"]
    manifest.write_bytes(text)
    assert loaded(api, path).loss() == model.loss()


def test_e6_files_deleted_behind_the_server_are_reported_as_missing(server, api):
    model = RawModel(api)
    kept = save(model, "kept")["path"]
    before = checkpoint_dirs(server)
    path = save(model, "gone")["path"]
    (directory,) = checkpoint_dirs(server) - before
    shutil.rmtree(pathlib.Path(server.data_dir, "checkpoints", directory))
    refused = api.post("load_weights", {"session_id": api.new_session(), "model_seq_id": 0,
                                        "path": path, "optimizer": True})
    assert refused.status_code == 404, refused.text
    assert refused.json()["error"]["code"] == "checkpoint_missing"
    assert "files" in refused.json()["error"]["message"]
    listed = {one["tinker_path"]: one for one in
              api.get("checkpoints?limit=1000").json()["checkpoints"]}
    assert listed[path]["missing"] is True
    assert listed[kept]["missing"] is False
    run, _, name = path.removeprefix("tinker://").partition("/")
    assert api.request("DELETE", f"training_runs/{run}/checkpoints/{name}").status_code == 204
    assert path not in paths(api)
    assert "path" in save(model, "gone")


def test_e8_two_saves_under_one_name(api):
    model = RawModel(api)
    body = {"model_id": model.model_id, "seq_id": model.next_seq_id(), "path": "same"}
    other = {**body, "seq_id": model.next_seq_id()}
    clients = [RawApi(api.server) for _ in range(16)]
    answers = []

    def submit(client):
        answers.append(client.made("save_weights", body)["request_id"])

    threads = [threading.Thread(target=submit, args=(client,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(answers)) == 1
    second = api.made("save_weights", other)
    first = api.result({"request_id": answers[0]})
    assert "path" in first
    refused = api.result(second)
    assert refused["category"] == "user" and "same" in refused["error"], refused
    assert len([path for path in paths(api) if model.model_id in path]) == 1


def test_e9_delete_during_a_download_lets_the_reader_finish(server, api):
    model = RawModel(api, rank=8)
    before = checkpoint_dirs(server)
    path = api.result(api.made("save_weights_for_sampler", {
        "model_id": model.model_id, "seq_id": model.next_seq_id(), "path": "read"}))["path"]
    (directory,) = checkpoint_dirs(server) - before
    run, _, name = path.removeprefix("tinker://").partition("/")
    link = api.get(f"training_runs/{run}/checkpoints/{name}/archive", follow_redirects=False)
    url = link.headers.get("location") or link.json()["url"]
    whole = httpx.get(url).content
    with httpx.stream("GET", url) as stream:
        assert stream.status_code == 200
        pieces = stream.iter_raw(1024)
        begin = next(pieces)
        assert api.request("DELETE",
                           f"training_runs/{run}/checkpoints/{name}").status_code == 204
        assert begin + b"".join(pieces) == whole
    folder = pathlib.Path(server.data_dir, "checkpoints", directory)
    deadline = time.monotonic() + 60
    while folder.exists():
        assert time.monotonic() < deadline, "the bytes were never freed"
        time.sleep(0.01)
    assert httpx.get(url).status_code == 404


def test_e9_delete_during_a_load(api):
    """The load gets the whole checkpoint or a 404, never a part of it."""
    for number in range(10):
        model = RawModel(api, seed=number)
        expected = model.loss()
        path = save(model, "read")["path"]
        run, _, name = path.removeprefix("tinker://").partition("/")
        future = api.made("load_weights", {"session_id": api.new_session(), "model_seq_id": 0,
                                           "path": path, "optimizer": True})
        assert api.request("DELETE",
                           f"training_runs/{run}/checkpoints/{name}").status_code == 204
        result = api.result(future)
        if "error" in result:
            assert "gone" in result["error"] or "does not exist" in result["error"], result
            continue
        copy = RawModel.__new__(RawModel)
        copy.api, copy.model_id, copy.seq_id = api, result["model_id"], 0
        assert copy.loss() == expected

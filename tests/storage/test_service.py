"""A whole Lathe whose checkpoints are objects, behind a store that can be told to fail."""

import concurrent.futures
import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import tarfile
import time

import httpx
import pytest
from support.fail_points import FailPoints
from support.faulty_store import FaultyStore, error
from support.lathe_server import BIN, LatheServer, tiny_model
from support.raw_api import RawModel
from support.stubborn_api import StubbornApi
from support.waiting import wait_until

OPTIONS = """
worker:
  numerics: exact
engine:
  snapshot_interval: 200ms
  snapshot_share: 1.0
"""


class Rules:
    """What the store does now; `before` and `after` as in FaultyStore."""

    def __init__(self):
        self.clear()

    def clear(self):
        self.before = self.after = lambda *_: None

    def away(self):
        self.before = lambda request: error(503, "ServiceUnavailable")

    def full(self):
        self.before = lambda request: (error(507, "XMinioStorageFull") if request.method in
                                       ("PUT", "POST") else None)


@pytest.fixture(scope="module")
def rules():
    return Rules()


@pytest.fixture(scope="module")
def faulty(server, rules):
    with FaultyStore(server.port, lambda request: rules.before(request),
                     lambda request, answer: rules.after(request, answer)) as store:
        yield store


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    return FailPoints(tmp_path_factory.mktemp("fail_points"))


@pytest.fixture(scope="module")
def lathe(server, faulty, points, tmp_path_factory):
    config = tmp_path_factory.mktemp("config") / "lathe.yaml"
    config.write_text(OPTIONS)
    env = {**points.env, **server.options(prefix="lathe", url=faulty.url)}
    with LatheServer(tiny_model(), env=env, args=["--config", str(config)]) as running:
        yield running


@pytest.fixture(scope="module")
def api(lathe):
    yield (made := StubbornApi(lathe))
    made.close()


@pytest.fixture(autouse=True)
def calm(rules, points):
    yield
    rules.clear()
    points.clear()


def save(model, name, kind="save_weights", **changes):
    return model.api.result(model.api.made(kind, {
        "model_id": model.model_id, "seq_id": model.next_seq_id(), "path": name, **changes}))


def loaded(api, path):
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


def objects(s3, prefix="lathe/"):
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket="lathe", Prefix=prefix)
    return {entry["Key"]: entry["Size"] for page in pages for entry in page.get("Contents", [])}


def dirs(s3):
    return {key.split("/")[2] for key in objects(s3, "lathe/checkpoints/")}


def saved_dir(s3, model, name):
    """The directory in the store with this path in its manifest."""
    for key in objects(s3, "lathe/checkpoints/"):
        if not key.endswith("/manifest.json"):
            continue
        # The engine may delete what an earlier test has left.
        with contextlib.suppress(s3.exceptions.NoSuchKey):
            text = s3.get_object(Bucket="lathe", Key=key)["Body"].read().decode()
            if f"{model.model_id}/weights/{name}\"" in text:
                return key.split("/")[2]
    raise AssertionError(f"no manifest of {name}")


def forget_copies(lathe):
    """What another machine has of the checkpoints: nothing."""
    for entry in lathe.checkpoints.iterdir():
        if entry.name.startswith("c"):
            shutil.rmtree(entry, ignore_errors=True)


def lathe_command(lathe, *args):
    return subprocess.run([str(BIN / "lathe"), *args, "--data-dir", lathe.data_dir],
                          capture_output=True, text=True, timeout=60, env=lathe.env)


def test_checkpoints_are_objects_and_nothing_else(lathe, api, s3):
    model = RawModel(api)
    model.accumulate()
    model.step()
    path = save(model, "stored")["path"]
    files = {key.split("/")[-1] for key in objects(s3)
             if f"/{saved_dir(s3, model, 'stored')}/" in key}
    assert files == {"adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors",
                     "checkpoint_complete", "manifest.json"}
    assert os.listdir(os.path.join(lathe.data_dir, "checkpoints")) == []
    assert loaded(api, path).loss() == model.loss()


def test_a_machine_without_a_copy_fetches_one(lathe, api):
    model = RawModel(api)
    model.accumulate()
    model.step()
    expected = model.loss()
    path = save(model, "elsewhere")["path"]
    forget_copies(lathe)
    assert loaded(api, path).loss() == expected


def test_a_damaged_copy_is_fetched_again(lathe, api, s3):
    model = RawModel(api)
    path = save(model, "damaged")["path"]
    copy = lathe.checkpoints / saved_dir(s3, model, "damaged") / "adapter_model.safetensors"
    copy.write_bytes(copy.read_bytes()[:-1] + b"?")
    assert loaded(api, path).loss() == model.loss()


def test_damage_in_the_store_is_refused_and_named(lathe, api, s3):
    model = RawModel(api)
    path = save(model, "bad")["path"]
    directory = saved_dir(s3, model, "bad")
    key = f"lathe/checkpoints/{directory}/adapter_model.safetensors"
    s3.put_object(Bucket="lathe", Key=key, Body=b"x" * objects(s3)[key])
    forget_copies(lathe)
    answer = loaded(api, path)
    assert f"{directory}/adapter_model.safetensors: checksum mismatch" in answer["error"]
    s3.put_object(Bucket="lathe", Key=f"lathe/checkpoints/{directory}/manifest.json", Body=b"{}")
    assert "not the one that was saved" in str(loaded(api, path))


def test_a_download_comes_from_the_store(lathe, api, s3, tmp_path):
    model = RawModel(api, rank=8)
    save(model, "archive")
    link = api.get(f"training_runs/{model.model_id}/checkpoints/weights/archive/archive",
                   follow_redirects=False)
    url = link.headers["location"]
    whole = httpx.get(url).content
    (tmp_path / "tar").write_bytes(whole)
    directory = saved_dir(s3, model, "archive")
    with tarfile.open(tmp_path / "tar") as tar:
        for member in tar.getmembers():
            stored = s3.get_object(
                Bucket="lathe", Key=f"lathe/checkpoints/{directory}/{member.name}")["Body"].read()
            assert tar.extractfile(member).read() == stored
            assert time.time() - member.mtime < 3600
    part = httpx.get(url, headers={"Range": "bytes=1000-2999"})
    assert part.status_code == 206 and part.content == whole[1000:3000]


def test_a_deleted_checkpoint_leaves_no_object(api, s3):
    model = RawModel(api)
    save(model, "deleted")
    directory = saved_dir(s3, model, "deleted")
    assert api.request("DELETE", f"training_runs/{model.model_id}/checkpoints/weights/deleted"
                       ).status_code == 204
    wait_until(lambda: directory not in dirs(s3), "the deletion of its objects")


def test_a_sampler_version_is_read_from_the_store(lathe, api):
    model = RawModel(api)
    path = save(model, "sampler", kind="save_weights_for_sampler")["path"]
    forget_copies(lathe)
    body = {"session_id": api.new_session(), "sampling_session_seq_id": 0, "model_path": path}
    sampler = api.made("create_sampling_session", body)["sampling_session_id"]
    sampled = api.result(api.made("asample", {
        "sampling_session_id": sampler, "seq_id": 1, "num_samples": 1,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]},
        "sampling_params": {"max_tokens": 3, "temperature": 0.0}}))
    assert len(sampled["sequences"][0]["tokens"]) == 3


@pytest.mark.parametrize("name", ["worker.publish.files", "worker.publish.manifest"])
def test_a_worker_killed_in_a_publication_leaves_nothing_or_all(lathe, api, s3, points, name):
    model = RawModel(api)
    model.accumulate()
    old = save(model, "old")["path"]
    expected = loaded(api, old).loss()
    worker = lathe.pids()["worker"]
    points.set(f"{name}=kill#{worker}")
    save(model, "new")  # or a snapshot dies in it, which is the same code
    assert points.fired(name) >= 1
    points.clear()
    lathe.wait_restarted("worker", worker)
    paths = {one["tinker_path"] for one in api.get("checkpoints?limit=1000").json()["checkpoints"]
             if model.model_id in one["tinker_path"]}
    assert old in paths
    for path in paths:
        assert loaded(api, path).loss() == expected
    assert model.loss() == expected


def test_training_goes_on_while_the_store_is_full(lathe, api, rules):
    model = RawModel(api)
    save(model, "before")
    rules.full()
    failed = save(model, "full")
    assert failed["category"] == "server", failed
    assert "XMinioStorageFull" in failed["error"] and "s3://lathe/lathe/" in failed["error"]
    model.accumulate()
    model.step()
    rules.clear()
    assert loaded(api, save(model, "after")["path"]).loss() == model.loss()


def test_a_recovery_waits_for_the_store(lathe, api, rules):
    """A start that cannot be fetched is not taken for damage: the model is not lost."""
    model = RawModel(api)
    model.accumulate()
    model.step()
    expected = model.loss()
    wait_until(lambda: any(lathe.checkpoints.glob("c*")), "a snapshot")
    time.sleep(1)  # the snapshot of this state, most likely; without it the log repeats the step
    rules.away()
    forget_copies(lathe)
    worker = lathe.kill("worker")
    lathe.wait_restarted("worker", worker)
    time.sleep(3)
    rules.clear()
    assert model.loss() == expected


def test_status_says_why_a_recovery_waits(server, faulty, rules):
    """The model is alone in its installation, so its recovery waits for no other one."""
    env = server.options(prefix="reason", url=faulty.url)
    with LatheServer(tiny_model(), env=env) as lathe, contextlib.closing(StubbornApi(lathe)) as api:
        model = loaded(api, save(RawModel(api), "start")["path"])
        expected = model.loss()
        rules.away()
        forget_copies(lathe)
        lathe.wait_restarted("worker", lathe.kill("worker"))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            loss = pool.submit(model.loss)
            why = rf"model +{re.escape(model.model_id)} .*\n +.*waits for another try: .*ServiceUnavailable"
            try:
                wait_until(lambda: re.search(why, lathe_command(lathe, "status").stdout), "the reason")
            finally:
                rules.clear()
            assert loss.result() == expected


def test_an_engine_starts_while_the_store_is_away(lathe, api, rules):
    model = RawModel(api)
    path = save(model, "kept")["path"]
    expected = model.loss()
    rules.away()
    engine = lathe.kill("engine")
    lathe.wait_restarted("engine", engine)
    assert model.loss() == expected
    rules.clear()
    assert loaded(api, path).loss() == expected


def test_a_lie_of_the_store_fails_the_save(api, s3, rules):
    model = RawModel(api)
    rules.before = lambda request: ((200, {"ETag": '"0"'}, b"") if request.method == "PUT" and
                                    request.key.endswith("/optimizer.safetensors") else None)
    failed = save(model, "lie")
    assert "optimizer.safetensors" in failed["error"], failed
    rules.clear()
    paths = {one["tinker_path"] for one in api.get("checkpoints?limit=1000").json()["checkpoints"]}
    assert not any(path.endswith("/lie") for path in paths)
    assert loaded(api, save(model, "truth")["path"]).loss() == model.loss()


def checkpoints_command(lathe, *args):
    return lathe_command(lathe, "checkpoints", *args)


def test_what_no_row_names_goes_to_the_trash_and_comes_back(lathe, api, s3, rules):
    model = RawModel(api)
    path = save(model, "restored")["path"]
    directory = saved_dir(s3, model, "restored")
    unknown = "c" + "0123456789abcdef" * 2
    for key in objects(s3, f"lathe/checkpoints/{directory}/"):
        s3.copy_object(Bucket="lathe", Key=key.replace(directory, unknown),
                       CopySource={"Bucket": "lathe", "Key": key})
    lathe.wait_restarted("engine", lathe.kill("engine"))
    wait_until(lambda: f"lathe/trash/{unknown}" in objects(s3), "the mark")
    assert f"lathe/trash/{directory}" not in objects(s3)
    listed = checkpoints_command(lathe, "trash").stdout
    assert unknown in listed and path in listed, listed
    refused = checkpoints_command(lathe, "adopt", unknown)
    assert refused.returncode != 0 and "exists; delete it first" in refused.stderr
    wait_until(lambda: f"lathe/trash/{unknown}" in objects(s3), "the mark again")
    assert api.request("DELETE", f"training_runs/{model.model_id}/checkpoints/weights/restored"
                       ).status_code == 204
    # Without an answer, a copy would come back as its source.
    rules.before = lambda request: (error(503, "SlowDown") if request.key.endswith("/copied_as")
                                    else None)
    refused = checkpoints_command(lathe, "adopt", unknown)
    assert refused.returncode != 0 and "/copied_as" in refused.stderr, refused
    rules.clear()
    adopted = checkpoints_command(lathe, "adopt", unknown)
    assert (adopted.returncode, adopted.stdout.strip()) == (0, path), adopted.stderr
    assert loaded(api, path).loss() == model.loss()


def test_a_second_installation_is_refused(lathe, server, tmp_path):
    done = subprocess.run(
        [str(BIN / "lathe-engine"), "--data-dir", str(tmp_path), "--run-dir", str(tmp_path / "run")],
        env={**os.environ, **server.options(prefix="lathe")}, capture_output=True, text=True,
        timeout=60)
    assert done.returncode == 78, done.stderr
    assert "s3://lathe/lathe/LATHE_STORE belongs to another installation" in done.stderr


@pytest.mark.parametrize("code, exit_code", [
    ("RequestTimeTooSkewed", 69), ("ExpiredToken", 69), ("InvalidAccessKeyId", 78)])
def test_keys_that_are_not_valid_now_need_no_other_options(server, tmp_path, code, exit_code):
    with FaultyStore(server.port, lambda request: error(403, code)) as store:
        done = subprocess.run(
            [str(BIN / "lathe-engine"), "--data-dir", str(tmp_path)],
            env={**os.environ, **server.options(prefix="skewed", url=store.url)},
            capture_output=True, text=True, timeout=60)
    assert done.returncode == exit_code and code in done.stderr, done.stderr


@pytest.mark.parametrize("files", ["", "s3://lathe/somewhere-else"])
def test_a_worker_with_another_place_gets_no_work(lathe, files):
    """Its snapshots would be where no other worker looks, and it would find none."""
    name = "stray" + str(len(files))
    worker = subprocess.Popen(
        [str(BIN / "lathe-worker"), "--data-dir", lathe.data_dir, "--group", name,
         "--model", str(lathe.model), "--storage-cache-dir", lathe.data_dir + "/stray-cache"],
        env={**lathe.env, "LATHE_STORAGE__FILES": files}, stderr=subprocess.DEVNULL)
    try:
        def groups():
            return {one["group"]: one for one in lathe.status()["groups"]}

        wait_until(lambda: groups().get(name, {}).get("state") == "refused",
                   "the refusal of the group")
        reason = groups()[name]["reason"]
        assert "the engine keeps checkpoints in s3://lathe/lathe (store " in reason, reason
        assert (files or "in its data directory") in reason and "storage.files" in reason, reason
        assert [one["state"] for one in groups().values() if "stray" not in one["group"]] == ["ready"]
    finally:
        worker.kill()
        worker.wait()


def test_an_engine_without_the_store_that_it_used_is_refused(lathe, tmp_path):
    """It would take the models whose snapshots are in the store for lost."""
    with (contextlib.closing(sqlite3.connect(os.path.join(lathe.data_dir, "lathe.db"))) as used,
          contextlib.closing(sqlite3.connect(tmp_path / "lathe.db")) as copy):
        used.backup(copy)
    done = subprocess.run(
        [str(BIN / "lathe-engine"), "--data-dir", str(tmp_path)],
        env={**lathe.env, "LATHE_STORAGE__FILES": ""}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 78, done.stderr
    assert "storage.files is missing" in done.stderr, done.stderr


def test_checkpoints_in_folders_move_to_the_store(server, s3, tmp_path):
    """An installation that had none begins to use the store."""
    data_dir = str(tmp_path / "data")
    with LatheServer(tiny_model(), data_dir=data_dir,
                     env={"LATHE_STORAGE__FILES": ""}) as lathe:
        api = StubbornApi(lathe)
        model = RawModel(api)
        model.accumulate()
        model.step()
        expected = model.loss()
        path = save(model, "moved")["path"]
        api.close()
    env = server.options(prefix="moved")
    refused = subprocess.run(
        [str(BIN / "lathe-engine"), "--data-dir", data_dir],
        env={**os.environ, **env}, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 78 and "has checkpoints" in refused.stderr, refused.stderr
    folder = tmp_path / "data" / "checkpoints"
    for file in folder.glob("c*/*"):
        s3.upload_file(str(file), "lathe", f"moved/checkpoints/{file.parent.name}/{file.name}")
    folder.rename(tmp_path / "aside")
    with LatheServer(tiny_model(), data_dir=data_dir, env=env) as lathe:
        api = StubbornApi(lathe)
        assert loaded(api, path).loss() == expected
        api.close()


def test_an_export_fetches_the_checkpoint(lathe, api, tmp_path):
    model = RawModel(api)
    path = save(model, "exported")["path"]
    forget_copies(lathe)
    done = subprocess.run(
        [str(BIN / "lathe"), "export", "--merged", "--model", str(lathe.model), "--out",
         str(tmp_path / "out"), "--data-dir", lathe.data_dir, path],
        env=lathe.env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert any((tmp_path / "out").glob("*.safetensors"))

"""Backups of a service under load, restored into a fresh place that has to serve the same state."""

import contextlib
import pathlib
import random
import shutil
import sqlite3
import stat
import subprocess
import threading
import time

import pytest
from support.lathe_server import BIN, LatheServer, tiny_model
from support.postgres_cluster import PostgresCluster
from support.raw_api import RawApi, RawModel, datum

# Snapshots of models are replaced as often as possible, so that files vanish during a backup.
EXACT = {"LATHE_WORKER__NUMERICS": "exact", "LATHE_ENGINE__SNAPSHOT_INTERVAL": "200ms",
         "LATHE_ENGINE__SNAPSHOT_SHARE": "1"}
NUM_BACKUPS = 3
UNAVAILABLE = 69


def lathe(verb, *arguments, timeout=120):
    return subprocess.run([str(BIN / "lathe"), verb, *map(str, arguments)], capture_output=True,
                          text=True, timeout=timeout, check=False)


def back_up(server, out, store=None):
    return lathe("backup", "--data-dir", server.data_dir, "--out", out,
                 *(["--store", store] if store else []))


def restore(backup, data_dir, store=None):
    return lathe("restore", "--from", backup, "--data-dir", data_dir,
                 *(["--store", store] if store else []))


def long_data(seed):
    """Large enough that its body is a file of its own."""
    rng = random.Random(seed)
    return [datum([rng.randrange(20, 700) for _ in range(900)]) for _ in range(8)]


class Subject:
    """A model whose requests can be sent again, elsewhere. `results`: by seq_id."""

    def __init__(self, api):
        self.model = RawModel(api)
        self.requests = {}
        self.results = {}
        self.saved = {}  # path: logprobs of the weights

    def send(self, path, body):
        self.requests[body["seq_id"]] = (path, body)
        result = self.model.api.result(self.model.api.made(path, body))
        assert "error" not in result, result
        self.results[body["seq_id"]] = result
        return result

    def step(self, number):
        model = self.model
        self.send("forward_backward", model.body(data=long_data(number) if number % 4 == 0 else None))
        self.send("optim_step", {"model_id": model.model_id, "seq_id": model.next_seq_id(),
                                 "adam_params": {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.95,
                                                 "eps": 1e-12, "weight_decay": 0.0,
                                                 "grad_clip_norm": 0.0}})
        if number % 3 == 0:
            self.save(f"step-{number}")

    def save(self, name):
        model = self.model
        body = model.body()
        body["forward_input"] = body.pop("forward_backward_input")
        logprobs = self.send("forward", body)["loss_fn_outputs"][0]["logprobs"]["data"]
        path = self.send("save_weights", {"model_id": model.model_id, "path": name,
                                          "seq_id": model.next_seq_id()})["path"]
        self.saved[path] = logprobs


class Saver(threading.Thread):
    """Saves under ever new names and deletes what is older, as fast as it goes. `events`: what was
    answered, in order: (start, end, "save" or "delete", path)."""

    def __init__(self, server, seed):
        super().__init__()
        self.api = RawApi(server)
        self.model = RawModel(self.api, seed=seed)
        self.events = []
        self.error = None
        self.stopping = threading.Event()

    def run(self):
        try:
            kept = []
            for number in range(10**6):
                if self.stopping.is_set():
                    return
                kept.append(self.save(f"n{number}"))
                if len(kept) > 3:
                    self.delete(kept.pop(0))
        except BaseException as error:
            self.error = error
            raise

    def save(self, name):
        model, began = self.model, time.monotonic()
        result = self.api.result(self.api.made("save_weights", {
            "model_id": model.model_id, "seq_id": model.next_seq_id(), "path": name}))
        self.events.append((began, time.monotonic(), "save", result["path"]))
        return result["path"]

    def delete(self, path):
        began = time.monotonic()
        run, name = path.removeprefix("tinker://").split("/", 1)
        answer = self.api.request("DELETE", f"training_runs/{run}/checkpoints/{name}")
        assert answer.status_code == 204, answer.text
        self.events.append((began, time.monotonic(), "delete", path))

    def stop(self):
        self.stopping.set()
        self.join()
        self.api.close()
        if self.error:
            raise self.error

    def bounds(self, began, ended):
        """(paths that a backup of that time must have, paths that it may have)."""
        must, may = set(), set()
        for start, end, what, path in self.events:
            if what == "save" and start < ended:
                may.add(path)
                if end < began:
                    must.add(path)
            elif what == "delete" and start < ended:
                must.discard(path)
                if end < began:
                    may.discard(path)
        return must, may


def listed(api):
    answer = api.get("checkpoints?limit=1000").json()["checkpoints"]
    assert not [one for one in answer if one.get("missing")], answer
    return {one["tinker_path"] for one in answer}


def loaded_logprobs(api, path):
    session = api.new_session()
    result = api.result(api.made("load_weights", {"session_id": session, "model_seq_id": 0,
                                                  "path": path, "optimizer": True}))
    assert "error" not in result, result
    model = RawModel.__new__(RawModel)
    model.api, model.session_id, model.model_id, model.seq_id = api, session, result["model_id"], 0
    return model.loss()


@contextlib.contextmanager
def database(kind):
    """Makes URLs of new, empty databases; None for SQLite."""
    if kind == "sqlite":
        yield lambda name: None
        return
    with PostgresCluster() as cluster:
        yield cluster.create_database


def train(server, subject, savers, tmp_path, store):
    """Trains while NUM_BACKUPS backups are made. Returns (folder, begin, end, steps) of each."""
    backups = []
    number = 0
    with contextlib.ExitStack() as stack:
        for saver in savers:
            saver.start()
            stack.callback(saver.stop)
        for index in range(NUM_BACKUPS):
            out = tmp_path / f"backup-{index}"
            for _ in range(4):
                subject.step(number := number + 1)
            began = time.monotonic()
            process = subprocess.Popen(
                [str(BIN / "lathe"), "backup", "--data-dir", server.data_dir, "--out", str(out),
                 *(["--store", store] if store else [])], stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True)
            while process.poll() is None:
                subject.step(number := number + 1)
            text = process.stdout.read()
            assert process.returncode == 0, text
            assert text.startswith("backup as of "), text
            backups.append((out, began, time.monotonic()))
        for _ in range(6):
            subject.step(number := number + 1)
    return backups


def check_restored(server, key, subject, savers, began, ended):
    api = RawApi(server, key=key)
    paths = listed(api)
    for saver in savers:
        must, may = saver.bounds(began, ended)
        mine = {path for path in paths if saver.model.model_id in path}
        assert must <= mine <= may, (must - mine, mine - may)
    trash = pathlib.Path(server.data_dir, "checkpoints", "trash")
    assert not trash.exists() or not any(trash.iterdir())
    mine = [path for path in subject.saved if path in paths]
    assert mine, "no checkpoint of the subject"
    for path in mine:
        assert loaded_logprobs(api, path) == subject.saved[path]
    # Requests from after the backup run for the first time; the server that was not restored is the
    # twin.
    for seq_id, (path, body) in sorted(subject.requests.items()):
        result = api.result(api.made(path, body))
        twin = subject.results[seq_id]
        assert result.get("loss_fn_outputs") == twin.get("loss_fn_outputs"), seq_id
        assert result.get("metrics") == twin.get("metrics"), seq_id
        assert result.get("path") == twin.get("path"), seq_id
    for path, logprobs in subject.saved.items():
        assert loaded_logprobs(api, path) == logprobs
    api.close()


def last_seq(backup, model_id):
    """The newest request of the model in a backup."""
    with contextlib.closing(sqlite3.connect(backup / "database" / "lathe.db")) as db:
        return db.execute("SELECT max(seq_id) FROM requests WHERE owner_id = ?",
                          (model_id,)).fetchone()[0]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_backups_under_load_restore_the_state_of_their_moment(kind, tmp_path):
    with database(kind) as new_database:
        store = new_database("lathe")
        with LatheServer(tiny_model(), env=EXACT, store=store) as server:
            key = server.api_key
            api = RawApi(server)
            subject = Subject(api)
            savers = [Saver(server, seed) for seed in (11, 12)]
            backups = train(server, subject, savers, tmp_path, store)
            api.close()
            left = pathlib.Path(server.data_dir, "checkpoints", "backup")
            assert not left.exists()
        for index, (backup, began, ended) in enumerate(backups):
            assert stat.S_IMODE(backup.stat().st_mode) == 0o700
            if kind == "sqlite":
                assert 0 < last_seq(backup, subject.model.model_id) < max(subject.requests)
            data_dir = tmp_path / f"restored-{index}"
            url = new_database(f"restored{index}")
            done = restore(backup, data_dir, url)
            assert done.returncode == 0, done.stderr
            with LatheServer(tiny_model(), data_dir=str(data_dir), env=EXACT,
                             store=url) as restored:
                check_restored(restored, key, subject, savers, began, ended)


def test_a_restored_audit_log_goes_on_where_it_was(tmp_path):
    """Ids of pruned entries must not come back: the permission to delete them may still stand."""
    with PostgresCluster() as cluster:
        store = cluster.create_database("lathe")
        with LatheServer(tiny_model(), store=store) as server:
            server.create_key("first")
            cluster.psql("lathe", "SELECT setval(pg_get_serial_sequence('audit', 'id'), 900)")
            # A table of somebody else is neither copied nor in the way of the restore.
            cluster.psql("lathe", "CREATE TABLE theirs (id bigint GENERATED ALWAYS AS IDENTITY)")
            done = back_up(server, tmp_path / "backup", store)
            assert done.returncode == 0 and "theirs" in done.stdout + done.stderr, done
        assert not (tmp_path / "backup/database/theirs.copy").exists()
        url = cluster.create_database("again")
        assert restore(tmp_path / "backup", tmp_path / "data", url).returncode == 0
        with LatheServer(tiny_model(), data_dir=str(tmp_path / "data"), store=url) as server:
            server.create_key("second")
            ids = [int(line) for line in
                   cluster.psql("again", "SELECT id FROM audit ORDER BY id").splitlines()]
    assert ids[0] < 900 < ids[-1], ids


def restore_and_lose_the_answer(cluster, backup, data_dir, url):
    """The commit is on the disk when its connection ends: it waits for a replica that is none."""
    cluster.psql("postgres", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    cluster.psql("postgres", "SELECT pg_reload_conf()")
    cluster.psql("postgres", "CHECKPOINT")
    process = subprocess.Popen(
        [str(BIN / "lathe"), "restore", "--from", str(backup), "--data-dir", str(data_dir),
         "--store", url], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    end = ("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
           " WHERE wait_event = 'SyncRep'")
    while process.poll() is None and cluster.psql("postgres", end) == "0":
        time.sleep(0.05)
    told = process.communicate(timeout=60)[1]
    cluster.psql("postgres", "ALTER SYSTEM RESET synchronous_standby_names")
    cluster.psql("postgres", "SELECT pg_reload_conf()")
    return process.returncode, told


def test_a_restore_keeps_the_files_if_the_database_may_be_filled(tmp_path):
    with PostgresCluster() as cluster:
        store = cluster.create_database("lathe")
        with LatheServer(tiny_model(), env=EXACT, store=store) as server:
            key, api = server.api_key, RawApi(server)
            subject = Subject(api)
            subject.step(3)
            api.close()
            assert back_up(server, tmp_path / "backup", store).returncode == 0
        url = cluster.create_database("again")
        code, told = restore_and_lose_the_answer(cluster, tmp_path / "backup", tmp_path / "data",
                                                 url)
        assert code == UNAVAILABLE and f"The files stay in {tmp_path}/data" in told, (code, told)
        with LatheServer(tiny_model(), data_dir=str(tmp_path / "data"), env=EXACT,
                         store=url) as restored:
            api = RawApi(restored, key=key)
            (path, logprobs), = subject.saved.items()
            assert listed(api) == {path}
            assert loaded_logprobs(api, path) == logprobs
            api.close()


def test_a_stopped_service_is_backed_up_too(tmp_path):
    with LatheServer(tiny_model(), data_dir=str(tmp_path / "data"), env=EXACT) as server:
        key, api = server.api_key, RawApi(server)
        subject = Subject(api)
        subject.step(3)
        api.close()
    done = back_up(server, tmp_path / "backup")
    assert done.returncode == 0, done.stderr
    # A restore copies: what happens to the backup afterwards does not matter.
    assert restore(tmp_path / "backup", tmp_path / "restored").returncode == 0
    shutil.rmtree(tmp_path / "backup")
    shutil.rmtree(tmp_path / "data")
    with LatheServer(tiny_model(), data_dir=str(tmp_path / "restored"), env=EXACT) as restored:
        api = RawApi(restored, key=key)
        (path, logprobs), = subject.saved.items()
        assert listed(api) == {path}
        assert loaded_logprobs(api, path) == logprobs
        api.close()

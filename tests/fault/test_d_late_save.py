"""Row D3 where nobody ends a worker that is stopped: it goes on when another one has done its work."""

import hashlib
import pathlib
import signal
import time

import pytest
from support.engine_pair import EnginePair
from support.fail_points import FailPoints
from support.lathe_server import tiny_model
from support.postgres_cluster import PostgresCluster
from support.raw_api import RawModel
from support.stubborn_api import StubbornApi


@pytest.fixture
def cluster():
    with PostgresCluster() as running:
        yield running


def saves(pair):
    """{directory: {file: digest}} of what lies in the store."""
    return {str(dir): {file.name: hashlib.sha256(file.read_bytes()).hexdigest()
                       for file in dir.iterdir()}
            for dir in pathlib.Path(pair.data_dir, "checkpoints").glob("c*")}


def wait_until(what, is_so):
    deadline = time.monotonic() + 90
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def is_stopped(process):
    return pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize("point", ["worker.save.file", "worker.save.before_rename"])
def test_d3_a_worker_that_goes_on_late_in_a_save_changes_nothing_of_its_successor(
        cluster, tmp_path, point):
    points = FailPoints(tmp_path)
    # What lies in the store is saves only.
    env = {**points.env, "LATHE_ENGINE__SNAPSHOT_INTERVAL": "0s"}
    with EnginePair(tiny_model(), cluster, env=env) as pair:
        api = StubbornApi(pair, patience=120)
        model = RawModel(api)
        model.accumulate()
        model.step()
        late = pair.processes["worker"]
        points.set(f"{point}=stop#{late.pid}")
        future = api.made("save_weights", {"model_id": model.model_id, "path": "a",
                                           "seq_id": model.next_seq_id()})
        wait_until("the worker is not stopped", lambda: is_stopped(late))
        points.clear()
        pair.start_worker()
        path = api.result(future)["path"]
        loss = model.loss()
        saved = saves(pair)
        assert len(saved) == 1
        late.send_signal(signal.SIGCONT)
        wait_until("the late worker does not end its save", lambda: len(saves(pair)) == 2)
        assert {dir: files for dir, files in saves(pair).items() if dir in saved} == saved
        load = {"model_id": model.model_id, "path": path, "optimizer": True,
                "seq_id": model.next_seq_id()}
        assert "error" not in api.result(api.made("load_weights", load))
        assert model.loss() == loss
        late.kill()
        late.wait()
        api.close()

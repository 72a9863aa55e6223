"""Each process mounts the data directory where it likes: files on the wire are relative to it."""

import os

import httpx
from support.lathe_server import tiny_model
from support.rank_service import RankService
from support.stubborn_api import Program, StubbornApi


class MountedService(RankService):
    """The worker and the gateway see the engine's files below a folder of their own each."""

    def _spawn(self, name, arguments):
        program = arguments[0]
        if program == "lathe-engine":
            return super()._spawn(name, arguments)
        root = os.path.join(self.data_dir, "mounts", program)
        os.makedirs(root, exist_ok=True)
        for folder in ("checkpoints", "run"):
            link = os.path.join(root, folder)
            if not os.path.lexists(link):
                os.symlink(os.path.join(self.data_dir, folder), link)
        return self._start([*arguments, "--data-dir", root], name)


def test_files_are_found_wherever_a_process_mounts_them():
    with MountedService(tiny_model()) as service:
        api = StubbornApi(service)
        program = Program(api)
        program.step()
        model = program.model
        saved = api.result(api.made("save_weights", {
            "model_id": model.model_id, "seq_id": model.next_seq_id(), "path": "a"}))["path"]
        loaded = api.result(api.made("load_weights", {
            "session_id": api.new_session(), "model_seq_id": 0, "path": saved, "optimizer": True}))
        assert "error" not in loaded, loaded
        run, kind, name = saved.removeprefix("tinker://").split("/")
        link = api.get(f"training_runs/{run}/checkpoints/{kind}/{name}/archive",
                       follow_redirects=False)
        assert link.status_code == 302
        archive = httpx.get(link.headers["location"])
        assert archive.status_code == 200
        assert b"optimizer.safetensors" in archive.content
        api.close()

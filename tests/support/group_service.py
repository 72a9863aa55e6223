"""A Lathe with several worker groups of one process each, started by hand on this machine.

    with GroupService({"a": (tiny_model(), "tiny"), "b": (tiny_model(), "tiny")}) as service:
        service.kill("a")      # kill -9; it is started again
        service.remove("b")    # ... and never comes back

As RankService otherwise.
"""

import json
import subprocess

from support.lathe_server import BIN
from support.rank_service import RankService


class GroupService(RankService):
    """`groups`: name -> (model folder, served name). `options`: of its worker, by group."""

    def __init__(self, groups, options=None, engine_options=(), snapshot_interval="100ms"):
        super().__init__(model=None, engine_options=engine_options,
                         snapshot_interval=snapshot_interval)
        self.names = list(groups)
        self.groups, self.group_options = groups, options or {}
        self.world = len(groups)

    def _start_rank(self, rank):
        name = self.names[rank]
        folder, served = self.groups[name]
        self.ranks[rank] = self._spawn(f"rank{rank}", [
            "lathe-worker", "--group", name, "--model", f"{served}={folder}", "--device", "cpu",
            "--threads", "1", "--memory-fraction", "0.2", *self.group_options.get(name, ())])

    def describe(self):
        """What `lathe status` says of the groups, by name."""
        status = self.status()
        groups = json.loads(status)["groups"] if status else []
        return {group["group"]: group for group in groups}

    def models(self):
        """How many models each group has."""
        return {name: int(group["models"]) for name, group in self.describe().items()}

    def home_of(self, model_id):
        """The group that the model lives on."""
        models = json.loads(self.status())["models"]
        return next(model["group"] for model in models if model["model_id"] == model_id)

    def lathe(self, *arguments, check=True):
        """Runs the CLI on this service."""
        return subprocess.run([str(BIN / "lathe"), *arguments, "--data-dir", self.data_dir],
                              capture_output=True, text=True, env=self.env, check=check)

    def is_ready(self, name):
        return self.describe().get(name, {}).get("state") == "ready"

    def wait_formed(self):
        self._await(lambda: all(self.is_ready(name) for name in self.names), "the groups")

    def wait(self, condition, what):
        self._await(condition, what)

    def kill(self, name):
        return super().kill(self.names.index(name))

    def remove(self, name):
        self.held.add(self.names.index(name))
        self.kill(name)

    def bring_back(self, name):
        self.held.remove(self.names.index(name))

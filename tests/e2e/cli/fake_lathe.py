"""`lathe up` with stand-ins for the three services: a folder with a copy of the CLI beside fakes.

The fake engine is the C++ program tests/lathe_fake_engine of the build directory (gRPC); the fake
worker and gateway are the scripts here. What they do is steered by files in the data directory.
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from support.waiting import wait_until

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BIN = pathlib.Path(os.environ.get("LATHE_BIN", ROOT / "build" / "release" / "bin"))
FAKE_ENGINE = BIN.parent / "tests" / "lathe_fake_engine"
PATIENCE_SECONDS = 60


def is_alive(pid):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


class Up:
    """A running `lathe up`; its standard output is collected in a file."""

    def __init__(self, lathe, data_dir, arguments):
        self.data_dir = data_dir
        self.log = data_dir.parent / "up.out"
        self.process = subprocess.Popen(
            [lathe, "up", "--data-dir", data_dir, "--listen", "127.0.0.1:0", *arguments],
            stdout=self.log.open("w"), stderr=subprocess.STDOUT)

    def output(self):
        return self.log.read_text()

    def wait_for(self, text, count=1):
        def seen():
            assert self.process.poll() is None or self.output().count(text) >= count, self.output()
            return self.output().count(text) >= count
        wait_until(seen, repr(text))

    def pids(self):
        return json.loads((self.data_dir / "run" / "pids.json").read_text())

    def stop(self, number=signal.SIGTERM):
        """The exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)


class Bench:
    """A folder of binaries, a model and a data directory that does not exist yet."""

    def __init__(self, folder):
        self.folder = folder
        self.data_dir = folder / "data"
        self.model = folder / "tiny"
        self.model.mkdir()
        (self.model / "config.json").write_text("{}")
        (self.model / "model.safetensors").write_bytes(b"12345678")
        programs = folder / "bin"
        programs.mkdir()
        self.lathe = programs / "lathe"
        shutil.copy(BIN / "lathe", self.lathe)
        shutil.copy(FAKE_ENGINE, programs / "lathe-engine")
        for name in ("worker", "gateway"):
            program = programs / f"lathe-{name}"
            program.write_text(f"#!/bin/sh\nexec {sys.executable} {HERE}/fake_{name}.py \"$@\"\n")
            program.chmod(0o755)
        self.started = []

    def up(self, *arguments, model=None):
        return self.up_with("--model", model or self.model, *arguments)

    def up_with(self, *arguments):
        """`arguments` name the models, or a file that does."""
        self.started.append(Up(self.lathe, self.data_dir, arguments))
        return self.started[-1]

    def run(self, *arguments):
        """A command that ends by itself."""
        return subprocess.run([self.lathe, *arguments], capture_output=True, text=True,
                              timeout=PATIENCE_SECONDS)

    def run_up(self, *arguments, model=None):
        return self.run("up", "--data-dir", self.data_dir, "--listen", "127.0.0.1:0", "--model",
                        model or self.model, *arguments)

    def steer(self, name, text=""):
        self.data_dir.mkdir(mode=0o700, exist_ok=True)
        (self.data_dir / name).write_text(text)

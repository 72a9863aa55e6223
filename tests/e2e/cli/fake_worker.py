"""A worker that only says that it is there: DIR/fake_worker_ready while it lives. Its arguments are in
DIR/worker_arguments.json, those of rank 1 in DIR/worker_arguments1.json; of another group than
default all its files have -GROUP in their names.

With DIR/fake_worker_exit, or DIR/fake_worker_exit-GROUP for one group, it prints that file and ends
with code 78 instead, or the one in DIR/fake_worker_code; with DIR/fake_worker_loading it does not become ready until that file is gone.
"""

import json
import os
import pathlib
import signal
import sys
import time

data_dir = pathlib.Path(sys.argv[sys.argv.index("--data-dir") + 1])
rank = sys.argv[sys.argv.index("--rank") + 1].replace("0", "")
group = sys.argv[sys.argv.index("--group") + 1]
suffix = "" if group == "default" else f"-{group}"
(data_dir / f"worker_arguments{rank}{suffix}.json").write_text(json.dumps(
    {"arguments": sys.argv[1:], "wait_policy": os.environ.get("OMP_WAIT_POLICY"),
     "devices": os.environ.get("CUDA_VISIBLE_DEVICES")}))
ready = data_dir / f"fake_worker_ready{suffix}"
ready.unlink(missing_ok=True)
for words in (data_dir / "fake_worker_exit", data_dir / f"fake_worker_exit-{group}"):
    if words.exists():
        print(words.read_text(), file=sys.stderr)
        code = data_dir / "fake_worker_code"
        sys.exit(int(code.read_text()) if code.exists() else 78)
while (data_dir / "fake_worker_loading").exists():
    time.sleep(0.01)
ready.touch()
signal.sigwait({signal.SIGTERM})

"""How long a client waits for its next result when the leader is gone or hangs and a standby takes
over: two engines on one Postgres, a worker, a gateway, a tiny model.

Run: .venv/bin/python tests/fault/standby_recovery.py --how stop --rounds 3
"""

import argparse
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.engine_pair import EnginePair  # noqa: E402
from support.lathe_server import tiny_model  # noqa: E402
from support.postgres_cluster import PostgresCluster  # noqa: E402
from support.stubborn_api import Program, StubbornApi  # noqa: E402

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "end": signal.SIGTERM}


def recovery_seconds(how):
    """From the signal to the first result of what was submitted after it."""
    with PostgresCluster() as cluster, EnginePair(tiny_model(), cluster) as pair:
        api = StubbornApi(pair, patience=120)
        program = Program(api)
        program.step()
        pair.wait_standby("b")
        begin = time.monotonic()
        pair.signal("a", SIGNALS[how])
        api.result(program.forward_backward((21, 31, 32)))
        seconds = time.monotonic() - begin
        api.close()
        return seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--how", choices=SIGNALS, default="stop")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    found = [recovery_seconds(args.how) for _ in range(args.rounds)]
    print(f"first result after {SIGNALS[args.how].name} of the leader, a standby beside it: "
          f"{', '.join(f'{one:.1f}' for one in found)} s")

"""An upgrade by one release and back, process by process, while a client trains: two engines on one
Postgres, a worker, a gateway, a tiny model. The programs of two builds stand for the two releases.

Run: tools/check upgrade, or
     .venv/bin/python tests/fault/upgrade.py --next build/release+1/bin
"""

import argparse
import os
import pathlib
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.engine_pair import EnginePair  # noqa: E402
from support.lathe_server import BIN, tiny_model  # noqa: E402
from support.postgres_cluster import PostgresCluster  # noqa: E402
from support.stubborn_api import Program, StubbornApi, steps_while  # noqa: E402


class Service:
    def __init__(self, pair):
        self.pair = pair

    def replace(self, name, programs, start):
        self.pair.signal(name, signal.SIGTERM)
        self.pair.wait_end(name)
        self.pair.programs[name] = programs
        start()

    def change_engines(self, programs):
        """First the standby, then the leader. The worker stays attached."""
        leader = self.pair.wait_leader()
        standby = "b" if leader == "a" else "a"
        self.replace(standby, programs, lambda: self.pair.start_engine(standby))
        self.pair.wait_standby(standby)

        def start_old_leader():
            assert self.pair.wait_leader() == standby
            self.pair.start_engine(leader)

        self.replace(leader, programs, start_old_leader)
        self.pair.wait_standby(leader)
        assert self.pair.processes["worker"].poll() is None

    def change_worker(self, programs):
        self.replace("worker", programs, self.pair.start_worker)

    def change_gateway(self, programs):
        self.replace("gateway", programs, self.pair.start_gateway)


def upgrade_and_back(programs):
    with PostgresCluster() as cluster, EnginePair(tiny_model(), cluster) as pair:
        api = StubbornApi(pair, patience=120)
        program = Program(api)
        service = Service(pair)
        for release in (programs, BIN):
            for change in (service.change_engines, service.change_worker, service.change_gateway):
                steps_while(program, lambda change=change, release=release: change(release))
                print(f"upgrade: {change.__name__} to {release}: {len(program.sizes)} steps", flush=True)
        program.check()
        api.close()
        logs = "".join(pair.log(name) for name in pair.processes)
        assert "refused" not in logs, [line for line in logs.splitlines() if "refused" in line]


def refusal(programs):
    """The engine of this build names both protocols to a worker that is two releases apart."""
    with PostgresCluster() as cluster, EnginePair(tiny_model(), cluster) as pair:
        pair.signal("worker", signal.SIGTERM)
        pair.wait_end("worker")
        pair.programs["worker"] = programs
        pair.start_worker()
        pair.wait_log(pair.leader(), "upgrade the engine")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--next", type=pathlib.Path, help="programs of the next release")
    parser.add_argument("--after-next", type=pathlib.Path, help="programs of the release after that")
    args = parser.parse_args()
    if args.next:
        upgrade_and_back(args.next)
    if args.after_next:
        refusal(args.after_next)

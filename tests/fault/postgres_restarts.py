"""Restarts Postgres again and again under an engine that serves, and checks that nothing was lost
or done twice: the programs of kill_loop.py against an undisturbed run of the same.

The server is stopped as by a crash (SIGQUIT) or its postmaster killed (-9), in turn, stays away for
up to two seconds and recovers.
Run: .venv/bin/python tests/fault/postgres_restarts.py --restarts 100 --longest 40
"""

import argparse
import functools
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.dirname(__file__))
import kill_loop  # noqa: E402
from support.lathe_server import LatheServer, tiny_model  # noqa: E402
from support.postgres_cluster import PostgresCluster  # noqa: E402


# How the server ends, in turn.
WAYS = (PostgresCluster.stop, PostgresCluster.kill)


def work_until(program, is_over, counts, number):
    while not is_over():
        program.burst()
        counts[number] += 1


def programs_of(server, count):
    return [kill_loop.Program(server, number) for number in range(count)]


def disturbed(restarts, num_programs, longest, seed, ways):
    """(losses, samples, bursts) of each program, of a run in which Postgres went away."""
    rng = random.Random(seed)
    over = threading.Event()
    with PostgresCluster() as cluster, \
            LatheServer(tiny_model(), store=cluster.create_database("lathe")) as server:
        programs = programs_of(server, num_programs)
        counts = [0] * num_programs
        engine = server.pids()["engine"]

        def restart():
            try:
                for number in range(restarts):
                    time.sleep(rng.uniform(0.3, longest))
                    ways[number % len(ways)](cluster)
                    time.sleep(rng.uniform(0, 2))
                    cluster.start()
            finally:
                over.set()

        kill_loop.in_threads([restart] + [
            functools.partial(work_until, program, over.is_set, counts, number)
            for number, program in enumerate(programs)])
        assert server.pids()["engine"] == engine, "the engine did not outlive its database"
        for program in programs:
            program.check_usage()
            program.close()
        return [p.losses for p in programs], [p.samples for p in programs], counts


def undisturbed(counts):
    with LatheServer(tiny_model()) as server:
        programs = programs_of(server, len(counts))
        for program, count in zip(programs, counts):
            for _ in range(count):
                program.burst()
            program.close()
        return [p.losses for p in programs], [p.samples for p in programs]


def check(restarts, num_programs=2, longest=2.0, seed=0, ways=WAYS):
    """Raises AssertionError unless both runs agree; returns the number of steps."""
    losses, samples, counts = disturbed(restarts, num_programs, longest, seed, ways)
    calm_losses, calm_samples = undisturbed(counts)
    for mine, calm in zip(losses, calm_losses):
        assert len(mine) == len(calm) > 0
        worst = max(abs(a - b) / max(1.0, abs(b)) for a, b in zip(mine, calm))
        assert worst <= 1e-5, f"losses differ by {worst}"
    assert samples == calm_samples, "samples differ from the undisturbed run"
    return sum(counts) * kill_loop.Program.STEPS_AHEAD


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--restarts", type=int, default=100)
    parser.add_argument("--programs", type=int, default=2)
    parser.add_argument("--longest", type=float, default=5, help="seconds between two restarts")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    steps = check(args.restarts, args.programs, args.longest, args.seed)
    print(f"ok: {args.restarts} restarts of Postgres, {steps} steps, none lost or done twice")

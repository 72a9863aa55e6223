"""Cases of scale_bench.py about the number of things that the engine keeps."""

import collections
import contextlib
import os
import re
import sqlite3
import statistics
import subprocess
import time

from cases import histogram_quantile
from ledger import NUM_MODELS, Sql, fill
from machine import ms
from null_service import NullService
from purge import FIRST_PURGE_SECONDS
from result import Broken, Row
from support.lathe_server import BIN

SCALE_TEST = BIN.parent / "tests" / "engine_core_scale_test"
STEP_LINE = re.compile(r"^(\S.*?) +(\d+) +([\d.]+) +([\d.]+) +([\d.]+) +\d+ +(\d+)$", re.MULTILINE)
# Once for each leader or worker. All others depend on what clients do.
RARE_STEPS = ("start", "first worker attached", "worker attached", "worker lost")
# Records that a sweep visits in one Step at most, however many there are (CoreOptions::max_swept).
MAX_SWEPT = 256
HOUR = 3600 * 10**9
MIB = 1 << 20
# A model's first request may have a seq_id of at most 65,536.
REQUESTS_OF_MODEL = 50_000
# While results are deleted. They need not all go: a million an hour are 278 a second.
PURGE_SECONDS = 120
RESULTS_PER_SECOND = 278
SEARCH = '{"display_name": "%s"}'


StepFigures = collections.namedtuple("StepFigures", "number p50 p99 longest visited")


def run_scale_test(samplers):
    """{kind of Step: StepFigures} with so many samplers in each of the 5,000 sessions."""
    answer = subprocess.run([SCALE_TEST], capture_output=True, text=True, check=False,
                            env={**os.environ, "LATHE_SCALE_SAMPLERS": str(samplers)})
    if answer.returncode != 0:
        raise Broken(answer.stdout[-2000:])
    return {kind: StepFigures(*map(float, rest)) for kind, *rest in
            STEP_LINE.findall(answer.stdout)}


def steps(_, args):
    """The core with 10,000 models, 5,000 sessions, 300,000 samplers and 262,144 requests."""
    fewer, found = (run_scale_test(samplers) for samplers in (6, 60))
    common = {kind: figures for kind, figures in found.items() if kind not in RARE_STEPS}
    longest = max(common, key=lambda kind: common[kind].longest)
    slowest = max(common, key=lambda kind: common[kind].p99)
    yield Row("longest Step", "50 ms", f"{ms(common[longest].longest)} ({longest})",
              common[longest].longest <= 50)
    yield Row("p99 of the slowest kind of Step", "5 ms", f"{ms(common[slowest].p99)} ({slowest})",
              common[slowest].p99 <= 5)
    for kind in RARE_STEPS:
        yield Row(f"longest Step \"{kind}\"", "50 ms",
                  f"{ms(found[kind].longest)} of {found[kind].number:.0f}",
                  found[kind].longest <= 50)
    # Some pieces come only with more samplers than one Step handles.
    growth = {kind: figures.visited / max(fewer[kind].visited, MAX_SWEPT)
              for kind, figures in common.items() if kind in fewer}
    most = max(growth, key=growth.get)
    yield Row("records that a Step visits with ten times as many samplers", "1.3",
              f"{growth[most]:.2f} times ({most}: {common[most].visited:.0f})", growth[most] <= 1.3)


class DueResults:
    """Counts the results that are past their time while the engine runs."""

    def __init__(self, service):
        self.service = service
        self.condition = ("SELECT count(*) FROM requests WHERE has_result = 1 AND delivered_at > 0 "
                          f"AND delivered_at < {time.time_ns() - HOUR}")

    def count(self):
        if self.service.cluster:
            return int(self.service.cluster.psql("lathe", self.condition))
        path = f"file:{self.service.data_dir}/lathe.db?mode=ro"
        with contextlib.closing(sqlite3.connect(path, uri=True, timeout=60)) as database:
            return database.execute(self.condition).fetchone()[0]


def rows(store, args):
    """Submissions while a tenth of all results is deleted."""
    size = args.size
    models = max(NUM_MODELS, size.finished // REQUESTS_OF_MODEL)
    due = size.expiring // models
    # No two of a model are delivered at the same time.
    age = f"t.delivered_at - n.i * 1000 - CASE WHEN n.i <= {due} THEN {2 * HOUR} ELSE 0 END"
    with NullService(store, engine=("--snapshot-interval", "1s", "--snapshot-share", "1")) as service:
        counts = fill(service, size.finished, 2 * models, models, delivered_at=age)
        service.start()
        started, memory = service.start_seconds, service.engine_memory()
        first_purge = time.monotonic() + FIRST_PURGE_SECONDS
        what = f"{counts[0]:,} finished requests"
        yield Row(f"{what}: start", "5 s", f"{started:.1f} s", started <= 5)
        yield Row(f"{what}: engine's memory after it", "400 MiB", f"{memory / MIB:.0f} MiB",
                  memory <= 400 * MIB)
        load = service.load("another")
        results = DueResults(service)
        num_due = results.count()
        if num_due < 0.9 * size.expiring:
            raise Broken(f"{num_due} results are due instead of {size.expiring}")
        alone = submissions(load, size)
        time.sleep(max(0, first_purge - time.monotonic()))
        began, rounds, left = time.monotonic(), [], num_due
        while left > 0 and time.monotonic() - began < PURGE_SECONDS:
            rounds.append(submissions(load, size))
            left = results.count()
        seconds = time.monotonic() - began
        load.close()
        if left == num_due:
            raise Broken(f"no result was deleted in {seconds:.0f} s")
        peak = service.engine_memory()
        step = histogram_quantile(service.metrics(), "lathe_engine_core_step_seconds", 0.99)
    worst = max(one["submit_p99_ms"] for one in rounds)
    longest = max(one["submit_max_ms"] for one in rounds)
    yield Row(f"{num_due:,} of them expire at once: p99 of a submission meanwhile", "25 ms",
              f"{ms(worst)} (worst of {len(rounds)} rounds; before {ms(alone['submit_p99_ms'])})",
              worst <= 25)
    yield Row("longest submission meanwhile", "", ms(longest), None)
    yield Row("Steps of the engine's core, p99", "5 ms", f"at most {ms(1e3 * step)}", step <= 5e-3)
    rate = (num_due - left) / seconds
    # The first of them begin while it is waited for, so a small ledger may be gone at once.
    yield Row("results deleted a second", str(RESULTS_PER_SECOND),
              f"{rate:.0f} ({left:,} are left; engine at {peak / MIB:.0f} MiB)",
              left == 0 or rate >= RESULTS_PER_SECOND)


def submissions(load, size):
    return load.run(op="steps", clients=4, seconds=size.seconds, pause_ms=10)


def add_sessions(service, key, count):
    """Leaves the tenant of `key` with that many finished sessions."""
    load = service.load("searcher")
    load.run(op="steps", clients=1, seconds=0.1)
    load.close()
    service.stop()
    sql = Sql(service)
    sql.run("UPDATE sessions SET state = 1, display_name = 'session of a name'")
    sql.multiply("sessions", "session_id = (SELECT min(session_id) FROM sessions)", count,
                 session_id="t.session_id || '-' || n.i", ordering="t.ordering + n.i",
                 created_at="t.created_at + n.i", state="2",
                 display_name="'session of a name ' || n.i")
    sql.close()
    service.start()


def searches(store, args):
    """Another tenant's calls beside searches that find nothing, which look at most."""
    size = args.size
    with NullService(store) as service:
        key = service.key("searcher")
        add_sessions(service, key, size.sessions)
        load, searching = service.load("another"), service.load("searcher")
        submissions(load, size)  # warms up, until the worker of the last engine is given up
        epoch = service.epoch()
        alone, beside, answers = [], [], {}
        for _ in range(size.rounds):
            alone.append(submissions(load, size))
            searching.run(op="open_callers", clients=size.searches, api_key=key,
                          path="sessions/search", body=SEARCH % "absent")
            beside.append(submissions(load, size))
            for status, count in searching.run(op="close_callers").items():
                answers[status] = answers.get(status, 0) + count
        load.close()
        searching.close()
        attached = service.epoch() - epoch
        log = service.log("engine")[-2000:]
    if not answers.get("200"):
        raise Broken(f"no search was answered: {answers}")
    what = f"{size.sessions:,} sessions, {size.searches} searches at once: another tenant's "
    for name, of in (("p99_ms", "request"), ("submit_p99_ms", "submission")):
        undisturbed = statistics.median(one[name] for one in alone)
        disturbed = statistics.median(one[name] for one in beside)
        yield Row(f"{what}{of}, p99 over undisturbed", "1.5",
                  f"{disturbed / undisturbed:.2f} ({ms(disturbed)} to {ms(undisturbed)})",
                  disturbed <= 1.5 * undisturbed)
    shown = ", ".join(f"{count} of status {status}" for status, count in sorted(answers.items()))
    yield Row("answers to searches; workers that left", "0", f"{shown}; {attached}", attached == 0)
    if attached:
        raise Broken(f"the worker left {attached} times: {log}")

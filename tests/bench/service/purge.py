#!/usr/bin/env python3
"""What retention costs those who submit: sessions are created one after the other while the engine
purges `--rows` results.

    .venv/bin/python tests/bench/service/purge.py [--store postgres] [--rows 600000]

"due": all results are past their time. "fresh": none is. LATHE_BIN names the programs of another
build to compare with."""

import argparse
import collections
import http.client
import json
import sqlite3
import time

from ledger import Sql
from null_service import NullService

# The engine purges once a minute, first a minute after its start.
FIRST_PURGE_SECONDS = 55
DAY = 24 * 3600 * 10**9

Outcome = collections.namedtuple("Outcome", "calls worst_ms refused left")


def columns_of(sql, table, **values):
    """Names and expressions of a finished request's row; `values` replaces the defaults."""
    text = {"request_id", "tenant_id", "owner_id", "content_hash", "body_id", "outcome"}
    names = sql.columns(table)
    return names, [values.get(name, "''" if name in text else "0") for name in names]


def fill(service, rows, age):
    """Adds `rows` finished requests, `age` nanoseconds old, while the engine does not run."""
    sql = Sql(service)
    blob = "'\\x00'::bytea" if service.cluster else "x'00'"
    at = str(time.time_ns() - age)
    for table, values in (
            ("requests", {"request_id": "'r' || n.i", "tenant_id": "'t'", "owner_id": "'m'",
                          "op_class": "1", "seq_id": "n.i", "kind": "4", "state": "3",
                          "plan": blob, "done_at": at, "has_result": "1"}),
            ("results", {"request_id": "'r' || n.i",
                         "bytes": "sha256('x')" if service.cluster else "zeroblob(200)"})):
        names, expressions = columns_of(sql, table, **values)
        sql.run(f"INSERT INTO {table} ({', '.join(names)}) WITH RECURSIVE n(i) AS "
                f"(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) "
                f"SELECT {', '.join(expressions)} FROM n")
    sql.close()


def count_results(service):
    if service.cluster:
        return int(service.cluster.psql("lathe", "SELECT count(*) FROM results"))
    with sqlite3.connect(f"{service.data_dir}/lathe.db") as database:
        return database.execute("SELECT count(*) FROM results").fetchone()[0]


def create_sessions(service, key, seconds):
    """Creates sessions for that long: number of calls, the longest in ms, number of refused ones."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=120)
    body = json.dumps({"tags": [], "user_metadata": {}, "sdk_version": "0.38.0"})
    calls, worst, refused = 0, 0.0, 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        connection.request("POST", "/api/v1/create_session", body,
                           {"X-API-Key": key, "Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        worst = max(worst, time.monotonic() - began)
        calls += 1
        refused += answer.status != 200
        time.sleep(0.002)
    return calls, worst * 1000, refused


def measure(store, rows, age, seconds):
    with NullService(store) as service:
        key = service.key()
        service.stop()
        fill(service, rows, age)
        service.start()
        time.sleep(FIRST_PURGE_SECONDS)
        outcome = create_sessions(service, key, seconds)
        return Outcome(*outcome, count_results(service))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--store", default="sqlite", choices=("sqlite", "postgres"))
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--seconds", type=int, default=40)
    args = parser.parse_args()
    for name, age in (("due", 2 * DAY), ("fresh", 0)):
        outcome = measure(args.store, args.rows, age, args.seconds)
        print(f"{args.store}, {args.rows:,} results, {name}: {outcome.calls} sessions, longest "
              f"{outcome.worst_ms:.1f} ms, {outcome.refused} refused; {outcome.left:,} results left",
              flush=True)


if __name__ == "__main__":
    main()

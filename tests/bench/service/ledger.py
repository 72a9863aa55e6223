"""A ledger as years of work leave it: one finished and one waiting request of each model are made by
the service itself, and multiplied in its database."""

import os
import signal
import sqlite3
import time

NUM_MODELS = 32
FINISHED = "SELECT request_id FROM requests WHERE op_class = 1 AND state = 3 AND seq_id = {seq}"
WAITING = "SELECT request_id FROM requests WHERE op_class = 1 AND state < 3"


class Sql:
    """Statements for either store; the engine must not run."""

    def __init__(self, service):
        self.cluster = service.cluster
        self.sqlite = None if self.cluster else sqlite3.connect(
            os.path.join(service.data_dir, "lathe.db"))
        if self.sqlite:
            # A bench that is killed begins anew.
            for setting in ("journal_mode = OFF", "synchronous = OFF", "cache_size = -1000000"):
                self.sqlite.execute(f"PRAGMA {setting}")

    def run(self, statement):
        """First column of what it answers."""
        if self.cluster:
            return [line for line in self.cluster.psql("lathe", statement).splitlines() if line]
        with self.sqlite:
            return [row[0] for row in self.sqlite.execute(statement)]

    def columns(self, table):
        if self.cluster:
            # Without the rowid, which the database gives.
            return self.run("SELECT column_name FROM information_schema.columns WHERE table_name = "
                            f"'{table}' AND is_identity = 'NO' ORDER BY ordinal_position")
        return self.run(f"SELECT name FROM pragma_table_info('{table}')")

    def multiply(self, table, where, count, **changes):
        """Inserts `count` copies of each row; `changes` are expressions of t (the row) and i."""
        columns = self.columns(table)
        values = ", ".join(changes.get(name, f"t.{name}") for name in columns)
        self.run(f"INSERT INTO {table} ({', '.join(columns)}) "
                 f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) "
                 f"SELECT {values} FROM {table} AS t CROSS JOIN n WHERE t.{where}")

    def close(self):
        if self.sqlite:
            self.sqlite.execute("PRAGMA journal_mode = WAL")
            self.sqlite.close()
        else:
            self.run("VACUUM ANALYZE")


def fill(service, finished, waiting, models=NUM_MODELS, **changes):
    """Leaves `service` stopped, with that many requests of each kind, delivered within the hour.
    `changes`: expressions for the rows of finished requests, as for Sql.multiply."""
    per_model, waiting_per_model = finished // models, waiting // models
    load = service.load()
    load.run(op="train", models=models, last_seq=per_model)
    wait_for_snapshots(service, 2 * models)
    worker = service.processes.pop("worker")
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    load.run(op="submit", tokens=64)
    load.close()
    time.sleep(2)  # what was delivered is written with a tick
    service.stop()
    sql = Sql(service)
    done = FINISHED.format(seq=per_model)
    identity = {"request_id": "t.request_id || '-' || n.i"}
    sql.multiply("results", f"request_id IN ({done})", per_model - 2, **identity)
    sql.multiply("requests", f"request_id IN ({done})", per_model - 2, **identity, seq_id="n.i",
                 **changes)
    bodies = f"body_id IN (SELECT body_id FROM requests WHERE request_id IN ({WAITING}))"
    body = {"body_id": "t.body_id || '-' || n.i"}
    sql.multiply("payloads", bodies, waiting_per_model - 1, **body)
    sql.multiply("requests", f"request_id IN ({WAITING})", waiting_per_model - 1, **identity, **body,
                 seq_id="t.seq_id + n.i")
    counts = [int(sql.run(f"SELECT count(*) FROM requests WHERE state {which}")[0])
              for which in (">= 3", "< 3")]
    sql.close()
    return counts


def wait_for_snapshots(service, expected, timeout=60):
    """Until two of each model are there, so that its older log is not needed."""
    deadline = time.monotonic() + timeout
    while True:
        count = sum(float(line.rsplit(" ", 1)[1]) for line in service.metrics().splitlines()
                    if line.startswith('lathe_engine_snapshots_total{') and '"ok"' in line)
        if count >= expected:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{count} snapshots after {timeout} s:\n{service.log('engine')}")
        time.sleep(0.1)

"""`lathe doctor` on databases and object stores."""

import contextlib
import http.server
import json
import os
import pathlib
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
from support.doctor import LATHE, doctor, errors, good, named, worst  # noqa: E402
from support.lathe_server import BIN, LatheServer, tiny_model  # noqa: E402
from support.postgres_cluster import PostgresCluster  # noqa: E402


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    return folder


def test_a_database_of_another_program(data):
    with sqlite3.connect(data / "lathe.db") as database:
        database.execute("CREATE TABLE other (x)")
    named(doctor(options=good(data))[1], "store", "another program")


def test_a_database_of_a_later_release(data):
    with sqlite3.connect(data / "lathe.db") as database:
        database.execute("CREATE TABLE schema_version (id INTEGER PRIMARY KEY, version INTEGER NOT NULL,"
                         " min_protocol INTEGER NOT NULL)")
        database.execute("INSERT INTO schema_version VALUES (1, 999, 999)")
    named(doctor(options=good(data))[1], "store", "999")


def test_a_damaged_database(tmp_path):
    with LatheServer(tiny_model()) as server:
        folder = tmp_path / "copy"
        shutil.copytree(server.data_dir, folder, ignore=shutil.ignore_patterns("run", "*.sock"))
    database = folder / "lathe.db"
    with sqlite3.connect(database) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = database.stat().st_size
    with database.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * 8192)
    options = ["--data-dir", str(folder), *good(folder)[2:]]
    assert doctor(options=options)[1]["store"][0]["state"] == "ok", "only --deep reads all"
    named(doctor("--deep", options=options)[1], "store")


def test_a_database_that_does_not_answer(data):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = f"postgres://lathe:hidden@127.0.0.1:{silent.getsockname()[1]}/lathe"
        process = subprocess.Popen([LATHE, "doctor", "--format", "json", "--", *good(data)], text=True,
                                   stdout=subprocess.PIPE, env={**os.environ, "LATHE_UP__STORE": store})
        asking, _ = silent.accept()  # its engine waits while this is open
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # it has ended
                assert b"hidden" not in path.read_bytes()
        asking.close()
        output, _ = process.communicate(timeout=60)
        assert "hidden" not in output
        found = {row["name"]: [row] for row in json.loads(output)["checks"]}
        named(found, "store")


def make_schema(cluster, data, store):
    """An engine makes its tables there, and ends."""
    process = subprocess.Popen(
        [str(BIN / "lathe-engine"), "--data-dir", str(data), "--run-dir", str(data), "--metrics-listen", ""],
        env={**os.environ, "LATHE_ENGINE__STORE": store}, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 30
        while not cluster.psql("lathe", "SELECT to_regclass('leader')") or \
                cluster.psql("lathe", "SELECT term FROM leader") in ("", "0"):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        process.terminate()
        process.wait(30)


def test_postgres_with_which_an_engine_starts(data):
    with PostgresCluster({"max_connections": "20"}) as cluster:
        store = cluster.create_database("lathe")
        cluster.psql("lathe", "CREATE USER guest")
        guest = store.replace("user=lathe", "user=guest")
        named(doctor(options=[*good(data), "--store", guest])[1], "store", "may not create tables")
        make_schema(cluster, data, store)
        options = [*good(data), "--store", store]
        named(doctor(options=options)[1], "store", "max_connections is 20, expected at least 28", state="warning")
        cluster.psql("lathe", "GRANT SELECT ON ALL TABLES IN SCHEMA public TO guest")
        _, found = doctor(options=[*good(data), "--store", guest])
        assert errors(found) == set()
        assert any("may not create tables" in row["found"] for row in found["store"])
        cluster.psql("lathe", "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS"
                              " $$SELECT pg_catalog.clock_timestamp() - interval '2 minutes'$$")
        late = store + "&options=-csearch_path%3Dpublic%2Cpg_catalog"
        _, found = doctor(options=[*good(data), "--store", late])
        assert errors(found) == set()
        assert any(re.search(r"clock differs by -12\d s", row["found"]) for row in found["store"])


def test_postgres(data):
    with PostgresCluster() as cluster:
        options = [*good(data), "--store", cluster.create_database("lathe")]
        assert "PostgreSQL 15" in worst(doctor(options=options)[1], "store")["found"]
        cluster.psql("postgres", "CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'"
                                 " TEMPLATE template0")
        named(doctor(options=[*good(data), "--store", cluster.url("latin")])[1], "store", "UTF8")


class Refusing(http.server.BaseHTTPRequestHandler):
    """An object store that knows the bucket and not the keys."""

    def do_PUT(self):
        text = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(403)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}


def with_bucket(data, port):
    return [*good(data), "--storage-files", "s3://bucket", "--storage-endpoint", f"http://127.0.0.1:{port}"]


def test_an_object_store_that_refuses(data):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        _, found = doctor(options=with_bucket(data, server.server_address[1]), env=KEYS)
        server.shutdown()
        thread.join()
    named(found, "storage", "s3://bucket/doctor/")


def test_an_object_store_that_is_away(data):
    """Lathe serves on without it."""
    named(doctor(options=with_bucket(data, 1), env=KEYS)[1], "storage", "127.0.0.1:1", state="warning")


class Store(http.server.ThreadingHTTPServer):
    """A bucket in memory. `refusals`: the answer (status, code) to a method, or to "uploads", their list."""

    def __init__(self, **refusals):
        super().__init__(("127.0.0.1", 0), Bucket)
        self.refusals = refusals
        self.objects = {}
        self.written = []


class Bucket(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body=b""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_request(self):
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        refused = self.server.refusals.get("uploads" if "uploads" in query else self.command)
        if refused:
            return self.answer(refused[0], f"<Error><Code>{refused[1]}</Code></Error>".encode())
        if self.command == "PUT":
            self.server.objects[path] = body
            self.server.written.append(path)
            return self.answer(200)
        if self.command == "DELETE":
            self.server.objects.pop(path, None)
            return self.answer(204)
        if query:
            return self.answer(200, b"<ListMultipartUploadsResult/>" if "uploads" in query else b"<ListBucketResult/>")
        if path not in self.server.objects:
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        return self.answer(200, self.server.objects[path])

    do_GET = do_PUT = do_DELETE = handle_request

    def log_message(self, *_):
        pass


def look_at(data, store):
    """The doctor's findings with this bucket."""
    with store:
        thread = threading.Thread(target=store.serve_forever)
        thread.start()
        try:
            return doctor(options=with_bucket(data, store.server_address[1]), env=KEYS)[1]
        finally:
            store.shutdown()
            thread.join()


def test_one_object_for_each_role(data):
    """So doctors that are killed leave one."""
    names = set()
    for _ in range(2):
        store = Store()
        assert worst(look_at(data, store), "storage")["state"] == "ok"
        assert store.objects == {}
        names.update(store.written)
    assert names == {"/bucket/doctor/up"}


@pytest.mark.parametrize(("refusals", "words"), [
    ({"PUT": (507, "XMinioStorageFull")}, "none can be saved until there is room"),
    ({"PUT": (403, "QuotaExceeded")}, "none can be saved until there is room"),
    ({"uploads": (501, "NotImplemented")}, "All else works"),
    ({"uploads": (403, "AccessDenied")}, "All else works"),
    ({"PUT": (400, "ExpiredToken")}, "Lathe serves on"),
    ({"PUT": (403, "RequestTimeTooSkewed")}, "the clock is set"),
], ids=["full", "quota", "no-list", "no-list-right", "old-keys", "clock"])
def test_an_object_store_that_a_service_can_live_with(data, refusals, words):
    named(look_at(data, Store(**refusals)), "storage", words, state="warning")


@pytest.mark.parametrize("refusals", [{"GET": (403, "AccessDenied")}, {"PUT": (404, "NoSuchBucket")}],
                         ids=["right", "bucket"])
def test_an_object_store_that_is_set_wrongly(data, refusals):
    named(look_at(data, Store(**refusals)), "storage")


def test_an_object_store_in_good_order(data, tmp_path):
    place = tmp_path / "objects"
    place.mkdir()
    _, found = doctor(options=[*good(data), "--storage-files", f"file:{place}"])
    assert worst(found, "storage")["state"] == "ok" and errors(found) == set()
    assert [path for path in place.rglob("*") if path.is_file()] == [], "it leaves nothing behind"

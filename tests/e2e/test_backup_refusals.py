"""Backups that are killed, have no room or are damaged, and what restore refuses."""

import hashlib
import json
import os
import pathlib
import shutil
import sqlite3
import subprocess

import pytest
from support.lathe_server import BIN, LatheServer, tiny_model
from support.postgres_cluster import PostgresCluster
from support.raw_api import RawApi, RawModel
from support.small_disk import small_disk

CONFIGURATION, IO_ERROR = 78, 74


def lathe(verb, *arguments, prefix=(), env=None):
    return subprocess.run([*prefix, str(BIN / "lathe"), verb, *map(str, arguments)],
                          capture_output=True, text=True, timeout=120, check=False,
                          env={**os.environ, **(env or {})})


@pytest.fixture(scope="module")
def server():
    with LatheServer(tiny_model(), env={"LATHE_WORKER__NUMERICS": "exact",
                                        "LATHE_ENGINE__SNAPSHOT_INTERVAL": "0s"}) as running:
        api = RawApi(running)
        model = RawModel(api)
        for name in ("first", "second"):
            save(model, name)
        api.close()
        yield running


def save(model, name):
    return model.api.result(model.api.made("save_weights", {
        "model_id": model.model_id, "seq_id": model.next_seq_id(), "path": name}))["path"]


def back_up(server, out, **options):
    return lathe("backup", "--data-dir", server.data_dir, "--out", out, **options)


@pytest.fixture
def backup(server, tmp_path):
    out = tmp_path / "backup"
    done = back_up(server, out)
    assert done.returncode == 0, done.stderr
    return out


def refused(backup, data_dir, *arguments):
    """Why restore refuses. It leaves nothing behind."""
    existed = data_dir.exists()
    before = sorted(data_dir.rglob("*")) if existed else []
    done = lathe("restore", "--from", backup, "--data-dir", data_dir, *arguments)
    assert done.returncode in (CONFIGURATION, IO_ERROR), (done.returncode, done.stderr)
    left = [path for path in data_dir.rglob("*")] if data_dir.exists() else []
    assert sorted(left) == before
    return done.stderr


def checkpoint_files(backup):
    return sorted(path for path in (backup / "checkpoints").rglob("*") if path.is_file())


def rewrite(backup, **fields):
    """Changes fields of backup.json, with a right digest."""
    path = backup / "backup.json"
    manifest = {**json.loads(path.read_text()), **fields}
    manifest.pop("fields_sha256")
    text = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    manifest["fields_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(manifest))


def test_a_backup_that_is_killed_is_not_restored_and_the_next_one_works(server, tmp_path):
    """Killed at its first sync of a file, its second, and so on, until one goes through."""
    complete = False
    for sync in range(1, 200):
        out = tmp_path / f"killed-{sync}"
        done = back_up(server, out, prefix=(
            "strace", "-f", "-q", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e",
            f"inject=fsync,fdatasync:signal=SIGKILL:when={sync}"))
        if complete := done.returncode == 0:
            break
        # Only the manifest itself remained to be synced.
        if (out / "backup.json").exists():
            continue
        assert "is no complete backup" in refused(out, tmp_path / "data")
    assert complete and sync > 5, f"a backup after {sync - 1} kills"
    assert not pathlib.Path(server.data_dir, "checkpoints", "backup").exists()
    done = lathe("restore", "--from", out, "--data-dir", tmp_path / "data")
    assert done.returncode == 0, done.stderr


def test_a_full_disk_names_the_path_and_leaves_nothing(server, tmp_path):
    with small_disk(tmp_path / "disk", 1) as disk:
        disk.fill(keep_bytes=96 << 10)
        done = back_up(server, disk.folder / "out")
        assert done.returncode == IO_ERROR
        assert f"{disk.folder}/out/" in done.stderr and "No space left" in done.stderr.replace(
            "no space", "No space"), done.stderr
        assert not (disk.folder / "out").exists()


def test_files_of_another_file_system_are_copied(server, tmp_path):
    with small_disk(tmp_path / "disk", 64) as disk:
        out = disk.folder / "out"
        assert back_up(server, out).returncode == 0
        for path in checkpoint_files(out):
            assert path.stat().st_nlink == 1
        assert lathe("restore", "--from", out, "--data-dir", tmp_path / "data").returncode == 0
    assert not pathlib.Path(server.data_dir, "checkpoints", "backup").exists()


def test_files_of_the_same_file_system_are_linked(server, tmp_path):
    out = pathlib.Path(server.data_dir) / "same-disk"
    try:
        assert back_up(server, out).returncode == 0
        linked = [path for path in checkpoint_files(out) if path.stat().st_nlink > 1]
        assert linked == checkpoint_files(out) and linked
    finally:
        shutil.rmtree(out, ignore_errors=True)


def test_restore_refuses_what_is_not_empty(backup, tmp_path):
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "checkpoints").mkdir()
    assert "is not empty: it has checkpoints" in refused(backup, data_dir)
    # A log without its database would be applied to the restored one.
    database = tmp_path / "elsewhere.db"
    pathlib.Path(f"{database}-wal").touch()
    told = refused(backup, tmp_path / "other", "--store", f"sqlite:{database}")
    assert f"{database}-wal exists" in told


def test_restore_refuses_changed_files(backup, tmp_path):
    changed = checkpoint_files(backup)[-1]
    text = changed.read_bytes()
    changed.unlink()  # a link to the file of the service
    changed.write_bytes(text + b"x")
    assert f"{changed} differs from its digest" in refused(backup, tmp_path / "data")
    changed.unlink()
    assert f"{changed} does not exist" in refused(backup, tmp_path / "data")


def test_a_restore_that_fails_leaves_what_was_there(backup, tmp_path):
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "engine.lock").touch()
    # It fails after the files are in their places.
    told = refused(backup, data_dir, "--store", f"sqlite:{tmp_path}/none/lathe.db")
    assert f"{tmp_path}/none/lathe.db" in told


@pytest.mark.parametrize("fault", [
    "?link,linkat:error=EPERM", "renameat2:error=EINVAL", "renameat2:error=ENOSYS"])
def test_restore_needs_hard_links_or_renames_without_replacement(backup, tmp_path, fault):
    data_dir = tmp_path / "data"
    done = lathe("restore", "--from", backup, "--data-dir", data_dir, prefix=(
        "strace", "-f", "-q", "-o", "/dev/null", "-P", data_dir / "lathe.db",
        "-e", "trace=?link,linkat,renameat2", "-e", f"inject={fault}"))
    assert done.returncode == 0, done
    with sqlite3.connect(data_dir / "lathe.db") as db:
        assert db.execute("SELECT count(*) FROM checkpoints").fetchone()[0] >= 2
    db.close()
    assert not (data_dir / "lathe.db.restored").exists()


def test_restore_refuses_a_database_that_somebody_makes_meanwhile(backup, tmp_path):
    data_dir = tmp_path / "data"
    done = lathe("restore", "--from", backup, "--data-dir", data_dir, prefix=(
        "strace", "-f", "-q", "-o", "/dev/null", "-P", data_dir / "lathe.db",
        "-e", "trace=renameat2", "-e", "inject=renameat2:error=EEXIST"))
    assert done.returncode == CONFIGURATION and "File exists" in done.stderr, done
    assert not any(data_dir.iterdir())


def test_restore_refuses_a_changed_manifest(backup, tmp_path):
    path = backup / "backup.json"
    whole = path.read_text()
    path.write_text(whole.replace('"sqlite"', '"sqlitf"'))
    assert "was changed" in refused(backup, tmp_path / "data")
    path.write_text(whole[:-20])
    assert "is damaged" in refused(backup, tmp_path / "data")
    path.write_text(whole)
    rewrite(backup, files=[{"path": "../outside", "size_bytes": 0, "sha256": ""}])
    assert "path is ../outside" in refused(backup, tmp_path / "data")


def test_restore_refuses_a_later_format_and_a_newer_schema(backup, tmp_path):
    whole = (backup / "backup.json").read_text()
    rewrite(backup, format_version=2)
    assert "has format_version 2" in refused(backup, tmp_path / "data")
    (backup / "backup.json").write_text(whole)
    with sqlite3.connect(backup / "database" / "lathe.db") as db:
        db.execute("UPDATE schema_version SET version = 900, min_protocol = 900")
    db.close()
    assert "schema version 900" in refused(backup, tmp_path / "data")


def test_restore_refuses_a_database_of_another_kind_one_with_tables_and_a_newer_schema(
        server, backup, tmp_path):
    with PostgresCluster() as cluster:
        url = cluster.create_database("lathe")
        told = refused(backup, tmp_path / "data", "--store", url)
        assert "the backup is of a sqlite database" in told
        rewrite(backup, store="postgres")
        cluster.psql("lathe", "CREATE TABLE theirs (id bigint)")
        assert "the database has tables" in refused(backup, tmp_path / "data", "--store", url)
        rewrite(backup, schema_version=900)
        told = refused(backup, tmp_path / "data", "--store", url)
        assert "the backup has schema version 900" in told


def test_backup_refuses_a_folder_that_is_not_empty_and_a_place_without_a_database(server, backup,
                                                                                  tmp_path):
    again = back_up(server, backup)
    assert (again.returncode, "is not empty" in again.stderr) == (CONFIGURATION, True), again.stderr
    assert (backup / "backup.json").exists()
    none = lathe("backup", "--data-dir", tmp_path, "--out", tmp_path / "out")
    assert none.returncode == CONFIGURATION and "there is no database" in none.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("part", ["checkpoints", "bodies"])
def test_backup_refuses_a_folder_that_belongs_to_the_service(server, part):
    out = pathlib.Path(server.data_dir, part, "mine")
    told = back_up(server, out)
    assert told.returncode == CONFIGURATION and "belongs to the service" in told.stderr, told
    assert not out.exists()


def test_an_unreadable_file_is_named_and_the_rest_is_kept(server, tmp_path):
    """Reads of one file fail with EIO."""
    root = pathlib.Path(server.data_dir, "checkpoints")
    unreadable = sorted(root.glob("c*/adapter_model.safetensors"))[0].relative_to(root.parent)
    done = back_up(server, tmp_path / "out", prefix=(
        "strace", "-f", "-q", "-o", "/dev/null", "-P", tmp_path / "out" / unreadable,
        "-e", "trace=read", "-e", "inject=read:error=EIO"))
    assert done.returncode == 1, done.stderr
    assert done.stderr == f"{unreadable} is missing or damaged in the data directory\n"
    listed = {one["path"] for one in json.loads((tmp_path / "out/backup.json").read_text())["files"]}
    assert str(unreadable) not in listed and len(listed) > 3


def test_a_file_that_may_not_be_read_is_no_damage(server, tmp_path):
    root = pathlib.Path(server.data_dir, "checkpoints")
    name = sorted(root.glob("c*/adapter_model.safetensors"))[0].relative_to(root.parent)
    done = back_up(server, tmp_path / "out", prefix=(
        "strace", "-f", "-q", "-o", "/dev/null", "-P", tmp_path / "out" / name,
        "-e", "trace=?open,openat", "-e", "inject=?open,openat:error=EACCES"))
    assert done.returncode == CONFIGURATION, done
    assert f"cannot read {tmp_path}/out/{name}: Permission denied" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("error", "code"), [("EIO", IO_ERROR), ("EACCES", CONFIGURATION)])
def test_a_backup_fails_if_the_checkpoints_cannot_be_listed(server, tmp_path, error, code):
    root = pathlib.Path(server.data_dir, "checkpoints")
    done = back_up(server, tmp_path / "out", prefix=(
        "strace", "-f", "-q", "-o", "/dev/null", "-P", root,
        "-e", "trace=getdents64", "-e", f"inject=getdents64:error={error}"))
    assert done.returncode == code and f"cannot list {root}: " in done.stderr, done
    assert not (tmp_path / "out").exists()


def test_a_backup_without_any_checkpoint_fails(server, tmp_path):
    """As if the volume of the checkpoints were not mounted."""
    root = pathlib.Path(server.data_dir, "checkpoints")
    dirs = [path for path in root.iterdir() if (path / "manifest.json").exists()]
    aside = tmp_path / "aside"
    aside.mkdir()
    for path in dirs:
        path.rename(aside / path.name)
    try:
        done = back_up(server, tmp_path / "out")
    finally:
        for path in dirs:
            (aside / path.name).rename(path)
    assert done.returncode == IO_ERROR, done
    assert "directories of checkpoints that the database names are missing" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("fault", "told"), [
    ("error=EIO", "cannot list"),
    # As if the folder had no more entries.
    ("retval=0", "was written and is not in the backup"),
])
def test_a_list_without_all_files_is_no_complete_backup(server, tmp_path, fault, told):
    done = back_up(server, tmp_path / "out", prefix=(
        "strace", "-f", "-q", "-o", "/dev/null", "-P", tmp_path / "out" / "database",
        "-e", "trace=getdents64", "-e", f"inject=getdents64:{fault}"))
    assert done.returncode == IO_ERROR and told in done.stderr, done
    # The folder with this fault cannot be removed either.
    assert not (tmp_path / "out" / "backup.json").exists()


@pytest.mark.parametrize(("error", "code"), [("EIO", IO_ERROR), ("EACCES", CONFIGURATION)])
def test_the_exit_code_tells_a_bad_disk_from_a_wrong_folder(server, tmp_path, error, code):
    done = back_up(server, tmp_path / "out", prefix=(
        "strace", "-f", "-q", "-o", "/dev/null", "-P", tmp_path / "out",
        "-e", "trace=mkdir", "-e", f"inject=mkdir:error={error}"))
    assert done.returncode == code and f"cannot make {tmp_path}/out" in done.stderr, done


def test_a_missing_body_of_an_unfinished_request_is_named(tmp_path):
    data_dir = tmp_path / "data"
    with LatheServer(tiny_model(), data_dir=str(data_dir)) as server:
        api = RawApi(server)
        RawModel(api).loss()
        api.close()
    with sqlite3.connect(data_dir / "lathe.db") as db:
        db.execute("UPDATE requests SET body_id = 'gone', state = 1 WHERE rowid ="
                   " (SELECT max(rowid) FROM requests WHERE op_class = 1)")
        assert db.total_changes == 1
    db.close()
    done = back_up(server, tmp_path / "out")
    assert done.returncode == 1, done.stderr
    assert done.stderr == "bodies/gone is missing or damaged in the data directory\n"


def test_backup_refuses_checkpoints_in_an_object_store(server, tmp_path):
    told = back_up(server, tmp_path / "out",
                   env={"LATHE_STORAGE__FILES": "s3://bucket/prefix"})
    assert told.returncode == CONFIGURATION and "s3://bucket/prefix" in told.stderr, told.stderr


def test_a_checkpoint_without_its_files_is_named_and_the_rest_is_kept(tmp_path):
    data_dir = tmp_path / "data"
    with LatheServer(tiny_model(), data_dir=str(data_dir),
                     env={"LATHE_ENGINE__SNAPSHOT_INTERVAL": "0s"}) as server:
        key, api = server.api_key, RawApi(server)
        model = RawModel(api)
        root = data_dir / "checkpoints"
        dirs = []
        for name in ("gone", "damaged", "whole"):
            before = set(root.iterdir())
            save(model, name)
            dirs += [one for one in set(root.iterdir()) - before if one.name.startswith("c")]
        api.close()
        shutil.rmtree(dirs[0])
        weights = dirs[1] / "adapter_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1] + b"?")
        done = back_up(server, tmp_path / "backup")
    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines() == sorted([
        f"checkpoints/{dirs[0].name} is missing or damaged in the data directory",
        f"checkpoints/{dirs[1].name}/adapter_model.safetensors is missing or damaged in the data"
        " directory"])
    assert lathe("restore", "--from", tmp_path / "backup", "--data-dir",
                 tmp_path / "restored").returncode == 0
    with LatheServer(tiny_model(), data_dir=str(tmp_path / "restored")) as restored:
        api = RawApi(restored, key=key)
        missing = {one["tinker_path"].rsplit("/", 1)[1]: one.get("missing", False)
                   for one in api.get("checkpoints?limit=1000").json()["checkpoints"]}
        api.close()
    assert missing == {"gone": True, "damaged": False, "whole": False}


def test_a_second_backup_at_once_is_refused(server, tmp_path):
    import fcntl
    with open(pathlib.Path(server.data_dir, "backup.lock"), "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        told = back_up(server, tmp_path / "out")
    assert told.returncode == CONFIGURATION and "another backup of" in told.stderr
    assert not (tmp_path / "out").exists()

"""Lathe's client against a server that another program wrote, read back by a third."""

import pytest
from support.object_store import Client

PART = 1 << 20


def body(s3, key):
    return s3.get_object(Bucket="lathe", Key=key)["Body"].read()


@pytest.mark.parametrize("size", [0, 1, 1000, PART, PART + 1, 5 * PART + 17])
def test_a_file_goes_and_comes_back(server, s3, make_file, tmp_path, size):
    client = Client(server.url, part_bytes=PART)
    source = make_file(size)
    client.ok("put", f"dir/file{size}", source)
    assert body(s3, f"p/dir/file{size}") == source.read_bytes()
    client.ok("get_file", f"dir/file{size}", size, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_a_large_file_goes_in_parts(server, s3, make_file):
    Client(server.url, part_bytes=PART).ok("put", "parts/large", make_file(3 * PART))
    tag = s3.head_object(Bucket="lathe", Key="p/parts/large")["ETag"]
    assert tag.strip('"').endswith("-3")


def test_only_the_asked_bytes_come(client, s3):
    s3.put_object(Bucket="lathe", Key="p/range", Body=b"0123456789")
    assert client.ok("get", "range", 3, 4) == "3456"


def test_an_object_is_made_once(client, s3):
    client.ok("put_if_absent", "once", "first")
    client.ok("put_if_absent", "once", "first")
    assert "already_exists" in client.error("put_if_absent", "once", "second")
    assert body(s3, "p/once") == b"first"


def test_listings_have_all_pages(client, s3):
    for i in range(1005):
        s3.put_object(Bucket="lathe", Key=f"p/many/d{i:04}/file", Body=b"x")
    s3.put_object(Bucket="lathe", Key="p/many/not ours", Body=b"x")
    names = [line.split()[0] for line in client.ok("list", "many/").splitlines()]
    assert names == [f"many/d{i:04}/file" for i in range(1005)]
    assert client.ok("folders", "many/").split() == [f"d{i:04}" for i in range(1005)]


def test_what_is_deleted_is_gone(client, s3):
    s3.put_object(Bucket="lathe", Key="p/gone", Body=b"x")
    client.ok("delete", "gone")
    client.ok("delete", "gone")
    assert "not_found" in client.error("head", "gone")


def test_a_copy_has_the_same_bytes(client, s3):
    s3.put_object(Bucket="lathe", Key="p/source", Body=b"bytes")
    client.ok("copy", "source", "target", 5)
    assert body(s3, "p/target") == b"bytes"


def test_uploads_left_over_end(client, s3):
    for key in ("p/left/a", "other/left"):
        s3.create_multipart_upload(Bucket="lathe", Key=key)
    # moto says that every upload began in 2010.
    assert client.ok("abort_uploads", "left/", -20 * 365 * 86400) == "0"
    assert client.ok("abort_uploads", "left/", 3600) == "1"
    left = s3.list_multipart_uploads(Bucket="lathe").get("Uploads", [])
    assert [upload["Key"] for upload in left] == ["other/left"]


@pytest.mark.parametrize("name", ["../up", "a//b", "a b", "a?b", "ü"])
def test_names_are_refused(client, name):
    assert "invalid_argument" in client.error("head", name)


def test_an_object_of_another_size_is_damage(client, s3, tmp_path):
    s3.put_object(Bucket="lathe", Key="p/short", Body=b"12345")
    error = client.error("get_file", "short", 6, tmp_path / "x")
    assert "data_loss" in error and "5 bytes, expected 6" in error


def test_a_missing_bucket_is_named(server):
    client = Client(server.url)
    client.options["files"] = "s3://nowhere/p"
    error = client.error("list", "")
    assert "failed_precondition" in error and "s3://nowhere" in error and "create the bucket" in error


def test_missing_keys_are_explained(server, tmp_path):
    client = Client(server.url, env={"HOME": str(tmp_path), "AWS_ACCESS_KEY_ID": "",
                                     "AWS_SECRET_ACCESS_KEY": ""})
    error = client.error("head", "x")
    assert "failed_precondition" in error and "AWS_ACCESS_KEY_ID" in error


def test_http_to_another_machine_needs_consent():
    error = Client("http://storage.example:9000").error("head", "x")
    assert "invalid_argument" in error and "insecure_i_know" in error


@pytest.fixture
def checkpoint(make_checkpoint):
    return make_checkpoint({"weights": b"w" * 3000, "mark": b""})


def test_a_checkpoint_is_published_whole_and_once(server, s3, checkpoint, make_checkpoint,
                                                  tmp_path):
    client = Client(server.url, prefix="once", part_bytes=PART)
    client.ok("claim", "store-1")
    client.ok("publish", "c1", checkpoint)
    client.ok("publish", "c1", checkpoint)
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    client.ok("fetch", "c1", fetched)
    assert {f.name: f.read_bytes() for f in fetched.iterdir()} == \
        {f.name: f.read_bytes() for f in checkpoint.iterdir()}
    other = make_checkpoint({"weights": b"other"}, "other")
    assert "other bytes" in client.error("publish", "c1", other)
    assert body(s3, "once/checkpoints/c1/weights") == b"w" * 3000


def test_a_place_has_one_owner(server, checkpoint):
    client = Client(server.url, prefix="owned")
    assert "LATHE_STORE" in client.error("publish", "c1", checkpoint)
    client.ok("claim", "store-1")
    client.ok("claim", "store-1")
    error = client.error("claim", "store-2")
    assert "failed_precondition" in error and "s3://lathe/owned/LATHE_STORE" in error
    assert "its own prefix" in error


def test_damage_is_found_when_a_checkpoint_is_fetched(server, s3, checkpoint, tmp_path):
    client = Client(server.url, prefix="damaged")
    client.ok("claim", "store-1")
    client.ok("publish", "c1", checkpoint)
    s3.put_object(Bucket="lathe", Key="damaged/checkpoints/c1/weights", Body=b"v" * 3000)
    (tmp_path / "a").mkdir()
    error = client.error("fetch", "c1", tmp_path / "a")
    assert "data_loss" in error and "c1/weights: checksum mismatch" in error
    s3.delete_object(Bucket="lathe", Key="damaged/checkpoints/c1/weights")
    (tmp_path / "b").mkdir()
    error = client.error("fetch", "c1", tmp_path / "b")
    assert "data_loss" in error and "c1/weights is missing" in error
    (tmp_path / "c").mkdir()
    assert "not_found" in client.error("fetch", "c2", tmp_path / "c")

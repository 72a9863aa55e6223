"""What counts as the loss of a checkpoint, and as the loss of a place: only what the store itself
says, twice. A proxy, a bad transfer and a full disk say nothing."""

import shutil

import pytest
from support.faulty_store import FaultyStore, error
from support.object_store import Client

DIR = "c1"
FILE = "adapter"


@pytest.fixture
def place(server, make_checkpoint, request):
    """The prefix of a place with one checkpoint."""
    prefix = request.node.name.translate(str.maketrans("[]", "--"))
    client = Client(server.url, prefix=prefix)
    client.ok("claim", "id")
    client.ok("publish", DIR, make_checkpoint({FILE: b"a" * 3000, "optimizer": b"o" * 3000}))
    return prefix


def fetched(server, place, folder, **rules):
    """Fetches through a faulty store; returns (is_ok, answer)."""
    folder.mkdir()
    with FaultyStore(server.port, **rules) as store:
        return Client(store.url, prefix=place, patience=1).call("fetch", DIR, folder)


def is_file(request, name=FILE):
    return request.key.endswith("/" + name)


@pytest.mark.parametrize("name", [FILE, "manifest.json", "LATHE_STORE", ""])
def test_a_404_of_a_proxy_is_an_outage(server, place, tmp_path, name):
    """`name` is missing, or all objects are, and no text says why."""
    def before(request):
        return (404, {}, b"<html>no such page</html>") if request.key.endswith(name) else None
    is_ok, answer = fetched(server, place, tmp_path / "x", before=before)
    assert not is_ok and answer.startswith("error unavailable"), answer


def test_a_place_that_vanished_loses_no_checkpoint(server, place, tmp_path):
    """The store is another one from some moment on, for example after a wrong change of DNS."""
    seen = []

    def before(request):
        seen.append(0)
        return error(404, "NoSuchKey") if len(seen) > 1 else None
    is_ok, answer = fetched(server, place, tmp_path / "x", before=before)
    assert not is_ok and answer.startswith("error unavailable"), answer
    assert "LATHE_STORE" in answer


def test_a_head_without_a_length_is_an_outage(server, place, tmp_path):
    def after(request, answer):
        if request.method != "HEAD":
            return None
        return answer[0], {}, b""
    is_ok, answer = fetched(server, place, tmp_path / "x", after=after)
    assert not is_ok and answer.startswith("error unavailable"), answer


@pytest.mark.parametrize("name", [FILE, "manifest.json"])
def test_one_bad_transfer_is_no_damage(server, place, tmp_path, name):
    bad = []

    def after(request, answer):
        if request.method != "GET" or not is_file(request, name) or bad:
            return None
        bad.append(0)
        return answer[0], answer[1], answer[2].replace(b"a", b"b")
    is_ok, answer = fetched(server, place, tmp_path / "x", after=after)
    assert is_ok and bad, answer
    assert (tmp_path / "x" / FILE).read_bytes() == b"a" * 3000


def test_an_object_that_is_missing_for_a_moment_is_no_damage(server, place, tmp_path):
    missed = []

    def before(request):
        if request.method != "HEAD" or not is_file(request) or missed:
            return None
        missed.append(0)
        return 404, {}, b""
    is_ok, answer = fetched(server, place, tmp_path / "x", before=before)
    assert not is_ok and answer.startswith("error unavailable"), answer


def test_damage_that_stays_is_damage(server, s3, place, tmp_path):
    s3.put_object(Bucket="lathe", Key=f"{place}/checkpoints/{DIR}/{FILE}", Body=b"b" * 3000)
    is_ok, answer = fetched(server, place, tmp_path / "x")
    assert not is_ok and answer.startswith("error data_loss"), answer
    s3.delete_object(Bucket="lathe", Key=f"{place}/checkpoints/{DIR}/manifest.json")
    is_ok, answer = fetched(server, place, tmp_path / "y")
    assert not is_ok and answer.startswith("error not_found"), answer


def test_a_folder_that_is_gone_is_no_damage(server, place, tmp_path):
    answer = Client(server.url, prefix=place).error("fetch", DIR, tmp_path / "gone")
    assert answer.startswith("error unavailable"), answer


@pytest.mark.parametrize("call", ["pwrite64", "fsync", "read"])
@pytest.mark.parametrize("fault", ["ENOSPC", "EIO"])
def test_a_failing_disk_is_no_damage(server, place, tmp_path, call, fault):
    """The calls are those on the files of the copy; `read` hashes them again."""
    if shutil.which("strace") is None:
        pytest.skip("needs strace")
    client = Client(server.url, prefix=place, patience=1)
    (tmp_path / "x").mkdir()
    client.program = ["strace", "-qq", "-o", "/dev/null", "-P", str(tmp_path / "x" / FILE), "-e",
                      f"inject={call}:error={fault}"]
    answer = client.error("fetch", DIR, tmp_path / "x")
    kind = "resource_exhausted" if fault == "ENOSPC" else "unavailable"
    assert answer.startswith(f"error {kind}") and FILE in answer, answer


def claimed(server, prefix, store_id, **rules):
    with FaultyStore(server.port, **rules) as store:
        return Client(store.url, prefix=prefix, patience=1).call("claim", store_id)


@pytest.mark.parametrize("refusal", [error(507, "XMinioStorageFull"), error(403, "AccessDenied")])
def test_a_claimed_place_needs_no_write(server, place, refusal):
    def before(request):
        return refusal if request.method == "PUT" else None
    assert claimed(server, place, "id", before=before)[0]
    is_ok, answer = claimed(server, place + "-new", "id", before=before)
    assert not is_ok and answer.startswith("error unavailable"), answer
    is_ok, answer = claimed(server, place, "other", before=before)
    assert not is_ok and answer.startswith("error failed_precondition"), answer


def test_a_store_without_conditions_keeps_its_owner(server, s3, place):
    """The store ignores If-None-Match, so a second installation could overwrite the marker."""
    class Ignoring(FaultyStore):
        def pass_on(self, request):
            if request.headers.pop("If-None-Match", None) is None:
                return super().pass_on(request)
            s3.put_object(Bucket="lathe", Key=request.key.split("/", 2)[2], Body=request.body)
            return 200, {"ETag": '"0"'}, b""

    with Ignoring(server.port) as store:
        answer = Client(store.url, prefix=place).error("claim", "other")
        assert "belongs to another installation" in answer
        Client(store.url, prefix=place).ok("claim", "id")
        Client(store.url, prefix=place + "-new").ok("claim", "other")

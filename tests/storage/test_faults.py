"""A store that cuts, stalls, refuses, fills up and lies: what is published is whole, and an error
names the object and a remedy."""

import time

import pytest
from support.faulty_proxy import Fault, FaultyProxy
from support.faulty_store import FaultyStore, error
from support.object_store import SECRET_KEY, Client, keys

PART = 1 << 20


def body(s3, key):
    return s3.get_object(Bucket="lathe", Key=key)["Body"].read()


def keys_in(s3, prefix):
    answer = s3.list_objects_v2(Bucket="lathe", Prefix=prefix)
    return [entry["Key"] for entry in answer.get("Contents", [])]


def first(count, fault):
    """Faults of the first connections."""
    seen = []

    def choose():
        seen.append(0)
        return fault if len(seen) <= count else Fault.NONE
    return choose


@pytest.mark.parametrize("cut", range(1, 5))
@pytest.mark.parametrize("fault", [Fault.CUT_REQUEST, Fault.CUT_ANSWER])
def test_an_upload_survives_a_cut_at_each_request(server, s3, make_file, cut, fault):
    """Each connection of the upload (of the begin, and of its four parts) is cut once."""
    source = make_file(4 * PART)
    num = []

    def choose():
        num.append(0)
        return fault if len(num) == cut else Fault.NONE
    with FaultyProxy(server.port, choose) as proxy:
        client = Client(proxy.url, prefix=f"cut-{cut}-{fault.name}", part_bytes=PART)
        client.ok("put", "file", source)
        assert proxy.num_faults == 1
    assert body(s3, f"cut-{cut}-{fault.name}/file") == source.read_bytes()


def test_a_download_survives_cuts(server, s3, make_file, tmp_path):
    source = make_file(5 * PART)
    s3.put_object(Bucket="lathe", Key="p/cut", Body=source.read_bytes())
    with FaultyProxy(server.port, first(3, Fault.CUT_ANSWER)) as proxy:
        Client(proxy.url, part_bytes=PART).ok("get_file", "cut", 5 * PART, tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == source.read_bytes()


def test_a_burst_of_slow_down_is_waited_out(server, s3, make_file):
    source = make_file(3 * PART)
    num = []

    def before(request):
        num.append(0)
        return error(503, "SlowDown") if len(num) <= 6 else None
    with FaultyStore(server.port, before) as store:
        Client(store.url, part_bytes=PART).ok("put", "burst", source)
    assert body(s3, "p/burst") == source.read_bytes()


def test_a_store_that_never_answers_is_given_up(server, make_file):
    with FaultyStore(server.port, lambda request: error(503, "SlowDown")) as store:
        client = Client(store.url, patience=2)
        answer = client.error("put", "never", make_file(10))
    assert "unavailable" in answer and "s3://lathe/p/never" in answer and "SlowDown" in answer
    assert "attempts" in answer
    assert len(store.log) > 2
    begin = time.monotonic()
    with FaultyProxy(server.port, lambda: Fault.BLACK_HOLE) as proxy:
        answer = Client(proxy.url, patience=2, stall=1).error("head", "never")
    assert "unavailable" in answer and "s3://lathe/p/never" in answer
    assert time.monotonic() - begin < 30


def test_retry_after_is_respected(server):
    times = []

    def before(request):
        times.append(time.monotonic())
        return error(503, "SlowDown", headers={"Retry-After": "1"}) if len(times) == 1 else None
    with FaultyStore(server.port, before) as store:
        Client(store.url).ok("put_text", "wait", "x")
    assert times[1] - times[0] >= 1


@pytest.mark.parametrize("num_failures", [0, 1])
def test_a_copy_may_take_longer_than_the_patience(server, s3, num_failures):
    """The store works on it, and sends nothing meanwhile. It may fail after that time, too."""
    s3.put_object(Bucket="lathe", Key="p/source", Body=b"bytes")
    copies = []

    def before(request):
        if "x-amz-copy-source" not in {name.lower() for name in request.headers}:
            return None
        copies.append(0)
        time.sleep(3)
        return error(503, "ServiceUnavailable") if len(copies) <= num_failures else None
    with FaultyStore(server.port, before) as store:
        Client(store.url, patience=1).ok("copy", "source", f"slow-{num_failures}", 5)
    assert len(copies) == num_failures + 1
    assert body(s3, f"p/slow-{num_failures}") == b"bytes"


def test_the_end_of_an_upload_is_looked_up_before_it_is_repeated(server, s3, make_file):
    """The store ends the upload, and its answer is lost."""
    ends = []

    def after(request, answer):
        if request.method == "POST" and "uploadId" in request.query:
            ends.append(answer[0])
            return error(500, "InternalError")
        return None
    source = make_file(2 * PART)
    with FaultyStore(server.port, after=after) as store:
        Client(store.url, part_bytes=PART).ok("put", "ended", source)
    assert ends == [200]
    assert body(s3, "p/ended") == source.read_bytes()


def test_an_error_after_200_is_an_error(server, make_file):
    def before(request):
        if request.method == "POST" and "uploadId" in request.query:
            return 200, {}, error(200, "InternalError")[2]
        return None
    with FaultyStore(server.port, before) as store:
        answer = Client(store.url, part_bytes=PART).error("put", "late", make_file(2 * PART))
    assert "InternalError" in answer and "s3://lathe/p/late" in answer
    # The upload is aborted, so that its parts cost nothing.
    assert [r.method for r in store.log if "uploadId" in r.query][-1] == "DELETE"


def test_a_wrong_tag_of_a_part_fails_the_upload(server, s3, make_file):
    def after(request, answer):
        if "partNumber" not in request.query:
            return None
        status, headers, data = answer
        headers = {name: value for name, value in headers.items() if name.lower() != "etag"}
        return status, {**headers, "ETag": '"0123456789abcdef0123456789abcdef"'}, data
    with FaultyStore(server.port, after=after) as store:
        answer = Client(store.url, part_bytes=PART).error("put", "tag", make_file(2 * PART))
    assert "s3://lathe/p/tag" in answer
    assert keys_in(s3, "p/tag") == []


def test_a_conditional_put_whose_answer_is_lost_succeeds(server, s3):
    num = []

    def after(request, answer):
        num.append(answer[0])
        return error(500, "InternalError") if len(num) == 1 else None
    with FaultyStore(server.port, after=after) as store:
        Client(store.url).ok("put_if_absent", "mine", "text")
    assert num[:2] == [200, 412]
    assert body(s3, "p/mine") == b"text"


@pytest.mark.parametrize("length", [0, 1, 999])
def test_a_truncated_answer_is_no_damage(server, s3, tmp_path, length):
    """The length of a HEAD says what the object has. What is cut is the answer."""
    s3.put_object(Bucket="lathe", Key="p/cut-short", Body=b"x" * 1000)

    def after(request, answer):
        return (answer[0], answer[1], answer[2][:length]) if request.method == "GET" else None
    with FaultyStore(server.port, after=after) as store:
        client = Client(store.url, patience=1)
        assert "data_loss" in client.error("get", "cut-short", 0, 1000)
        assert "unavailable" in client.error("get_file", "cut-short", 1000, tmp_path / "x")


@pytest.mark.parametrize("status,code,words", [
    (507, "XMinioStorageFull", "resource_exhausted full"),
    (403, "QuotaExceeded", "resource_exhausted quota"),
    (403, "AccessDenied", "permission_denied s3:PutObject"),
    (403, "SignatureDoesNotMatch", "permission_denied secret"),
    (403, "InvalidAccessKeyId", "permission_denied access"),
    (403, "RequestTimeTooSkewed", "permission_denied clock"),
    (301, "PermanentRedirect", "failed_precondition storage.region us-west-2"),
    (400, "AuthorizationHeaderMalformed", "failed_precondition storage.region us-west-2"),
    (501, "NotImplemented", "failed_precondition object_storage.md"),
])
def test_a_refusal_names_object_and_remedy(server, make_file, status, code, words):
    refusal = error(status, code, headers={"x-amz-bucket-region": "us-west-2"})
    with FaultyStore(server.port, lambda request: refusal) as store:
        answer = Client(store.url).error("put", "refused", make_file(10))
    assert "s3://lathe/p/refused" in answer
    for word in words.split():
        assert word in answer
    assert len(store.log) == 1  # it would be refused again


def test_keys_that_expire_are_read_again(server, s3, make_file, tmp_path):
    """They expire in the middle of an upload; a file has the new ones by then."""
    (tmp_path / "id").write_text("old\n")
    (tmp_path / "secret").write_text(SECRET_KEY)
    env = {"AWS_ACCESS_KEY_ID_FILE": str(tmp_path / "id"),
           "AWS_SECRET_ACCESS_KEY_FILE": str(tmp_path / "secret"), "AWS_ACCESS_KEY_ID": "",
           "AWS_SECRET_ACCESS_KEY": ""}
    num = []

    def before(request):
        num.append(0)
        if len(num) == 3:
            (tmp_path / "id").write_text("new\n")
        old = "Credential=old/" in request.headers["Authorization"]
        return error(400, "ExpiredToken") if len(num) >= 3 and old else None
    source = make_file(4 * PART)
    with FaultyStore(server.port, before) as store:
        Client(store.url, env=env, part_bytes=PART).ok("put", "expired", source)
    assert body(s3, "p/expired") == source.read_bytes()


def test_keys_that_stay_expired_are_an_error(server, make_file):
    with FaultyStore(server.port, lambda request: error(400, "ExpiredToken")) as store:
        answer = Client(store.url).error("put", "x", make_file(1))
    assert "permission_denied" in answer and "expired" in answer
    assert len(store.log) == 2


def test_no_secret_is_in_an_error(server, make_file):
    with FaultyStore(server.port, lambda request: error(403, "AccessDenied")) as store:
        answer = Client(store.url).error("put", "x", make_file(1))
    assert SECRET_KEY not in answer


@pytest.fixture
def checkpoint(make_checkpoint):
    return make_checkpoint({name: name.encode() * 1000 for name in ("adapter", "optimizer")})


def published(server, checkpoint, prefix, **rules):
    """Publishes through a faulty store; returns (is_ok, answer)."""
    Client(server.url, prefix=prefix).ok("claim", "id")
    with FaultyStore(server.port, **rules) as store:
        return Client(store.url, prefix=prefix, patience=1).call("publish", "c1", checkpoint)


@pytest.mark.parametrize("name", ["adapter", "optimizer", "manifest.json"])
def test_a_put_that_was_a_lie_is_found(server, s3, checkpoint, name):
    """The store says 200 and has nothing."""
    def before(request):
        is_it = request.method == "PUT" and request.key.endswith(name)
        return (200, {"ETag": '"0"'}, b"") if is_it else None
    is_ok, answer = published(server, checkpoint, f"lie-{name}", before=before)
    assert not is_ok and name in answer, answer
    assert f"lie-{name}/checkpoints/c1/manifest.json" not in keys_in(s3, f"lie-{name}/")


def test_a_claim_that_was_a_lie_is_found(server, s3):
    def before(request):
        return (200, {"ETag": '"0"'}, b"") if request.method == "PUT" else None
    with FaultyStore(server.port, before) as store:
        answer = Client(store.url, prefix="lie-claim").error("claim", "id")
    assert "unavailable" in answer and "lie-claim/LATHE_STORE" in answer


def test_an_object_that_is_listed_later_is_found(server, s3, checkpoint):
    """404 after PUT: a store that is not consistent does not get a manifest."""
    def after(request, answer):
        if request.method == "GET" and "list-type" in request.query:
            return 200, {}, b"<ListBucketResult></ListBucketResult>"
        return None
    is_ok, answer = published(server, checkpoint, "later", after=after)
    assert not is_ok and "does not list" in answer
    assert "later/checkpoints/c1/manifest.json" not in keys_in(s3, "later/")


@pytest.mark.parametrize("after_puts", [0, 1, 2])
def test_a_store_that_fills_up_gets_no_manifest(server, s3, checkpoint, after_puts):
    puts = []

    def before(request):
        if request.method != "PUT":
            return None
        puts.append(0)
        return error(507, "XMinioStorageFull") if len(puts) > after_puts else None
    prefix = f"full-{after_puts}"
    is_ok, answer = published(server, checkpoint, prefix, before=before)
    assert not is_ok and "resource_exhausted" in answer and f"s3://lathe/{prefix}/" in answer
    assert f"{prefix}/checkpoints/c1/manifest.json" not in keys_in(s3, prefix + "/")
    # There is room again: the same attempt succeeds.
    Client(server.url, prefix=prefix).ok("publish", "c1", checkpoint)

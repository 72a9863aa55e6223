"""The signature of Lathe's requests, computed again by botocore."""

import hashlib
import os
import random
import re
import urllib.parse

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from support.faulty_store import FaultyStore
from support.object_store import Client

SECRETS = ["simple", "with/slash+plus=", "col:on:s", "ünïcode%20", "a" * 64]


def check(request, credentials, region):
    """Raises unless the request carries the signature that botocore computes."""
    header = request.headers["Authorization"]
    match = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^,]+), ?SignedHeaders=([^,]+), ?"
                         r"Signature=([0-9a-f]{64})", header)
    assert match, header
    credential, signed_names, signature = match.groups()
    sent = {name.lower(): value for name, value in request.headers.items()}
    date = sent["x-amz-date"]
    assert credential == f"{credentials.access_key}/{date[:8]}/{region}/s3/aws4_request"
    names = signed_names.split(";")
    # All headers that change what a request does are signed.
    for name in sent:
        if name.startswith("x-amz-") or name in ("host", "range", "if-none-match"):
            assert name in names, name
    # A hash of the body, so that the store refuses bytes that changed on the way.
    assert sent["x-amz-content-sha256"] == hashlib.sha256(request.body).hexdigest()
    parts = urllib.parse.urlsplit(request.path)
    again = AWSRequest(method=request.method, data=request.body,
                       url=f"http://{sent['host']}{parts.path}",
                       params=urllib.parse.parse_qsl(parts.query, keep_blank_values=True),
                       headers={name: sent[name] for name in names})
    again.context["timestamp"] = date
    auth = S3SigV4Auth(credentials, "s3", region)
    expected = auth.signature(auth.string_to_sign(again, auth.canonical_request(again)), again)
    assert signature == expected, (request.method, request.path, header)


def random_name(rng):
    letters = "abcXYZ019._-"
    return "/".join("n" + "".join(rng.choices(letters, k=rng.randint(1, 20)))
                    for _ in range(rng.randint(1, 4)))


def random_call(rng, make_file, tmp_path):
    name = random_name(rng)
    size = rng.choice([0, 1, 1000, 300_000])
    return rng.choice([
        ("put", name, make_file(size)),
        ("put_text", name, "text" * rng.randint(0, 99)),
        ("put_if_absent", name, "text"),
        ("get", name, rng.randint(0, 10**12), rng.randint(1, 10**6)),
        ("get_file", name, 3, tmp_path / f"f{rng.random()}"),
        ("head", name), ("list", name), ("folders", name + "/"), ("delete", name),
        ("copy", name, random_name(rng), size),
        ("abort_uploads", name, 0)])


def answer(request):
    """Enough for a call to send all its requests."""
    if request.method == "POST" and "uploads" in request.query:
        return 200, {}, b"<R><UploadId>id/with+signs=~ and space</UploadId></R>"
    if request.method == "GET" and "list-type" in request.query:
        if "continuation-token" in request.query:
            return 200, {}, b"<ListBucketResult/>"
        return 200, {}, (b"<ListBucketResult><IsTruncated>true</IsTruncated>"
                         b"<NextContinuationToken>1/a+b= &amp;~</NextContinuationToken>"
                         b"</ListBucketResult>")
    if request.method == "GET" and "uploads" in request.query:
        return 200, {}, (b"<R><Upload><Key>p/a</Key><UploadId>x+y/z=</UploadId>"
                         b"<Initiated>2020-01-01T00:00:00Z</Initiated></Upload></R>")
    if request.method == "HEAD":
        return 200, {"Content-Length": "3"}, b""
    return 200, {"ETag": '"tag"'}, b"abc"


@pytest.mark.parametrize("seed", range(int(os.environ.get("LATHE_SIGNATURE_SEEDS", "10"))))
def test_botocore_computes_the_same_signature(seed, make_file, tmp_path):
    rng = random.Random(seed)
    credentials = Credentials("AKIA" + str(seed), rng.choice(SECRETS),
                              rng.choice([None, "session/token+with=signs"]))
    region = rng.choice(["us-east-1", "eu-central-1", "auto"])
    env = {"AWS_ACCESS_KEY_ID": credentials.access_key,
           "AWS_SECRET_ACCESS_KEY": credentials.secret_key}
    if credentials.token:
        env["AWS_SESSION_TOKEN"] = credentials.token
    with FaultyStore(before=answer) as store:
        client = Client(store.url, prefix=rng.choice(["", "p", "a/b_c"]), env=env, region=region,
                        part_bytes=100_000)
        for _ in range(4):
            client.call(*random_call(rng, make_file, tmp_path))
    assert len(store.log) >= 4
    for request in store.log:
        check(request, credentials, region)
        if credentials.token:
            assert request.headers["X-Amz-Security-Token" if "X-Amz-Security-Token" in
                                   request.headers else "x-amz-security-token"] == credentials.token


def test_a_wrong_signature_would_be_seen(make_file):
    """The check itself fails for another secret."""
    env = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "one"}
    with FaultyStore(before=answer) as store:
        Client(store.url, env=env, region="us-east-1").call("head", "x")
    with pytest.raises(AssertionError):
        check(store.log[0], Credentials("AKIA", "two"), "us-east-1")

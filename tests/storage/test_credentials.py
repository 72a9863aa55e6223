"""Keys from the endpoints of a container and of STS."""

import json
import urllib.parse

import pytest
from support.faulty_store import FaultyStore, error
from support.object_store import Client

NO_KEYS = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": "", "AWS_SESSION_TOKEN": ""}


def keys_of(store):
    """The access key and the session token of the last request to the bucket."""
    request = [one for one in store.log if one.key.startswith("/lathe")][-1]
    sent = {name.lower(): value for name, value in request.headers.items()}
    return sent["authorization"].split("Credential=")[1].split("/")[0], \
        sent.get("x-amz-security-token")


def place(answers):
    """A store that also answers other paths: {path: answer}."""
    def before(request):
        if not request.key.startswith("/lathe"):
            return answers[urllib.parse.urlsplit(request.path).path](request)
        return 200, {"Content-Length": "1"}, b""
    return before


def test_a_container_gets_its_keys_with_a_token(tmp_path):
    (tmp_path / "token").write_text("pod token\n")

    def give(request):
        assert request.headers["Authorization"] == "pod token"
        return 200, {}, json.dumps({"AccessKeyId": "POD", "SecretAccessKey": "s", "Token": "t",
                                    "Expiration": "2999-01-01T00:00:00Z"}).encode()
    with FaultyStore(before=place({"/keys": give})) as store:
        client = Client(store.url, env={
            **NO_KEYS, "AWS_CONTAINER_CREDENTIALS_FULL_URI": store.url + "/keys",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token")})
        client.ok("head", "x")
    assert keys_of(store) == ("POD", "t")


def test_a_web_identity_is_exchanged(tmp_path):
    (tmp_path / "jwt").write_text("head.body&more=.signature\n")

    def give(request):
        form = dict(urllib.parse.parse_qsl(request.body.decode()))
        assert form == {"Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15",
                        "RoleArn": "arn:aws:iam::1:role/lathe", "RoleSessionName": "lathe",
                        "WebIdentityToken": "head.body&more=.signature"}
        assert "Authorization" not in request.headers
        return 200, {}, (b'<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/">'
                         b"<AssumeRoleWithWebIdentityResult><Credentials>"
                         b"<AccessKeyId>ROLE</AccessKeyId><SecretAccessKey>s</SecretAccessKey>"
                         b"<SessionToken>st</SessionToken>"
                         b"<Expiration>2999-01-01T00:00:00Z</Expiration></Credentials>"
                         b"</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>")
    with FaultyStore(before=place({"/": give})) as store:
        client = Client(store.url, env={
            **NO_KEYS, "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "jwt"),
            "AWS_ROLE_ARN": "arn:aws:iam::1:role/lathe", "AWS_ENDPOINT_URL_STS": store.url})
        client.ok("head", "x")
    assert keys_of(store) == ("ROLE", "st")


@pytest.mark.parametrize("answer", [error(403, "AccessDenied"), (200, {}, b"no keys"),
                                    (200, {}, b"{}"), (302, {"Location": "http://x/"}, b"")])
def test_an_endpoint_without_keys_is_named(answer):
    with FaultyStore(before=place({"/keys": lambda request: answer})) as store:
        message = Client(store.url, env={
            **NO_KEYS, "AWS_CONTAINER_CREDENTIALS_FULL_URI": store.url + "/keys"}).error("head", "x")
    assert "error unavailable" in message and "/keys" in message
    assert not any(one.key.startswith("/lathe") for one in store.log)


@pytest.mark.parametrize("answer", [(403, {}, b"hush"), (200, {}, b'{"SecretAccessKey": "hush'),
                                    (200, {}, b'{"AccessKeyId": "hush"}')])
def test_no_secret_of_an_endpoint_is_in_an_error(answer):
    with FaultyStore(before=place({"/keys": lambda request: answer})) as store:
        url = store.url.replace("//", "//user:hush@") + "/keys?token=hush"
        message = Client(store.url, env={
            **NO_KEYS, "AWS_CONTAINER_CREDENTIALS_FULL_URI": url}).error("head", "x")
    assert "hush" not in message and store.url + "/keys" in message


def test_keys_that_are_refused_at_once_are_replaced_once(tmp_path):
    """Four parts of a download are refused. The first refusal replaces the keys of all."""
    given = []

    def give(request):
        given.append(0)
        return 200, {}, json.dumps({"AccessKeyId": f"K{len(given)}", "SecretAccessKey": "s",
                                    "Expiration": "2999-01-01T00:00:00Z"}).encode()

    def before(request):
        if request.key == "/keys":
            return give(request)
        if request.method == "HEAD":
            return 200, {"Content-Length": str(4 << 20)}, b""
        if "Credential=K1/" in request.headers["Authorization"]:
            return error(400, "ExpiredToken")
        first, last = request.headers["Range"].split("=")[1].split("-")
        return 206, {}, b"x" * (int(last) - int(first) + 1)
    with FaultyStore(before=before) as store:
        Client(store.url, part_bytes=1 << 20, env={
            **NO_KEYS, "AWS_CONTAINER_CREDENTIALS_FULL_URI": store.url + "/keys"}).ok(
                "get_file", "x", 4 << 20, tmp_path / "file")
    assert len(given) == 2


def test_sts_is_asked_through_the_proxy(tmp_path):
    (tmp_path / "jwt").write_text("t\n")
    with FaultyStore(before=lambda request: error(403, "AccessDenied")) as proxy:
        message = Client("http://127.0.0.1:1", env={
            **NO_KEYS, "AWS_WEB_IDENTITY_TOKEN_FILE": str(tmp_path / "jwt"), "AWS_ROLE_ARN": "r",
            "AWS_ENDPOINT_URL_STS": "http://sts.example", "http_proxy": proxy.url,
            "no_proxy": ""}).error("head", "x")
    assert [one.path for one in proxy.log] == ["http://sts.example/"], message

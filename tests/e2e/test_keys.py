"""Keys, scopes, tokens and the audit log: the CLI, raw HTTP and the stock SDK."""

import base64
import datetime
import json
import os
import subprocess
import sys

import httpx
import pytest
import tinker
from support.lathe_server import BIN, LatheServer, tiny_model


@pytest.fixture(scope="module")
def lathe():
    with LatheServer(tiny_model(), env={"LATHE_GATEWAY__JWT_AUTH": "true"}) as server:
        yield server


def keys(lathe, *args):
    """Runs `lathe keys …`; returns its standard output."""
    return subprocess.run([str(BIN / "lathe"), "keys", *args, "--data-dir", lathe.data_dir],
                          check=True, capture_output=True, text=True).stdout


def create(lathe, tenant, *args):
    return keys(lathe, "create", "--tenant", tenant, *args).strip()


def call(lathe, method, path, key, **kwargs):
    return httpx.request(method, f"{lathe.url}/api/v1/{path}", headers={"X-API-Key": key},
                         timeout=30, **kwargs)


def key_id_of(key):
    return key.removeprefix("tml-").split("_")[0]


def test_a_scope_opens_its_routes_and_the_refusal_names_it(lathe):
    reader = create(lathe, "scoped", "--scope", "read")
    assert call(lathe, "GET", "training_runs", reader).status_code == 200
    refused = call(lathe, "DELETE", "training_runs/r:train:0/checkpoints/weights/a", reader)
    assert refused.status_code == 403
    assert "checkpoints:write" in refused.json()["detail"]
    assert refused.json()["error"]["code"] == "missing_scope"
    assert call(lathe, "GET", "audit", reader).status_code == 403
    sampler = create(lathe, "scoped", "--scope", "sample")
    assert call(lathe, "GET", "training_runs", sampler).status_code == 403


def test_keys_expire_and_rotate(lathe):
    key = create(lathe, "rotating", "--expires", "30d", "--name", "laptop")
    line = next(l for l in keys(lathe, "list").splitlines() if key_id_of(key) in l)
    created, expires, state = line.split()[2:5]
    lives = (datetime.datetime.fromisoformat(expires.rstrip("Z")) -
             datetime.datetime.fromisoformat(created.rstrip("Z")))
    # Counted from the command; it is made a little later.
    assert datetime.timedelta(days=29, hours=23) < lives <= datetime.timedelta(days=30)
    assert state == "active"
    fresh = keys(lathe, "rotate", key_id_of(key), "--overlap", "0s").strip()
    assert fresh != key and call(lathe, "GET", "sessions", fresh).status_code == 200
    refused = call(lathe, "GET", "sessions", key)
    assert refused.status_code == 401 and "WWW-Authenticate" in refused.headers
    bad = subprocess.run([str(BIN / "lathe"), "keys", "create", "--tenant", "t", "--expires", "soon",
                          "--data-dir", lathe.data_dir], capture_output=True, text=True)
    assert bad.returncode == 2 and "30d" in bad.stderr


def test_a_key_describes_and_ends_itself(lathe):
    key = create(lathe, "selfish", "--name", "ci")
    me = call(lathe, "GET", "auth/apikey/me", key).json()
    assert isinstance(me["key_id"], int) and me["name"] == "ci" and me["note"] == ""
    assert me["details"]["org_details"]["name"] == "selfish"
    assert isinstance(me["details"]["user_details"]["email"], str)
    assert call(lathe, "DELETE", "auth/apikey/me", key).status_code == 204
    assert call(lathe, "GET", "sessions", key).status_code == 401


def test_tokens_have_the_claims_of_the_contract_and_bad_ones_ask_for_new_ones(lathe):
    key = create(lathe, "tokens")
    jwt = call(lathe, "POST", "auth/token", key, json={}).json()["jwt"]
    head, payload, signature = jwt.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    assert claims["exp"] - claims["iat"] >= 900 and claims["org_id"] == "tokens" and claims["sub"]
    assert call(lathe, "GET", "sessions", jwt).status_code == 200
    none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    for forged in (f"{head}.{payload}.{signature[::-1]}", f"{none}.{payload}.", "eyJhbGciOiJub25lIn0"):
        refused = call(lathe, "GET", "sessions", forged)
        assert refused.status_code == 401
        assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]


@pytest.mark.each_sdk
def test_the_sdk_exchanges_its_key(lathe):
    service = tinker.ServiceClient(base_url=lathe.url, api_key=create(lathe, "sdk-jwt"))
    assert service.get_server_capabilities().supported_models[0].model_name == lathe.model_name
    rest = service.create_rest_client()
    assert rest.list_training_runs().result().training_runs == []
    if hasattr(rest, "whoami"):
        identity = rest.whoami().result()
        assert identity.user_urn
        # Since 0.34.
        assert getattr(identity, "org_urn", "tml:organization:sdk-jwt") == "tml:organization:sdk-jwt"


@pytest.mark.each_sdk
def test_the_audit_log_of_a_tenant(lathe):
    admin = create(lathe, "audited", "--scope", "admin")
    path = "training_runs/r:train:0/checkpoints/weights/a"
    assert call(lathe, "DELETE", path, admin).status_code == 404
    entries = call(lathe, "GET", "audit?event_type=all", admin).json()["entries"]
    assert [entry["event"] for entry in entries] == ["tenant_create", "key_create",
                                                     "checkpoint_delete"]
    assert entries[2]["tinker_path"] == "tinker://r:train:0/weights/a"
    assert entries[2]["event_details"]["actor"] == key_id_of(admin)
    assert entries[2]["event_details"]["outcome"] == "not_found"
    assert call(lathe, "GET", "audit?day=tomorrow", admin).status_code == 400
    if hasattr(tinker, "AdminClient"):
        log = tinker.AdminClient(base_url=lathe.url, api_key=admin).get_audit_log("checkpoints")
        assert [entry.event for entry in log.result().entries] == ["checkpoint_delete"]


def tinker_cli(lathe, home, *args, key=None, stdin=""):
    env = {**os.environ, "HOME": str(home), "TINKER_BASE_URL": lathe.url}
    env.pop("TINKER_API_KEY", None)
    if key:
        env["TINKER_API_KEY"] = key
    cli = os.path.join(os.path.dirname(sys.executable), "tinker")
    return subprocess.run([cli, *args], env=env, capture_output=True, text=True, input=stdin,
                          timeout=120, start_new_session=True)


@pytest.mark.each_sdk
@pytest.mark.skipif(tuple(map(int, tinker.__version__.split(".")[:2])) < (0, 34),
                    reason="auth commands since 0.34")
def test_the_cli_logs_in_and_out_and_says_who_it_is(lathe, tmp_path):
    key = create(lathe, "cli-user", "--name", "laptop")
    login = tinker_cli(lathe, tmp_path, "auth", "login", stdin=key + "\n")
    assert login.returncode == 0, login.stdout + login.stderr
    assert "cli-user" in login.stdout
    status = tinker_cli(lathe, tmp_path, "auth", "status")
    assert "accessible: yes" in status.stdout, status.stdout + status.stderr
    whoami = tinker_cli(lathe, tmp_path, "auth", "whoami")
    assert "tml:organization:cli-user" in whoami.stdout, whoami.stdout + whoami.stderr
    assert tinker_cli(lathe, tmp_path, "auth", "logout").returncode == 0
    refused = tinker_cli(lathe, tmp_path, "auth", "login", stdin="tml-nonsense\n")
    assert refused.returncode != 0

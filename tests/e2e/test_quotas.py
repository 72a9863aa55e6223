"""Quotas of a tenant, seen by the stock SDK and by raw HTTP."""

import datetime
import subprocess

import httpx
import pytest
import tinker
from support.lathe_server import BIN
from support.sdk import resolved


def set_quota(lathe, tenant, **limits):
    options = [word for name, value in limits.items()
               for word in (f"--{name.replace('_', '-')}", str(value))]
    subprocess.run([str(BIN / "lathe"), "tenants", "set-quota", tenant, *options, "--data-dir",
                    lathe.data_dir], check=True, capture_output=True)


def tenants(lathe):
    listed = subprocess.run([str(BIN / "lathe"), "tenants", "list", "--data-dir", lathe.data_dir],
                            check=True, capture_output=True, text=True).stdout
    return {line.split()[0]: line.split()[1:] for line in listed.splitlines()[1:]}


def trainer(lathe, key):
    service = tinker.ServiceClient(base_url=lathe.url, api_key=key)
    return resolved(service.create_lora_training_client(base_model=lathe.model_name, rank=4))


def lathe_command(lathe, *words):
    return subprocess.run([str(BIN / "lathe"), *words, "--data-dir", lathe.data_dir],
                          capture_output=True, text=True)


@pytest.mark.each_sdk
def test_adapters_and_storage_are_refused_with_limit_and_use(lathe):
    key = lathe.create_key("small")
    client = trainer(lathe, key)
    set_quota(lathe, "small", adapters=1, stored_bytes=1)
    with pytest.raises(tinker.PermissionDeniedError, match="adapters is 1 and 1 models are live"):
        trainer(lathe, key)
    client.save_state("first").result()
    with pytest.raises(tinker.PermissionDeniedError, match="stored_bytes is 1 and checkpoints hold"):
        client.save_state("second").result()
    row = tenants(lathe)["small"]
    assert int(row[3]) > 1 and row[4] == "1" and row[5:7] == ["1", "1"]
    set_quota(lathe, "small", stored_bytes=0)
    client.save_state("third").result()


def test_a_rate_is_refused_with_when_to_come_back(lathe):
    key = lathe.create_key("slow")
    with httpx.Client(base_url=lathe.url + "/api/v1/", headers={"X-API-Key": key},
                      timeout=30) as http:
        session = http.post("create_session", json={"tags": [], "user_metadata": {}}).json()
        body = {"session_id": session["session_id"], "model_seq_id": 0,
                "base_model": lathe.model_name, "lora_config": {"rank": 4}}
        set_quota(lathe, "slow", requests_per_minute=1)
        assert http.post("create_model", json=body).status_code == 200
        # The same request is no new one.
        assert http.post("create_model", json=body).status_code == 200
        refused = http.post("create_model", json={**body, "model_seq_id": 1})
        assert refused.status_code == 429
        wait = int(refused.headers["Retry-After"])
        assert 0 < wait <= 60 and f"come back in {wait} s" in refused.json()["detail"]
        assert refused.headers["x-should-retry"] == "true"
        assert "requests_per_minute is 1" in refused.json()["detail"]
        assert http.get("get_server_capabilities").status_code == 200


def test_sessions_above_the_limit_are_refused_until_one_ends(lathe):
    key = lathe.create_key("crowd")
    set_quota(lathe, "crowd", sessions=1)
    with httpx.Client(base_url=lathe.url + "/api/v1/", headers={"X-API-Key": key},
                      timeout=30) as http:
        new = {"tags": [], "user_metadata": {}}
        assert http.post("create_session", json=new).status_code == 200
        refused = http.post("create_session", json=new)
        assert refused.status_code == 403
        assert refused.json()["error"]["code"] == "session_quota"
        assert "sessions is 1 and 1 are live" in refused.json()["detail"]
        assert tenants(lathe)["crowd"][7:9] == ["1", "1"]
        set_quota(lathe, "crowd", sessions=0)
        assert http.post("create_session", json=new).status_code == 200


def test_the_audit_log_is_exported_to_a_new_file(lathe, tmp_path):
    lathe.create_key("logged")
    out = tmp_path / "audit.jsonl"
    today = datetime.datetime.now(datetime.timezone.utc).date()
    late = lathe_command(lathe, "audit", "export", "--before", str(today + datetime.timedelta(2)),
                         "--out", out)
    assert late.returncode != 0 and "must be at least a minute ago" in late.stderr
    assert not out.exists()
    done = lathe_command(lathe, "audit", "export", "--before", "2001-01-01", "--out", out,
                         "--prune")
    assert done.returncode == 0, done.stderr
    assert "exported and pruned 0 entries" in done.stdout and out.read_text() == ""
    again = lathe_command(lathe, "audit", "export", "--before", "2001-01-01", "--out", out)
    assert again.returncode != 0 and "audit.jsonl" in again.stderr

"""Sessions of browsers with real processes: the link of `lathe up`, API keys, users' routes."""

import re
import subprocess

import httpx
import pytest
from support.lathe_server import BIN, LatheServer, tiny_model
from support.waiting import wait_until


@pytest.fixture(scope="module")
def lathe():
    with LatheServer(tiny_model(), env={"LATHE_AUTH__SESSION": "1h"}) as server:
        yield server


def create_key(lathe, *scopes):
    arguments = [word for scope in scopes for word in ("--scope", scope)]
    return subprocess.run([str(BIN / "lathe"), "keys", "create", "--tenant", "default", *arguments,
                           "--data-dir", lathe.data_dir],
                          check=True, capture_output=True, text=True).stdout.strip()


def sign_in(lathe, key):
    """A browser with a session, and the header that proves its page."""
    browser = httpx.Client(base_url=lathe.url, timeout=30)
    answer = browser.post("/ui/auth/key", json={"api_key": key})
    assert answer.status_code == 204, answer.text
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"lathe_session_{lathe.port}=lathe-session-"), cookie
    lifetime = re.search(r"; Path=/; Max-Age=(\d+); HttpOnly; SameSite=Lax$", cookie)
    assert lifetime and int(lifetime[1]) <= 3600, cookie
    me = browser.get("/ui/api/v1/me").json()
    return browser, {"X-Lathe-CSRF": me["csrf_token"]}, me


def test_the_link_of_lathe_up_works_once(lathe):
    wait_until(lambda: "\nnext " in lathe.output(), "the last line of lathe up")
    link = re.search(r"browse +(\S+/ui\?ticket=\S+)", lathe.output())[1]
    browser = httpx.Client(timeout=30)
    answer = browser.get(link)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/ui"
    me = browser.get(f"{lathe.url}/ui/api/v1/me").json()
    assert me["role"] == "operator"
    assert me["user"] is None and me["key"] is None
    again = httpx.get(link)
    assert again.headers["location"] == "/ui/login?error=expired"
    assert "set-cookie" not in again.headers


def test_a_key_s_session_does_what_the_key_does_and_ends_with_it(lathe):
    key = create_key(lathe, "read")
    browser, proof, me = sign_in(lathe, key)
    assert me["role"] == "viewer"
    assert me["scopes"] == ["read"]
    assert me["key"]["key_id"] == key.removeprefix("tml-").split("_")[0]
    assert browser.get("/ui/api/v1/training_runs").status_code == 200
    refused = browser.delete("/ui/api/v1/training_runs/r:train:0/checkpoints/weights/a")
    assert refused.json()["error"]["code"] == "bad_csrf"
    refused = browser.delete("/ui/api/v1/training_runs/r:train:0/checkpoints/weights/a",
                             headers=proof)
    assert refused.json()["error"]["code"] == "missing_scope"
    # Outside of /ui the cookie is nothing.
    assert browser.get("/api/v1/training_runs").status_code == 401
    assert httpx.delete(f"{lathe.url}/api/v1/auth/apikey/me",
                        headers={"X-API-Key": key}).status_code in (200, 204)
    assert browser.get("/ui/api/v1/me").json()["error"]["code"] == "bad_session"


def test_a_sign_out_ends_the_session(lathe):
    browser, proof, _ = sign_in(lathe, lathe.api_key)
    session = dict(browser.cookies)
    assert browser.post("/ui/auth/logout").json()["error"]["code"] == "bad_csrf"
    answer = browser.post("/ui/auth/logout", headers=proof)
    assert answer.json() == {"redirect": None}
    assert not dict(browser.cookies)
    stolen = httpx.get(f"{lathe.url}/ui/api/v1/me", cookies=session)
    assert stolen.status_code == 401


def test_an_administrator_reads_users_and_the_log(lathe):
    browser, _, me = sign_in(lathe, lathe.api_key)
    assert me["role"] == "operator"
    assert browser.get("/ui/api/v1/users").json() == {"users": [], "total_count": 0}
    log = browser.get("/ui/api/v1/audit").json()
    assert "user_sign_in" in str(log)
    for path in ("auth/apikey/me", "audit"):
        assert browser.get(f"/ui/api/v1/{path}").status_code == (400 if "key" in path else 200)

"""Signing in at oidc-provider: groups become roles, and what browsers and administrators do afterwards."""

import httpx
import pytest
from support.identity_provider import IS_INSTALLED, WHY_NOT, IdentityProvider
from support.lathe_server import LatheServer, tiny_model
from support.user_session import BrowserSession

pytestmark = pytest.mark.skipif(not IS_INSTALLED, reason=WHY_NOT)


@pytest.fixture(scope="module")
def provider():
    with IdentityProvider("provider.mjs") as running:
        yield running


@pytest.fixture(scope="module")
def lathe(provider, tmp_path_factory):
    with LatheServer(tiny_model(), args=provider.options(tmp_path_factory.mktemp("options"))) as server:
        provider.control(redirect_uris=[server.url + "/ui/auth/callback"], post_logout_redirect_uris=[server.url + "/ui/login"])
        yield server


@pytest.fixture
def browser_session(lathe, provider):
    provider.control(account="ada", deny=False, claims={"groups": ["lab"], "email": "ada@lab.example", "email_verified": True, "name": "Ada"})
    with BrowserSession(lathe.url) as client:
        yield client


@pytest.mark.parametrize("groups,role,tenant", [(["operators"], "operator", "default"), (["x", "lab"], "member", "lab"), (["guests"], "viewer", "lab")])
def test_groups_become_roles(browser_session, provider, groups, role, tenant):
    provider.control(account=f"of-{role}", claims={"groups": groups, "name": "Ada"})
    assert browser_session.sign_in_at_provider("/ui/runs?q=a") == "/ui/runs?q=a"
    me = browser_session.me().json()
    assert (me["role"], me["tenant"], me["user"]["name"], me["key"]) == (role, tenant, "Ada", None)
    assert me["user"]["issuer"] == provider.issuer


def test_who_is_mapped_to_no_role_is_told_the_subject_to_map(browser_session, provider):
    provider.control(account="stranger", claims={"groups": ["others"]})
    end = httpx.URL(browser_session.sign_in_at_provider())
    assert end.path == "/ui/login" and dict(end.params) == {"error": "unmapped", "subject": "stranger"}
    assert browser_session.me().status_code == 401


def test_a_refusal_by_the_provider_ends_at_the_sign_in(browser_session, provider):
    provider.control(deny=True)
    assert browser_session.sign_in_at_provider() == "/ui/login?error=denied"
    assert browser_session.me().status_code == 401


def test_the_methods_name_the_provider(lathe):
    answer = httpx.get(lathe.url + "/ui/auth/methods").json()
    assert set(answer["methods"]) == {"oidc", "key"} and answer["provider"] == "Test ID"


def test_an_answer_of_the_provider_works_once_and_in_one_browser(browser_session, lathe):
    with BrowserSession(lathe.url) as other:
        login = "/ui/auth/login?next=/ui/runs"
        mine = browser_session.follow(login, [f"{lathe.url}/ui/auth/callback"])
        # Without the cookie of the sign-in, and with that of another one.
        assert other.call_back(mine) == "/ui/login?error=state"
        other.follow(login, [f"{lathe.url}/ui/auth/callback"])
        assert other.call_back(mine) == "/ui/login?error=state"
        assert other.me().status_code == 401
        assert browser_session.call_back(mine) == "/ui/runs"
        assert browser_session.call_back(mine) == "/ui/login?error=state"


def test_a_changed_state_or_issuer_is_refused(browser_session, lathe):
    for name, value in (("state", "x" * 43), ("iss", "http://127.0.0.1:1")):
        callback = httpx.URL(browser_session.follow("/ui/auth/login?next=/ui", [f"{lathe.url}/ui/auth/callback"]))
        end = browser_session.call_back(str(callback.copy_set_param(name, value)))
        assert end.startswith("/ui/login?error="), name
        assert browser_session.me().status_code == 401


@pytest.mark.parametrize("target", [
    "//evil.example", "/\\evil.example", "https://evil.example", "https:evil.example", "/ui/../..//evil.example", "/ui//evil.example",
    "%2f%2fevil.example", "/ui\r\nSet-Cookie: a=b", "javascript:alert(1)", "/api/v1/status", "/uix", "/ui/" + "a" * 4096])
def test_no_address_but_a_page_of_the_dashboard_follows(browser_session, target):
    assert browser_session.sign_in_at_provider(target) == "/ui"


def test_signing_out_leads_to_the_provider(browser_session, provider, lathe):
    browser_session.sign_in_at_provider()
    redirect = httpx.URL(browser_session.change("POST", "/ui/auth/logout").json()["redirect"])
    assert str(redirect).startswith(provider.issuer + "/session/end?")
    assert redirect.params["post_logout_redirect_uri"] == lathe.url + "/ui/login"
    assert browser_session.me().status_code == 401


def test_a_disabled_user_is_out_and_stays_out(browser_session, provider, lathe):
    provider.control(account="bob")
    browser_session.sign_in_at_provider()
    user = browser_session.me().json()["user"]["user_id"]
    operator = httpx.Client(base_url=lathe.url, headers={"X-API-Key": lathe.create_key("default", ["operator"])})
    assert [one["user_id"] for one in operator.get("/api/v1/users").json()["users"]].count(user) == 1
    assert operator.patch(f"/api/v1/users/{user}", json={"disabled": True}).status_code == 200
    assert browser_session.me().status_code == 401
    assert browser_session.sign_in_at_provider() == "/ui/login?error=disabled"
    assert operator.patch(f"/api/v1/users/{user}", json={"disabled": False}).status_code == 200
    assert browser_session.sign_in_at_provider() == "/ui/runs"


def test_a_role_given_here_goes_before_the_groups(browser_session, provider, lathe):
    provider.control(account="eve")
    browser_session.sign_in_at_provider()
    user = browser_session.me().json()["user"]["user_id"]
    admin = {"X-API-Key": lathe.create_key("lab", ["admin"])}
    assert httpx.patch(f"{lathe.url}/api/v1/users/{user}", json={"role": "operator"}, headers=admin).status_code == 403
    assert httpx.patch(f"{lathe.url}/api/v1/users/{user}", json={"role": "viewer"}, headers=admin).status_code == 200
    assert browser_session.me().status_code == 401
    browser_session.sign_in_at_provider()
    assert browser_session.me().json()["role"] == "viewer"
    [session] = httpx.get(f"{lathe.url}/api/v1/users/{user}/sessions", headers=admin).json()["sessions"]
    assert httpx.delete(f"{lathe.url}/api/v1/users/{user}/sessions/{session['session_id']}", headers=admin).status_code == 204
    assert browser_session.me().status_code == 401

"""Signing in with a key, staying signed in, and ending it: what the browser keeps and what the page says."""

import httpx
import pytest
from support.dashboard import HOSTILE, sign_in

pytestmark = pytest.mark.slow

ALERT = "document.querySelector('main [role=alert]')?.innerText"
KEY_FIELD = "document.querySelector('input[name=key]')"


@pytest.fixture
def opened(browser):
    """Opens tabs; every tab is closed."""
    pages = []

    def open_tab(url, **options):
        pages.append(browser.open(url, **options))
        return pages[-1]

    yield open_tab
    for page in pages:
        assert page.complaints() == []
        page.close()


@pytest.fixture
def key(lathe):
    """A key of an operator. Each test has its own: the sign-ins of one key in a minute are bounded."""
    return lathe.create_key("default", ["operator"])


def sign_out(page):
    page.wait_for("document.querySelector('.who summary')")
    page.evaluate("document.querySelector('.who').open = true")
    page.evaluate("[...document.querySelectorAll('.who button')].find((b) => b.innerText === 'Sign out').click()")
    page.wait_for("location.pathname === '/ui/login'")


def test_the_browser_keeps_a_session_that_no_script_reads_and_no_key(opened, lathe, key):
    page = opened(lathe.url + "/ui/queue?x=1")
    page.wait_for("location.pathname === '/ui/login'")
    sign_in(page, key)
    page.wait_for("location.pathname + location.search === '/ui/queue?x=1' && document.querySelector('h1')")
    assert page.evaluate("document.cookie") == ""
    kept = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}])") + page.evaluate("document.documentElement.outerHTML")
    assert key not in kept and key.split("_")[-1] not in kept
    cookies = page.command("Network.getCookies")["cookies"]
    assert len(cookies) == 1 and cookies[0]["httpOnly"] and cookies[0]["sameSite"] == "Lax" and cookies[0]["path"] == "/"
    assert key not in cookies[0]["value"]
    # A reload and another tab are signed in.
    page.go(lathe.url + "/ui/runs")
    page.wait_for("document.querySelector('h1')?.innerText === 'Runs'")
    other = opened(lathe.url + "/ui/workers", beside=page)
    other.wait_for("document.querySelector('h1')?.innerText === 'Workers'")


def test_signing_out_ends_the_session_in_every_tab(opened, lathe, key):
    page = opened(lathe.url + "/ui/queue")
    sign_in(page, key)
    other = opened(lathe.url + "/ui/queue", beside=page)
    other.wait_for("document.querySelector('h1')?.innerText === 'Queue'")
    cookie = page.command("Network.getCookies")["cookies"][0]
    session = {cookie["name"]: cookie["value"]}
    assert httpx.get(lathe.url + "/ui/api/v1/me", cookies=session).status_code == 200
    sign_out(page)
    page.wait_for(KEY_FIELD)
    # The tab asks the server in a few seconds and then says so.
    other.wait_for(f"location.pathname === '/ui/login' && {ALERT}?.includes('ended')")
    assert httpx.get(lathe.url + "/ui/api/v1/me", cookies=session).status_code == 401
    page.go(lathe.url + "/ui/queue")
    page.wait_for(f"location.pathname === '/ui/login' && {KEY_FIELD}")


def test_a_session_ends_with_its_key(opened, lathe):
    key = lathe.create_key("short-lived")
    page = opened(lathe.url + "/ui/queue")
    sign_in(page, key)
    page.wait_for("document.querySelector('h1')?.innerText === 'Queue'")
    assert httpx.delete(lathe.url + "/api/v1/auth/apikey/me", headers={"X-API-Key": key}).status_code == 204
    page.wait_for(f"location.pathname === '/ui/login' && {ALERT}?.includes('ended')")
    sign_in(page, lathe.api_key)
    page.wait_for("location.pathname === '/ui/queue'")


def test_the_shell_says_who_is_signed_in(opened, lathe):
    page = opened(lathe.url + "/ui/keys")
    sign_in(page, lathe.create_key("lab", ["read"]))
    page.wait_for("document.querySelector('.who summary')")
    page.evaluate("document.querySelector('.who').open = true")
    assert "viewer of tenant lab" in page.evaluate("document.querySelector('.who').innerText")


@pytest.mark.parametrize("code,words", [
    ("denied", "provider refused"), ("expired", "took too long"), ("state", "begun elsewhere"), ("token", "could not be verified"),
    ("unmapped", "auth.role_map"), ("disabled", "disabled"), ("provider", "API key works"), ("busy", "Try again"),
    ("nonsense", "Sign in again")])
def test_each_refusal_has_its_remedy(opened, lathe, code, words):
    page = opened(f"{lathe.url}/ui/login?error={code}")
    assert words in page.wait_for(ALERT)
    page.wait_for(KEY_FIELD)


def test_a_hostile_subject_is_text(opened, lathe):
    page = opened(httpx.URL(f"{lathe.url}/ui/login", params={"error": "unmapped", "subject": HOSTILE}).__str__())
    page.wait_for(ALERT)
    assert HOSTILE in page.evaluate("document.querySelector('main code').textContent")
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0


@pytest.mark.parametrize("target", [
    "//evil.example", "/\\\\evil.example", "https://evil.example", "javascript:alert(1)", "/ui/..//evil.example", "/ui//evil.example",
    "/ui/login", "/api/v1/status"])
def test_no_address_but_a_page_of_the_dashboard_follows_the_sign_in(opened, lathe, key, target):
    page = opened(str(httpx.URL(f"{lathe.url}/ui/login", params={"next": target})))
    sign_in(page, key)
    page.wait_for("document.querySelector('.lead')")
    assert page.evaluate("location.href") == lathe.url + "/ui"

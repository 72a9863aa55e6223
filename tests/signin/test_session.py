"""A browser's session: its cookie, what it opens, and what other sites cannot do with it."""

import re
import socket

import httpx
import pytest
from support.user_session import BrowserSession
from support.waiting import wait_until


def code_of(answer):
    return answer.json()["error"]["code"]


def make_key(session, **headers):
    """A change that would be worth forging."""
    return session.change("POST", "/ui/api/v1/keys", {"name": "forged"}, **headers)


def routes(lathe):
    """Method and path of every route of the API, with its parameters filled in."""
    document = httpx.get(lathe.url + "/docs/openapi.json").json()
    return [(method.upper(), re.sub(r"\{\w+\}", "absent", path)) for path, methods in document["paths"].items()
            for method, operation in methods.items() if path.startswith("/api/v1/") and operation.get("security") != []]


def test_the_cookie_is_for_this_service_and_no_script(lathe, key):
    with BrowserSession(lathe.url) as session:
        answer = session.sign_in(key)
        cookie = answer.headers["Set-Cookie"]
        name, _, attributes = cookie.partition("=")
        flags = {part.strip().lower() for part in attributes.split(";")[1:]}
        assert name == f"lathe_session_{httpx.URL(lathe.url).port}"
        assert {"httponly", "samesite=lax", "path=/"} <= flags
        # Plain HTTP on this machine: Secure would keep the cookie from coming back.
        assert "secure" not in flags and not any(flag.startswith("domain") for flag in flags)
        assert key not in cookie
        assert session.me().headers["Cache-Control"] == "no-store"
        assert session.me().json()["role"] == "operator"


def test_a_session_set_before_signing_in_is_not_taken_over(lathe, key):
    with BrowserSession(lathe.url) as session:
        session.sign_in(key)
        [(name, planted)] = session.cookies.items()
        session.sign_in(key)
        assert session.cookies[name] != planted


def test_a_change_by_the_dashboard_itself_passes(session):
    assert make_key(session).status_code == 200
    # Browsers and proxies may leave out both headers that say whose page it is.
    assert make_key(session, Origin=None, Sec_Fetch_Site=None).status_code == 200


@pytest.mark.parametrize("headers,code", [
    ({"csrf": None}, "bad_csrf"), ({"csrf": "0" * 64}, "bad_csrf"),
    ({"Origin": "https://evil.example"}, "bad_origin"), ({"Origin": "null"}, "bad_origin"),
    ({"Sec_Fetch_Site": "cross-site"}, "bad_origin"), ({"Sec_Fetch_Site": "same-site"}, "bad_origin"),
    ({"Origin": None, "Sec_Fetch_Site": "cross-site"}, "bad_origin"),
    ({"Origin": None, "Sec_Fetch_Site": None, "csrf": None}, "bad_csrf")],
    ids=lambda value: str(value) if isinstance(value, dict) else "")
def test_a_change_of_another_site_is_refused(session, headers, code):
    before = session.http.get("/ui/api/v1/keys").json()["cursor"]["total_count"]
    answer = make_key(session, **headers)
    assert (answer.status_code, code_of(answer)) == (403, code)
    assert session.http.get("/ui/api/v1/keys").json()["cursor"]["total_count"] == before


def test_the_proof_of_another_session_is_none(lathe, key, session):
    with BrowserSession(lathe.url) as other:
        other.sign_in(key)
        assert code_of(make_key(session, csrf=other.csrf)) == "bad_csrf"


def test_a_form_of_another_site_neither_changes_nor_signs_in(lathe, key, session):
    for type_of_form in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data; boundary=x"):
        changed = session.http.post("/ui/api/v1/keys", content='{"name": "forged"}', headers={"Content-Type": type_of_form})
        assert changed.status_code in (403, 415), changed.text
        signed_in = httpx.post(lathe.url + "/ui/auth/key", content=f'{{"api_key": "{key}"}}',
                               headers={"Content-Type": type_of_form})
        assert signed_in.status_code in (400, 415) and "Set-Cookie" not in signed_in.headers
    foreign = httpx.post(lathe.url + "/ui/auth/key", json={"api_key": key}, headers={"Origin": "https://evil.example"})
    assert foreign.status_code == 403 and "Set-Cookie" not in foreign.headers


def test_every_route_that_changes_something_wants_the_proof(lathe, session):
    changing = [(method, path) for method, path in routes(lathe) if method != "GET"]
    assert len(changing) > 20
    for method, path in changing:
        answer = session.http.request(method, "/ui" + path, json={} if method in ("POST", "PUT", "PATCH") else None)
        assert (answer.status_code, code_of(answer)) == (403, "bad_csrf"), (method, path, answer.text)
    assert session.me().status_code == 200


def test_the_api_takes_no_cookie(lathe, session):
    for method, path in routes(lathe):
        answer = session.http.request(method, path, headers=session.own_headers(), json={} if method in ("POST", "PUT", "PATCH") else None)
        assert answer.status_code == 401, (method, path, answer.text)


def test_no_key_opens_what_a_session_opens(lathe):
    headers = {"X-API-Key": lathe.api_key}
    for path in ("/ui/api/v1/me", "/ui/api/v1/keys", "/ui/api/v1/status"):
        assert httpx.get(lathe.url + path, headers=headers).status_code == 401, path


def test_no_page_may_frame_the_dashboard(lathe, session):
    for path in ("/ui", "/ui/login", "/ui/keys", "/ui/assets/absent"):
        headers = session.http.get(path).headers
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"], path
        assert headers["X-Frame-Options"] == "DENY", path
    assert not any(name.lower().startswith("access-control-") for name in session.http.get("/ui/api/v1/me").headers)


def test_signing_out_ends_the_session_and_clears_the_browser(lathe, session):
    held = session.cookies
    answer = session.change("POST", "/ui/auth/logout")
    assert answer.status_code == 200 and answer.json() == {"redirect": None}
    assert "storage" in answer.headers["Clear-Site-Data"]
    assert session.cookies == {}
    assert httpx.get(lathe.url + "/ui/api/v1/me", cookies=held).status_code == 401


def test_a_session_ends_with_its_key(lathe):
    key = lathe.create_key("brief")
    with BrowserSession(lathe.url) as session:
        session.sign_in(key)
        assert httpx.delete(lathe.url + "/api/v1/auth/apikey/me", headers={"X-API-Key": key}).status_code == 204
        wait_until(lambda: session.me().status_code == 401)


def test_a_session_does_what_its_key_does(lathe):
    with BrowserSession(lathe.url) as session:
        session.sign_in(lathe.create_key("readers", ["read"]))
        assert session.me().json()["role"] == "viewer"
        assert session.http.get("/ui/api/v1/training_runs").status_code == 200
        assert code_of(session.http.get("/ui/api/v1/keys")) == "missing_scope"
        assert code_of(make_key(session)) == "missing_scope"


@pytest.mark.parametrize("cookie", ["", "x", "a" * 64, "tml-wrong", "a" * 5000, "%00", "\"quoted\""])
def test_a_made_up_session_is_none(lathe, cookie):
    name = f"lathe_session_{httpx.URL(lathe.url).port}"
    answer = httpx.get(lathe.url + "/ui/api/v1/me", headers={"Cookie": f"{name}={cookie}"})
    assert answer.status_code == 401, answer.text


def test_a_cookie_with_a_line_end_is_no_request(lathe):
    url = httpx.URL(lathe.url)
    with socket.create_connection((url.host, url.port)) as connection:
        connection.sendall(b"GET /ui/api/v1/me HTTP/1.1\r\nHost: " + f"{url.host}:{url.port}".encode() +
                           b"\r\nCookie: a=b\x00c\r\nConnection: close\r\n\r\n")
        assert connection.recv(4096).split(b" ")[1] in (b"400", b"401")

"""A provider that lies, dawdles or leads away: nobody gets a session, and keys still sign in."""

import pytest
from support.identity_provider import IS_INSTALLED, WHY_NOT, IdentityProvider
from support.lathe_server import LatheServer, tiny_model
from support.user_session import BrowserSession

pytestmark = pytest.mark.skipif(not IS_INSTALLED, reason=WHY_NOT)

TOKENS = ["alg_none", "alg_none_signed", "key_confusion", "changed_payload", "unknown_kid", "alg_list", "crit", "two_parts", "no_token",
          "wrong_iss", "wrong_aud", "many_aud", "wrong_nonce", "no_nonce", "expired", "future_iat", "no_exp", "no_sub", "long_sub"]


@pytest.fixture(scope="module")
def provider():
    with IdentityProvider("hostile.mjs") as running:
        yield running


@pytest.fixture(scope="module")
def lathe(provider, tmp_path_factory):
    with LatheServer(tiny_model(), args=provider.options(tmp_path_factory.mktemp("options"))) as server:
        yield server


@pytest.fixture
def browser_session(lathe):
    with BrowserSession(lathe.url) as client:
        yield client


def test_the_same_provider_signs_in_while_it_is_honest(browser_session, provider):
    """Else the tests below could not fail."""
    provider.control(variant="good", claims={"groups": ["lab"]})
    assert browser_session.sign_in_at_provider() == "/ui/runs"
    assert browser_session.me().json()["role"] == "member"


@pytest.mark.parametrize("variant", TOKENS)
def test_a_token_that_is_not_what_it_must_be_gives_no_session(browser_session, provider, variant):
    provider.control(variant=variant, claims={"groups": ["operators"]})
    code = "provider" if variant == "no_token" else "token"
    assert browser_session.sign_in_at_provider() == f"/ui/login?error={code}"
    assert browser_session.me().status_code == 401


@pytest.mark.parametrize("variant,code", [("wrong_state", "state"), ("denied", "denied")])
def test_a_callback_that_is_no_answer_gives_no_session(browser_session, provider, variant, code):
    provider.control(variant=variant, claims={"groups": ["operators"]})
    assert browser_session.sign_in_at_provider() == f"/ui/login?error={code}"
    assert browser_session.me().status_code == 401


def test_unknown_keys_do_not_make_the_gateway_ask_again_and_again(browser_session, provider):
    provider.control(variant="unknown_kid", claims={"groups": ["lab"]})
    browser_session.sign_in_at_provider()
    asked = provider.count("/jwks")
    for _ in range(5):
        assert browser_session.sign_in_at_provider() == "/ui/login?error=token"
    assert provider.count("/jwks") <= asked + 1


@pytest.mark.parametrize("kind", ["slow", "redirect", "garbage", "huge"])
def test_a_token_endpoint_that_does_not_answer_holds_up_nobody(browser_session, provider, lathe, kind):
    provider.control(variant=f"{kind}:token", claims={"groups": ["lab"]})
    assert browser_session.sign_in_at_provider() in ("/ui/login?error=provider", "/ui/login?error=token")
    assert provider.count("/elsewhere") == 0
    browser_session.sign_in(lathe.create_key("default"))
    assert browser_session.me().status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("variant", [f"{kind}:discovery" for kind in ("slow", "redirect", "garbage", "huge", "other_host")] +
                         [f"{kind}:jwks" for kind in ("slow", "redirect", "garbage", "huge")])
def test_a_provider_without_sound_metadata_signs_in_nobody_and_keys_still_do(provider, tmp_path, variant):
    """Each with a Lathe of its own, because metadata is kept."""
    provider.control(variant=variant, claims={"groups": ["lab"]})
    with LatheServer(tiny_model(), args=provider.options(tmp_path)) as server, BrowserSession(server.url) as client:
        answer = client.http.get("/ui/auth/login?next=/ui")
        end = answer.headers["Location"]
        if end.startswith(provider.issuer):
            end = client.sign_in_at_provider()
        assert end == "/ui/login?error=provider", (answer.status_code, end)
        assert client.me().status_code == 401 and provider.count("/elsewhere") == 0
        client.sign_in(server.api_key)
        assert client.me().json()["key"] is not None

"""The pages of administrators: keys, tenants and quotas, usage, audit; and what others see of them."""

import httpx
import pytest
from support.dashboard import HOSTILE, sign_in

pytestmark = pytest.mark.slow


def card(title):
    return f"document.querySelector('section[aria-label=\"{title}\"]')"


def click(page, label, within="document"):
    """Presses the button with this text, as soon as it is there."""
    page.wait_for(f"[...({within})?.querySelectorAll('button') ?? []].some((b) => b.innerText === '{label}' && !b.disabled)")
    page.evaluate(f"[...({within}).querySelectorAll('button')].find((b) => b.innerText === '{label}' && !b.disabled).click()")


def fill(page, field, text):
    page.wait_for(field)
    page.evaluate(f"{field}.focus(); {field}.select?.()")
    page.type(text)


def row_of(name):
    return f"[...document.querySelectorAll('tbody tr')].find((row) => row.innerText.includes('{name}'))"


def key_id_of(key):
    return key.removeprefix("tml-").split("_")[0]


def me(lathe, key):
    return httpx.get(f"{lathe.url}/api/v1/auth/apikey/me", headers={"X-API-Key": key})


@pytest.fixture
def operator_key(lathe):
    return lathe.create_key("default", ["operator"])


@pytest.fixture
def opened(browser, lathe):
    """Opens a page with a key of its own; every page is closed."""
    pages = []

    def open_with(key, address):
        page = browser.open(lathe.url + address)
        pages.append(page)
        sign_in(page, key)
        return page

    yield open_with
    for page in pages:
        assert page.complaints() == []
        page.close()


def test_a_key_is_made_shown_once_rotated_and_revoked(opened, lathe):
    page = opened(lathe.create_key("lab", ["admin"]), "/ui/keys")
    click(page, "Make a key")
    fill(page, "document.querySelector('dialog input')", "laptop")
    click(page, "Make it", "document.querySelector('dialog')")
    made = page.wait_for("document.querySelector('dialog pre')?.innerText")
    described = me(lathe, made).json()
    assert described["name"] == "laptop" and described["details"]["org_details"]["name"] == "lab"
    assert sorted(described["scopes"]) == ["checkpoints:write", "read", "sample", "train"]
    assert described["expires_at"] is not None
    click(page, "I have it", "document.querySelector('dialog')")
    page.wait_for("!document.querySelector('dialog')")
    assert made not in page.evaluate("document.documentElement.outerHTML")

    page.wait_for(row_of(key_id_of(made)))
    click(page, "Rotate", row_of(key_id_of(made)))
    page.wait_for("document.querySelector('dialog select')")
    page.evaluate("(() => { const list = document.querySelector('dialog select'); list.value = '0';"
                  " list.dispatchEvent(new Event('change', {bubbles: true})); })()")
    click(page, "Rotate", "document.querySelector('dialog')")
    fresh = page.wait_for("document.querySelector('dialog pre')?.innerText")
    assert me(lathe, made).status_code == 401 and me(lathe, fresh).json()["name"] == "laptop"
    click(page, "I have it", "document.querySelector('dialog')")

    page.wait_for(f"!{row_of(key_id_of(made))} && {row_of(key_id_of(fresh))}")
    click(page, "Revoke", row_of(key_id_of(fresh)))
    assert "refused within 5 s" in page.wait_for("document.querySelector('dialog')?.innerText")
    click(page, "Revoke", "document.querySelector('dialog')")
    page.wait_for(f"!document.querySelector('dialog') && !{row_of(key_id_of(fresh))}")
    assert me(lathe, fresh).status_code == 401
    page.evaluate("document.querySelector('main input[type=checkbox]').click()")
    page.wait_for(f"{row_of(key_id_of(fresh))}?.innerText.includes('revoked')")


def test_the_key_of_the_page_is_not_rotated_at_once(opened, lathe):
    own = lathe.create_key("careful", ["admin"])
    page = opened(own, "/ui/keys")
    page.wait_for(row_of(key_id_of(own)))
    click(page, "Rotate", row_of(key_id_of(own)))
    page.wait_for("document.querySelector('dialog [role=alert]')?.innerText.includes('sign in with the new one')")
    assert page.evaluate("[...document.querySelectorAll('dialog option')].every(({value}) => value !== '0')")
    click(page, "Rotate", "document.querySelector('dialog')")
    fresh = page.wait_for("document.querySelector('dialog pre')?.innerText")
    assert me(lathe, fresh).json()["name"] == me(lathe, own).json()["name"]


def test_a_refusal_stays_in_the_dialog_and_says_why(opened, operator_key):
    page = opened(operator_key, "/ui/keys")
    click(page, "Make a key")
    fill(page, "document.querySelector('dialog input[placeholder^=\"your own\"]')", ".hidden")
    click(page, "Make it", "document.querySelector('dialog')")
    assert "leading dot" in page.wait_for("document.querySelector('dialog [role=alert]')?.innerText")
    page.press("Escape")
    page.wait_for("!document.querySelector('dialog')")


def test_a_tenants_administrator_sees_that_tenant_and_sets_no_limits(opened, lathe):
    lathe.create_key("neighbour")
    page = opened(lathe.create_key("lab", ["admin"]), "/ui/tenants")
    page.wait_for(f"{card('Tenants')}?.querySelector('tbody tr')")
    assert page.evaluate(f"{card('Tenants')}.querySelectorAll('tbody tr').length") == 1
    assert page.evaluate("[...document.querySelectorAll('button')].every(({innerText}) => innerText !== 'Set limits')")
    for address in ("/ui/keys", "/ui/audit"):
        page.go(lathe.url + address)
        page.wait_for("document.querySelector('main tbody tr')")
        assert "neighbour" not in page.text()
        assert not page.evaluate("document.querySelector('input[aria-label=Tenant]')")
    page.go(lathe.url + "/ui/audit?tenant=neighbour")
    assert "scope operator" in page.wait_for("document.querySelector('main [role=alert]')?.innerText")


def test_an_operator_sets_the_limits_of_a_tenant(opened, lathe, operator_key):
    lathe.create_key("limited")
    page = opened(operator_key, "/ui/tenants")
    page.wait_for(row_of("limited"))
    click(page, "Set limits", row_of("limited"))
    field = "[...document.querySelectorAll('dialog label')].find(({innerText}) => innerText.startsWith('Live runs')).querySelector('input')"
    fill(page, field, "-1")
    page.wait_for("document.querySelector('dialog [role=alert]')?.innerText.includes('Live runs')")
    assert page.evaluate("document.querySelector('dialog button.main').disabled")
    fill(page, field, "7")
    click(page, "Set", "document.querySelector('dialog')")
    page.wait_for(f"!document.querySelector('dialog') && {row_of('limited')}.innerText.includes('0 of 7')")
    tenants = httpx.get(f"{lathe.url}/api/v1/tenants", headers={"X-API-Key": operator_key}).json()["tenants"]
    assert next(tenant for tenant in tenants if tenant["name"] == "limited")["quota"]["adapters"] == 7


def test_a_key_without_the_scope_is_told_what_it_needs(opened, lathe):
    page = opened(lathe.create_key("lab", ["read"]), "/ui/tenants")
    for address in ("/ui/tenants", "/ui/audit"):
        page.go(lathe.url + address)
        page.wait_for("document.querySelector('main').innerText.includes('--scope admin')")
    page.go(lathe.url + "/ui/keys")
    page.wait_for(f"{card('You')}?.innerText.includes('lab')")
    assert not page.evaluate(card("Keys"))


def test_the_log_is_filtered_by_object_and_shows_hostile_names_as_text(opened, lathe):
    made = httpx.post(f"{lathe.url}/api/v1/keys", json={"name": HOSTILE[:60]}, headers={"X-API-Key": lathe.api_key}).json()
    page = opened(lathe.api_key, "/ui/audit")
    page.wait_for("document.querySelector('main tbody tr')")
    fill(page, "document.querySelector('input[aria-label=Object]')", made["key_id"])
    page.press("Enter")
    page.wait_for("document.querySelectorAll('main tbody tr').length === 1")
    assert page.evaluate("location.search") == f"?object={made['key_id']}"
    assert HOSTILE[:60] in page.evaluate("document.querySelector('main tbody').textContent")
    page.go(lathe.url + "/ui/keys")
    page.wait_for(row_of(made["key_id"]))
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0


def test_usage_has_the_tokens_of_the_tenants_runs(opened, lathe, run_id, operator_key):
    page = opened(operator_key, "/ui/usage")
    # Three passes of 15 tokens.
    figures = page.wait_for("document.querySelector('.figures')?.innerText")
    assert figures.split()[2] == "45", figures
    assert page.evaluate("document.querySelector('[aria-label=Usage] tbody tr').children[1].innerText") == "hostile-project"
    page.go(lathe.url + "/ui/usage?tenant=absent")
    assert "absent" in page.wait_for("document.querySelector('main [role=alert]')?.innerText")
    empty = opened(lathe.create_key("idle"), "/ui/usage")
    empty.wait_for("document.querySelector('main').innerText.includes('Nothing was used')")

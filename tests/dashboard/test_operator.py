"""Taking a group out of service, and moving a model, as an operator does on the page of the workers."""

import httpx
import pytest
import tinker
from support.dashboard import SOURCE, screenshot_path, sign_in
from support.group_service import GroupService
from support.lathe_server import tiny_model
from tinker import types

pytestmark = pytest.mark.slow

TOKENS = [5, 6, 7, 8, 9, 10, 11]


@pytest.fixture(scope="module")
def service():
    with GroupService({"a": (tiny_model(), "tiny"), "b": (tiny_model(), "tiny")}) as running:
        yield running


@pytest.fixture(scope="module")
def model(service):
    client = tinker.ServiceClient(base_url=service.url, api_key=service.api_key)
    return client.create_lora_training_client("tiny", rank=2, seed=1).result()


def make_key(service, *scopes):
    words = [word for scope in scopes for word in ("--scope", scope)]
    made = service.lathe("keys", "create", "--tenant", "operators", *words).stdout
    return next(word for word in made.split() if word.startswith("tml-"))


@pytest.fixture(scope="module")
def key(service):
    return make_key(service, "operator", "admin")


@pytest.fixture
def page(browser, service, key):
    page = browser.open(service.url + "/ui/workers")
    sign_in(page, key)
    yield page
    page.close()


def step(model):
    datum = types.Datum(model_input=types.ModelInput.from_ints(TOKENS[:-1]),
                        loss_fn_inputs={"target_tokens": TOKENS[1:], "weights": [1.0] * (len(TOKENS) - 1)})
    forward = model.forward_backward([datum], "cross_entropy")
    model.optim_step(types.AdamParams(learning_rate=1e-3)).result()
    return forward.result()


def card(group):
    return f"[...document.querySelectorAll('.card')].find(({{ariaLabel}}) => ariaLabel === '{group}')"


def button(where, text):
    return f"[...{where}.querySelectorAll('button')].find(({{innerText}}) => innerText === '{text}')"


def press_button(page, where, text):
    """With the keyboard alone."""
    page.wait_for(f"{where} && {button(where, text)}")
    page.evaluate(f"{button(where, text)}.focus()")
    page.press("Enter")


def dialog_text(page):
    return page.wait_for("document.querySelector('dialog[open]')?.innerText")


def check_accessible(page):
    page.evaluate((SOURCE / "node_modules/axe-core/axe.min.js").read_text() + "; 0")
    assert page.evaluate(
        "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21aa', 'wcag22aa', 'best-practice']})"
        ".then(({violations}) => violations.map(({id, nodes}) =>"
        " id + ': ' + nodes.map(({html}) => html).join(' ')))") == []


def audit(service, key):
    entries = httpx.get(f"{service.url}/api/v1/audit", headers={"X-API-Key": key}).json()["entries"]
    return [(entry["event"], entry["event_details"]["object"]) for entry in entries
            if entry["event"].startswith("group_")]


def test_a_group_is_taken_out_of_service_and_put_back(page, service, model, key):
    step(model)
    home = service.home_of(model.model_id)
    other = "b" if home == "a" else "a"
    press_button(page, card(home), "Take out of service")
    text = dialog_text(page)
    assert f"Take {home} out of service" in text
    assert "It holds 1 model with 0 unfinished requests." in text
    assert "Requests that run now end here first" in text
    assert f"go to {other}" in text
    page.screenshot(screenshot_path("operator-drain"))
    check_accessible(page)
    press_button(page, "document.querySelector('dialog')", "Take out of service")
    page.wait_for("!document.querySelector('dialog')")
    page.wait_for(f"{card(home)}.innerText.includes('Nothing is left here')")
    assert service.home_of(model.model_id) == other
    step(model)
    # Now the other one cannot be drained, and the page says so before and after the try.
    press_button(page, card(other), "Take out of service")
    assert "can train or sample with tiny: the server will refuse this" in dialog_text(page)
    press_button(page, "document.querySelector('dialog')", "Take out of service")
    page.wait_for("document.querySelector('dialog [role=alert]')?.innerText.includes('no other group')")
    press_button(page, "document.querySelector('dialog')", "Cancel")
    press_button(page, card(home), "Put back into service")
    assert "Models that have moved away stay" in dialog_text(page)
    press_button(page, "document.querySelector('dialog')", "Put back into service")
    page.wait_for(button(card(home), "Take out of service"))
    check_accessible(page)
    assert page.complaints() == []
    assert audit(service, key)[-2:] == [("group_drain", home), ("group_resume", home)]


def test_a_model_is_moved(page, service, model, key):
    step(model)
    home = service.home_of(model.model_id)
    other = "b" if home == "a" else "a"
    page.wait_for(f"{card(home)}?.querySelector('.actions details summary')")
    page.evaluate(f"{card(home)}.querySelector('.actions details summary').click()")
    press_button(page, card(home), "Move…")
    assert model.model_id in dialog_text(page)
    assert page.evaluate("document.querySelector('dialog select').value") == other
    check_accessible(page)
    press_button(page, "document.querySelector('dialog')", "Move")
    page.wait_for(f"{card(other)}.innerText.includes('1 model')")
    assert service.home_of(model.model_id) == other
    assert audit(service, key)[-1] == ("group_take_model", other)
    step(model)


def test_an_admin_of_a_tenant_is_no_operator(browser, service):
    page = browser.open(service.url + "/ui/workers")
    try:
        sign_in(page, make_key(service, "admin"))
        page.wait_for("document.querySelector('main').innerText.includes('2 of 2 groups ready')")
        assert page.evaluate("document.querySelectorAll('.actions').length") == 0
    finally:
        page.close()


def test_a_group_whose_workers_are_gone_is_forgotten(page, service, model):
    step(model)
    home = service.home_of(model.model_id)
    service.wait_snapshot()
    service.remove(home)
    press_button(page, card(home), "Forget this group")
    text = dialog_text(page)
    assert "rebuilt in" in text and "only if its workers have ended for good" in text
    check_accessible(page)
    press_button(page, "document.querySelector('dialog')", "Forget this group")
    page.wait_for(f"!({card(home)})")
    step(model)
    assert service.home_of(model.model_id) != home
